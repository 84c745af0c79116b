//! Universal Robots RTDE: the client, and the simulated controller beside it.
