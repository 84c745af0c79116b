//! The proof of a network: two shipped pictures whose people are known.
//!
//! A network whose output is misread does not fail: it gives boxes of other numbers, or none, and a
//! run that sees nobody looks like a run in which nobody was there. So a detector must find the
//! people of two pictures in their places before it is used, and a segmenter must cover them. The
//! people stand at different places in the two, so that an answer that does not depend on the
//! picture cannot pass. A network is proved once in a process; every camera then uses the result.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use takt_link_camera::image::decode_jpeg;

use crate::config::{DetectorConfig, DetectorSchedule, PerceptionConfig, SegmenterConfig};
use crate::detector::{Candidate, DetectionSet, Detector, Infer, Reading, conclude};
use crate::engine::{Engine, EngineConfig, EngineError, Provider};
use crate::image::{Letterbox, Resampler, iou};
use crate::segmenter::{self, MaskCrop, Segmenter};

/// Width and height of both pictures.
const SIZE: [u32; 2] = [384, 288];

/// A picture and its people.
struct Picture {
    name: &'static str,
    jpeg: &'static [u8],
    /// Whole people: left, top, right, bottom.
    people: &'static [[f32; 4]],
    /// People whom the border cuts: they may be found or not.
    ignored: &'static [[f32; 4]],
}

static PICTURES: [Picture; 2] = [
    Picture {
        name: "crossing",
        jpeg: include_bytes!("crossing.jpg"),
        people: &[
            [48.0, 48.0, 77.0, 117.0],
            [74.0, 78.0, 110.0, 161.0],
            [147.0, 46.0, 187.0, 131.0],
            [245.0, 26.0, 270.0, 100.0],
        ],
        ignored: &[],
    },
    Picture {
        name: "plaza",
        jpeg: include_bytes!("plaza.jpg"),
        people: &[[131.0, 58.0, 156.0, 130.0], [258.0, 86.0, 288.0, 164.0], [328.0, 71.0, 352.0, 138.0]],
        ignored: &[[0.0, 82.0, 13.0, 148.0], [376.0, 175.0, 384.0, 222.0]],
    },
];

/// Least overlap (intersection over union) of a box with the person it has found.
const SAME: f32 = 0.5;

impl Picture {
    fn rgb(&self) -> Result<Vec<u8>, EngineError> {
        let mut rgb = Vec::new();
        decode_jpeg(self.jpeg, SIZE[0], SIZE[1], &mut rgb)
            .map_err(|error| EngineError::Run(format!("the picture `{}`: {error}", self.name)))?;
        Ok(rgb)
    }

    /// So many people must be found: more than half.
    fn least(&self) -> usize {
        self.people.len() / 2 + 1
    }

    /// Counts the people found, each by a separate box, and the boxes elsewhere.
    fn judge(&self, found: &DetectionSet) -> (usize, usize) {
        let mut taken = vec![false; self.people.len()];
        let mut elsewhere = 0;
        for detection in found.detections() {
            let overlap = |person: &[f32; 4]| iou(&detection.box_px, person);
            let best = (0..self.people.len())
                .filter(|&person| !taken[person])
                .max_by(|&a, &b| overlap(&self.people[a]).total_cmp(&overlap(&self.people[b])));
            match best.filter(|&person| overlap(&self.people[person]) >= SAME) {
                Some(person) => taken[person] = true,
                None if self.ignored.iter().any(|person| overlap(person) > 0.1) => {}
                None => elsewhere += 1,
            }
        }
        (taken.iter().filter(|&&taken| taken).count(), elsewhere)
    }
}

/// Score of a reading.
struct Score {
    found: usize,
    elsewhere: usize,
    confidence: f32,
}

