//! One camera's frames of a recording: its topics, colour paired with depth, in bounded memory.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use takt_files::quoted;

use super::ReplayConfig;
use super::contents;
use super::fault::Fault;
use super::formats::{self, Picture, Role, Scratch, Type};
use super::limits::{MAX_EDGE_IMAGES, MAX_UNPAIRED_AT_START};
use super::log::Message;
use super::pairing::{Kind, Pairing, Verdict};
use super::parts::Parts;
use super::pixels::{self, PixelError};
use super::topics::{Names, camera_info, is_rectified, present};
use crate::error::CameraError;
use crate::image::ImageError;
use crate::unpaired::Unpaired;
use crate::{Frame, Intrinsics};

/// Streams of the log.
const COLOUR: usize = 0;
const DEPTH: usize = 1;

/// Advice for a missing topic.
const COLOUR_TOPIC: &str = "name another with color_topic";
const DEPTH_TOPIC: &str = "name another with depth_topic; color_only = true replays without depth";
const CALIBRATION: &str = "name another with calibration_topic, or set the camera's `intrinsics`";

/// Images of one topic that were read and not replayed yet.
#[derive(Default)]
struct Waiting {
    first: Option<Picture>,
    second: Option<Picture>,
    /// How often stamps have gone backwards: images of different eras are no pair, whatever their
    /// stamps say.
    era: u64,
    /// The greatest stamp of this era, and its distance from the one before.
    latest_ns: u64,
    interval_ns: u64,
}

/// The calibration that all frames are to have.
struct Calibrated {
    topic: String,
    /// The stream of its topic.
    stream: usize,
    rectified: bool,
    intrinsics: Intrinsics,
}

/// The frames of one camera.
pub(super) struct FrameSource<R> {
    path: PathBuf,
    parts: Parts<R>,
    /// Of colour and depth; depth is empty where only colour is replayed.
    topics: [String; 2],
    /// By file and channel.
    types: HashMap<(usize, u16), Type>,
    waiting: [Waiting; 2],
    pairing: Pairing,
    /// Images dropped in a row because the other topic's stamps went backwards.
    behind: u64,
    calibrated: Option<Calibrated>,
    /// Whether a frame was ever found.
    found: bool,
    /// The frame found last.
    frame: Option<(Picture, Option<Picture>)>,
    scratch: Scratch,
}

impl<R: Read + Seek> FrameSource<R> {
    /// Finds the camera's topics and its intrinsics in the one file `input`.
    pub(super) fn open(input: R, config: &ReplayConfig) -> Result<(Self, Intrinsics), CameraError> {
        let names = Names::new(config);
        let parts = Parts::single(input, &config.path, config.allow_truncated, names.clone())?;
        Self::of(parts, &names, config)
    }

    /// Finds them in the files of a recording.
    pub(super) fn of_files(
        files: Vec<PathBuf>,
        opener: fn(&Path) -> io::Result<R>,
        config: &ReplayConfig,
    ) -> Result<(Self, Intrinsics), CameraError> {
        let names = Names::new(config);
        let parts = Parts::of(files, opener, config.allow_truncated, names.clone());
        Self::of(parts, &names, config)
    }

