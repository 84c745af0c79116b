//! Boxes, resizing and normalisation: what stands between a frame and a network.

/// Order and scale of the channels that a network wants: `(value - mean) * scale`, channel 0 first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Normalisation {
    /// Byte of R G B for each channel.
    pub(crate) order: [usize; 3],
    pub(crate) mean: [f32; 3],
    pub(crate) scale: [f32; 3],
    /// Grey value of the padding.
    pub(crate) padding: f32,
}

/// Area of overlap over area of union of two boxes (left, top, right, bottom); 0 for empty boxes.
pub(crate) fn iou(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let overlap = intersection(a, b);
    let union = area(a) + area(b) - overlap;
    if union > 0.0 { overlap / union } else { 0.0 }
}

pub(crate) fn intersection(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let width = a[2].min(b[2]) - a[0].max(b[0]);
    let height = a[3].min(b[3]) - a[1].max(b[1]);
    width.max(0.0) * height.max(0.0)
}

pub(crate) fn area(a: &[f32; 4]) -> f32 {
    (a[2] - a[0]).max(0.0) * (a[3] - a[1]).max(0.0)
}

/// A box widened by `share` of its size on every side.
pub(crate) fn widen(a: &[f32; 4], share: f32) -> [f32; 4] {
    let (x, y) = ((a[2] - a[0]) * share, (a[3] - a[1]) * share);
    [a[0] - x, a[1] - y, a[2] + x, a[3] + y]
}

/// One output pixel along one axis: two source pixels and the weight of the second.
#[derive(Clone, Copy, Debug, Default)]
struct Tap {
    first: u32,
    second: u32,
    weight: f32,
    inside: bool,
}

/// Bilinear resampling of a window of an 8-bit R G B image into planar floats. Pixel centres are at
/// half integers, as in OpenCV's `INTER_LINEAR`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resampler {
    columns: Vec<Tap>,
    rows: Vec<Tap>,
}

impl Resampler {
    /// Prepares an output of `size` (width, height) whose pixel `i` lies at source coordinate
    /// `origin + (i + 0.5) * scale`. Pixels outside the source are padding.
    pub(crate) fn prepare(&mut self, size: [usize; 2], origin: [f32; 2], scale: [f32; 2], source: [u32; 2]) {
        for (axis, taps) in [&mut self.columns, &mut self.rows].into_iter().enumerate() {
            taps.clear();
            let last = source[axis] as i64 - 1;
            taps.extend((0..size[axis]).map(|i| {
                let at = origin[axis] + (i as f32 + 0.5) * scale[axis];
                let centre = at - 0.5;
                let floor = centre.floor();
                Tap {
                    first: (floor as i64).clamp(0, last) as u32,
                    second: (floor as i64 + 1).clamp(0, last) as u32,
                    weight: centre - floor,
                    inside: at >= 0.0 && at < source[axis] as f32,
                }
            }));
        }
    }

    /// Fills `out` (three planes of the prepared size).
    pub(crate) fn fill(&self, rgb: &[u8], source_width: u32, norm: &Normalisation, out: &mut [f32]) {
        let plane = self.columns.len() * self.rows.len();
        let (first, rest) = out.split_at_mut(plane);
        let (second, third) = rest.split_at_mut(plane);
        let padding: [f32; 3] = std::array::from_fn(|c| (norm.padding - norm.mean[c]) * norm.scale[c]);
        let offset: [f32; 3] = std::array::from_fn(|c| -norm.mean[c] * norm.scale[c]);
        let width = self.columns.len();
        for (y, row) in self.rows.iter().enumerate() {
            let range = y * width..(y + 1) * width;
            let planes = [&mut first[range.clone()], &mut second[range.clone()], &mut third[range]];
            if !row.inside {
                for (plane, value) in planes.into_iter().zip(padding) {
                    plane.fill(value);
                }
                continue;
            }
            let stride = source_width as usize * 3;
            let top = &rgb[row.first as usize * stride..][..stride];
            let bottom = &rgb[row.second as usize * stride..][..stride];
            let [p0, p1, p2] = planes;
            let targets = p0.iter_mut().zip(p1.iter_mut()).zip(p2.iter_mut());
            for (tap, ((a, b), c)) in self.columns.iter().zip(targets) {
                if !tap.inside {
                    (*a, *b, *c) = (padding[0], padding[1], padding[2]);
                    continue;
                }
                let (left, right) = (tap.first as usize * 3, tap.second as usize * 3);
                let (tl, tr) = (&top[left..left + 3], &top[right..right + 3]);
                let (bl, br) = (&bottom[left..left + 3], &bottom[right..right + 3]);
                let value = |channel: usize| {
                    let byte = norm.order[channel];
                    let (tl, tr) = (f32::from(tl[byte]), f32::from(tr[byte]));
                    let (bl, br) = (f32::from(bl[byte]), f32::from(br[byte]));
                    let upper = tl + (tr - tl) * tap.weight;
                    let lower = bl + (br - bl) * tap.weight;
                    (upper + (lower - upper) * row.weight) * norm.scale[channel] + offset[channel]
                };
                *a = value(0);
                *b = value(1);
                *c = value(2);
            }
        }
    }
}

