//! Frames of the master's own requests that are under way, kept so that one that was lost can be
//! sent again.

use super::wire::MAX_FRAME_BYTES;
use crate::frame;

/// A frame as it was sent.
struct Kept {
    /// Of its first datagram, by which its answer is known; `None` for a free place.
    index: Option<u8>,
    sent_ns: u64,
    length: usize,
    bytes: Box<[u8; MAX_FRAME_BYTES]>,
}

/// The frames under way.
pub(super) struct UnderWay {
    kept: Box<[Kept]>,
    /// Of each index: whether a frame with it was sent twice, so that two answers may come.
    repeated: [bool; 256],
}

fn index_of(bytes: &[u8]) -> Option<u8> {
    frame::datagrams(bytes).next().map(|datagram| datagram.index)
}

impl UnderWay {
    /// For `frames` at a time.
    pub fn new(frames: usize) -> Self {
        let free = || Kept { index: None, sent_ns: 0, length: 0, bytes: Box::new([0; MAX_FRAME_BYTES]) };
        Self { kept: (0..frames).map(|_| free()).collect(), repeated: [false; 256] }
    }

    /// A frame was handed to the wire at `now_ns`.
    pub fn sent(&mut self, bytes: &[u8], now_ns: u64) {
        let (Some(index), true) = (index_of(bytes), bytes.len() <= MAX_FRAME_BYTES) else { return };
        self.repeated[usize::from(index)] = false;
        let own = self.kept.iter().position(|kept| kept.index == Some(index));
        let at = own.or_else(|| self.kept.iter().position(|kept| kept.index.is_none()));
        if let Some(kept) = at.and_then(|at| self.kept.get_mut(at)) {
            (kept.index, kept.sent_ns, kept.length) = (Some(index), now_ns, bytes.len());
            kept.bytes[..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// An answer was taken.
    pub fn came(&mut self, answer: &[u8]) {
        let Some(index) = index_of(answer) else { return };
        self.kept.iter_mut().filter(|kept| kept.index == Some(index)).for_each(|kept| kept.index = None);
    }

    /// A frame that was sent `after_ns` ago or earlier, which counts as sent now.
    pub fn overdue(&mut self, now_ns: u64, after_ns: u64) -> Option<&[u8]> {
        let is_overdue =
            |kept: &&mut Kept| kept.index.is_some() && now_ns.saturating_sub(kept.sent_ns) >= after_ns.max(1);
        let kept = self.kept.iter_mut().find(is_overdue)?;
        kept.sent_ns = now_ns;
        if let Some(index) = kept.index {
            self.repeated[usize::from(index)] = true;
        }
        Some(&kept.bytes[..kept.length])
    }

    /// Whether this may be the other answer to a request that was sent twice.
    pub(crate) fn was_repeated(&self, answer: &[u8]) -> bool {
        index_of(answer).is_some_and(|index| self.repeated[usize::from(index)])
    }

    /// Nobody waits for any of them any more.
    pub fn forget(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.index = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a register with the index `index`.
    fn request(index: u8) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        bytes[12..14].copy_from_slice(&frame::ETHERCAT.to_be_bytes());
        bytes[14..16].copy_from_slice(&(14_u16 | 1 << 12).to_le_bytes());
        bytes[16..18].copy_from_slice(&[frame::command::FPRD, index]);
        bytes[22..24].copy_from_slice(&2_u16.to_le_bytes());
        bytes
    }

    #[test]
    fn what_does_not_come_is_sent_again_until_it_comes() {
        let mut under_way = UnderWay::new(2);
        under_way.sent(&request(7), 100);
        under_way.sent(&request(8), 150);
        assert_eq!(under_way.overdue(199, 100), None);
        assert_eq!(under_way.overdue(200, 100), Some(&request(7)[..]));
        assert_eq!(under_way.overdue(200, 100), None, "it is on its way again");
        under_way.came(&request(8));
        assert_eq!(under_way.overdue(300, 100), Some(&request(7)[..]), "as often as it takes");
        under_way.came(&request(7));
        assert_eq!(under_way.overdue(9000, 100), None);
        // Two were sent, so two may come; nothing was repeated under the other index.
        assert!(under_way.was_repeated(&request(7)) && !under_way.was_repeated(&request(8)));
        // An index that is used again is another request.
        under_way.sent(&request(7), 400);
        assert!(!under_way.was_repeated(&request(7)));
        under_way.forget();
        assert_eq!(under_way.overdue(9000, 100), None);
    }

    #[test]
    fn a_flood_of_requests_and_what_is_no_frame_are_taken() {
        let mut under_way = UnderWay::new(2);
        (0..=255).for_each(|index| under_way.sent(&request(index), 0));
        under_way.sent(&[], 0);
        under_way.sent(&[0; 4000], 0);
        under_way.came(&[0; 20]);
        let mut again = 0;
        while under_way.overdue(10, 5).is_some() {
            again += 1;
        }
        assert_eq!(again, 2);
    }
}
