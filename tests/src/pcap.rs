//! Capture files: frames with nanosecond timestamps, in the classic pcap format (draft-ietf-opsawg-pcap).

use std::{
    io::{self, Write},
    time::Duration,
};

/// The format's magic number for timestamps in nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// The largest frame that a capture holds, in bytes: tcpdump's own limit.
pub const SNAPLEN_MAX: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

/// Writes a capture of Ethernet frames, in little-endian.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    snaplen: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. Of each frame, no more than `snaplen` bytes (at most [`SNAPLEN_MAX`]) will be kept.
    ///
    /// # Errors
    ///
    /// The error of `out`.
    pub fn new(mut out: W, snaplen: u32) -> io::Result<Self> {
        let snaplen = snaplen.min(SNAPLEN_MAX);
        let [major, minor] = VERSION;
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&major.to_le_bytes())?;
        out.write_all(&minor.to_le_bytes())?;
        for field in [0, 0, snaplen, LINKTYPE_ETHERNET] {
            out.write_all(&field.to_le_bytes())?;
        }
        Ok(Self { out, snaplen })
    }

    /// Writes a frame that came at `time` since the epoch: its first bytes and its whole length.
    ///
    /// # Errors
    ///
    /// The time is after 2106, the frame is larger than 4 GiB, or `out` fails.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> io::Result<()> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let seconds = u32::try_from(time.as_secs())
            .map_err(|_| refused(format!("{time:?} after the epoch is later than the format allows")))?;
        let length = u32::try_from(frame.len())
            .map_err(|_| refused(format!("a frame of {} bytes is larger than the format allows", frame.len())))?;
        let kept = length.min(self.snaplen);
        for field in [seconds, time.subsec_nanos(), kept, length] {
            self.out.write_all(&field.to_le_bytes())?;
        }
        self.out.write_all(&frame[..kept as usize])
    }

    /// Ends the capture, flushes `out`, and returns it.
    ///
    /// # Errors
    ///
    /// The error of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Times of evenly spaced packets.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The time of the first packet since the epoch.
    pub start: Duration,
    /// How many come in a second; 0 counts as 1.
    pub packets_per_second: u32,
}

impl Schedule {
    /// The time of packet `nth`, counted from 0, since the epoch.
    pub fn at(&self, nth: u64) -> Duration {
        let rate = u64::from(self.packets_per_second.max(1));
        // The remainder after whole seconds is below 2^32, so its product with 10^9 fits.
        let nanos = nth % rate * 1_000_000_000 / rate;
        self.start + Duration::from_secs(nth / rate) + Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut writer = Writer::new(Vec::new(), 3).unwrap();
        writer.write(Duration::new(0x6547_1234, 5), &[0xaa, 0xbb]).unwrap();
        writer.write(Duration::new(0x6547_1235, 6), &[1, 2, 3, 4, 5]).unwrap();
        let expected = [
            &[0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0][..],
            &[0x34, 0x12, 0x47, 0x65, 5, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0xaa, 0xbb],
            &[0x35, 0x12, 0x47, 0x65, 6, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 1, 2, 3],
        ];
        assert_eq!(writer.finish().unwrap(), expected.concat());
    }

    #[test]
    fn times_beyond_the_format_are_refused() {
        let mut writer = Writer::new(Vec::new(), SNAPLEN_MAX).unwrap();
        let late = writer.write(Duration::from_secs(1 << 32), &[]).unwrap_err();
        assert!(late.to_string().contains("later than the format allows"), "{late}");
    }

    #[test]
    fn packets_come_evenly() {
        let schedule = Schedule { start: Duration::from_secs(100), packets_per_second: 3 };
        assert_eq!(schedule.at(0), Duration::from_secs(100));
        assert_eq!(schedule.at(1), Duration::new(100, 333_333_333));
        assert_eq!(schedule.at(3_000_000_001), Duration::new(1_000_000_100, 333_333_333));
    }
}