/// A whole image, scaled to fit a network's input with its aspect ratio kept, centred, the rest
/// padded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letterbox {
    size: [usize; 2],
    source: [u32; 2],
    origin: [f32; 2],
    /// Source pixels for each input pixel.
    scale: f32,
    resampler: Resampler,
}

impl Letterbox {
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Self { size: [width, height], ..Self::default() }
    }

    pub(crate) fn fill(
        &mut self,
        rgb: &[u8],
        width: u32,
        height: u32,
        norm: &Normalisation,
        out: &mut [f32],
    ) {
        self.prepare(width, height);
        self.resampler.fill(rgb, width, norm, out);
    }

    /// Prepares for images of that size.
    pub(crate) fn prepare(&mut self, width: u32, height: u32) {
        if self.source != [width, height] {
            self.source = [width, height];
            let scale = |axis: usize| self.source[axis] as f32 / self.size[axis] as f32;
            self.scale = scale(0).max(scale(1));
            let origin = |axis: usize| (self.source[axis] as f32 - self.size[axis] as f32 * self.scale) / 2.0;
            self.origin = [origin(0), origin(1)];
            self.resampler.prepare(self.size, self.origin, [self.scale; 2], self.source);
        }
    }

    /// Source coordinate of the input's corner, and source pixels for each input pixel.
    pub(crate) fn window(&self) -> ([f32; 2], f32) {
        (self.origin, self.scale)
    }

    /// A box of the network's input in pixels of the source.
    pub(crate) fn undo(&self, box_px: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| self.origin[i % 2] + box_px[i] * self.scale)
    }

    /// Scale and offset from source pixels to input pixels, per axis.
    pub(crate) fn forward(&self) -> (f32, [f32; 2]) {
        (1.0 / self.scale, [-self.origin[0] / self.scale, -self.origin[1] / self.scale])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Normalisation =
        Normalisation { order: [0, 1, 2], mean: [0.0; 3], scale: [1.0; 3], padding: 7.0 };

    #[test]
    fn letterbox_keeps_the_aspect_ratio_and_pads_evenly() {
        let rgb = vec![100u8; 8 * 4 * 3];
        let mut letterbox = Letterbox::new(16, 16);
        let mut out = vec![0.0; 3 * 256];
        letterbox.fill(&rgb, 8, 4, &PLAIN, &mut out);
        for y in 0..16 {
            let expected = if (4..12).contains(&y) { 100.0 } else { 7.0 };
            assert!(out[y * 16..(y + 1) * 16].iter().all(|&v| v == expected), "row {y}");
        }
        assert_eq!(letterbox.undo([0.0, 4.0, 16.0, 12.0]), [0.0, 0.0, 8.0, 4.0]);
        let (scale, offset) = letterbox.forward();
        assert_eq!((8.0 * scale + offset[0], 4.0 * scale + offset[1]), (16.0, 12.0));
    }

    #[test]
    fn channels_are_ordered_and_normalised() {
        let rgb = [10u8, 20, 30];
        let mut letterbox = Letterbox::new(1, 1);
        let mut out = [0.0; 3];
        let norm =
            Normalisation { order: [2, 1, 0], mean: [1.0, 2.0, 3.0], scale: [0.5, 1.0, 2.0], padding: 0.0 };
        letterbox.fill(&rgb, 1, 1, &norm, &mut out);
        assert_eq!(out, [14.5, 18.0, 14.0]);
    }

    #[test]
    fn resampling_interpolates_between_pixel_centres() {
        let rgb = [0u8, 0, 0, 100, 100, 100];
        let mut resampler = Resampler::default();
        resampler.prepare([4, 1], [0.0, 0.0], [0.5, 1.0], [2, 1]);
        let mut out = [0.0; 12];
        resampler.fill(&rgb, 2, &PLAIN, &mut out);
        assert_eq!(&out[..4], &[0.0, 25.0, 75.0, 100.0]);
    }

    #[test]
    fn overlap_of_boxes() {
        assert_eq!(iou(&[0.0, 0.0, 2.0, 2.0], &[1.0, 0.0, 3.0, 2.0]), 2.0 / 6.0);
        assert_eq!(iou(&[0.0; 4], &[0.0; 4]), 0.0);
        assert_eq!(widen(&[0.0, 0.0, 10.0, 20.0], 0.1), [-1.0, -2.0, 11.0, 22.0]);
    }
}
