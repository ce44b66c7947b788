//! What is known of an attachment's place at its hook: whether it sees all packets now, for how long it may not have
//! seen them, and how often weir has mended that.
//!
//! Somebody may remove a link or a filter, put another program in it, or stand in front of it with a program that ends
//! the chain. weir looks once a second and at each window's edge. When something is wrong, it attaches again or moves
//! to the front at once. From the last look at which all was well until then, it may have been blind. Who stands in
//! front may pass every packet on: then nothing was missed, and the interface's own count shows it.
//!
//! Somebody may do the same again and again. Then weir mends it a few times at once and after that once a minute. It
//! says who stands in front, and that it does not see all packets.

use std::time::Duration;

use super::coverage::Shortage;

/// What becomes of an attachment that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// It meets every packet before all others do.
    First,
    /// These, by their names, meet the packets before it.
    Behind {
        /// Who they are.
        who: Vec<String>,
        /// Whether weir can move before them.
        can_move: bool,
    },
    /// Somebody has removed it.
    Removed,
    /// Somebody has put the program of this number in its place.
    Replaced(u32),
}

impl Position {
    /// What is wrong, for people; `None` if nothing is.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::First => None,
            Self::Behind { who, .. } => Some(format!(
                "{} before weir's program, which sees only what is passed on",
                match &who[..] {
                    [one] => format!("{one} stands"),
                    [one, other] => format!("{one} and {other} stand"),
                    all => format!("{} and {} more stand", all[..2].join(", "), all.len() - 2),
                }
            )),
            Self::Removed => Some("somebody has removed weir's program".to_owned()),
            Self::Replaced(program) => Some(format!("somebody has put program {program} in the place of weir's")),
        }
    }
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Put it back now.
    Mend,
    /// Say so: this is new, and weir leaves it so for now.
    Tell,
    /// It was said.
    Nothing,
}

/// How often weir may mend an attachment: a few times at once, and then once in a while.
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

    /// Takes one, if one is left at this monotonic time.
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

/// One attachment as it is watched. All times are monotonic.
#[derive(Clone, Debug)]
pub struct Watched {
    /// When it was last known to see all packets.
    good_at: Duration,
    /// For how long of the open window it saw no packets, at most.
    blind: Duration,
    /// For how long of the open window somebody stood in front of it, at most.
    obscured: Duration,
    /// When the window before ended.
    closed_at: Duration,
    /// Whether it may have been blind before the open window began.
    was_wrong_before: bool,
    /// Whether the window before has left it open whether packets were missed.
    has_waited: bool,
    attempts: Attempts,
    trouble: Option<String>,
    /// Who stands in front and cannot be passed; that is trouble only where packets are missing.
    standing: Option<String>,
    /// It is to be mended, and that is not done yet.
    is_mending: bool,
}

impl Watched {
    /// One that was attached now.
    pub const fn new(now: Duration) -> Self {
        let attempts = Attempts::new(now);
        Self {
            good_at: now,
            blind: Duration::ZERO,
            obscured: Duration::ZERO,
            closed_at: Duration::ZERO,
            was_wrong_before: false,
            has_waited: false,
            attempts,
            trouble: None,
            standing: None,
            is_mending: false,
        }
    }

    /// One that is attached now to an interface that may have been there since then.
    pub fn returned(since: Duration, now: Duration) -> Self {
        Self { blind: now.saturating_sub(since), ..Self::new(now) }
    }

    /// One that was taken over from an earlier weir, which had looked for the last time then.
    pub fn taken_over(looked: Duration, now: Duration) -> Self {
        Self { good_at: looked.min(now), ..Self::new(now) }
    }

    /// When it was last known to see all packets.
    pub const fn good_at(&self) -> Duration {
        self.good_at
    }

    /// What keeps weir from seeing all packets now.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// All is well now. Returns whether it was not before.
    pub fn is_well(&mut self, now: Duration) -> bool {
        (self.good_at, self.standing) = (now, None);
        self.trouble.take().is_some()
    }

    /// How much time has passed since it was last known to see all packets, or since this was asked before.
    fn passed(&mut self, now: Duration) -> Duration {
        self.was_wrong_before |= self.good_at < self.closed_at;
        now.saturating_sub(std::mem::replace(&mut self.good_at, now))
    }

