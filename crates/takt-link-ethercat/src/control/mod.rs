//! The control interface: one exchange a cycle for the controller, a cache of the last cycle for everybody else.
