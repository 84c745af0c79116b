//! Reads a kernel's configuration: its preemption model, and whether it can run in a machine
//! without disks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// When a kernel lets a more urgent thread run while it works itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Model {
    /// PREEMPT_RT: nearly everywhere; interrupt handlers are threads.
    #[serde(rename = "PREEMPT_RT")]
    Rt,
    /// PREEMPT: everywhere but under spin locks ("lowlatency" of distributions).
    #[serde(rename = "PREEMPT")]
    Full,
    /// PREEMPT_LAZY: as PREEMPT for real-time threads, at ticks for others.
    #[serde(rename = "PREEMPT_LAZY")]
    Lazy,
    /// PREEMPT_VOLUNTARY: at chosen points.
    #[serde(rename = "PREEMPT_VOLUNTARY")]
    Voluntary,
    /// PREEMPT_NONE: on the way back to user space only.
    #[serde(rename = "PREEMPT_NONE")]
    None,
}

/// A kernel's preemption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Preemption {
    /// The model it starts with.
    pub model: Model,
    /// Whether `preempt=` on the command line can choose another (PREEMPT_DYNAMIC).
    pub dynamic: bool,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rt => "PREEMPT_RT",
            Self::Full => "PREEMPT",
            Self::Lazy => "PREEMPT_LAZY",
            Self::Voluntary => "PREEMPT_VOLUNTARY",
            Self::None => "PREEMPT_NONE",
        })
    }
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dynamic { write!(f, "PREEMPT_DYNAMIC ({})", self.model) } else { self.model.fmt(f) }
    }
}

impl Preemption {
    /// From the text of a kernel's configuration; nothing where it does not say.
    pub(crate) fn of_config(text: &str) -> Option<Self> {
        let set = |option: &str| value(text, option) == Some("y");
        let model = match () {
            () if set("PREEMPT_RT") => Model::Rt,
            () if set("PREEMPT_LAZY") => Model::Lazy,
            () if set("PREEMPT") => Model::Full,
            () if set("PREEMPT_VOLUNTARY") => Model::Voluntary,
            () if set("PREEMPT_NONE") => Model::None,
            () => return None,
        };
        Some(Self { model, dynamic: set("PREEMPT_DYNAMIC") && model != Model::Rt })
    }
}

/// `y`, `m` or another value of an option; nothing where it is not set. `option` has no `CONFIG_`.
pub fn value<'a>(text: &'a str, option: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix("CONFIG_")?.strip_prefix(option)?.strip_prefix('='))
}

/// Options that must be built in to start from an initramfs and to use a serial line.
const NEEDED: &[&str] = &["BLK_DEV_INITRD", "BINFMT_ELF", "SERIAL_8250_CONSOLE", "DEVTMPFS", "PCI", "TMPFS"];
/// Options that must be built in or modules, to send results out.
const NEEDED_AS_MODULE: &[&str] = &["VIRTIO_PCI", "VIRTIO_CONSOLE"];

/// The options that this configuration lacks.
pub(super) fn lacks(text: &str) -> Vec<String> {
    let built_in = NEEDED.iter().filter(|option| value(text, option) != Some("y"));
    let anyhow = NEEDED_AS_MODULE.iter().filter(|option| value(text, option).is_none());
    built_in.chain(anyhow).map(|option| format!("CONFIG_{option}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_what_the_configuration_says() {
        let debian = "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n# CONFIG_PREEMPT is not set\n\
            CONFIG_PREEMPT_DYNAMIC=y\n";
        let generic = Preemption::of_config(debian).unwrap();
        assert_eq!(generic, Preemption { model: Model::Voluntary, dynamic: true });
        assert_eq!(generic.to_string(), "PREEMPT_DYNAMIC (PREEMPT_VOLUNTARY)");
        let rt =
            Preemption::of_config("CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_DYNAMIC=y")
                .unwrap();
        assert_eq!(rt.to_string(), "PREEMPT_RT");
        assert_eq!(Preemption::of_config("CONFIG_SMP=y"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let all: String = NEEDED.iter().map(|option| format!("CONFIG_{option}=y\n")).collect();
        let all = all + "CONFIG_VIRTIO_PCI=m\nCONFIG_VIRTIO_CONSOLE=m\n";
        assert!(lacks(&all).is_empty());
        assert_eq!(lacks(&all.replace("CONFIG_SERIAL_8250_CONSOLE=y", "")), ["CONFIG_SERIAL_8250_CONSOLE"]);
        assert_eq!(lacks(&all.replace("INITRD=y", "INITRD=m")), ["CONFIG_BLK_DEV_INITRD"]);
    }
}
