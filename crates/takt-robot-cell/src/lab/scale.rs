//! Reductions on a machine that cannot carry a configuration with both networks on every camera's
//! critical path.
//!
//! The rule is applied **once**, before the runs of a bench or campaign, and its outcome becomes
//! part of the configuration that all of them share: policies are compared at equal work. It
//! depends on nothing but the cost of a frame, the processors and the configuration:
//!
//! 1. as configured;
//! 2. with the small segmenter;
//! 3. with the small segmenter and fewer cameras, the last one left out first, down to one;
//! 4. with one camera and fewer frames: half the rate, a third, and so on, down to one frame a
//!    second.
//!
//! The first of these that fits is taken. It fits when judging all frames takes at most `max_share`
//! of all processors, and one frame, with the margin of its reservation, no longer than the
//! perception task's deadline; where no model reaches that, the first condition alone decides, and
//! `why` says that deadlines will be missed.

#![deny(missing_docs)]

use nalgebra::Isometry3;
use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_link_camera::CameraSample;
use takt_perception::{Detections, Engine, ModelSource, Overlay, Perception};
use takt_rt::clock::{monotonic_ns, process_cpu_ns};
use takt_rt::config::{SettingError, within};
use takt_stats::Summary;

use super::CellFile;

/// Runtime of the reservation over the median cost of a frame: images with more in them cost more,
/// and an exhausted budget costs a whole period.
pub const RESERVE: f64 = 1.3;

/// Frames judged before the cost is measured: engines allocate with the first ones.
const WARM_UP: usize = 3;
/// Frames whose cost is measured; the median counts.
const MEASURED: usize = 15;
/// Frame rate of a recording that is replayed at its own pace.
const RECORDED_FPS: f64 = 30.0;
/// Least frame rate.
const MIN_FPS: f64 = 1.0;

/// `[scale]`: asks for the rule, and sets its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleRule {
    /// Most of all processors that judging frames may take, 0.05 to 1. 0.55: reserved with a margin
    /// of 1.3, and beside the SSM task's fifth of a processor, that stays below the 95 % that the
    /// kernel admits, even on one processor.
    pub max_share: f64,
    /// The small segmenter. `builtin:selfie_landscape_144x256`, which has 0.56 of the pixels of
    /// `selfie_square_256`.
    pub small_segmenter: ModelSource,
}

impl Default for ScaleRule {
    fn default() -> Self {
        Self { max_share: 0.55, small_segmenter: ModelSource::Builtin("selfie_landscape_144x256".into()) }
    }
}

impl ScaleRule {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("scale.max_share", self.max_share, 0.05, 1.0)
    }
}

/// Cost of judging one frame with both networks, as processor time, milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCost {
    /// The segmenter.
    pub model: String,
    /// Median cost of a frame.
    pub ms: f64,
}

/// `[scaled]`: what was decided for all runs of a bench or campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// Cameras that are left.
    pub cameras: u32,
    /// Cameras that were configured.
    pub of_cameras: u32,
    /// Frames a second of each.
    pub rate_fps: f64,
    /// Frames a second that were configured.
    pub of_rate_fps: f64,
    /// The segmenter.
    pub model: String,
    /// The segmenter that was configured.
    pub of_model: String,
    /// The detector, which is never given up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detector: String,
    /// SCHED_DEADLINE runtime of each perception task of the configuration that was measured,
    /// milliseconds.
    pub runtime_ms: f64,
    /// Processors that the rule counted with.
    pub cpus: u32,
    /// Reason of the decision, in words.
    pub why: String,
    /// Measured cost of a frame.
    pub cost: Vec<ModelCost>,
}

impl Scaled {
    /// Whether less is run than was configured.
    pub(crate) fn is_less(&self) -> bool {
        self.cameras < self.of_cameras || self.rate_fps < self.of_rate_fps || self.model != self.of_model
    }