    /// It is not where it should be.
    pub fn is_wrong(&mut self, position: &Position, now: Duration) -> Order {
        let passed = self.passed(now);
        match position {
            Position::First => return Order::Nothing,
            Position::Behind { .. } => self.obscured += passed,
            Position::Removed | Position::Replaced(_) => self.blind += passed,
        }
        if self.is_mending {
            return Order::Nothing;
        }
        let was_known = if matches!(position, Position::Behind { can_move: false, .. }) {
            std::mem::replace(&mut self.standing, position.trouble()).is_some()
        } else {
            self.standing = None;
            let was_known = std::mem::replace(&mut self.trouble, position.trouble()).is_some();
            self.is_mending = self.attempts.take(now);
            if self.is_mending {
                return Order::Mend;
            }
            was_known
        };
        if was_known { Order::Nothing } else { Order::Tell }
    }

    /// What stands in front now, or keeps weir from seeing all packets.
    pub fn reason(&self) -> Option<&str> {
        self.trouble.as_deref().or(self.standing.as_deref())
    }

    /// It is mended: what has passed since [`Watched::is_wrong`] was seen no better.
    pub fn is_mended(&mut self, now: Duration) {
        let passed = self.passed(now);
        if self.blind >= self.obscured {
            self.blind += passed;
        } else {
            self.obscured += passed;
        }
        (self.trouble, self.is_mending) = (None, false);
    }

    /// Nobody could look where it is since `due`, for example because somebody holds the kernel's lock. It may have
    /// been blind since it was last seen: the interface's own count shows it.
    pub fn is_unknown(&mut self, due: Duration, now: Duration) {
        if self.good_at >= due {
            return;
        }
        let passed = self.passed(now);
        if self.is_mending && self.blind >= self.obscured {
            self.blind += passed;
        } else {
            self.obscured += passed;
        }
    }

    /// It is attached nowhere any more, and is not said to be well until it is again.
    pub fn is_nowhere(&mut self, now: Duration) {
        let passed = self.passed(now);
        self.blind += passed;
    }

    /// It was not possible to mend it.
    pub fn is_not_mended(&mut self, why: &str) {
        self.is_mending = false;
        if let Some(trouble) = &mut self.trouble {
            *trouble = format!("{trouble}; {why}");
        }
    }

    /// Whether it may have been blind already when the open window began, which nobody knew then.
    pub const fn was_wrong_before(&self) -> bool {
        self.was_wrong_before
    }

    /// Whether it may have been blind in the open window.
    pub const fn was_wrong(&self) -> bool {
        !self.blind.is_zero() || !self.obscured.is_zero()
    }

