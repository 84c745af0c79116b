//! Work on a device beside the CPUs, such as a GPU: a track for each of its streams, with marks for
//! what went wrong.

use std::io::Write;

use super::proto::{self, TrackDescriptor};
use super::writer::{Argument, PerfettoError, Writer, argument, named, number};

/// A piece of work on a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceWork {
    /// Name of the work: `upload`, `inference`...
    pub name: String,
    /// The frame or cycle that it was for.
    pub index: u64,
    /// Start, as CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, as CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Both are at most so far off: the device's clock is mapped onto the host's.
    pub error_ns: u64,
}

/// A moment of a device or one of its streams: a budget that was overrun, a process that ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceMark {
    pub name: String,
    /// When, as CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub details: Vec<(String, Argument)>,
}

/// A device that work is written to; see [`Writer::device`].
#[derive(Debug)]
pub struct Device {
    /// The device's own track, for what concerns all of its streams.
    pub whole: DeviceStream,
    /// Its streams, in the order of their names.
    pub streams: Vec<DeviceStream>,
}

#[derive(Debug)]
pub struct DeviceStream {
    track: u64,
    last_end_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Declares a device with the names of its streams (one for each camera, say).
    ///
    /// # Errors
    /// [`PerfettoError::Write`].
    pub fn device(&mut self, name: &str, streams: &[String]) -> Result<Device, PerfettoError> {
        let root = self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            child_ordering: Some(3),
            ..TrackDescriptor::default()
        })?;
        let mut tracks = Vec::with_capacity(streams.len());
        for (rank, stream) in (0..).zip(streams) {
            tracks.push(DeviceStream { track: self.child(root, stream, rank)?, last_end_ns: 0 });
        }
        Ok(Device { whole: DeviceStream { track: root, last_end_ns: 0 }, streams: tracks })
    }

    /// Writes work of one stream, oldest first.
    ///
    /// # Errors
    /// [`PerfettoError::Write`].
    pub fn device_work<'a>(
        &mut self,
        stream: &mut DeviceStream,
        work: impl IntoIterator<Item = &'a DeviceWork>,
    ) -> Result<(), PerfettoError> {
        for piece in work {
            // Slices of one track must nest, and a stream does one thing after another; what
            // overlaps does so by the error.
            let start_ns = piece.start_ns.max(stream.last_end_ns);
            let end_ns = piece.end_ns.max(start_ns);
            stream.last_end_ns = end_ns;
            let details = vec![
                number("index", piece.index),
                number("start_ns", piece.start_ns),
                number("end_ns", piece.end_ns),
                number("error_ns", piece.error_ns),
                argument("clock", Argument::Text("of the device, mapped onto CLOCK_MONOTONIC".to_owned())),
            ];
            self.event(start_ns, named(stream.track, proto::BEGIN, &piece.name, details))?;
            self.end(stream.track, end_ns)?;
            self.written.device_work += 1;
        }
        Ok(())
    }

    /// Marks moments of a stream, or of the whole device.
    ///
    /// # Errors
    /// [`PerfettoError::Write`].
    pub fn device_marks<'a>(
        &mut self,
        stream: &DeviceStream,
        marks: impl IntoIterator<Item = &'a DeviceMark>,
    ) -> Result<(), PerfettoError> {
        for mark in marks {
            let details = mark.details.iter().map(|(name, value)| argument(name, value.clone())).collect();
            self.instant(stream.track, mark.time_ns, &mark.name, details)?;
            self.written.device_marks += 1;
        }
        Ok(())
    }
}
