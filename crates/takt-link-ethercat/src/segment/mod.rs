//! A segment of EtherCAT sub-devices in software.
