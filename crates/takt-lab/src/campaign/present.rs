//! Kind of the running kernel among the papers' kinds, by its preemption model: a campaign whose
//! factor `kernel` is `detected` takes it from the machine.

use std::path::Path;

use takt_rundir::Machine;

/// The running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentKernel {
    /// `generic`, `lowlatency` or `realtime`.
    pub name: &'static str,
    /// The evidence for it, in a few words.
    pub why: String,
}

/// The kernel that runs, as distributions call the kinds: `realtime` has PREEMPT_RT, `lowlatency`
/// preempts wherever it may (`preempt=full`), `generic` at its own points (`none`, `voluntary`,
/// `lazy`).
pub fn kernel() -> PresentKernel {
    let preemption = Machine::read().preemption.unwrap_or_default();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let built = built_with(Path::new("/boot"), release.trim());
    named(&preemption, built.as_deref())
}

/// Preemption model in the configuration with which the kernel was built.
fn built_with(boot: &Path, release: &str) -> Option<String> {
    // A release is a name within a folder and nothing else.
    if release.is_empty() || release.contains('/') {
        return None;
    }
    let path = boot.join(format!("config-{release}"));
    let text = takt_files::read_to_string(&path, takt_files::CONFIGURATION_BYTES).ok()?;
    let set = |key: &str| text.lines().any(|line| line == format!("{key}=y"));
    let models = [
        ("CONFIG_PREEMPT_NONE", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT", "full"),
    ];
    models.into_iter().find(|(key, _)| set(key)).map(|(_, model)| model.to_owned())
}

/// By the model in force (`PREEMPT_DYNAMIC (voluntary)`), else by the one that was built.
fn named(preemption: &str, built: Option<&str>) -> PresentKernel {
    let of = |name, why: String| PresentKernel { name, why };
    if preemption.starts_with("PREEMPT_RT") {
        return of("realtime", preemption.to_owned());
    }
    let shown = ["none", "voluntary", "lazy", "full"];
    if let Some(model) = shown.into_iter().find(|model| preemption.contains(&format!("({model})"))) {
        let name = if model == "full" { "lowlatency" } else { "generic" };
        return of(name, preemption.to_owned());
    }
    match (preemption, built) {
        // Built so, and not to be changed when it boots.
        ("PREEMPT", _) => of("lowlatency", preemption.to_owned()),
        (_, Some(built)) => {
            let name = if built == "full" { "lowlatency" } else { "generic" };
            of(name, format!("built with preemption \"{built}\""))
        }
        ("", None) => of("generic", "the preemption model is not reported".to_owned()),
        (other, None) => of("generic", format!("{other}, but the model in force cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_in_force_names_the_kernel() {
        for (preemption, built, name) in [
            ("PREEMPT_RT", None, "realtime"),
            ("PREEMPT_RT (full)", Some("full"), "realtime"),
            ("PREEMPT_DYNAMIC (voluntary)", Some("full"), "generic"),
            ("PREEMPT_DYNAMIC (none)", None, "generic"),
            ("PREEMPT_DYNAMIC (lazy)", None, "generic"),
            ("PREEMPT_DYNAMIC (full)", Some("voluntary"), "lowlatency"),
            ("PREEMPT_DYNAMIC", Some("voluntary"), "generic"),
            ("PREEMPT_DYNAMIC", Some("full"), "lowlatency"),
            ("PREEMPT_DYNAMIC", None, "generic"),
            ("PREEMPT", None, "lowlatency"),
            ("", None, "generic"),
        ] {
            assert_eq!(named(preemption, built).name, name, "{preemption}, {built:?}");
        }
    }

    #[test]
    fn the_configuration_of_the_build_is_read_beside_the_kernel() {
        let boot = tempfile::tempdir().unwrap();
        let config =
            "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_PREEMPT_DYNAMIC=y\n";
        std::fs::write(boot.path().join("config-1.2"), config).unwrap();
        assert_eq!(built_with(boot.path(), "1.2").as_deref(), Some("voluntary"));
        std::fs::write(boot.path().join("config-1.3"), "CONFIG_PREEMPT=y\n").unwrap();
        assert_eq!(built_with(boot.path(), "1.3").as_deref(), Some("full"));
        for missing in ["", "1.4", "../1.2"] {
            assert_eq!(built_with(boot.path(), missing), None);
        }
    }
}
