//! The DAQ control loop: pulse train, latency per edge, controllers.
