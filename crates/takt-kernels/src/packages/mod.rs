//! Kernels: from the distribution's packages or by path.
