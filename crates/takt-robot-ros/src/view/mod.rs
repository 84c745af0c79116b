//! Views of the latency manager: a screen in the terminal, and the graph of the learnt model as a
//! page.

mod graph;
mod screen;

pub use graph::{Chain, live_page, page};
pub use screen::draw;