/// Chooses the reading that finds the people; of several the one that finds most, elsewhere least.
/// `infer` runs the network once; `model` is its name for errors.
///
/// # Errors
/// [`EngineError::Unproved`] with what each reading found; what the inference gives.
pub(crate) fn choose<E: From<EngineError>>(
    readings: &[Reading],
    size: [usize; 2],
    config: &DetectorConfig,
    model: &str,
    infer: &mut Infer<'_, E>,
) -> Result<Reading, E> {
    if config.accept_unproved {
        return match readings {
            [reading] => Ok(*reading),
            several => {
                let names = several.iter().map(|reading| reading.layout.name());
                let found = names.collect::<Vec<_>>().join(" and ");
                Err(EngineError::Ambiguous { model: model.into(), found }.into())
            }
        };
    }
    let mut best: Option<(Score, Reading)> = None;
    let mut tried = Vec::new();
    for reading in readings {
        match score(reading, size, config, infer)? {
            Ok(score) => {
                let better = best.as_ref().is_none_or(|(best, _)| {
                    (score.found, best.elsewhere) > (best.found, score.elsewhere)
                        || (score.found, score.elsewhere) == (best.found, best.elsewhere)
                            && score.confidence > best.confidence
                });
                if better {
                    best = Some((score, *reading));
                }
            }
            Err(reason) => tried.push(format!("as {}: {reason}", reading.layout.name())),
        }
    }
    match best {
        Some((_, reading)) => Ok(reading),
        None => {
            let (person_class, threshold) = (config.person_class, config.threshold);
            let tried = tried.join("; ");
            Err(EngineError::Unproved { model: model.into(), tried, person_class, threshold }.into())
        }
    }
}

/// Result of a reading on all pictures; the inner error explains why it is not the right one.
fn score<E: From<EngineError>>(
    reading: &Reading,
    [height, width]: [usize; 2],
    config: &DetectorConfig,
    infer: &mut Infer<'_, E>,
) -> Result<Result<Score, String>, E> {
    let mut letterbox = Letterbox::new(width, height);
    let mut input = vec![0.0; 3 * height * width];
    let mut all = Score { found: 0, elsewhere: 0, confidence: 0.0 };
    let (mut candidates, mut kept): (Vec<Candidate>, Vec<Candidate>) = (Vec::new(), Vec::new());
    for picture in &PICTURES {
        letterbox.fill(&picture.rgb()?, SIZE[0], SIZE[1], reading.normalisation, &mut input);
        let outputs = infer(&input)?;
        if let Err(found) = reading.decoder.check_scores(&outputs) {
            return Ok(Err(format!("it gives {found}; scores are 0 to 1")));
        }
        candidates.clear();
        let size = [height, width];
        reading.decoder.decode(&outputs, size, config.person_class, config.threshold, &mut candidates);
        if let Err(found) = reading.decoder.plausible(&candidates, size) {
            return Ok(Err(format!("it gives {found}")));
        }
        let mut set = DetectionSet::default();
        conclude(&mut candidates, &mut kept, config.nms_iou, &letterbox, SIZE, &mut set);
        let (found, elsewhere) = picture.judge(&set);
        if found < picture.least() || elsewhere > found {
            return Ok(Err(format!(
                "on the picture `{}` it finds {found} of {} people in their places and gives {elsewhere} boxes \
                 elsewhere; needed: at least {} people, and no more boxes elsewhere than people",
                picture.name,
                picture.people.len(),
                picture.least()
            )));
        }
        all.found += found;
        all.elsewhere += elsewhere;
        all.confidence += set.detections().iter().map(|detection| detection.score).sum::<f32>();
    }
    Ok(Ok(all))
}

/// Least share of a person's box that a mask must cover: real masks cover 0.28 and more.
const COVERED: f32 = 0.2;

