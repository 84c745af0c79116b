//! Whether the picture lives: a sensor's noise changes some samples of every image, a frozen one repeats itself.

use takt_link_camera::Frame;

use crate::config::HealthConfig;

/// Tiles along each side of the image. A frozen region is found when it covers a tile, which every region of twice
/// a tile's width and height does, wherever it lies.
const SIDE: usize = 4;
const TILES: usize = SIDE * SIDE;

/// About how many samples are taken of a frame: 400 in a tile, which take microseconds.
const SAMPLES: f64 = 6_400.0;

/// Least samples with depth for a tile's depth to be judged: fewer might repeat themselves by chance. A tile without
/// depth is no free space either, which is for the rules on unseen space to say.
const LEAST_VALID: u32 = 16;

/// How many contents are remembered: a driver that goes round in its ring of buffers without filling them shows a
/// few old pictures in turn. Video4Linux takes up to 32.
const REMEMBERED: usize = 32;

/// Checksums of what a part of the image showed last, and since when it showed nothing new.
#[derive(Clone, Debug)]
struct Content {
    recent: [u64; REMEMBERED],
    next: usize,
    /// `None`: nothing was seen yet.
    since_ns: Option<u64>,
}

impl Content {
    const NEW: Self = Self { recent: [0; REMEMBERED], next: 0, since_ns: None };

    /// Takes a content in and says for how long none was new.
    fn still_for_ns(&mut self, sum: u64, now_ns: u64) -> u64 {
        match self.since_ns {
            Some(since_ns) if self.recent.contains(&sum) => now_ns.saturating_sub(since_ns),
            _ => {
                self.recent[self.next] = sum;
                self.next = (self.next + 1) % REMEMBERED;
                self.since_ns = Some(now_ns);
                0
            }
        }
    }
}

/// What is known of the samples of one tile.
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

    /// Takes in a frame with buffers of its size; true when a part of it is frozen.
    pub(crate) fn is_frozen(&mut self, frame: &Frame, now_ns: u64) -> bool {
        let sums = sample(frame);
        let mut whole = 0;
        let mut frozen = false;
        for (tile, sums) in sums.iter().enumerate() {
            whole = mix(whole, sums.colour);
            let depth = &mut self.depth[tile];
            let mut still_ns = 0;
            if sums.valid >= LEAST_VALID {
                still_ns = depth.still_for_ns(sums.depth, now_ns);
            } else {
                depth.since_ns = None;
            }
            if self.depth_without_noise {
                still_ns = still_ns.min(self.tile_colour[tile].still_for_ns(sums.colour, now_ns));
            }
            frozen |= still_ns > self.frozen_after_ns;
        }
        frozen |= self.colour.still_for_ns(whole, now_ns) > self.frozen_after_ns;
        frozen
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