    /// In a sentence: what was left out, which networks judge, by which rule.
    pub fn text(&self) -> String {
        let Self { cameras, of_cameras, rate_fps, of_rate_fps, model, of_model, detector, why, .. } = self;
        let what = if self.is_less() { "SCALED DOWN" } else { "not scaled down" };
        let detector = if detector.is_empty() { String::new() } else { format!("detector {detector}, ") };
        format!(
            "{what}: {cameras} of {of_cameras} cameras at {rate_fps:.1} of {of_rate_fps:.1} FPS, {detector}segmenter {model} (configured: \
             {of_model}); {why}; the rule takes the first option that fits: all as configured, the small segmenter, fewer cameras, fewer \
             frames"
        )
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self, cameras: usize) -> Result<(), SettingError> {
        if self.cameras as usize != cameras {
            return Err(SettingError::conflict(
                format!("scaled.cameras = {} with {cameras} [[cameras]]", self.cameras),
                "bench and campaign write [scaled]; omit it",
            ));
        }
        Ok(())
    }
}

/// The configured values, for the rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Cameras.
    pub cameras: u32,
    /// Frames a second of each.
    pub rate_fps: f64,
    /// Deadline of the perception task, milliseconds.
    pub deadline_ms: f64,
}

/// The rule. `costs` are those of the configured and of the small segmenter.
pub fn decide(rule: &ScaleRule, asked: &Asked, costs: &[ModelCost; 2], cpus: u32) -> Scaled {
    let &Asked { cameras, rate_fps, deadline_ms } = asked;
    let [large, small] = costs;
    let in_time = |cost: &ModelCost| cost.ms * RESERVE <= deadline_ms;
    // Without a model that is in time, time is no condition.
    let timely = in_time(large) || in_time(small);
    let share = |cost: &ModelCost, cameras: u32, rate_fps: f64| {
        f64::from(cameras) * rate_fps * cost.ms / 1e3 / f64::from(cpus.max(1))
    };
    let fits = |(cost, cameras, rate_fps): &(&ModelCost, u32, f64)| {
        share(cost, *cameras, *rate_fps) <= rule.max_share && (in_time(cost) || !timely)
    };
    let slower = (2..).map(|part| rate_fps / f64::from(part)).take_while(|rate| *rate >= MIN_FPS);
    let least = (small, 1, rate_fps.min(MIN_FPS));
    let (cost, left, rate) = [(large, cameras, rate_fps), (small, cameras, rate_fps)]
        .into_iter()
        .chain((1..cameras).rev().map(|left| (small, left, rate_fps)))
        .chain(slower.map(|rate| (small, 1, rate)))
        .find(fits)
        .unwrap_or(least);
    let mut why = format!(
        "a frame costs {:.1} ms with {} and {:.1} ms with {}; {cameras} cameras at {rate_fps:.1} FPS would take {:.0} % of {cpus} \
         processors; {:.0} % are allowed, and this takes {:.0} %",
        large.ms,
        large.model,
        small.ms,
        small.model,
        100.0 * share(large, cameras, rate_fps),
        100.0 * rule.max_share,
        100.0 * share(cost, left, rate),
    );
    if !timely {
        why += &format!("; no model judges a frame within {deadline_ms:.1} ms, so deadlines will be missed");
    }
    Scaled {
        cameras: left,
        of_cameras: cameras,
        rate_fps: rate,
        of_rate_fps: rate_fps,
        model: cost.model.clone(),
        of_model: large.model.clone(),
        detector: String::new(),
        // Tenths of a millisecond, upwards: nothing finer is known.
        runtime_ms: ((cost.ms * RESERVE * 10.0).ceil() / 10.0).clamp(0.1, deadline_ms),
        cpus,
        why,
        cost: costs.to_vec(),
    }
}

/// Input of the rule from a configuration.
pub fn asked(file: &CellFile) -> Asked {
    Asked {
        cameras: file.cameras.len() as u32,
        rate_fps: file
            .cameras
            .iter()
            .map(|camera| camera.source.rate_fps().unwrap_or(RECORDED_FPS))
            .fold(MIN_FPS, f64::max),
        deadline_ms: file.tasks.perception.deadline_ms,
    }
}

/// Leaves as many cameras as `scaled` has, at its rate.
pub(super) fn apply_cameras(file: &mut CellFile, scaled: &Scaled) {
    file.cameras.truncate(scaled.cameras as usize);
    for camera in &mut file.cameras {
        camera.source.set_rate_fps(scaled.rate_fps);
    }
}

/// Makes the work of a configuration that of `scaled`: cameras, rate, segmenter. For both sides of
/// a comparison.
pub(crate) fn apply_work(file: &mut CellFile, scaled: &Scaled) {
    apply_cameras(file, scaled);
    file.perception.segmenter.model = ModelSource::from(scaled.model.as_str());
}

