//! The position of an attachment at its hook: whether it sees all packets now, how long it may have missed some, and
//! how often weir has restored it.
//!
//! Another process may remove a link or a filter, replace its program, or put a program in front that ends the chain.
//! weir checks once a second and at the edge of each window. If something is wrong, it immediately attaches again or
//! moves to the front. It may have been blind from the last good check until then. If the program in front passes every
//! packet on, nothing was missed, and the interface's own count shows that.
//!
//! The other process may do this again and again. Then weir restores the attachment a few times immediately, and after
//! that once a minute. It reports which program is in front, and that weir does not see all packets.

use std::time::Duration;

use super::coverage::Shortage;

/// How many windows in a row may leave open whether packets were missed. On a busy CPU there is a queue at the end of
/// nearly every window.
const WAITED_MAX: u8 = 4;

/// The position of an attachment at a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// It is first, and sees every packet.
    First,
    /// Other programs see the packets before it.
    Behind {
        /// The names of the programs or filters that run earlier.
        who: Vec<String>,
        /// True if weir can move before them.
        can_move: bool,
    },
    /// Another process has removed it.
    Removed,
    /// Another process has replaced its program by the one with this id.
    Replaced(u32),
}

impl Position {
    /// A description of the trouble; `None` if there is none.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::First => None,
            Self::Behind { who, .. } => Some(format!(
                "{} before weir's program, which sees only what is passed on",
                match &who[..] {
                    [one] => format!("{one} runs"),
                    [one, other] => format!("{one} and {other} run"),
                    all => format!("{} and {} more run", all[..2].join(", "), all.len() - 2),
                }
            )),
            Self::Removed => Some("another process has removed weir's program".to_owned()),
            Self::Replaced(program) => {
                Some(format!("another process has replaced weir's program with program {program}"))
            }
        }
    }
}

/// The reaction to a position that has been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Restore the position now.
    Mend,
    /// Report it: it is new, and weir cannot do anything about it now.
    Tell,
    /// It was already reported.
    Nothing,
}

/// Limits how often weir may restore an attachment: a few times in a row, and then once a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempts {
    left: u32,
    regained: Duration,
}

impl Attempts {
    const AT_ONCE: u32 = 3;
    const REGAINED_IN: Duration = Duration::from_secs(60);

    const fn new(now: Duration) -> Self {
        Self { left: Self::AT_ONCE, regained: now }
    }

    /// Uses one attempt, if one is left at this monotonic time.
    fn take(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.regained);
        let more = (since.as_secs() / Self::REGAINED_IN.as_secs()) as u32;
        if self.left.saturating_add(more) >= Self::AT_ONCE {
            *self = Self::new(now);
        } else {
            self.left += more;
            self.regained += Self::REGAINED_IN * more;
        }
        let one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        one
    }
}

/// The state of a watched attachment. All times are monotonic.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The time at which it was last known to see all packets.
    good_at: Duration,
    /// How long it saw no packets in the open window, at most.
    blind: Duration,
    /// How long another program was in front of it in the open window, at most.
    obscured: Duration,
    /// How long its position could not be checked in the open window.
    unchecked: Duration,
    /// The time for which it was blind in the open window, if the packets that it missed then are known.
    settled: Duration,
    /// True if any of these times became longer in the open window. The others are of earlier windows, which left open
    /// if packets were missed.
    is_doubtful: bool,
    /// The end of the previous window.
    closed_at: Duration,
    /// True if it may already have been blind before the open window began.
    was_wrong_before: bool,
    /// How many windows in a row have left open whether packets were missed.
    waited: u8,
    /// How many of these windows could not add to the packets that may have been missed.
    calm: u8,
    attempts: Attempts,
    trouble: Option<String>,
    /// The programs in front that weir cannot move before. This is trouble only if packets are missing.
    hook_order: Option<String>,
    /// True if a restoration was ordered and is not finished.
    is_mending: bool,
    /// True if the last check found it removed or replaced, so that it sees nothing until it is restored.
    sees_nothing: bool,
}

impl Watched {
    /// Begins with a new attachment.
    pub const fn new(now: Duration) -> Self {
        let attempts = Attempts::new(now);
        Self {
            good_at: now,
            blind: Duration::ZERO,
            obscured: Duration::ZERO,
            unchecked: Duration::ZERO,
            settled: Duration::ZERO,
            is_doubtful: false,
            closed_at: Duration::ZERO,
            was_wrong_before: false,
            waited: 0,
            calm: 0,
            attempts,
            trouble: None,
            hook_order: None,
            is_mending: false,
            sees_nothing: false,
        }
    }

    /// A new attachment to an interface that may have been back since `since`.
    pub fn returned(since: Duration, now: Duration) -> Self {
        Self { blind: now.saturating_sub(since), is_doubtful: true, ..Self::new(now) }
    }

