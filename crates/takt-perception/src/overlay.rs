//! The view's drawing over the image.

/// Pixels of each object, filled in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Sequence number of the frame that it belongs to.
    pub frame_sequence: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Row-major: 0 for none, else the object's place in
    /// [`Detections::objects`](crate::Detections::objects), from 1.
    pub mask: Vec<u8>,
}

impl Overlay {
    /// An empty overlay of that size.
    pub fn new(width: u32, height: u32) -> Self {
        Self { frame_sequence: 0, width, height, mask: vec![0; width as usize * height as usize] }
    }

    /// Empties it for a frame of that size.
    pub fn reset(&mut self, frame_sequence: u64, width: u32, height: u32) {
        (self.frame_sequence, self.width, self.height) = (frame_sequence, width, height);
        self.mask.clear();
        self.mask.resize(width as usize * height as usize, 0);
    }

    /// Paints a patch (left, top, right, bottom). Only 255 items can be distinguished; later ones
    /// share the last number and are removed by [`relabel`](Self::relabel) as the farthest.
    pub(crate) fn paint(&mut self, [left, top, right, bottom]: [u32; 4], item: u32) {
        let item = item.min(255) as u8;
        for y in top..bottom.min(self.height) {
            let line = (y * self.width) as usize;
            self.mask[line + left as usize..line + right.min(self.width) as usize].fill(item);
        }
    }

    /// Replaces item numbers by places in the list of objects.
    pub(crate) fn relabel(&mut self, place: &[u8; 256]) {
        for value in &mut self.mask {
            *value = place[usize::from(*value)];
        }
    }
}