/// Proves a segmenter: its masks cover people and leave out what is around them.
///
/// # Errors
/// [`EngineError::Interface`] with what was found; what the inference gives.
pub(crate) fn prove_segmenter<E: From<EngineError>>(
    [height, width]: [usize; 2],
    config: &SegmenterConfig,
    model: &str,
    infer: &mut Infer<'_, E>,
) -> Result<(), E> {
    if config.accept_unproved {
        return Ok(());
    }
    let misfit = |found: String| {
        EngineError::Interface {
        model: model.into(),
        expected:
            "a mask of 0 to 1 that covers the people in Takt's own pictures (with `accept_unproved = true`, the segmenter runs without \
             this proof)"
                .into(),
        found,
    }
    };
    let picture = &PICTURES[0];
    let rgb = picture.rgb()?;
    let mut input = vec![0.0; 3 * height * width];
    let mut resampler = Resampler::default();
    let (mut good, mut seen) = (0, Vec::new());
    for person in picture.people {
        let (origin, scale) = segmenter::crop_of(person, [width, height], config.crop_factor);
        resampler.prepare([width, height], origin, [scale; 2], SIZE);
        resampler.fill(&rgb, SIZE[0], &segmenter::NORMALISATION, &mut input);
        let outputs = infer(&input)?;
        let values = outputs.first().map_or(&[][..], |tensor| &tensor.data);
        if values.len() != height * width {
            return Err(misfit(format!("a mask of {} values", values.len())).into());
        }
        if let Some(value) = values.iter().find(|value| !(-0.01..=1.01).contains(*value)) {
            return Err(misfit(format!("the value {value}")).into());
        }
        let mut mask = MaskCrop::default();
        mask.place([width, height], origin, scale);
        mask.values = values.to_vec();
        let inside = mask.coverage(person, config.threshold);
        let [columns, rows] = mask.lattice(person);
        let all = values.iter().filter(|&&value| value >= config.threshold).count() as f32;
        let in_box = (columns.len() * rows.len()) as f32;
        let outside = (all - inside * in_box) / ((height * width) as f32 - in_box).max(1.0);
        good += usize::from(inside >= COVERED && outside <= inside / 2.0);
        seen.push(format!("{inside:.2} inside and {outside:.2} outside of a person's box"));
    }
    if good < picture.least() {
        return Err(misfit(format!("a mask that covers {}", seen.join(", "))).into());
    }
    Ok(())
}

/// Loads and proves the networks of a configuration on the CPU, as a start does; a sentence for
/// each.
///
/// # Errors
/// The error of a start: a missing engine, a refused file, a network that does not find people.
pub fn prove_networks(config: &PerceptionConfig) -> Result<Vec<String>, EngineError> {
    let mut reports = Vec::new();
    if !(config.detector.enabled || config.segmenter.enabled) {
        return Ok(reports);
    }
    // A GPU's provider may be missing where a file is only checked; the networks are the same.
    let engine = Engine::open(&EngineConfig { provider: Provider::Cpu, ..config.engine.clone() })?;
    let unproved = |accepted: bool| if accepted { "not proved (accept_unproved)" } else { "finds people" };
    let mut masks = false;
    if config.detector.enabled {
        let detector = Detector::new(&engine, &config.detector)?;
        masks = detector.has_masks() && config.detector.schedule == DetectorSchedule::EveryFrame;
        let (model, outcome) = (&config.detector.model, unproved(config.detector.accept_unproved));
        reports.push(format!("detector {model}: layout {}, {outcome}", detector.layout().name()));
    }
    if config.segmenter.enabled && !masks {
        Segmenter::new(&engine, &config.segmenter)?;
        let outcome = unproved(config.segmenter.accept_unproved);
        reports.push(format!("segmenter {}: {outcome}", config.segmenter.model));
    }
    reports.push(format!("networks run in: {}", engine.description()));
    Ok(reports)
}

/// Proofs of this process: the readings of detectors, by their inputs. Segmenters have an entry
/// without one.
static PROVED: Mutex<Option<HashMap<String, Option<Reading>>>> = Mutex::new(None);

/// Result of `make`, computed once for each `key` in this process; errors are not kept.
pub(crate) fn once<E>(
    key: String,
    make: impl FnOnce() -> Result<Option<Reading>, E>,
) -> Result<Option<Reading>, E> {
    let known = |proved: &Option<HashMap<String, Option<Reading>>>| proved.as_ref()?.get(&key).copied();
    if let Some(reading) = known(&PROVED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(reading);
    }
    let made = make()?;
    let mut proved = PROVED.lock().unwrap_or_else(PoisonError::into_inner);
    proved.get_or_insert_default().insert(key, made);
    Ok(made)
}

#[cfg(test)]
mod tests;