/// Puts a decision into the configuration that it was made for. The deadlines stay: less is done,
/// and it is not allowed to be later.
pub fn apply(file: &mut CellFile, scaled: Scaled) {
    apply_work(file, &scaled);
    let perception = &mut file.tasks.perception;
    if scaled.rate_fps < scaled.of_rate_fps {
        perception.period_ms = perception.period_ms.max(1e3 / scaled.rate_fps);
    }
    perception.runtime_ms = scaled.runtime_ms;
    file.scaled = Some(scaled);
}

/// Decides, where a configuration asks for that and nobody has: measures, applies. Takes some
/// seconds then.
///
/// # Errors
/// [`LabError::Config`] when the cost cannot be measured.
pub fn settle(file: &mut CellFile) -> Result<(), LabError> {
    let (Some(rule), None) = (file.scale.clone(), &file.scaled) else { return Ok(()) };
    let costs = measure(file, &rule)?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let scaled = decide(&rule, &asked(file), &costs, cpus as u32);
    let detector = &file.perception.detector;
    let detector = if detector.enabled { detector.model.to_string() } else { "none".to_owned() };
    apply(file, Scaled { detector, ..scaled });
    Ok(())
}

/// Gives `against` what `file` has beside its design: help from the kernel, and load of its own.
fn same_help(file: &CellFile, against: &mut CellFile) {
    let ours = &file.tasks;
    let theirs = &mut against.tasks;
    theirs.timer_slack_ns = ours.timer_slack_ns;
    theirs.hold_cpu_awake = ours.hold_cpu_awake;
    theirs.lock_memory = ours.lock_memory;
    theirs.reclaim = ours.reclaim;
    theirs.visualisation = ours.visualisation;
    theirs.group = ours.group;
    (theirs.ssm_cpus, theirs.perception_cpus) = (ours.ssm_cpus, ours.perception_cpus);
}

/// Fits one or two configurations to this machine, so that both do the same work: as many cameras,
/// as many frames, the same networks, and what is not the design (timer slack, idle states, locked
/// memory, reclaiming, visualisation, placement) as in `file`. The one with a `[scale]` decides,
/// `against` before `file`. With a decision of `before` (a bench that goes on), that one holds.
///
/// # Errors
/// As [`settle`].
pub fn settle_both(
    file: &mut CellFile,
    against: Option<&mut CellFile>,
    before: Option<Scaled>,
) -> Result<Option<Scaled>, LabError> {
    let Some(against) = against else {
        match before {
            Some(scaled) if file.scaled.is_none() && file.scale.is_some() => apply(file, scaled),
            _ => settle(file)?,
        }
        return Ok(file.scaled.clone());
    };
    same_help(file, against);
    let both = file.cameras.len().min(against.cameras.len());
    file.cameras.truncate(both);
    against.cameras.truncate(both);
    let (decider, other) =
        if against.scale.is_some() || against.scaled.is_some() { (against, file) } else { (file, against) };
    match before {
        Some(scaled) if decider.scaled.is_none() && decider.scale.is_some() => apply(decider, scaled),
        _ => settle(decider)?,
    }
    match decider.scaled.clone() {
        Some(scaled) => {
            apply_work(other, &scaled);
            // Its runs say so, too; its reservation stays its own.
            other.scaled = Some(scaled.clone());
            Ok(Some(scaled))
        }
        None => Ok(None),
    }
}

/// Measures what a frame costs with the configured segmenter and with the small one.
///
/// # Errors
/// [`LabError::Config`] with the cause.
pub fn measure(file: &CellFile, rule: &ScaleRule) -> Result<[ModelCost; 2], LabError> {
    let large = &file.perception.segmenter.model;
    let first = cost_of(file, large)?;
    let second =
        if *large == rule.small_segmenter { first.clone() } else { cost_of(file, &rule.small_segmenter)? };
    Ok([first, second])
}

