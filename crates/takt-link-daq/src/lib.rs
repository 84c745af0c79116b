//! Analog output to analog input: DAQ boards, loopbacks through the kernel, a simulated converter.