    fn of(
        mut parts: Parts<R>,
        names: &Names,
        config: &ReplayConfig,
    ) -> Result<(Self, Intrinsics), CameraError> {
        let path = config.path.as_path();
        let needs_calibration = config.intrinsics.is_none();
        parts.define(|channels| {
            let has = |names: &[String]| names.is_empty() || present(names, channels).is_some();
            has(&names.colour) && has(&names.depth) && (!needs_calibration || has(&names.calibration))
        })?;
        let missing = |parts: &Parts<R>, topic: &str, advice: &'static str| CameraError::MissingTopic {
            path: path.into(),
            topic: topic.into(),
            found: contents::listed(&parts.channels()),
            advice,
        };
        let colour = present(&names.colour, &parts.channels());
        let mut source = Self {
            path: path.into(),
            parts,
            topics: [String::new(), String::new()],
            types: HashMap::new(),
            waiting: Default::default(),
            pairing: Pairing::new((config.pairing_ms * 1e6) as u64),
            behind: 0,
            calibrated: None,
            found: false,
            frame: None,
            scratch: Scratch::default(),
        };
        let colour_name = colour.as_ref().unwrap_or(&names.colour[0]).clone();
        let intrinsics = match config.intrinsics {
            Some(intrinsics) => intrinsics,
            None => {
                let of_colour = names.calibration_of(&colour_name);
                source.parts.define(|known| present(&of_colour, known).is_some())?;
                let topic = present(&of_colour, &source.parts.channels());
                let topic = topic.ok_or_else(|| missing(&source.parts, &of_colour[0], CALIBRATION))?;
                source.intrinsics(&topic, &colour_name)?
            }
        };
        let colour = colour.ok_or_else(|| missing(&source.parts, &names.colour[0], COLOUR_TOPIC))?;
        source.topics[COLOUR] = colour;
        if let Some(first) = names.depth.first() {
            let depth = present(&names.depth, &source.parts.channels());
            source.topics[DEPTH] = depth.ok_or_else(|| missing(&source.parts, first, DEPTH_TOPIC))?;
            source.check_types(DEPTH, Role::Depth)?;
            source.check_alignment(&intrinsics)?;
        }
        source.check_types(COLOUR, Role::Colour)?;
        let streams = source.topics.iter().filter(|topic| !topic.is_empty());
        let mut streams: Vec<_> = streams.map(|topic| vec![topic.clone()]).collect();
        if let Some(calibrated) = &mut source.calibrated {
            calibrated.stream = streams.len();
            streams.push(vec![calibrated.topic.clone()]);
        }
        source.parts.select(streams);
        Ok((source, intrinsics))
    }

    /// Starts again at the beginning.
    pub(super) fn rewind(&mut self) {
        self.parts.rewind();
        self.waiting = Default::default();
        self.behind = 0;
        self.pairing.rewind();
        self.frame = None;
    }

    /// Starts again at the beginning as if nothing had been read.
    pub(super) fn restart(&mut self) {
        self.rewind();
        self.pairing = Pairing::new(self.pairing.unpaired().pairing_ns);
    }

    /// When the colour image of the frame found last was logged.
    pub(super) fn log_time_ns(&self) -> u64 {
        self.frame.as_ref().map_or(0, |(colour, _)| colour.log_time_ns)
    }

    /// Images without a partner so far.
    pub(super) fn unpaired(&self) -> Unpaired {
        self.pairing.unpaired()
    }

    /// Frames that were none for want of a partner so far.
    pub(super) fn lost(&self) -> u64 {
        self.pairing.lost()
    }

    fn bad_message(&self, topic: &str, log_time_ns: u64, reason: String) -> CameraError {
        CameraError::BadMessage { path: self.path.clone(), topic: topic.into(), log_time_ns, reason }
    }

    /// Refuses a topic of which some channel has messages of another type.
    fn check_types(&self, stream: usize, role: Role) -> Result<(), CameraError> {
        let topic = &self.topics[stream];
        let channels = self.parts.channels();
        let wrong = channels.iter().find(|c| c.topic == *topic && Type::of(c, role).is_none());
        wrong.map_or(Ok(()), |channel| Err(wrong_type(&self.path, channel, role)))
    }

    fn type_of(&mut self, part: usize, channel: u16, role: Role) -> Result<Type, CameraError> {
        if let Some(known) = self.types.get(&(part, channel)) {
            return Ok(*known);
        }
        let undefined = || {
            let reason = format!("a message of channel {channel}, which is not defined");
            Fault::damaged(reason).of(&self.path)
        };
        let of = self.parts.channel(part, channel).ok_or_else(undefined)?;
        let found = Type::of(of, role).ok_or_else(|| wrong_type(&self.path, of, role))?;
        self.types.insert((part, channel), found);
        Ok(found)
    }

    /// The first calibration of a topic.
    fn calibration(&mut self, topic: &str) -> Result<Option<(Type, Message)>, CameraError> {
        self.types.clear();
        self.parts.select(vec![vec![topic.to_owned()]]);
        let found = match self.parts.next(0)? {
            Some((part, message)) => Some((self.type_of(part, message.channel, Role::Calibration)?, message)),
            None => None,
        };
        self.parts.begin_work();
        self.types.clear();
        Ok(found)
    }

    /// Intrinsics by a calibration topic.
    fn intrinsics(&mut self, topic: &str, colour: &str) -> Result<Intrinsics, CameraError> {
        let Some((of, message)) = self.calibration(topic)? else {
            return Err(CameraError::EmptyTopic { path: self.path.clone(), topic: topic.into() });
        };
        let rectified = of.is_camera_info() && is_rectified(colour);
        let intrinsics = self.decoded(topic, rectified, of, message)?;
        self.calibrated = Some(Calibrated { topic: topic.to_owned(), stream: 0, rectified, intrinsics });
        Ok(intrinsics)
    }

    fn decoded(
        &self,
        topic: &str,
        rectified: bool,
        of: Type,
        message: Message,
    ) -> Result<Intrinsics, CameraError> {
        let log_time_ns = message.log_time_ns;
        formats::calibration(of, message.data)
            .and_then(|calibration| calibration.intrinsics(rectified))
            .map_err(|reason| self.bad_message(topic, log_time_ns, reason))
    }

    /// Refuses a calibration that is another one than the first, up to the frame logged at
    /// `until_ns`: distances of frames behind it would be computed with the wrong one.
    fn check_calibration(&mut self, until_ns: u64) -> Result<(), CameraError> {
        let Some(Calibrated { topic, stream, rectified, intrinsics: first }) = self.calibrated.take() else {
            return Ok(());
        };
        while let Some((part, message)) = self.parts.next_until(stream, until_ns)? {
            let log_time_ns = message.log_time_ns;
            let of = self.type_of(part, message.channel, Role::Calibration)?;
            let found = self.decoded(&topic, rectified, of, message)?;
            if !is_same(&found, &first) {
                return Err(CameraError::CalibrationChanged {
                    path: self.path.clone(),
                    topic,
                    log_time_ns,
                    first: shown(&first),
                    found: shown(&found),
                });
            }
        }
        self.calibrated = Some(Calibrated { topic, stream, rectified, intrinsics: first });
        Ok(())
    }

    /// Refuses depth whose own `camera_info` says that it is another camera's view.
    fn check_alignment(&mut self, colour: &Intrinsics) -> Result<(), CameraError> {
        /// Share of size and focal length that rounding and recalibration explain.
        const TOLERANCE: f64 = 0.01;
        let topic = self.topics[DEPTH].clone();
        let Some(info) = camera_info(&topic) else { return Ok(()) };
        let channels = self.parts.channels();
        let is_info = |of: Type| of.is_camera_info();
        if !channels.iter().any(|c| c.topic == info && Type::of(c, Role::Calibration).is_some_and(is_info)) {
            return Ok(());
        }
        let Some((of, message)) = self.calibration(&info)? else { return Ok(()) };
        let log_time_ns = message.log_time_ns;
        let calibration = formats::calibration(of, message.data)
            .map_err(|reason| self.bad_message(&info, log_time_ns, reason))?;
        // The valid matrix is known only for colour; uncalibrated, it says nothing.
        let views = [calibration.intrinsics(true), calibration.intrinsics(false)];
        let views: Vec<Intrinsics> = views.into_iter().flatten().collect();
        let near = |found: f64, expected: f64, of: f64| (found - expected).abs() <= TOLERANCE * of;
        let same = |view: &Intrinsics| {
            (view.width, view.height) == (colour.width, colour.height)
                && near(view.fx, colour.fx, colour.fx)
                && near(view.fy, colour.fy, colour.fy)
                && near(view.cx, colour.cx, f64::from(colour.width))
                && near(view.cy, colour.cy, f64::from(colour.height))
        };
        let Some(view) = views.first().filter(|_| !views.iter().any(same)) else { return Ok(()) };
        let reason = format!("`{info}` says {}, colour is {}", shown(view), shown(colour));
        Err(CameraError::NotAligned { path: self.path.clone(), topic, reason })
    }

    /// Reads the next image of a topic.
    fn read(&mut self, stream: usize) -> Result<Option<Picture>, CameraError> {
        let Some((part, message)) = self.parts.next(stream)? else { return Ok(None) };
        let role = if stream == COLOUR { Role::Colour } else { Role::Depth };
        let of = self.type_of(part, message.channel, role)?;
        let log_time_ns = message.log_time_ns;
        formats::picture(of, message.data, log_time_ns, &mut self.scratch)
            .map(Some)
            .map_err(|reason| self.bad_message(&self.topics[stream], log_time_ns, reason))
    }

    /// When the oldest image of a topic was taken; `None` at the end.
    fn first(&mut self, stream: usize) -> Result<Option<u64>, CameraError> {
        if self.waiting[stream].first.is_none() {
            self.waiting[stream].first = match self.waiting[stream].second.take() {
                Some(picture) => Some(picture),
                None => self.read(stream)?,
            };
            self.take_time(stream)?;
        }
        Ok(self.waiting[stream].first.as_ref().map(|picture| picture.stamp_ns))
    }

    /// Follows the stamps of a topic. They go backwards where the clock is set back, and then stay
    /// behind; a single image that comes late has successors that are newer than all before.
    fn take_time(&mut self, stream: usize) -> Result<(), CameraError> {
        let Some(stamp_ns) = self.waiting[stream].first.as_ref().map(|picture| picture.stamp_ns) else {
            return Ok(());
        };
        let Waiting { latest_ns, interval_ns, .. } = self.waiting[stream];
        if stamp_ns >= latest_ns {
            if latest_ns > 0 {
                self.waiting[stream].interval_ns = stamp_ns - latest_ns;
            }
            self.waiting[stream].latest_ns = stamp_ns;
        } else if self.second(stream)?.is_some_and(|next_ns| next_ns < latest_ns) {
            self.pairing.stepped_back((latest_ns - stamp_ns).saturating_add(interval_ns));
            self.waiting[stream].era += 1;
            self.waiting[stream].latest_ns = stamp_ns;
        }
        Ok(())
    }

    /// The topic whose oldest image is from before a step that the other one's has behind it.
    fn before_a_step(&mut self) -> Option<Kind> {
        let [colour, depth] = &mut self.waiting;
        let kind = match colour.era.cmp(&depth.era) {
            Ordering::Less => Kind::Colour,
            Ordering::Greater => Kind::Depth,
            Ordering::Equal => {
                self.behind = 0;
                return None;
            }
        };
        if self.behind >= MAX_EDGE_IMAGES {
            // Its clock is another one and was not set: what stamps say holds.
            colour.era = colour.era.max(depth.era);
            depth.era = colour.era;
            self.behind = 0;
            return None;
        }
        self.behind += 1;
        Some(kind)
    }

    /// When the one after it was taken.
    fn second(&mut self, stream: usize) -> Result<Option<u64>, CameraError> {
        if self.waiting[stream].second.is_none() {
            self.waiting[stream].second = self.read(stream)?;
        }
        Ok(self.waiting[stream].second.as_ref().map(|picture| picture.stamp_ns))
    }

    fn has_depth(&self) -> bool {
        !self.topics[DEPTH].is_empty()
    }

    /// The next frame, still encoded; its time stamp, or `None` at the end.
    pub(super) fn next_pair(&mut self) -> Result<Option<u64>, CameraError> {
        loop {
            let colour_ns = self.first(COLOUR)?;
            if !self.has_depth() {
                self.check_until_colour()?;
                return Ok(colour_ns.map(|stamp_ns| self.found(stamp_ns, None)));
            }
            let depth_ns = self.first(DEPTH)?;
            let (Some(colour_ns), Some(depth_ns)) = (colour_ns, depth_ns) else {
                return self.end(colour_ns, depth_ns);
            };
            match self.without_partner(colour_ns, depth_ns)? {
                None => {
                    self.check_until_colour()?;
                    return Ok(Some(self.found(colour_ns, Some(depth_ns))));
                }
                Some(Kind::Colour) => self.drop_first(Kind::Colour, colour_ns, Some(depth_ns)),
                Some(Kind::Depth) => self.drop_first(Kind::Depth, depth_ns, Some(colour_ns)),
            }
            if !self.found && self.pairing.waiting() >= MAX_UNPAIRED_AT_START {
                self.pairing.ended();
                return Ok(None);
            }
        }
    }

    /// Which of the oldest images has no partner; `None`: they are a frame.
    fn without_partner(&mut self, colour_ns: u64, depth_ns: u64) -> Result<Option<Kind>, CameraError> {
        // The last image of a topic has no successor that would tell a step from a late image.
        if colour_ns != depth_ns
            && let Some(kind) = self.before_a_step()
        {
            return Ok(Some(kind));
        }
        Ok(match self.pairing.judge(colour_ns, depth_ns) {
            Verdict::Pair => None,
            Verdict::PairUnlessNext(older) => {
                let (stream, newer_ns) = match older {
                    Kind::Colour => (COLOUR, depth_ns),
                    Kind::Depth => (DEPTH, colour_ns),
                };
                let next_ns = self.second(stream)?;
                let apart_ns = colour_ns.abs_diff(depth_ns);
                next_ns.is_some_and(|ns| ns.abs_diff(newer_ns) < apart_ns).then_some(older)
            }
            Verdict::Alone(older) => Some(older),
        })
    }

    fn check_until_colour(&mut self) -> Result<(), CameraError> {
        let until_ns = self.waiting[COLOUR].first.as_ref().map(|colour| colour.log_time_ns);
        until_ns.map_or(Ok(()), |until_ns| self.check_calibration(until_ns))
    }

    fn drop_first(&mut self, kind: Kind, stamp_ns: u64, other_ns: Option<u64>) {
        self.pairing.alone(kind, stamp_ns, other_ns);
        let stream = if kind == Kind::Colour { COLOUR } else { DEPTH };
        if let Some(picture) = self.waiting[stream].first.take() {
            self.parts.recycle(picture.into_buffer());
        }
    }

    fn found(&mut self, colour_ns: u64, depth_ns: Option<u64>) -> u64 {
        if let Some((colour, depth)) = self.frame.take() {
            self.parts.recycle(colour.into_buffer());
            depth.into_iter().for_each(|depth| self.parts.recycle(depth.into_buffer()));
        }
        let [colour, depth] = &mut self.waiting;
        self.frame = colour.first.take().map(|colour| (colour, depth.first.take()));
        if let Some(depth_ns) = depth_ns {
            self.pairing.paired(colour_ns, depth_ns);
        }
        self.found = true;
        self.parts.begin_work();
        colour_ns
    }

    /// One topic is over: what is left of the other one has no partner.
    fn end(&mut self, colour_ns: Option<u64>, depth_ns: Option<u64>) -> Result<Option<u64>, CameraError> {
        for (stream, kind, stamp_ns) in [(COLOUR, Kind::Colour, colour_ns), (DEPTH, Kind::Depth, depth_ns)] {
            let Some(stamp_ns) = stamp_ns else { continue };
            self.drop_first(kind, stamp_ns, None);
            let second = u64::from(self.waiting[stream].second.take().is_some());
            let left = self.parts.count_left(stream)?;
            self.pairing.left_over(kind, second.saturating_add(left));
        }
        self.pairing.ended();
        Ok(None)
    }

    /// Error that says why the camera has no frames.
    pub(super) fn no_frames(&self) -> CameraError {
        let unpaired = self.pairing.unpaired();
        let empty = |stream: usize| CameraError::EmptyTopic {
            path: self.path.clone(),
            topic: self.topics[stream].clone(),
        };
        if !self.has_depth() || unpaired.colour == 0 {
            return empty(COLOUR);
        }
        if unpaired.depth == 0 {
            return empty(DEPTH);
        }
        let [colour, depth] = self.topics.clone();
        CameraError::NoPartner { path: self.path.clone(), colour, depth, unpaired: Box::new(unpaired) }
    }

    /// Decodes the frame found last into `frame`.
    pub(super) fn decode(&mut self, size: &Intrinsics, frame: &mut Frame) -> Result<(), CameraError> {
        (frame.width, frame.height) = (size.width, size.height);
        let Some((colour, depth)) = &self.frame else {
            return Err(CameraError::Missing("decoding before a frame was found"));
        };
        let size_px = [size.width, size.height];
        pixels::colour(colour, size_px, &mut frame.rgb)
            .map_err(|e| self.pixel_error(&self.topics[COLOUR], colour, e))?;
        let Some(depth) = depth else {
            frame.depth_mm.clear();
            frame.depth_mm.resize(size.pixels(), 0);
            return Ok(());
        };
        let topic = &self.topics[DEPTH];
        let not_aligned =
            |reason| CameraError::NotAligned { path: self.path.clone(), topic: topic.clone(), reason };
        if is_view_of_depth(&depth.frame_id) && depth.frame_id != colour.frame_id {
            return Err(not_aligned(format!(
                "its frame is `{}`, but colour's is `{}`",
                quoted(&depth.frame_id),
                quoted(&colour.frame_id)
            )));
        }
        pixels::depth(depth, size_px, &mut frame.depth_mm).map_err(|e| match e {
            PixelError::Image(ImageError::Size { width, height, found_width, found_height }) => not_aligned(
                format!("it has {found_width}x{found_height} pixels, but colour has {width}x{height}"),
            ),
            other => self.pixel_error(topic, depth, other),
        })
    }

    fn pixel_error(&self, topic: &str, picture: &Picture, error: PixelError) -> CameraError {
        match error {
            PixelError::Image(ImageError::Size { width, height, found_width, found_height }) => {
                CameraError::SizeMismatch {
                    what: format!("{}: topic `{topic}` at {} ns", self.path.display(), picture.log_time_ns),
                    width,
                    height,
                    found_width,
                    found_height,
                }
            }
            PixelError::Image(other) => self.bad_message(topic, picture.log_time_ns, other.to_string()),
            PixelError::Format(reason) => self.bad_message(topic, picture.log_time_ns, reason),
        }
    }
}

