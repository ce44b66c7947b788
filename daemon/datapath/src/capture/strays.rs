//! Finds the strays of a capture: packets whose time is far from that of the packets around them, because a clock was
//! wrong.
//!
//! The majority of packets decide the time of a capture. A packet that is far from the ones before it waits, and the
//! packets that follow it decide: time has moved on, or back, if `QUORUM` of them agree with it before as many
//! disagree; otherwise it is a stray. At the end of a capture, those that are left decide; a few of them, far from all
//! others, are strays, too (see [`span`](super::span)).
//!
//! A packet that follows agrees if its time is nearer to the new time, or beyond it, than to the time so far.

use std::{collections::VecDeque, io::Read};

use super::{
    Broken, Capture, Packet,
    packet_buffer::Waiting,
    span::{BEHIND_NS, Times},
};

/// How much later than the packets before it a packet may be without being far, in nanoseconds. A window needs a packet
/// this much later than its end to be over.
pub const AHEAD_NS: u64 = 10_000_000_000;
/// This many of the following packets decide about a packet.
const QUORUM: u32 = 100;
/// At most this many packets are read ahead: both sides may have one less than they need.
const AHEAD_MAX: usize = 2 * QUORUM as usize;

/// A capture that marks its strays.
pub(super) struct Settled<R> {
    capture: Capture<R>,
    /// The next packets, as far as they were read ahead.
    ahead: VecDeque<Waiting>,
    /// The packet that was taken from there last.
    taken: Option<Waiting>,
    /// Where the capture is broken, if that was found while reading ahead.
    broken: Option<Broken>,
    /// The latest time of its packets that are no strays, since time went back.
    now_ns: Option<u64>,
    next: Option<Next>,
    times: Times,
}

/// The verdict about the next packet.
#[derive(Clone, Copy)]
struct Next {
    time_ns: Option<u64>,
    stray: bool,
}

impl<R: Read> Settled<R> {
    pub(super) fn new(capture: Capture<R>) -> Self {
        Self {
            capture,
            ahead: VecDeque::new(),
            taken: None,
            broken: None,
            now_ns: None,
            next: None,
            times: Times::default(),
        }
    }

    /// When the next packet is due among those of other captures: at its time, or right after the packet before it if
    /// it has none or is a stray. `None` at the end.
    ///
    /// # Errors
    ///
    /// See [`Capture::next_packet`].
    pub(super) fn next_due(&mut self) -> Result<Option<u64>, Broken> {
        let next = match self.next {
            Some(next) => next,
            None => match self.judge()? {
                Some(next) => *self.next.insert(next),
                None => return Ok(None),
            },
        };
        let time_ns = next.time_ns.filter(|_| !next.stray);
        Ok(Some(time_ns.or(self.now_ns).unwrap_or(0)))
    }

    /// The next packet, or `None` at the end.
    ///
    /// # Errors
    ///
    /// See [`Capture::next_packet`].
    pub(super) fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Broken> {
        self.next_due()?;
        let Some(Next { time_ns, stray }) = self.next.take() else { return Ok(None) };
        if let Some(time_ns) = time_ns {
            self.times.add(time_ns, stray);
        }
        self.taken = self.ahead.pop_front();
        let packet = match &self.taken {
            Some(taken) => Some(taken.packet()),
            None => self.capture.next_packet()?,
        };
        Ok(packet.map(|packet| Packet { stray, ..packet }))
    }

    /// The times of the packets that were returned.
    pub(super) const fn times(&self) -> &Times {
        &self.times
    }

    /// Decides about the next packet.
    fn judge(&mut self) -> Result<Option<Next>, Broken> {
        let time_ns = match self.ahead.front() {
            Some(next) => next.packet().time_ns,
            None => match self.broken.take() {
                Some(broken) => return Err(broken),
                None => match self.capture.next_time()? {
                    Some(time_ns) => time_ns,
                    None => return Ok(None),
                },
            },
        };
        let Some(at_ns) = time_ns else { return Ok(Some(Next { time_ns, stray: false })) };
        let now_ns = match self.now_ns.filter(|now_ns| is_near(at_ns, *now_ns)) {
            Some(now_ns) => now_ns.max(at_ns),
            None if self.confirm(at_ns) => {
                self.times.begin();
                at_ns
            }
            None => return Ok(Some(Next { time_ns, stray: true })),
        };
        self.now_ns = Some(now_ns);
        Ok(Some(Next { time_ns, stray: false }))
    }

    /// Reads ahead. Returns whether the packets that follow the next one say that time has moved to there.
    fn confirm(&mut self, at_ns: u64) -> bool {
        let now_ns = self.now_ns;
        let agrees = |other_ns: u64| match now_ns {
            Some(now_ns) if at_ns < now_ns => other_ns < now_ns.midpoint(at_ns),
            Some(now_ns) => other_ns >= now_ns.midpoint(at_ns),
            None => other_ns.saturating_add(BEHIND_NS) >= at_ns,
        };
        let [mut agree, mut disagree] = [0; 2];
        let mut nth = 1;
        while agree < QUORUM && disagree < QUORUM && nth < AHEAD_MAX {
            while self.ahead.len() <= nth {
                if !self.read_ahead() {
                    let left = self.ahead.len() as u64;
                    return is_majority(agree, disagree) && !self.times.are_outside(at_ns, left);
                }
            }
            match self.ahead[nth].packet().time_ns.map(agrees) {
                Some(true) => agree += 1,
                Some(false) => disagree += 1,
                None => {}
            }
            nth += 1;
        }
        is_majority(agree, disagree)
    }

