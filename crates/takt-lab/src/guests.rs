//! Construction of guests: the table `[virtual]` of a campaign file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within};

/// Emulator or virtualiser of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// Emulation that counts instructions: an instruction takes one virtual nanosecond. Default:
    /// nothing that the host does changes a result, and it runs everywhere.
    #[default]
    Tcg,
    /// Emulation in real time, a thread of the host for each CPU: CPUs work at the same time, and
    /// everything that the host does is in the figures.
    TcgRealTime,
    /// The host's processor (KVM), in real time: faster, and as noisy as the host.
    Kvm,
}

/// Settings of guests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guests {
    /// Emulator or virtualiser of the guests.
    pub accelerator: Accelerator,
    /// CPUs of a guest, 1 to 16. Default 1. Counting instructions lets several CPUs take turns of
    /// 25 us: with more than one, a run shows what a kernel puts where, and a wake-up comes up to a
    /// turn late for each CPU that is busy.
    pub cpus: u32,
    /// Memory of a guest, MiB, 256 to 65536. Default 1024: the image is 60 to 100, and the UAV
    /// paper's stress takes 75 % of what is left, whose touching costs time on the host.
    pub memory_mib: u32,
    /// Guests at a time, 1 to 64. Default 2: a guest keeps one CPU of the host busy.
    pub at_once: u32,
    /// Boot parameters of all guests, beside the factors `boot.NAME`. Default none.
    pub boot: Vec<String>,
    /// Longest that a run may take on the host, seconds, 10 to 86400. Default 3600.
    pub limit_s: u32,
    /// Runs `takt trace` instead of `takt run`: the kernel's events beside the robot's. Default
    /// false: tracing slows what it traces.
    pub trace: bool,
    /// Cache of kernels. Default: `takt/kernels` in the user's cache folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            accelerator: Accelerator::Tcg,
            cpus: 1,
            memory_mib: 1024,
            at_once: 2,
            boot: Vec::new(),
            limit_s: 3600,
            trace: false,
            cache: None,
        }
    }
}

impl Guests {
    /// Checks every value.
    ///
    /// # Errors
    /// [`SettingError`] names the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        all_within(
            "virtual.",
            &[
                ("cpus", self.cpus.into(), 1.0, 16.0),
                ("memory_mib", self.memory_mib.into(), 256.0, 65_536.0),
                ("at_once", self.at_once.into(), 1.0, 64.0),
                ("limit_s", self.limit_s.into(), 10.0, 86_400.0),
            ],
        )?;
        let wrong =
            |word: &&String| word.is_empty() || word.chars().any(|c| !c.is_ascii_graphic() || c == '"');
        match self.boot.iter().find(wrong) {
            Some(word) => {
                let no_parameter = format!("{word:?} is not a boot parameter: expected words without spaces");
                Err(SettingError::conflict("virtual.boot", no_parameter))
            }
            None => Ok(()),
        }
    }

    /// Whether time is counted instead of passing.
    pub fn is_virtual_time(&self) -> bool {
        self.accelerator == Accelerator::Tcg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_checked() {
        let guests: Guests = toml::from_str("cpus = 2\naccelerator = \"kvm\"").unwrap();
        assert_eq!((guests.cpus, guests.is_virtual_time(), guests.at_once), (2, false, 2));
        guests.validate().unwrap();
        for text in [
            "cpus = 0",
            "memory_mib = 16",
            "at_once = 100",
            "limit_s = 1",
            "boot = [\"a b\"]",
            "boot = [\"\"]",
        ] {
            let guests: Guests = toml::from_str(text).unwrap();
            let key = text.split(' ').next().unwrap();
            assert!(guests.validate().unwrap_err().to_string().contains(key), "{text}");
        }
        assert!(toml::from_str::<Guests>("cpu = 2").is_err());
    }
}
