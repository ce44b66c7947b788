//! The time that a capture covers, and its packets outside of it.
//!
//! A pause belongs to the time of a capture, and so does a second capture from another day. But a few packets before or
//! after all others, by more than all others cover, are strays as well. There is no way to tell a pause from a wrong
//! clock, and a rate needs the time of nearly all packets.

/// How much earlier than the packets before it a packet may be without being far, in nanoseconds: it is out of order.
pub const BEHIND_NS: u64 = 60_000_000_000;
/// At most this many stretches are known. If there are more, the two nearest become one.
const STRETCHES_MAX: usize = 32;
/// A stretch at an end of a capture has strays if the others have this many times its packets.
const MANY: u64 = 50;
/// So many are enough after a gap of at least [`NO_PAUSE_NS`].
const SEVERAL: u64 = 4;
/// Hardly any capture pauses for 30 days: a clock was not set.
const NO_PAUSE_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// The times of the packets of a capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Between two of them is a pause, or time was set back.
    stretches: Vec<Stretch>,
    /// The one that goes on.
    open: Option<Stretch>,
    strays: Option<Stretch>,
}

/// Packets and their earliest and latest time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The number of packets.
    pub packets: u64,
    /// The earliest time of a packet.
    pub first_ns: u64,
    /// The latest time of a packet.
    pub last_ns: u64,
}

/// The time that captures cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Packets within it; `None` if no packet has a time.
    pub span: Option<Stretch>,
    /// Packets whose time is far from it.
    pub strays: Option<Stretch>,
}

impl Stretch {
    const fn at(time_ns: u64) -> Self {
        Self { packets: 1, first_ns: time_ns, last_ns: time_ns }
    }

    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// Returns true if these are few packets, and farther from all others than those are from each other.
    fn is_outside(self, others: Self, gap_ns: u64) -> bool {
        let length_ns = others.last_ns - others.first_ns;
        let times = if gap_ns >= NO_PAUSE_NS { SEVERAL } else { MANY };
        self.packets.saturating_mul(times) <= others.packets && gap_ns > BEHIND_NS.max(length_ns)
    }

    /// Adds packets to others.
    fn join(self, others: &mut Option<Self>) {
        *others = Some(others.map_or(self, |others| others.and(self)));
    }
}

impl Times {
    /// Begins another stretch with the next packet that is no stray.
    pub(super) fn begin(&mut self) {
        if let Some(over) = self.open.take() {
            insert(&mut self.stretches, over);
        }
    }

    /// Adds the time of a packet.
    #[inline]
    pub(super) fn add(&mut self, time_ns: u64, stray: bool) {
        Stretch::at(time_ns).join(if stray { &mut self.strays } else { &mut self.open });
    }

    /// Returns true if so many packets at the end of a capture are outside of the time of all others.
    pub(super) fn are_outside(&self, time_ns: u64, packets: u64) -> bool {
        let Some(all) = self.stretches.iter().copied().chain(self.open).reduce(Stretch::and) else { return false };
        let gap_ns = time_ns.saturating_sub(all.last_ns).max(all.first_ns.saturating_sub(time_ns));
        Stretch { packets, ..Stretch::at(time_ns) }.is_outside(all, gap_ns)
    }

    /// The time that the packets cover.
    pub(super) fn covered(&self) -> Covered {
        let mut stretches = self.stretches.clone();
        if let Some(open) = self.open {
            insert(&mut stretches, open);
        }
        let mut strays = self.strays;
        while let Some(outside) = cut_off(&mut stretches) {
            outside.join(&mut strays);
        }
        Covered { span: stretches.into_iter().reduce(Stretch::and), strays }
    }
}

impl Covered {
    /// Adds the time of another capture.
    pub(super) fn add(&mut self, other: Self) {
        if let Some(span) = other.span {
            span.join(&mut self.span);
        }
        if let Some(strays) = other.strays {
            strays.join(&mut self.strays);
        }
    }
}