    /// Reads another packet. Returns whether there was one.
    fn read_ahead(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match self.capture.next_packet() {
            Ok(Some(packet)) => self.ahead.push_back(Waiting::new(&packet)),
            Ok(None) => return false,
            Err(broken) => {
                self.broken = Some(broken);
                return false;
            }
        }
        true
    }
}

/// Without any packet that disagrees, there is no reason for a doubt.
const fn is_majority(agree: u32, disagree: u32) -> bool {
    agree > disagree || disagree == 0
}

const fn is_near(time_ns: u64, now_ns: u64) -> bool {
    time_ns <= now_ns.saturating_add(AHEAD_NS) && time_ns.saturating_add(BEHIND_NS) >= now_ns
}

#[cfg(test)]
mod tests {
    use super::{super::span::Stretch, *};

    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3_600 * SECOND;
    const DAY: u64 = 24 * HOUR;
    const START: u64 = 10 * DAY;

    /// The capture of packets at these times, one of which may be cut.
    fn capture(times_ns: &[u64], cut: bool) -> Settled<std::io::Cursor<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut words = |words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        words(&[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 1]);
        for time_ns in times_ns {
            words(&[(time_ns / SECOND) as u32, (time_ns % SECOND) as u32, 0, 60]);
        }
        if cut {
            words(&[0]);
        }
        Settled::new(Capture::new(std::io::Cursor::new(bytes), "test").unwrap())
    }

    /// The times of the strays among packets at these times. All packets are returned, in their order.
    fn strays(times_ns: &[u64]) -> Vec<u64> {
        let mut settled = capture(times_ns, false);
        let (mut all, mut strays) = (Vec::new(), Vec::new());
        while let Some(packet) = settled.next_packet().unwrap() {
            all.extend(packet.time_ns);
            strays.extend(packet.time_ns.filter(|_| packet.stray));
            assert!(settled.ahead.len() <= AHEAD_MAX);
        }
        assert_eq!(all, times_ns);
        strays
    }

    /// This many packets from here on, ten milliseconds apart.
    fn steady(from_ns: u64, packets: u64) -> Vec<u64> {
        (0..packets).map(|nth| from_ns + nth * SECOND / 100).collect()
    }

    #[test]
    fn packets_of_another_time_between_others_are_strays() {
        let before = steady(START, 1_000);
        let after = steady(START + 10 * SECOND, 1_000);
        for other in [
            vec![START + 42 * DAY],
            vec![DAY],
            vec![0],
            vec![START + 40 * SECOND],
            steady(START + 42 * DAY, QUORUM.into()),
            steady(START - DAY, QUORUM.into()),
            vec![START + 42 * DAY, START + 42 * DAY + 30 * SECOND, DAY, START + HOUR],
        ] {
            assert_eq!(strays(&[&before[..], &other, &after].concat()), other, "in the middle");
            let first: Vec<_> = strays(&[&other[..], &after].concat());
            assert!(first.iter().all(|stray| other.contains(stray)), "at the beginning");
            let are_later = other.iter().all(|time| *time > START + HOUR);
            assert!(!are_later || first == other, "later ones are known there");
        }
    }

    #[test]
    fn strays_may_come_again_and_again() {
        // The clock of one of two sources is wrong.
        let times: Vec<u64> =
            (0..5_000).map(|nth| START + nth * SECOND / 100 + if nth % 3 == 1 { 42 * DAY } else { 0 }).collect();
        assert_eq!(strays(&times).len(), 1_667);
        let half: Vec<u64> = (0..5_000).map(|nth| START + (nth % 2) * 2 * HOUR + nth).collect();
        assert_eq!(strays(&half), half.iter().copied().skip(1).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn a_pause_a_clock_that_was_set_and_few_packets_have_no_strays() {
        for times in [
            [steady(START, 1_000), steady(START + 2 * DAY, 1_000)].concat(),
            [steady(START, 1_000), steady(START + 2 * DAY, 25)].concat(),
            [steady(START, 1_000), steady(START - 2 * DAY, 1_000)].concat(),
            (0..500).map(|nth| START + nth * 15 * SECOND).collect(),
            // Two taps, the second of which is late.
            (0..5_000).map(|nth| START + nth * SECOND / 100 - (nth % 2) * 15 * SECOND).collect(),
            vec![START],
            vec![],
        ] {
            assert_eq!(strays(&times), [0; 0], "{:?}", times.get(..3));
        }
    }

    #[test]
    fn a_pause_right_after_a_stray_is_no_stray() {
        let times = [steady(START, 500), vec![START + 42 * DAY], steady(START + 2 * HOUR, 500)].concat();
        assert_eq!(strays(&times), [START + 42 * DAY]);
    }

    #[test]
    fn a_stray_is_due_at_once_and_stretches_no_time() {
        let mut settled =
            capture(&[&steady(START, 100)[..], &[START + 42 * DAY], &steady(START + SECOND, 100)].concat(), false);
        let mut before = 0;
        while let Some(due_ns) = settled.next_due().unwrap() {
            assert!((before..START + HOUR).contains(&due_ns));
            before = due_ns;
            settled.next_packet().unwrap();
        }
        let covered = settled.times().covered();
        let last_ns = START + SECOND + 99 * SECOND / 100;
        assert_eq!(covered.span, Some(Stretch { packets: 200, first_ns: START, last_ns }));
        assert_eq!(covered.strays.map(|strays| strays.packets), Some(1));
    }

    #[test]
    fn what_was_read_ahead_is_returned_before_the_error() {
        let mut settled = capture(&steady(START, 5), true);
        for _ in 0..5 {
            assert!(settled.next_packet().unwrap().is_some());
        }
        assert_eq!(settled.next_packet().unwrap_err().packets, 5);
        assert_eq!(settled.next_packet().unwrap(), None);
    }
}
