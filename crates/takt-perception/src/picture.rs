//! Whether the picture lives: a sensor's noise changes some samples of every image, a frozen one
//! repeats itself.

use takt_link_camera::Frame;

use crate::config::HealthConfig;

/// Tiles along each side of the image. A frozen region is found when it covers a tile, which every
/// region of twice a tile's width and height does, wherever it lies.
const SIDE: usize = 4;
const TILES: usize = SIDE * SIDE;

/// About how many samples are taken of a frame: 400 in a tile, which take microseconds.
const SAMPLES: f64 = 6_400.0;

/// Least samples with depth for a tile's depth to be judged: fewer might repeat themselves by
/// chance. A tile without depth is no free space either, which is for the rules on unseen space to
/// say.
const MIN_VALID: u32 = 16;

/// Number of remembered contents: a driver that cycles through its ring of buffers without filling
/// them shows a few old pictures in turn. Video4Linux takes up to 32.
const REMEMBERED: usize = 32;

/// When something was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// When the frame was judged.
    pub(crate) now_ns: u64,
    pub(crate) capture_ns: u64,
}

/// Result of examining a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether a part of it is frozen.
    pub(crate) frozen: bool,
    /// Capture of the frame that showed something new last, in the part that has been still for
    /// longest.
    pub(crate) content_ns: u64,
}

/// Checksums of what a part of the image showed last, and since when it showed nothing new.
#[derive(Clone, Debug)]
struct Content {
    recent: [u64; REMEMBERED],
    next: usize,
    /// `None`: nothing was seen yet.
    since: Option<Moment>,
}

impl Content {
    const NEW: Self = Self { recent: [0; REMEMBERED], next: 0, since: None };

    /// Takes a content in and says when one was new.
    fn still_since(&mut self, sum: u64, at: Moment) -> Moment {
        match self.since {
            Some(since) if self.recent.contains(&sum) => since,
            _ => {
                self.recent[self.next] = sum;
                self.next = (self.next + 1) % REMEMBERED;
                self.since = Some(at);
                at
            }
        }
    }
}

/// Sums over the samples of one tile.
#[derive(Clone, Copy, Default)]
struct Sums {
    depth: u64,
    colour: u64,
    valid: u32,
}

/// Watches the pictures of one camera. Nothing is allocated after [`new`](Self::new).
#[derive(Clone, Debug)]
pub(crate) struct PictureWatch {
    frozen_after_ns: u64,
    depth_without_noise: bool,
    /// Depth of every tile.
    depth: Box<[Content]>,
    /// Colour of every tile, where it may speak for the depth.
    tile_colour: Box<[Content]>,
    /// Colour of the whole image: a part of it may be dark or bright beyond any noise.
    colour: Content,
}

impl PictureWatch {
    pub(crate) fn new(config: &HealthConfig) -> Self {
        let tiles = || vec![Content::NEW; TILES].into_boxed_slice();
        Self {
            frozen_after_ns: u64::from(config.frozen_after_ms) * 1_000_000,
            depth_without_noise: config.depth_without_noise,
            depth: tiles(),
            tile_colour: tiles(),
            colour: Content::NEW,
        }
    }

    /// Takes in a frame with buffers of its size.
    pub(crate) fn look(&mut self, frame: &Frame, at: Moment) -> Look {
        let sums = sample(frame);
        let mut whole = 0;
        let mut longest = at;
        let mut hold = |since: Moment| {
            if since.now_ns < longest.now_ns {
                longest = since;
            }
        };
        for (tile, sums) in sums.iter().enumerate() {
            whole = mix(whole, sums.colour);
            let depth = &mut self.depth[tile];
            let mut since = at;
            if sums.valid >= MIN_VALID {
                since = depth.still_since(sums.depth, at);
            } else {
                depth.since = None;
            }
            if self.depth_without_noise {
                let colour = self.tile_colour[tile].still_since(sums.colour, at);
                since = if colour.now_ns > since.now_ns { colour } else { since };
            }
            hold(since);
        }
        hold(self.colour.still_since(whole, at));
        Look {
            frozen: at.now_ns.saturating_sub(longest.now_ns) > self.frozen_after_ns,
            content_ns: longest.capture_ns,
        }
    }
}

/// One step of a checksum that every sample and every order of samples changes.
fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// Checksums of all tiles: of the same pixels in every frame.
fn sample(frame: &Frame) -> [Sums; TILES] {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let step = ((width as f64 * height as f64 / SAMPLES).sqrt() as usize).max(1);
    let mut sums = [Sums::default(); TILES];
    for v in (step / 2..height).step_by(step) {
        let row = v * SIDE / height * SIDE;
        let depths = &frame.depth_mm[v * width..(v + 1) * width];
        let colours = &frame.rgb[v * width * 3..(v + 1) * width * 3];
        for u in (step / 2..width).step_by(step) {
            let sum = &mut sums[row + u * SIDE / width];
            let depth = depths[u];
            sum.depth = mix(sum.depth, u64::from(depth));
            sum.valid += u32::from(depth != 0);
            let [r, g, b] = [colours[u * 3], colours[u * 3 + 1], colours[u * 3 + 2]];
            sum.colour = mix(sum.colour, u64::from(r) << 16 | u64::from(g) << 8 | u64::from(b));
        }
    }
    sums
}
