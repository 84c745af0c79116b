//! What the kernel did: activation paths, the cause of every late release, Perfetto export.