fn cost_of(file: &CellFile, model: &ModelSource) -> Result<ModelCost, LabError> {
    let failed = |error: &dyn std::fmt::Display| {
        LabError::Config(format!("scale: cannot measure the cost of a frame: {error}"))
    };
    let camera = file.cameras.first().ok_or_else(|| failed(&"there is no camera"))?;
    let CameraSample { intrinsics, frames } =
        camera.source.sample(MEASURED).map_err(|error| failed(&error))?;
    let mut config = file.perception.clone();
    config.segmenter.model = model.clone();
    let engine = Engine::open(&config.engine).map_err(|error| failed(&error))?;
    let mut perception =
        Perception::new(&config, 0, intrinsics, &engine, None).map_err(|error| failed(&error))?;
    let pose = camera.mount.at(&Isometry3::translation(0.0, 0.0, 1.0));
    let mut out = Detections::default();
    // The visualisation tasks draw the masks, which perception leaves for them.
    let mut overlay = file.tasks.visualisation.then(|| Overlay::new(intrinsics.width, intrinsics.height));
    let mut costs_ms = Vec::with_capacity(MEASURED);
    for (index, frame) in frames.iter().cycle().take(WARM_UP + MEASURED).enumerate() {
        let mut frame = frame.clone();
        frame.sequence = index as u64 + 1;
        let before_ns = process_cpu_ns();
        perception.process(&frame, Some(&pose), monotonic_ns(), &mut out, overlay.as_mut());
        let took_ns = process_cpu_ns().saturating_sub(before_ns);
        // One that was not judged cost nothing, and says nothing.
        if index >= WARM_UP && out.detected {
            costs_ms.push(took_ns as f64 / 1e6);
        }
    }
    if costs_ms.is_empty() {
        return Err(failed(&format!(
            "no frame of camera \"{}\" went through the networks ({:?}); [scale] is for perception.detector.schedule = \
             \"every-frame\"",
            camera.name, out.health
        )));
    }
    Ok(ModelCost { model: model.to_string(), ms: Summary::of(&mut costs_ms).median })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn costs(large_ms: f64, small_ms: f64) -> [ModelCost; 2] {
        [("large", large_ms), ("small", small_ms)].map(|(model, ms)| ModelCost { model: model.into(), ms })
    }

    const TABLE_I: Asked = Asked { cameras: 5, rate_fps: 30.0, deadline_ms: 33.0 };

    fn scaled(large_ms: f64, small_ms: f64, cpus: u32) -> (u32, f64, String) {
        let s = decide(&ScaleRule::default(), &TABLE_I, &costs(large_ms, small_ms), cpus);
        assert_eq!((s.of_cameras, s.of_rate_fps, s.of_model.as_str()), (5, 30.0, "large"));
        (s.cameras, s.rate_fps, s.model)
    }

    #[test]
    fn the_first_step_that_fits_is_taken() {
        let large = || "large".to_owned();
        let small = || "small".to_owned();
        // The paper's machine: nothing is given up.
        assert_eq!(scaled(10.0, 6.0, 32), (5, 30.0, large()));
        // 5 x 30 x 7 ms take 0.525 of two processors, 5 x 30 x 8 ms 0.6.
        assert_eq!(scaled(7.0, 5.0, 2), (5, 30.0, large()));
        assert_eq!(scaled(8.0, 5.0, 2), (5, 30.0, small()));
        assert_eq!(scaled(20.0, 12.0, 2), (3, 30.0, small()));
        assert_eq!(scaled(40.0, 25.0, 2), (1, 30.0, small()));
        // One processor carries 0.55 of them: 22 frames of 25 ms a second.
        assert_eq!(scaled(40.0, 25.0, 1), (1, 15.0, small()));
        assert_eq!(scaled(1e4, 1e4, 1), (1, 1.0, small()));
    }

    #[test]
    fn a_model_that_misses_the_deadline_alone_is_not_taken_while_another_makes_it() {
        // 64 processors carry either; 1.3 x 30 ms are more than 33 ms.
        assert_eq!(scaled(30.0, 10.0, 64), (5, 30.0, "small".to_owned()));
        let late = decide(&ScaleRule::default(), &TABLE_I, &costs(80.0, 60.0), 64);
        assert_eq!((late.cameras, late.model.as_str(), late.runtime_ms), (5, "large", 33.0));
        assert!(late.why.contains("deadlines will be missed"), "{}", late.why);
        assert!(!late.is_less() && late.text().starts_with("not scaled down"));
    }

    proptest! {
        #[test]
        fn the_same_cost_gives_the_same_decision_and_never_more_than_was_asked(
            large in 0.01f64..1e4, part in 0.1f64..1.0, cpus in 1u32..128, cameras in 1u32..=8, rate in 1.0f64..120.0,
            max_share in 0.05f64..1.0,
        ) {
            let rule = ScaleRule { max_share, ..ScaleRule::default() };
            let asked = Asked { cameras, rate_fps: rate, deadline_ms: 33.0 };
            let costs = costs(large, large * part);
            let once = decide(&rule, &asked, &costs, cpus);
            prop_assert_eq!(&once, &decide(&rule, &asked, &costs, cpus));
            prop_assert!((1..=cameras).contains(&once.cameras) && once.rate_fps <= rate && once.rate_fps > 0.0);
            prop_assert!(once.runtime_ms > 0.0 && once.runtime_ms <= 33.0);
            // More processors never mean less work.
            let more = decide(&rule, &asked, &costs, cpus + 1);
            prop_assert!(more.cameras >= once.cameras && more.rate_fps >= once.rate_fps);
        }
    }

    #[test]
    fn all_runs_of_a_campaign_share_one_decision() {
        static ROBOTS: [&takt_lab::robot::RobotKind; 1] = [&super::super::run::KIND];
        let registry = takt_lab::Registry::new(&ROBOTS).unnamed("cell");
        let mut campaign = takt_lab::campaign::shipped(&registry, "sentryrt1").unwrap();
        let mut decisions = 0;
        let mut decide_once = |file: &mut takt_lab::RobotFile| {
            let file = file.get_mut::<CellFile>().expect("a cell");
            decisions += 1;
            // Another cost at every call: a second one would show.
            let decided =
                decide(&ScaleRule::default(), &asked(file), &costs(20.0, 12.0 * f64::from(decisions)), 2);
            apply(file, decided);
            Ok(())
        };
        let plan = takt_lab::campaign::Plan::resolve_with(&registry, &campaign, &mut decide_once).unwrap();
        assert_eq!((decisions, plan.runs.len(), plan.configs.len()), (1, 5 * 4 * 3, 4));
        let scaled = plan.scaled.as_ref().and_then(takt_lab::robot::Scaled::get::<Scaled>);
        for (name, text) in &plan.configs {
            let file = CellFile::parse(text, name, std::path::Path::new("")).unwrap();
            assert_eq!((file.cameras.len(), file.scaled.as_ref()), (3, scaled.as_ref()), "{name}");
        }
        // A guest's processors are not the ones that would be measured.
        campaign.guests.get_or_insert_default();
        let error =
            takt_lab::campaign::Plan::resolve_with(&registry, &campaign, &mut |_| panic!("not asked"))
                .unwrap_err();
        assert!(error.to_string().contains("[scale] measures this machine"), "{error}");
    }

    #[test]
    fn a_decision_is_part_of_the_configuration_and_is_not_taken_again() {
        let mut file = CellFile::sentryrt1().unwrap();
        assert_eq!((file.cameras.len(), file.scaled.as_ref()), (5, None));
        let rule = file.scale.clone().expect("the paper's configuration scales");
        let decided = decide(&rule, &asked(&file), &costs(20.0, 12.0), 2);
        apply(&mut file, decided.clone());
        let text = toml::to_string(&file).unwrap();
        let mut again = CellFile::parse(&text, "scaled.toml", std::path::Path::new("")).unwrap();
        assert_eq!(again, file);
        settle(&mut again).unwrap();
        assert_eq!(again, file, "what was decided stays");
        assert_eq!((file.cameras.len(), file.tasks.perception.runtime_ms), (3, 15.6));
        // Table I's deadlines stay.
        assert_eq!((file.tasks.perception.deadline_ms, file.tasks.perception.period_ms), (33.0, 33.0));
        // Both sides of a comparison do the same work.
        let mut other = CellFile::demo().unwrap();
        apply_work(&mut other, &decided);
        assert_eq!(asked(&other).cameras, 3);
        assert_eq!(other.perception.segmenter.model, file.perception.segmenter.model);
        // A decision about other cameras is none.
        file.cameras.truncate(1);
        let error =
            CellFile::parse(&toml::to_string(&file).unwrap(), "x", std::path::Path::new("")).unwrap_err();
        assert!(error.to_string().contains("scaled.cameras = 3"), "{error}");
    }
}