    /// Begins again with the interface that this attachment waits for. Packets that it may have missed in the open
    /// window stay.
    #[must_use]
    pub fn returns(&self, since: Duration, now: Duration) -> Self {
        let mut returned = Self::returned(since, now);
        returned.settled = self.settled;
        returned.blind += self.blind + self.obscured + self.unchecked;
        returned
    }

    /// An attachment that was taken over from an earlier weir, which last checked it at `looked`.
    pub fn taken_over(looked: Duration, now: Duration) -> Self {
        Self { good_at: looked.min(now), ..Self::new(now) }
    }

    /// Returns the time at which it was last known to see all packets.
    pub const fn good_at(&self) -> Duration {
        self.good_at
    }

    /// Returns the reason why weir does not see all its packets at the moment.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Notes that it sees all packets now. Returns whether there was trouble before.
    pub fn note_well(&mut self, now: Duration) -> bool {
        (self.good_at, self.hook_order, self.sees_nothing) = (now, None, false);
        self.trouble.take().is_some()
    }

    /// The time since it was last known to see all packets, or since the last call.
    fn passed(&mut self, now: Duration) -> Duration {
        self.was_wrong_before |= self.good_at < self.closed_at;
        self.is_doubtful = true;
        now.saturating_sub(std::mem::replace(&mut self.good_at, now))
    }

    /// Notes that it is not first at its hook. Returns how to react.
    pub fn note_wrong(&mut self, position: &Position, now: Duration) -> Order {
        let passed = self.passed(now);
        self.sees_nothing = matches!(position, Position::Removed | Position::Replaced(_));
        match position {
            Position::First => return Order::Nothing,
            Position::Behind { .. } => self.obscured += passed,
            Position::Removed | Position::Replaced(_) => self.blind += passed,
        }
        if self.is_mending {
            return Order::Nothing;
        }
        let was_known = if matches!(position, Position::Behind { can_move: false, .. }) {
            std::mem::replace(&mut self.hook_order, position.trouble()).is_some()
        } else {
            self.hook_order = None;
            let was_known = std::mem::replace(&mut self.trouble, position.trouble()).is_some();
            self.is_mending = self.attempts.take(now);
            if self.is_mending {
                return Order::Mend;
            }
            was_known
        };
        if was_known { Order::Nothing } else { Order::Tell }
    }

    /// The programs in front now, or anything else that keeps weir from seeing all packets.
    pub fn reason(&self) -> Option<&str> {
        self.trouble.as_deref().or(self.hook_order.as_deref())
    }

    /// Notes that it was restored. Since [`Watched::note_wrong`] it did not see all packets either.
    pub fn note_mended(&mut self, now: Duration) {
        let passed = self.passed(now);
        if self.sees_nothing {
            self.blind += passed;
        } else {
            self.obscured += passed;
        }
        (self.trouble, self.is_mending, self.sees_nothing) = (None, false, false);
    }

    /// Notes that its position could not be checked since `due`, for example because another process holds the kernel's
    /// lock. It may have been blind since the last check: the interface's own count shows that.
    pub fn note_unknown(&mut self, due: Duration, now: Duration) {
        if self.good_at >= due {
            return;
        }
        let passed = self.passed(now);
        if self.is_mending && self.sees_nothing {
            self.blind += passed;
        } else {
            self.unchecked += passed;
        }
    }

    /// Notes that it is no longer attached anywhere. This is trouble until it is attached again.
    pub fn note_nowhere(&mut self, now: Duration) {
        let passed = self.passed(now);
        self.blind += passed;
    }

    /// Notes that it could not be restored.
    pub fn note_not_mended(&mut self, why: &str) {
        self.is_mending = false;
        if let Some(trouble) = &mut self.trouble {
            *trouble = format!("{trouble}; {why}");
        }
    }

    /// Returns true if it may already have been blind when the open window began, although this was not known then.
    pub const fn was_wrong_before(&self) -> bool {
        self.was_wrong_before
    }

    /// Returns for how long it may have seen no packets in the open window. The packets that it missed then are
    /// accounted for elsewhere.
    pub fn take_blind(&mut self) -> Duration {
        self.is_doubtful = false;
        [&mut self.blind, &mut self.obscured, &mut self.unchecked].map(std::mem::take).into_iter().sum()
    }

    /// Returns true if it may have been blind in the open window.
    pub const fn was_wrong(&self) -> bool {
        !self.blind.is_zero() || !self.obscured.is_zero() || !self.unchecked.is_zero()
    }

    /// Notes that the packets which it has missed until now are known.
    pub fn note_settled(&mut self) {
        let times = [&mut self.blind, &mut self.obscured, &mut self.unchecked].map(std::mem::take);
        self.settled += times.into_iter().sum::<Duration>();
        self.is_doubtful = false;
    }

