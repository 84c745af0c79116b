//! A case from its first attempt to what is said of it.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, RwLock};

use super::{ATTEMPTS, Play};
use crate::FaultError;
use crate::case::Case;
use crate::judge::{Findings, Times, judge, leaves_a_stop};
use crate::log::Row;
use crate::report::{CaseReport, Violation};
use crate::witness::Witness;

pub(super) struct Setting<'a> {
    pub(super) takt: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) witness: Witness,
    pub(super) dashboard_known: bool,
    /// Held for reading by cases that others may run beside.
    pub(super) beside: RwLock<()>,
    /// Held while a recording is written.
    pub(super) recording: Mutex<()>,
}

/// Data of a case for the judge.
pub(super) struct Scene {
    /// Whether the robot moved and the fault was planted.
    pub(super) planted: bool,
    pub(super) rows: Vec<Row>,
    pub(super) times: Times,
    /// Whether the cell ended because it was asked to.
    pub(super) in_order: bool,
    pub(super) findings: Vec<Violation>,
    pub(super) summary: Option<serde_json::Value>,
    pub(super) message: String,
}

impl Setting<'_> {
    pub(super) fn try_case(&self, case: &Case) -> Result<CaseReport, FaultError> {
        let mut report = CaseReport {
            name: case.name.clone(),
            kind: case.kind,
            skipped: None,
            commanded_after_ms: None,
            allowed_ms: None,
            taken_ms: 0.0,
            moved_after_ms: None,
            verdict: String::new(),
            violations: Vec::new(),
        };
        // A poisoned lock guards nothing but an order.
        let _shared = (!case.alone).then(|| self.beside.read());
        let _alone = case.alone.then(|| self.beside.write());
        let mut attempt = 1;
        let scene = loop {
            let folder = self.folder.join(format!("{}-{attempt}", case.name.replace('/', "-")));
            let doing = format!("a folder for the case, {}", folder.display());
            fs::create_dir_all(&folder).map_err(FaultError::io(doing))?;
            match Play::start(self, case, &folder)?.perform()? {
                Ok(scene) if scene.planted || attempt == ATTEMPTS => break scene,
                Ok(_) => attempt += 1,
                Err(why) => {
                    report.skipped = Some(why);
                    return Ok(report);
                }
            }
        };
        let mut findings =
            judge(case, &scene.rows, &scene.times, &|from, to| self.witness.taken_ns(case.urgency, from, to));
        findings.violations.splice(0..0, scene.findings.iter().cloned());
        if scene.in_order {
            leaves_a_stop(&scene.rows, &mut findings);
        }
        check_summary(case, &scene, &mut findings);
        let ms = |ns: u64| ns as f64 / 1e6;
        report.commanded_after_ms = findings.commanded_after_ns.map(ms);
        report.allowed_ms = findings.allowed_ns.map(ms);
        report.taken_ms = ms(findings.taken_ns);
        report.moved_after_ms = findings.moved_after_ns.map(ms);
        report.verdict = verdict_words(&scene);
        report.violations = findings.violations;
        Ok(report)
    }
}

fn verdict_words(scene: &Scene) -> String {
    let Some(summary) = &scene.summary else {
        return scene.message.lines().last().unwrap_or_default().to_owned();
    };
    format!("{} {} {}", summary["verdict"], summary["reasons"], summary["stop_causes"])
}

/// The only question to the cell itself.
fn check_summary(case: &Case, scene: &Scene, findings: &mut Findings) {
    let add =
        |findings: &mut Findings, rule, evidence| findings.violations.push(Violation { rule, evidence });
    let words = match &scene.summary {
        // Not the whole summary: its keys, and the name of its folder, hold every word.
        Some(summary) => format!("{} {}", summary["reasons"], summary["stop_causes"]).to_lowercase(),
        None => {
            let reported = scene.message.lines().filter(|line| !line.starts_with("Run directory"));
            reported.collect::<Vec<_>>().join("\n").to_lowercase()
        }
    };
    if !case.words.is_empty() && !case.words.iter().any(|word| words.contains(word)) {
        let rule = "the verdict names what happened";
        add(findings, rule, format!("none of {:?} in: {}", case.words, verdict_words(scene)));
    }
    if case.fails && scene.summary.as_ref().is_some_and(|summary| summary["verdict"] == "PASS") {
        add(findings, "the run does not pass", verdict_words(scene));
    }
    let figures = |summary: &serde_json::Value| {
        summary["verdict"].is_string() && summary["ssm"]["jobs"].as_u64().is_some_and(|jobs| jobs > 0)
    };
    if case.reports && !scene.summary.as_ref().is_some_and(figures) {
        add(findings, "the verdict and the figures are printed", verdict_words(scene));
    }
    if case.reports && !scene.message.contains("not sealed") {
        let message = scene.message.lines().last().unwrap_or_default().to_owned();
        add(findings, "what could not be written is said", message);
    }
    if scene.message.contains("panicked") {
        let line = scene.message.lines().find(|line| line.contains("panicked")).unwrap_or_default();
        add(findings, "no panic", line.to_owned());
    }
}
