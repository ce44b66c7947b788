//! Tracks what works: if the attacher thread answers, and which interfaces the kernel has refused.

use std::{collections::HashMap, time::Duration};

use weir_config::interface::Way;

/// If the kernel blocks the thread for longer than this, weir warns.
const PATIENCE: Duration = Duration::from_millis(500);

/// Requests to the attacher thread that are not answered, and interfaces that were refused.
#[derive(Debug, Default)]
pub struct Health {
    /// True if the thread has been asked for a list of interfaces.
    is_listing: bool,
    /// The number of the last ordered check, and of the last finished one.
    checks: [u64; 2],
    /// How many attachments are being restored.
    mending: usize,
    /// Since when a request to the thread has been unanswered.
    asked_at: Option<Duration>,
    /// Why the kernel has refused interfaces.
    refusals: HashMap<(u32, Way), String>,
}

impl Health {
    /// Begins to wait for a list. Returns whether to ask for it: there is only one at a time.
    pub fn begin_list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listing, true)
    }

    /// The list has arrived.
    pub const fn end_list(&mut self) {
        self.is_listing = false;
    }

    /// The number of the next check, which begins now.
    pub const fn begin_check(&mut self) -> u64 {
        self.checks[0] += 1;
        self.checks[0]
    }

    /// The check with this number is finished.
    pub const fn end_check(&mut self, nth: u64) {
        self.checks[1] = nth;
    }

    /// Returns true while a check is not finished.
    pub const fn is_checking(&self) -> bool {
        self.checks[0] != self.checks[1]
    }

    /// Begins to restore an attachment.
    pub const fn begin_mending(&mut self) {
        self.mending += 1;
    }

    /// An attachment was restored, or cannot be.
    pub const fn end_mending(&mut self) {
        self.mending = self.mending.saturating_sub(1);
    }

    /// Returns true if the check with this number is finished and everything that it found broken is restored.
    pub const fn is_settled(&self, nth: u64) -> bool {
        self.checks[1] >= nth && self.mending == 0
    }

    /// The tasks were sent at this time.
    pub fn note_sent(&mut self, now: Duration) {
        if self.is_listing || self.is_checking() {
            self.asked_at = self.asked_at.or(Some(now));
        }
    }

    /// The thread has answered.
    pub const fn note_answered(&mut self) {
        self.asked_at = None;
    }

    /// Returns true if a request to the thread has been unanswered for long.
    pub fn is_held_up(&self, now: Duration) -> bool {
        self.asked_at.is_some_and(|asked| now.saturating_sub(asked) > PATIENCE)
    }

    /// Why the kernel has refused this direction of an interface.
    pub fn refusal(&self, ifindex: u32, way: Way) -> Option<&str> {
        self.refusals.get(&(ifindex, way)).map(String::as_str)
    }

    /// Returns true if any interface is refused.
    pub fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Notes a refusal. Returns whether it is another one than before.
    pub fn note_refused(&mut self, ifindex: u32, way: Way, reason: &str) -> bool {
        let is_new = self.refusal(ifindex, way) != Some(reason);
        if is_new {
            self.refusals.insert((ifindex, way), reason.to_owned());
        }
        is_new
    }

    /// This direction of an interface is attached.
    pub fn forget_refusal(&mut self, ifindex: u32, way: Way) {
        self.refusals.remove(&(ifindex, way));
    }

    /// Forgets the refusals of all interfaces, except those with an index that stays.
    pub fn retain_refusals(&mut self, stays: impl Fn(u32) -> bool) {
        self.refusals.retain(|(ifindex, _), _| stays(*ifindex));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_is_held_up_if_a_request_has_no_answer_for_long() {
        let ms = Duration::from_millis;
        let mut health = Health::default();
        health.note_sent(ms(0));
        assert!(!health.is_held_up(ms(9_000)), "nothing was asked");
        assert!(health.begin_list() && !health.begin_list(), "one list at a time");
        health.note_sent(ms(1_000));
        health.note_sent(ms(1_400));
        assert_eq!([1_500, 1_501].map(|now| health.is_held_up(ms(now))), [false, true], "since the first request");
        health.note_answered();
        health.end_list();
        assert!(!health.is_held_up(ms(9_000)) && health.begin_list());
    }

    #[test]
    fn a_check_is_settled_once_all_that_it_found_is_restored() {
        let mut health = Health::default();
        let (first, second) = (health.begin_check(), health.begin_check());
        health.end_check(first);
        assert!(health.is_settled(first) && !health.is_settled(second) && health.is_checking());
        health.begin_mending();
        health.end_check(second);
        assert!(!health.is_settled(second) && !health.is_checking());
        health.end_mending();
        assert!(health.is_settled(second));
    }

    #[test]
    fn each_reason_of_a_refusal_is_new_once() {
        let mut health = Health::default();
        let mut is_new = |reason| health.note_refused(7, Way::Ingress, reason);
        assert_eq!(["a", "a", "b"].map(&mut is_new), [true, false, true]);
        assert_eq!((health.refusal(7, Way::Ingress), health.refusal(7, Way::Egress)), (Some("b"), None));
        health.retain_refusals(|ifindex| ifindex != 7);
        assert!(!health.has_refusals());
    }
}