/// Removes the few packets on one side of the longest gap, if they are far from all others.
fn cut_off(stretches: &mut Vec<Stretch>) -> Option<Stretch> {
    let gap_ns = |place: &usize| stretches[*place].first_ns - stretches[*place - 1].last_ns;
    let place = (1..stretches.len()).max_by_key(gap_ns)?;
    let gap_ns = gap_ns(&place);
    let [before, after] =
        [&stretches[..place], &stretches[place..]].map(|side| side.iter().copied().reduce(Stretch::and));
    let (before, after) = (before?, after?);
    if after.is_outside(before, gap_ns) {
        stretches.truncate(place);
        return Some(after);
    }
    if before.is_outside(after, gap_ns) {
        stretches.drain(..place);
        return Some(before);
    }
    None
}

/// Adds a stretch at its place in time, and joins those that overlap.
fn insert(stretches: &mut Vec<Stretch>, next: Stretch) {
    let place = stretches.partition_point(|other| other.first_ns <= next.first_ns);
    stretches.insert(place, next);
    stretches.dedup_by(|later, earlier| {
        let overlap = later.first_ns <= earlier.last_ns;
        if overlap {
            *earlier = earlier.and(*later);
        }
        overlap
    });
    if stretches.len() > STRETCHES_MAX {
        let gap_ns = |place: &usize| stretches[place + 1].first_ns - stretches[*place].last_ns;
        if let Some(place) = (0..stretches.len() - 1).min_by_key(gap_ns) {
            let later = stretches.remove(place + 1);
            stretches[place] = stretches[place].and(later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;

    fn stretch(packets: u64, first_ns: u64, last_ns: u64) -> Stretch {
        Stretch { packets, first_ns, last_ns }
    }

    /// Returns the time that these stretches of packets cover, each with a packet a second.
    fn covered(stretches: &[(u64, u64)]) -> Covered {
        let mut times = Times::default();
        for (start_ns, packets) in stretches {
            times.begin();
            for nth in 0..*packets {
                times.add(start_ns + nth * SECOND, false);
            }
        }
        times.covered()
    }

    #[test]
    fn few_packets_far_from_all_others_are_strays_at_both_ends() {
        let most = stretch(600, 20 * DAY, 20 * DAY + 599 * SECOND);
        for (outside, strays) in [
            (&[(62 * DAY, 1)][..], stretch(1, 62 * DAY, 62 * DAY)),
            (&[(0, 2)], stretch(2, 0, SECOND)),
            (&[(62 * DAY, 1), (99 * DAY, 2), (0, 3)], stretch(6, 0, 99 * DAY + SECOND)),
            (&[(62 * DAY, 1), (62 * DAY + 30 * SECOND, 1)], stretch(2, 62 * DAY, 62 * DAY + 30 * SECOND)),
            // So long is no pause, so fewer packets of the right time are enough.
            (&[(62 * DAY, 150)], stretch(150, 62 * DAY, 62 * DAY + 149 * SECOND)),
        ] {
            let all = covered(&[&[(20 * DAY, 600)], outside].concat());
            assert_eq!(all, Covered { span: Some(most), strays: Some(strays) }, "{outside:?}");
        }
    }

    #[test]
    fn a_pause_and_a_short_capture_cover_all_their_time() {
        for stretches in [
            &[(DAY, 600), (3 * DAY, 600)][..],
            &[(DAY, 600), (3 * DAY, 13)],
            // No longer than all others.
            &[(DAY, 600), (DAY + 1_100 * SECOND, 1)],
            &[(DAY, 3), (2 * DAY, 1)],
            &[(2 * DAY, 600), (DAY, 600)],
        ] {
            let Covered { span, strays } = covered(stretches);
            let packets = stretches.iter().map(|(_, packets)| packets).sum();
            assert_eq!((span.map(|span| span.packets), strays), (Some(packets), None), "{stretches:?}");
        }
    }

    #[test]
    fn many_pauses_take_no_more_memory() {
        let mut times = Times::default();
        for nth in 0..10_000 {
            times.begin();
            times.add(nth * 11 * SECOND, false);
            assert!(times.stretches.len() <= STRETCHES_MAX);
        }
        let all = Covered { span: Some(stretch(10_000, 0, 9_999 * 11 * SECOND)), strays: None };
        assert_eq!(times.covered(), all);
        assert_eq!(Times::default().covered(), Covered::default());
    }
}
