//! A time stamp of the robot's own clock in its packets, found and not reported: a float of seconds
//! (RTDE's `timestamp`, big-endian) that grows as time does.

/// Packets before a place is taken for a stamp.
const ENOUGH: u64 = 50;

/// One place in the data.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    offset: usize,
    big_endian: bool,
    last: f64,
    alive: bool,
    first: (f64, u64),
    now_ns: u64,
}

/// All places that may hold a stamp.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    candidates: Vec<Candidate>,
    seen: u64,
}

fn value(data: &[u8], offset: usize, big_endian: bool) -> Option<f64> {
    let bytes: [u8; 8] = data.get(offset..offset + 8)?.try_into().ok()?;
    let value = if big_endian { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) };
    (value.is_finite() && value > 1e-3 && value < 1e11).then_some(value)
}

impl Stamps {
    /// Takes a packet's data, which came at `time_ns`. By how much its stamp is ahead of that of
    /// the packet before, seconds; None where there is none, or not known yet.
    pub(super) fn see(&mut self, data: &[u8], time_ns: u64) -> Option<f64> {
        self.seen += 1;
        if self.seen == 1 {
            for offset in 0..data.len().saturating_sub(7) {
                for big_endian in [true, false] {
                    if let Some(first) = value(data, offset, big_endian) {
                        let first = (first, time_ns);
                        let alive = true;
                        self.candidates.push(Candidate {
                            offset,
                            big_endian,
                            last: first.0,
                            alive,
                            first,
                            now_ns: time_ns,
                        });
                    }
                }
            }
            return None;
        }
        let known = self.seen > ENOUGH;
        let mut step = None;
        for one in &mut self.candidates {
            let Some(now) = value(data, one.offset, one.big_endian) else {
                one.alive = false;
                continue;
            };
            let by = now - one.last;
            // It grows, and over all as fast as our clock does, but for drift.
            let ours_s = time_ns.saturating_sub(one.first.1) as f64 / 1e9;
            let theirs_s = now - one.first.0;
            if by <= 0.0 || (known && (theirs_s - ours_s).abs() > 0.05 * ours_s + 0.2) {
                one.alive = false;
                continue;
            }
            (one.last, one.now_ns) = (now, time_ns);
            step.get_or_insert(by);
        }
        self.candidates.retain(|one| one.alive);
        step.filter(|_| known)
    }

    /// Where it is, and the drift of the robot's clock against ours, parts per million.
    pub(super) fn found(&self) -> Option<(usize, f64)> {
        let one = self.candidates.first().filter(|_| self.seen > ENOUGH)?;
        let ours_s = one.now_ns.saturating_sub(one.first.1) as f64 / 1e9;
        let theirs_s = one.last - one.first.0;
        (ours_s > 0.0).then(|| (one.offset, (theirs_s / ours_s - 1.0) * 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_found_with_its_drift() {
        let mut stamps = Stamps::default();
        let mut steps = Vec::new();
        for index in 0..200_u32 {
            // Size, type, recipe, stamp, a joint that moves.
            let mut data = vec![0, 55, 85, 1];
            data.extend((1000.0 + 0.002_000_2 * f64::from(index)).to_be_bytes());
            data.extend((1.5 + 0.1 * (f64::from(index) * 0.01).sin()).to_be_bytes());
            steps.extend(stamps.see(&data, 1_000_000_000 + 2_000_000 * u64::from(index)));
        }
        let (offset, drift_ppm) = stamps.found().unwrap();
        assert!(offset == 4 && (drift_ppm - 100.0).abs() < 1.0, "{offset} {drift_ppm}");
        assert!(steps.len() > 140 && steps.iter().all(|step| (step - 0.002_000_2).abs() < 1e-9));
    }

    #[test]
    fn what_only_grows_is_no_stamp() {
        let mut stamps = Stamps::default();
        for index in 0..200_u32 {
            let mut data = f64::from(index + 1).to_be_bytes().to_vec();
            data.extend(b"and text");
            stamps.see(&data, 1_000_000_000 + 2_000_000 * u64::from(index));
        }
        assert_eq!(stamps.found(), None);
        // Packets of any length.
        for length in 0..16 {
            stamps.see(&vec![0xff; length], 0);
        }
    }
}
