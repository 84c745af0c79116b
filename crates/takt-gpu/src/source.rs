//! Input of the run-time compiler, before anything is loaded.

/// CUDA C to be compiled at run time, for the device that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its name in errors and cache files.
    pub name: &'static str,
    /// The text. Functions that are launched are `extern "C" __global__`.
    pub text: &'static str,
    /// Options beside the architecture, such as `--fmad=false` where results must equal the CPU's.
    pub options: &'static [&'static str],
}

impl Source {
    /// Names of its kernels, in the order of the text.
    pub fn kernels(&self) -> Vec<&'static str> {
        let declared = self.text.split("extern \"C\" __global__ void ").skip(1);
        declared.filter_map(|rest| rest.split('(').next()).collect()
    }
}
