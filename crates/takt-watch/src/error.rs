//! Errors of watching.

use takt_trace::TraceError;

/// Reason why nothing can be watched, with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Nothing that was named is there.
    #[error("{target}: no such process or thread is running; `ps -eLo pid,tid,comm` lists them")]
    Nobody { target: String },
    /// `--cgroup` names none.
    #[error(
        "--cgroup {path}: there is no such control group; expected a folder with cgroup.procs, its path below /sys/fs/cgroup \
         (system.slice/NAME.service; `systemd-cgls` shows it), or the id of a running container (`docker ps`, `podman ps`)"
    )]
    NoCgroup { path: std::path::PathBuf },
    /// A link cannot be followed.
    #[error(
        "--link {link}: no packet socket: {source}. Fix: run as root, or `setcap cap_net_raw+ep PROGRAM`, or give the container CAP_NET_RAW"
    )]
    Link { link: crate::link::Endpoint, source: std::io::Error },
    /// A bus cannot be followed.
    #[cfg(feature = "ethercat")]
    #[error("--link {link}: {source}")]
    Interface { link: crate::link::Endpoint, source: takt_link_ethercat::segment::raw::InterfaceError },
    /// The part that follows buses was left out when this program was built.
    #[cfg(not(feature = "ethercat"))]
    #[error("--link {link}: this program was built without EtherCAT (the feature `humanoid`)")]
    NoEthercat { link: crate::link::Endpoint },
    /// More links than can be followed.
    #[error("--link is given {given} times; at most {most} are accepted")]
    Links { given: usize, most: usize },
    /// No memory for figures.
    #[error(transparent)]
    Recorder(#[from] takt_stats::RecorderError),
    /// The kernel's events ended.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run directory.
    #[error(transparent)]
    Files(#[from] takt_rundir::Error),
    /// The picture of the worst windows.
    #[error("{path}: {source}")]
    Picture { path: std::path::PathBuf, source: takt_trace::perfetto::PerfettoError },
    #[error("{path}: {source}")]
    File { path: std::path::PathBuf, source: std::io::Error },
}

impl WatchError {
    /// Whether this process may not do it, where another may.
    pub(crate) fn is_of_rights(&self) -> bool {
        match self {
            Self::Link { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            #[cfg(feature = "ethercat")]
            Self::Interface { source, .. } => {
                matches!(source, takt_link_ethercat::segment::raw::InterfaceError::NoRight { .. })
            }
            _ => false,
        }
    }
}
