//! The quadrotor: cascaded flight control at 250 Hz, its vehicle simulated beside it.