/// Whether a frame's name is that of the imager that measures depth, as camera drivers name it:
/// aligned depth is in the frame of colour.
fn is_view_of_depth(frame_id: &str) -> bool {
    ["depth_optical_frame", "infra1_optical_frame", "depth_camera_link"]
        .iter()
        .any(|name| frame_id.ends_with(name))
}

fn shown(it: &Intrinsics) -> String {
    format!("{}x{} with fx {:.1}, cx {:.1}, cy {:.1}", it.width, it.height, it.fx, it.cx, it.cy)
}

/// Whether two calibrations are one, as far as drivers round them.
fn is_same(a: &Intrinsics, b: &Intrinsics) -> bool {
    const TOLERANCE: f64 = 0.001;
    let near = |a: f64, b: f64, of: f64| (a - b).abs() <= TOLERANCE * of;
    (a.width, a.height) == (b.width, b.height)
        && near(a.fx, b.fx, b.fx)
        && near(a.fy, b.fy, b.fy)
        && near(a.cx, b.cx, f64::from(b.width))
        && near(a.cy, b.cy, f64::from(b.height))
}

fn wrong_type(path: &Path, channel: &contents::Channel, role: Role) -> CameraError {
    let name = if channel.schema.is_empty() { "without a schema" } else { &channel.schema };
    CameraError::WrongType {
        path: path.into(),
        topic: channel.topic.clone(),
        expected: role.expected(),
        found: format!("{}, {}", quoted(name), quoted(&channel.encoding)),
    }
}
