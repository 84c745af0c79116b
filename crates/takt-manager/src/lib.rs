//! Latency goals kept on a running system.
