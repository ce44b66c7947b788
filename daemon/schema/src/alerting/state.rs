//! The states of a rule. A pure state machine: time is the number of windows.
//!
//! ```text
//!            beyond the limit          for so many windows
//! inactive ────────────────► pending ──────────────────────► firing ◄─┐
//!    ▲ ▲                        │                              │      │ beyond the limit for ending
//!    │ └────────────────────────┘              back within it  ▼      │
//!    │           not beyond the limit                       clearing ─┘
//!    └──────────────────────────────────────────────────────────┘
//!                        for so many windows
//! ```

use serde::{Deserialize, Serialize};

/// The outcome of a window for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A number is certainly beyond the limit.
    Beyond,
    /// No number is, but one is beyond the limit for ending.
    Between,
    /// No number is beyond either limit.
    Within,
    /// The window cannot be judged.
    Silent,
}

/// The state of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum State<T> {
    /// The condition does not hold.
    #[default]
    Inactive,
    /// A number is beyond the limit, but not for long enough.
    Pending(Since<T>),
    /// A number has been beyond the limit for long enough.
    Firing {
        /// The time for which the condition has held.
        since: Since<T>,
        /// For how many windows in a row no number has been beyond the limit for ending.
        within: u32,
    },
}

/// How long a number has been beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Since<T> {
    /// The start of the first such window.
    pub start: T,
    /// The number of such windows that were judged, including this one.
    pub windows: u64,
}

impl<T: Copy> Since<T> {
    const fn first(start: T) -> Self {
        Self { start, windows: 1 }
    }

    const fn longer(self) -> Self {
        Self { windows: self.windows + 1, ..self }
    }
}

/// The change that a window causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// There is nothing to report.
    None,
    /// The alert begins in this window.
    Begins,
    /// The alert ends in this window.
    Ends(Since<T>),
}

impl<T: Copy> State<T> {
    /// Advances by a window that starts at `start`. It takes `windows` windows to begin or end an alert.
    pub fn step(&mut self, verdict: Verdict, start: T, windows: u32) -> Change<T> {
        let (next, change) = match (*self, verdict) {
            (same, Verdict::Silent) => (same, Change::None),
            (Self::Inactive, Verdict::Beyond) => Self::waiting(Since::first(start), windows),
            (Self::Pending(since), Verdict::Beyond) => Self::waiting(since.longer(), windows),
            (Self::Inactive | Self::Pending(_), _) => (Self::Inactive, Change::None),
            (Self::Firing { since, within }, Verdict::Within) => {
                let (since, within) = (since.longer(), within + 1);
                if within >= windows {
                    (Self::Inactive, Change::Ends(since))
                } else {
                    (Self::Firing { since, within }, Change::None)
                }
            }
            (Self::Firing { since, .. }, Verdict::Beyond | Verdict::Between) => {
                (Self::Firing { since: since.longer(), within: 0 }, Change::None)
            }
        };
        *self = next;
        change
    }

    /// Notes that time has passed without a window, so the windows before and after it are not in a row.
    pub fn pause(&mut self) {
        *self = match *self {
            Self::Inactive | Self::Pending(_) => Self::Inactive,
            Self::Firing { since, .. } => Self::Firing { since, within: 0 },
        };
    }

    fn waiting(since: Since<T>, windows: u32) -> (Self, Change<T>) {
        if since.windows >= u64::from(windows) {
            (Self::Firing { since, within: 0 }, Change::Begins)
        } else {
            (Self::Pending(since), Change::None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Verdict::{Between, Beyond, Silent, Within},
        *,
    };

    /// A letter for each window: its state, upper case if an alert begins or ends there.
    fn story(windows: u32, verdicts: &[Verdict]) -> String {
        let mut state = State::default();
        let letter = |(start, verdict): (usize, &Verdict)| {
            let change = state.step(*verdict, start, windows);
            match (state, change) {
                (State::Inactive, Change::None) => '.',
                (State::Inactive, Change::Ends(_)) => 'E',
                (State::Pending(_), Change::None) => 'p',
                (State::Firing { .. }, Change::Begins) => 'F',
                (State::Firing { within: 0, .. }, Change::None) => 'f',
                (State::Firing { .. }, Change::None) => 'c',
                other => panic!("{other:?}"),
            }
        };
        verdicts.iter().enumerate().map(letter).collect()
    }

    #[test]
    fn an_alert_begins_and_ends_after_exactly_the_needed_windows() {
        assert_eq!(story(1, &[Within, Beyond, Beyond, Within, Within]), ".FfE.");
        assert_eq!(story(2, &[Beyond, Within, Beyond, Beyond, Within, Within, Within]), "p.pFcE.");
        assert_eq!(story(3, &[Beyond, Beyond, Beyond, Beyond, Within, Within, Within]), "ppFfccE");
    }

    #[test]
    fn between_the_limits_nothing_begins_and_nothing_ends() {
        assert_eq!(story(2, &[Between, Beyond, Between, Beyond, Between]), ".p.p.");
        assert_eq!(story(2, &[Beyond, Beyond, Between, Within, Between, Within, Beyond, Within, Within]), "pFfcfcfcE");
    }

    #[test]
    fn a_window_that_is_not_judged_changes_nothing() {
        assert_eq!(story(2, &[Silent, Beyond, Silent, Beyond, Silent, Within, Silent, Within, Silent]), ".ppFfccE.");
    }

    #[test]
    fn windows_with_a_pause_between_them_are_not_in_a_row() {
        let since = Since { start: 3, windows: 2 };
        let after = |mut state: State<i32>| {
            state.pause();
            state
        };
        assert_eq!(after(State::Pending(since)), State::Inactive);
        assert_eq!(after(State::Firing { since, within: 1 }), State::Firing { since, within: 0 });
        assert_eq!(after(State::Inactive), State::Inactive);
    }

    #[test]
    fn a_state_has_its_start_and_its_number_of_windows() {
        let mut state = State::default();
        let verdicts = [Within, Beyond, Silent, Beyond, Between, Within];
        let changes: Vec<_> = (10..).zip(verdicts).map(|(start, verdict)| state.step(verdict, start, 2)).collect();
        assert_eq!(changes[3], Change::Begins);
        assert_eq!(state, State::Firing { since: Since { start: 11, windows: 4 }, within: 1 });
        assert_eq!(state.step(Within, 16, 2), Change::Ends(Since { start: 11, windows: 5 }));
    }

    /// For all sequences of six windows, compares with the definition that the last windows decide.
    #[test]
    fn the_last_windows_decide_in_every_sequence() {
        const VERDICTS: [Verdict; 3] = [Beyond, Between, Within];
        for windows in 1..=3_u32 {
            for nth in 0..3_usize.pow(6) {
                let verdicts: Vec<_> = (0..6).map(|digit| VERDICTS[nth / 3_usize.pow(digit) % 3]).collect();
                let mut fires = false;
                let expected: Vec<bool> = (1..=verdicts.len())
                    .map(|end| {
                        let last = verdicts[..end].iter().rev().take(windows as usize);
                        let is_long = end >= windows as usize;
                        if fires {
                            fires = !(is_long && last.clone().all(|verdict| *verdict == Within));
                        } else {
                            fires = is_long && last.clone().all(|verdict| *verdict == Beyond);
                        }
                        fires
                    })
                    .collect();
                let told: Vec<bool> = story(windows, &verdicts).chars().map(|c| "Ffc".contains(c)).collect();
                assert_eq!(told, expected, "{windows} windows: {verdicts:?}");
            }
        }
    }
}
