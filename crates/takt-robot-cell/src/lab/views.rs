//! The views of a run: page, terminal screen, or none.

use takt_lab::LabError;
use takt_lab::options::View;
use takt_rt::census::{CensusEntry, Role};
use takt_rt::exchange::Reader;
use takt_rt::policy::Policy;
use takt_view::Urgency;
use takt_view::terminal::TerminalView;

use super::{CellFile, ViewError};
use crate::Cell;
use crate::cell::CameraPorts;
use crate::view::{self, CameraSource, CellStatus, ThreadSummary, ViewServer, ViewSources};

/// The views of a run.
pub(super) enum Views {
    None,
    Web(ViewServer),
    Terminal(TerminalView),
}

impl Views {
    pub(super) fn start(
        file: &CellFile,
        view: View,
        cameras: Vec<CameraPorts>,
        status: Reader<CellStatus>,
    ) -> Result<Self, LabError> {
        let names: Vec<String> = file.cameras.iter().map(|c| c.name.clone()).collect();
        Ok(match view {
            View::None => Self::None,
            View::Web => {
                let cameras = cameras
                    .into_iter()
                    .zip(names)
                    .map(|(ports, name)| CameraSource {
                        name,
                        frames: ports.frames,
                        detections: ports.detections,
                        masks: ports.overlays,
                    })
                    .collect();
                let sources = ViewSources { cameras, status };
                Self::Web(
                    ViewServer::start(file.view.clone(), sources, &file.envelope.name)
                        .map_err(ViewError::from)?,
                )
            }
            View::Terminal => {
                let drawing = view::drawing(status, &file.envelope.name, &names);
                let view = TerminalView::start(Urgency::default(), drawing);
                Self::Terminal(view.map_err(ViewError::from)?)
            }
        })
    }

    pub(super) fn url(&self) -> Option<String> {
        match self {
            Self::Web(server) => Some(server.url()),
            _ => None,
        }
    }

    pub(super) fn user_quit(&self) -> bool {
        matches!(self, Self::Terminal(view) if view.has_ended())
    }

    pub(super) fn stop(self) {
        match self {
            Self::None => {}
            Self::Web(server) => drop(server),
            // Its result no longer matters; the terminal is restored either way.
            Self::Terminal(view) => drop(view.stop()),
        }
    }
}

/// Threads as a view reports them.
pub(super) fn count_threads(cell: &Cell) -> Result<ThreadSummary, LabError> {
    let Some(report) = cell.census()? else { return Ok(ThreadSummary::default()) };
    let living = || report.threads.iter().filter(|t| !t.ended);
    let realtime = |t: &&CensusEntry| t.policy_after.is_some_and(|p| !matches!(p, Policy::Other { .. }));
    Ok(ThreadSummary {
        total: living().count() as u32,
        realtime: living().filter(realtime).count() as u32,
        fallback: living().filter(|t| t.role == Role::Subthread).count() as u32,
        deviating: cell.threads().iter().filter(|t| !t.granted.is_complete()).count() as u32,
    })
}