    /// Returns for how long at most it was blind in the open window, if the packets that it missed then are known.
    pub fn take_settled(&mut self) -> Option<Duration> {
        Some(std::mem::take(&mut self.settled)).filter(|time| !time.is_zero())
    }

    /// Returns true if it may have been blind since the counts were last compared, usually at the end of a window.
    pub const fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// How long it may have been blind in the window that ends `now`. A program in front that passes everything on does
    /// not make weir blind, and neither does a check that failed. If the missing packets may also be in a queue, a
    /// later window decides, unless this is the last one: missed packets stay missing, and queues drain.
    pub fn close(&mut self, shortage: Shortage, now: Duration, is_last: bool) -> Option<Duration> {
        let is_decided = match shortage {
            Shortage::None => true,
            Shortage::Possible => false,
            Shortage::Certain => !self.obscured.is_zero(),
        };
        (self.closed_at, self.was_wrong_before) = (now, false);
        self.calm = if std::mem::take(&mut self.is_doubtful) { 0 } else { self.calm + 1 };
        let may_wait = self.blind.is_zero() && self.was_wrong() && self.waited < WAITED_MAX && !is_last;
        if may_wait && !is_decided {
            self.was_wrong_before = true;
            self.waited += 1;
            return None;
        }
        (self.waited, self.calm) = (0, 0);
        let missed = shortage != Shortage::None;
        let [blind, obscured, unchecked] =
            [&mut self.blind, &mut self.obscured, &mut self.unchecked].map(std::mem::take);
        if self.hook_order.is_some() {
            self.trouble = self.hook_order.clone().filter(|_| missed);
        }
        Some(if missed { blind + obscured + unchecked } else { blind }).filter(|time| !time.is_zero())
    }

