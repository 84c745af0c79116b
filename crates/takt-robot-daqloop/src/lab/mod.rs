//! The DAQ loop in the lab: run directories, long runs that outlive a kill, the paper's two ways to
//! end a test.
//!
//! | file | content | bounded by |
//! |---|---|---|
//! | `samples/edges` | one line per edge that came | `keep_edges` |
//! | `samples/lost_edges` | one line per edge that did not | `keep_edges` |
//! | `samples/display` | the lines that the saving task showed | `keep_edges` |
//! | `late-edges.json` | the late edges with their causes, of a run that was traced and of one that was not | 500 edges |
//! | `latency.json` | every edge counted: recorder, trends of maximum and mean, state of the stop rules | some kilobytes |
//!
//! `latency.json` is part of the run's checkpoint ([`takt_rundir::Checkpoint`]), which is renewed
//! thrice a second. After a kill, `--resume` takes it up and adds the edges of the checkpoint's
//! samples that are newer.

mod keep;
mod late;
mod layout;
mod paper;
mod report;
mod resume;
mod run;
mod standing;
mod state;

pub use crate::plant::serve as far_end;
pub use late::{EdgePlace, ExplainedEdge, LATE_EDGES_FILE, LateEdge, LateEdgeCause, LateEdges, LateKept};
pub use run::KIND;
pub use state::{STATE_FILE, State};