    /// For how long it may have been blind in the window that ends `now`. A program in front that passes everything on
    /// makes nobody blind. If its packets may just as well be on their way, the next window has the answer.
    pub fn close(&mut self, shortage: Shortage, now: Duration) -> Option<Duration> {
        (self.closed_at, self.was_wrong_before) = (now, false);
        let has_waited = std::mem::take(&mut self.has_waited);
        let may_wait = self.blind.is_zero() && !self.obscured.is_zero() && !has_waited;
        if may_wait && shortage == Shortage::Possible {
            (self.was_wrong_before, self.has_waited) = (true, true);
            return None;
        }
        let missed = shortage != Shortage::None;
        let (blind, obscured) = (std::mem::take(&mut self.blind), std::mem::take(&mut self.obscured));
        if self.standing.is_some() {
            self.trouble = self.standing.clone().filter(|_| missed);
        }
        Some(if missed { blind + obscured } else { blind }).filter(|time| !time.is_zero())
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
    fn a_few_attempts_are_made_at_once_and_then_one_a_minute() {
        let mut attempts = Attempts::new(seconds(100));
        let made: Vec<u64> = (100..400).filter(|now| attempts.take(seconds(*now))).collect();
        assert_eq!(made, [100, 101, 102, 160, 220, 280, 340]);
        assert!((700..703).all(|now| attempts.take(seconds(now))), "after a long rest all of them again");
        assert!(!attempts.take(seconds(703)));
    }

    #[test]
    fn it_was_blind_from_the_last_good_look_until_it_is_mended() {
        let mut watched = Watched::new(seconds(10));
        assert!(!watched.is_well(seconds(11)) && !watched.was_wrong());
        assert_eq!(watched.is_wrong(&Position::Removed, seconds(12)), Order::Mend);
        assert!(watched.trouble().is_some());
        watched.is_mended(seconds(13));
        assert!(watched.was_wrong() && watched.trouble().is_none());
        assert!(!watched.is_well(seconds(20)), "it was mended before");
        assert_eq!(watched.close(Shortage::None, seconds(20)), Some(seconds(2)), "whether packets came or not");
        assert_eq!((watched.was_wrong(), watched.close(Shortage::Certain, seconds(21))), (false, None));
    }

    #[test]
    fn who_stands_in_front_makes_blind_only_if_packets_are_missed() {
        for (shortage, expected) in [(Shortage::None, None), (Shortage::Certain, Some(seconds(3)))] {
            let mut watched = Watched::new(seconds(10));
            assert_eq!(watched.is_wrong(&behind(true), seconds(12)), Order::Mend);
            watched.is_mended(seconds(13));
            assert_eq!(watched.close(shortage, seconds(13)), expected);
        }
    }

    #[test]
    fn packets_that_may_be_on_their_way_are_missed_if_they_have_not_come_a_window_later() {
        for (later, expected) in [(Shortage::None, None), (Shortage::Possible, Some(seconds(2)))] {
            let mut watched = Watched::new(seconds(10));
            watched.is_unknown(seconds(11), seconds(12));
            assert_eq!(watched.close(Shortage::Possible, seconds(12)), None);
            assert!(watched.was_wrong() && watched.was_wrong_before(), "it is still open");
            watched.is_well(seconds(13));
            assert_eq!(watched.close(later, seconds(13)), expected);
            assert!(!watched.was_wrong() && !watched.was_wrong_before());
        }
        let mut removed = Watched::new(seconds(10));
        removed.is_wrong(&Position::Removed, seconds(12));
        assert!(removed.close(Shortage::Possible, seconds(12)).is_some(), "nobody saw them");
    }

    #[test]
    fn it_may_have_been_blind_before_the_window_began() {
        let mut watched = Watched::new(seconds(10));
        watched.is_well(seconds(11));
        assert_eq!(watched.close(Shortage::None, seconds(12)), None);
        assert!(!watched.was_wrong_before(), "nobody knows yet");
        watched.is_wrong(&Position::Removed, seconds(13));
        assert!(watched.was_wrong_before());
        watched.is_mended(seconds(13));
        assert!(
            watched.close(Shortage::Certain, seconds(14)).is_some() && !watched.was_wrong_before(),
            "it is declared"
        );
        watched.is_well(seconds(15));
        watched.is_wrong(&Position::Removed, seconds(16));
        assert!(!watched.was_wrong_before(), "all was well in this window");
    }

    #[test]
    fn what_cannot_be_moved_is_not_tried_and_stays_wrong() {
        let mut watched = Watched::new(seconds(10));
        assert_eq!(watched.is_wrong(&behind(false), seconds(11)), Order::Tell);
        assert!(watched.trouble().is_none() && watched.reason().is_some_and(|why| why.contains("program 7 stands")));
        assert_eq!(
            (watched.close(Shortage::None, seconds(11)), watched.trouble()),
            (None, None),
            "it passes everything on"
        );
        assert_eq!(watched.is_wrong(&behind(false), seconds(12)), Order::Nothing, "it was said");
        assert!(watched.close(Shortage::Certain, seconds(12)) == Some(seconds(1)) && watched.trouble().is_some());
        for now in 12..15 {
            assert_eq!(watched.is_wrong(&Position::Removed, seconds(now)), Order::Mend);
            assert_eq!(watched.is_wrong(&Position::Removed, seconds(now)), Order::Nothing, "it is being mended");
            watched.is_not_mended("not yet");
        }
        assert_eq!(watched.is_wrong(&Position::Removed, seconds(15)), Order::Nothing, "again and again");
        watched.is_not_mended("and no more");
        assert!(watched.trouble().is_some_and(|trouble| trouble.ends_with("removed weir's program; and no more")));
        assert!(watched.is_well(seconds(16)));
    }

    #[test]
    fn where_nobody_could_look_the_interfaces_own_count_tells() {
        for (shortage, expected) in [(Shortage::None, None), (Shortage::Certain, Some(seconds(5)))] {
            let mut watched = Watched::new(seconds(10));
            watched.is_unknown(seconds(10), seconds(14));
            assert!(!watched.was_wrong(), "somebody has looked since then");
            watched.is_unknown(seconds(14), seconds(15));
            assert_eq!((watched.was_wrong(), watched.trouble()), (true, None));
            assert_eq!(watched.close(shortage, seconds(15)), expected);
        }
        let mut watched = Watched::new(seconds(10));
        watched.is_wrong(&Position::Removed, seconds(11));
        watched.is_unknown(seconds(12), seconds(14));
        assert_eq!(watched.close(Shortage::None, seconds(14)), Some(seconds(4)), "it is known to be nowhere");
    }
}