    /// Returns true if the missing packets prove that it was blind. If nothing is known to have kept packets back, they
    /// may be in a queue, unless more than a queue holds are still missing some windows later.
    pub fn is_proof(&self, shortage: Shortage) -> bool {
        let is_decided = self.calm + 1 >= WAITED_MAX && !self.is_doubtful && shortage == Shortage::Certain;
        !self.blind.is_zero() || !self.obscured.is_zero() || is_decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn behind(can_move: bool) -> Position {
        Position::Behind { who: vec!["program 7".to_owned()], can_move }
    }

    #[test]
    fn a_few_attempts_are_immediate_and_then_one_per_minute() {
        let mut attempts = Attempts::new(seconds(100));
        let made: Vec<u64> = (100..400).filter(|now| attempts.take(seconds(*now))).collect();
        assert_eq!(made, [100, 101, 102, 160, 220, 280, 340]);
        assert!(
            (700..703).all(|now| attempts.take(seconds(now))),
            "after a long pause all attempts are available again"
        );
        assert!(!attempts.take(seconds(703)));
    }

    #[test]
    fn it_was_blind_from_the_last_good_check_until_it_is_restored() {
        let mut watched = Watched::new(seconds(10));
        assert!(!watched.note_well(seconds(11)) && !watched.was_wrong());
        assert_eq!(watched.note_wrong(&Position::Removed, seconds(12)), Order::Mend);
        assert!(watched.trouble().is_some());
        watched.note_mended(seconds(13));
        assert!(watched.was_wrong() && watched.trouble().is_none());
        assert!(!watched.note_well(seconds(20)), "it was already restored");
        assert_eq!(
            watched.close(Shortage::None, seconds(20), false),
            Some(seconds(2)),
            "whether packets arrived or not"
        );
        assert_eq!((watched.was_wrong(), watched.close(Shortage::Certain, seconds(21), false)), (false, None));
    }

    #[test]
    fn a_program_in_front_makes_weir_blind_only_if_packets_are_missing() {
        for (shortage, expected) in [(Shortage::None, None), (Shortage::Certain, Some(seconds(3)))] {
            let mut watched = Watched::new(seconds(10));
            assert_eq!(watched.note_wrong(&behind(true), seconds(12)), Order::Mend);
            watched.note_mended(seconds(13));
            assert_eq!(watched.close(shortage, seconds(13), false), expected);
        }
    }

    #[test]
    fn an_attachment_restored_after_the_edge_was_blind_only_if_it_saw_nothing() {
        for (position, expected) in [(behind(true), None), (Position::Removed, Some(seconds(2)))] {
            let mut watched = Watched::new(seconds(10));
            assert_eq!(watched.note_wrong(&position, seconds(11)), Order::Mend);
            assert_eq!(watched.close(Shortage::None, seconds(12), false).is_some(), expected.is_some());
            watched.note_mended(seconds(13));
            assert_eq!(watched.close(Shortage::None, seconds(14), false), expected, "{position:?}");
        }
    }

    #[test]
    fn queued_packets_are_missed_if_they_are_still_missing_some_windows_later() {
        let cases =
            [(Shortage::None, None), (Shortage::Certain, Some(seconds(2))), (Shortage::Possible, Some(seconds(2)))];
        for (last, expected) in cases {
            let waits = if last == Shortage::None { 2 } else { WAITED_MAX.into() };
            let mut watched = Watched::new(seconds(10));
            watched.note_unknown(seconds(11), seconds(12));
            for nth in 0..waits {
                assert_eq!(watched.close(Shortage::Possible, seconds(12 + nth), false), None, "{nth}");
                assert!(watched.was_wrong() && watched.was_wrong_before(), "this is not decided yet");
                watched.note_well(seconds(13 + nth));
            }
            assert_eq!(watched.close(last, seconds(12 + waits), false), expected);
            assert!(!watched.was_wrong() && !watched.was_wrong_before());
            watched.note_unknown(seconds(20), seconds(21));
            assert_eq!(watched.close(Shortage::Possible, seconds(21), false), None, "it waits again another time");
        }
        let mut removed = Watched::new(seconds(10));
        removed.note_wrong(&Position::Removed, seconds(12));
        assert!(removed.close(Shortage::Possible, seconds(12), false).is_some(), "no program saw them");
    }

    #[test]
    fn it_may_have_been_blind_before_the_window_began() {
        let mut watched = Watched::new(seconds(10));
        watched.note_well(seconds(11));
        assert_eq!(watched.close(Shortage::None, seconds(12), false), None);
        assert!(!watched.was_wrong_before(), "this is not known yet");
        watched.note_wrong(&Position::Removed, seconds(13));
        assert!(watched.was_wrong_before());
        watched.note_mended(seconds(13));
        assert!(
            watched.close(Shortage::Certain, seconds(14), false).is_some() && !watched.was_wrong_before(),
            "it was reported"
        );
        watched.note_well(seconds(15));
        watched.note_wrong(&Position::Removed, seconds(16));
        assert!(!watched.was_wrong_before(), "all was well in this window");
    }

    #[test]
    fn an_attachment_that_cannot_move_is_not_restored_and_stays_wrong() {
        let mut watched = Watched::new(seconds(10));
        assert_eq!(watched.note_wrong(&behind(false), seconds(11)), Order::Tell);
        assert!(watched.trouble().is_none() && watched.reason().is_some_and(|why| why.contains("program 7 runs")));
        assert_eq!(
            (watched.close(Shortage::None, seconds(11), false), watched.trouble()),
            (None, None),
            "the program in front passes everything on"
        );
        assert_eq!(watched.note_wrong(&behind(false), seconds(12)), Order::Nothing, "it was already reported");
        assert!(
            watched.close(Shortage::Certain, seconds(12), false) == Some(seconds(1)) && watched.trouble().is_some()
        );
        for now in 12..15 {
            assert_eq!(watched.note_wrong(&Position::Removed, seconds(now)), Order::Mend);
            assert_eq!(watched.note_wrong(&Position::Removed, seconds(now)), Order::Nothing, "it is being restored");
            watched.note_not_mended("not yet");
        }
        assert_eq!(watched.note_wrong(&Position::Removed, seconds(15)), Order::Nothing, "no attempt is left");
        watched.note_not_mended("and no more");
        assert!(watched.trouble().is_some_and(|trouble| trouble.ends_with("removed weir's program; and no more")));
        assert!(watched.note_well(seconds(16)));
    }

    #[test]
    fn without_a_check_the_interfaces_own_count_decides() {
        for (shortage, expected) in [(Shortage::None, None), (Shortage::Certain, Some(seconds(5)))] {
            let mut watched = Watched::new(seconds(10));
            watched.note_unknown(seconds(10), seconds(14));
            assert!(!watched.was_wrong(), "it was checked since then");
            watched.note_unknown(seconds(14), seconds(15));
            assert_eq!((watched.was_wrong(), watched.trouble(), watched.is_proof(shortage)), (true, None, false));
            for now in 15..15 + u64::from(WAITED_MAX) {
                assert_eq!(watched.close(shortage, seconds(now), false), None, "a queue may hold them");
                watched.note_well(seconds(now + 1));
            }
            assert_eq!(watched.is_proof(shortage), shortage == Shortage::Certain);
            assert_eq!(watched.close(shortage, seconds(20), false), expected);
        }
        let mut watched = Watched::new(seconds(10));
        watched.note_wrong(&Position::Removed, seconds(11));
        watched.note_unknown(seconds(12), seconds(14));
        assert_eq!(
            watched.close(Shortage::None, seconds(14), false),
            Some(seconds(4)),
            "it is known not to be attached"
        );
    }
}
