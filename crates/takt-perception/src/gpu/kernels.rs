//! The kernels by name.

use takt_gpu::{Function, GpuError, Module};

macro_rules! kernels {
    ($($variant:ident = $name:literal,)*) => {
        /// A kernel of `kernels.cu`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kernel {
            $($variant,)*
        }

        /// Their names, in the order of [`Kernel`].
        pub(super) const NAMES: &[&str] = &[$($name,)*];
    };
}

kernels! {
    Layout = "takt_layout",
    Begin = "takt_begin",
    Sample = "takt_sample",
    Rows = "takt_rows",
    Link = "takt_link",
    Gather = "takt_gather",
    Blobs = "takt_blobs",
    Resample = "takt_resample",
    Nanodet = "takt_nanodet",
    Table = "takt_table",
    TableMasks = "takt_table_masks",
    Coverage = "takt_coverage",
    Nearest = "takt_nearest",
    Claim = "takt_claim",
    Settle = "takt_settle",
    Rest = "takt_rest",
    Own = "takt_own",
    Judge = "takt_judge",
    Rim = "takt_rim",
    Measure = "takt_measure",
    MedianCount = "takt_median_count",
    MedianPick = "takt_median_pick",
    Report = "takt_report",
    Paint = "takt_paint",
    Copy = "takt_copy",
}

/// All of them, loaded.
#[derive(Debug)]
pub(super) struct Kernels(Vec<Function>);

impl Kernels {
    pub(super) fn load(module: &Module) -> Result<Self, GpuError> {
        Ok(Self(NAMES.iter().map(|name| module.function(name)).collect::<Result<_, _>>()?))
    }

    pub(super) fn get(&self, kernel: Kernel) -> &Function {
        &self.0[kernel as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_the_source_has_a_name_here_and_the_other_way_round() {
        let text = crate::gpu::KERNELS.text;
        let declared: Vec<&str> = text
            .split("extern \"C\" __global__ void ")
            .skip(1)
            .map(|rest| rest.split('(').next().unwrap_or_default())
            .collect();
        assert!(declared.iter().all(|name| NAMES.contains(name)), "{declared:?}");
        assert!(NAMES.iter().all(|name| declared.contains(name)), "{declared:?}");
        assert_eq!(NAMES[Kernel::Paint as usize], "takt_paint");
        assert_eq!(declared.len(), NAMES.len(), "declared twice");
    }
}
