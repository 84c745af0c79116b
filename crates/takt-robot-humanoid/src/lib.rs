//! The humanoid: 1 kHz motion control of 59 devices over EtherCAT.
