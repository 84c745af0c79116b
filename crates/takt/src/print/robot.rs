//! One run of any robot.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use takt_lab::{Event, Ran, RunSummary};

use super::{bar, circumstances, counted, left, number, style};

/// The bar of a run whose length is known, and of one that ends when it is instructed to.
const WITH_END: &str = "{elapsed} {wide_bar} {left}  {msg}";
const WITHOUT_END: &str = "{elapsed}  {msg}";

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// Everything about one run.
pub fn run_summary(s: &RunSummary) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}, {:.1} s", s.robot, s.label, s.seconds);
    let width = s.measures.iter().map(|m| m.title.chars().count()).max().unwrap_or(0).max(2);
    let _ = writeln!(
        out,
        "\n  {:<width$}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}",
        "us", "mean", "median", "P99", "P99.9", "max", "deadline", "misses"
    );
    for measure in &s.measures {
        let us = |value: f64| number((measure.us.count > 0).then_some(value), 1);
        let all = &measure.us;
        let deadline = measure.deadline_us.map_or_else(String::new, |us| format!("{us:.0}"));
        let _ = writeln!(
            out,
            "  {:<width$}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}",
            measure.title,
            us(all.mean),
            us(all.median),
            us(all.p99),
            us(all.p999),
            us(all.worst),
            deadline,
            counted(measure.misses)
        );
    }
    for (name, value) in &s.figures {
        let _ = writeln!(out, "  {name}: {value:.4}");
    }
    out += &circumstances(s.cpu, s.records_lost, &s.not_granted);
    let _ = writeln!(out, "\n{}", s.sentence);
    let _ = writeln!(out, "Run directory: {}", s.run_dir);
    out
}

/// A run's summary: the common one, or the robot's own.
pub fn ran(ran: &Ran) -> String {
    if let Some(common) = ran.common() {
        return run_summary(common);
    }
    #[cfg(feature = "cell")]
    if let Some(cell) = ran.own::<takt_robot_cell::lab::CellSummary>() {
        return super::summary(&cell);
    }
    if let Some(program) = ran.own::<takt_robot_program::ProgramSummary>() {
        return run_summary(&program.run);
    }
    // A summary that nobody puts into words.
    format!("{}: {}\n", ran.dir().path().display(), ran.verdict())
}

/// Progress of a run, on standard error.
pub struct RobotProgress {
    bar: ProgressBar,
    run_dir: Option<PathBuf>,
    silent: bool,
}

impl RobotProgress {
    /// `screen_taken`: a terminal view draws on the screen, so nothing else may; the summary
    /// reports all afterwards.
    pub fn new(screen_taken: bool) -> Self {
        Self { bar: bar(0, WITHOUT_END, |style| style), run_dir: None, silent: screen_taken }
    }

    pub fn see(&mut self, event: &Event<'_>) {
        if let Event::Started { dir, .. } = event {
            self.run_dir = Some(dir.path().to_owned());
        }
        match event {
            _ if self.silent => {}
            Event::Preparing { what } => eprintln!("{what}"),
            Event::Started { dir, not_granted, notes, url } => {
                notes.iter().for_each(|note| eprintln!("{note}"));
                if let Some(line) = super::not_granted(not_granted) {
                    eprintln!("{line}");
                }
                if let Some(url) = url {
                    eprintln!("View: {url}");
                }
                eprintln!("Run directory: {}", dir.path().display());
            }
            Event::Tick { elapsed, of, line } => {
                if let Some(of) = of
                    && self.bar.length() != Some(of.as_millis() as u64)
                {
                    self.bar.set_length(of.as_millis() as u64);
                    self.bar.set_style(left::of_window(style(WITH_END)));
                }
                self.bar.set_position(elapsed.as_millis() as u64);
                self.bar.set_message(line.clone());
            }
        }
    }

    /// Path of the run directory, once it has begun.
    pub fn run_dir(&self) -> Option<&Path> {
        self.run_dir.as_deref()
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
