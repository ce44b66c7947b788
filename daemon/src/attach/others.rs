//! Interfaces that fit a pattern and find no free slot: an access router has thousands of them. All share one slot, so
//! that each packet is counted, and the report names them `others`.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use weir_common::{
    control::{Feeds, OTHERS},
    ledger::{Ledger, Tally},
};

use super::{
    check::{Checked, Checker},
    ladder::Hold,
    netlink::Device,
    obtained::Obtained,
    plan::{Wanted, successor},
    readings::Readings,
    watch::Watched,
};
use crate::{
    clock,
    config::Interface,
    interface::Way,
    measure::interface::{Counts, MeasuredInterface},
};

/// Their name in reports.
pub const NAME: &str = "others";

/// The interfaces without a slot of their own.
#[derive(Default)]
pub struct Others {
    members: HashMap<(u32, Way), Member>,
    /// Whether there was one in this window.
    had_one: bool,
    /// Whether one of them counted buffers in this window.
    counted_buffers: bool,
    /// For how long one of them may have been blind in this window.
    blind: Option<Duration>,
    /// Where the next look begins.
    next: usize,
}

/// One direction of such an interface.
struct Member {
    rule: usize,
    obtained: Obtained,
    feeds: Feeds,
    /// Dropping it detaches.
    hold: Option<Hold>,
    watched: Watched,
    /// The interface's own count at the last window's edge.
    own: Option<Tally>,
}

impl Others {
    /// The slot that they share.
    pub const SLOT: usize = OTHERS as usize;

    /// Whether this direction of this interface is among them.
    pub fn has(&self, ifindex: u32, way: Way) -> bool {
        self.members.contains_key(&(ifindex, way))
    }

    /// How many of them are at a tc hook.
    pub fn at_tc(&self) -> usize {
        self.members.values().filter(|member| member.obtained.is_at_tc()).count()
    }

    /// How many of them have a link.
    pub fn links(&self) -> usize {
        self.members.values().filter(|member| member.obtained.has_link()).count()
    }

    /// Takes one more; returns whether it is the first.
    pub fn take(&mut self, wanted: &Wanted<'_>, (obtained, feeds): (Obtained, Feeds), hold: Option<Hold>) -> bool {
        let is_first = self.members.is_empty();
        let (rule, watched) = (wanted.rule, Watched::new(clock::now().monotonic));
        let member = Member { rule, obtained, feeds, hold, watched, own: None };
        self.members.insert((wanted.device.ifindex, wanted.way), member);
        self.note();
        is_first
    }

    /// Goes from the rules `before` to those of another configuration. What these do not ask for any more is let go the
    /// next time.
    pub fn change(&mut self, before: &[Interface], rules: &[Interface], devices: &[Device]) {
        for ((ifindex, way), member) in &mut self.members {
            let device = devices.iter().find(|device| device.ifindex == *ifindex);
            let rule = device.and_then(|device| successor(before, member.rule, rules, device, *way));
            member.rule = rule.unwrap_or(usize::MAX);
        }
    }

    /// Detaches from what is gone or no longer wanted.
    pub fn let_go(&mut self, wanted: &[Wanted<'_>], gone: &HashSet<u32>) {
        let asked_for: HashSet<_> =
            wanted.iter().map(|wanted| (wanted.device.ifindex, wanted.way, wanted.rule)).collect();
        self.members.retain(|&(ifindex, way), member| {
            !gone.contains(&ifindex) && asked_for.contains(&(ifindex, way, member.rule))
        });
    }

    /// Looks whether each of them is where it was put. Where that takes long, because others hold the kernel's lock of
    /// interfaces, the rest is looked at later.
    pub fn check(&mut self, checker: &mut Checker<'_, '_>, gone: &HashSet<u32>) {
        /// The coordinator has windows to end.
        const PATIENCE: Duration = Duration::from_millis(50);
        let begun = clock::now().monotonic;
        let members = self.members.iter_mut();
        let mut looked = 0;
        for (&(ifindex, way), Member { obtained, hold, watched, .. }) in members.skip(self.next) {
            if !gone.contains(&ifindex) {
                checker.check(Checked { ifindex, name: NAME, way, obtained: *obtained, hold, watched });
            }
            looked += 1;
            if clock::now().monotonic.saturating_sub(begun) > PATIENCE {
                break;
            }
        }
        self.next += looked;
        if self.next >= self.members.len() {
            self.next = 0;
        }
        // Where it could not be put back, it is attached anew, or refused as any other.
        self.members.retain(|_, member| member.hold.is_some());
    }

    /// What may have been missed while some of them were blind: which packets of their account these are is not known,
    /// so it may be all that they counted.
    pub fn missed(&mut self, readings: &Readings<'_>) -> Tally {
        let mut missed = Tally::default();
        for (&(ifindex, way), Member { watched, own, .. }) in &mut self.members {
            let now = readings.own(ifindex, way);
            let before = std::mem::replace(own, now);
            if let Some(blind) = watched.close(true) {
                self.blind = self.blind.max(Some(blind));
                missed.add(now.unwrap_or_default().since(before.unwrap_or_default()));
            }
        }
        missed
    }

    /// What keeps weir from seeing all packets of one of them now.
    pub fn trouble(&self) -> Option<&str> {
        self.members.values().find_map(|member| member.watched.trouble())
    }

    /// Their part of a window's report; `None` if there was none of them.
    pub fn close(&mut self, ledger: &Ledger) -> Option<MeasuredInterface> {
        let (had_one, counted_buffers) = (self.had_one, self.counted_buffers);
        (self.had_one, self.counted_buffers) = (false, false);
        self.note();
        // A packet may still be counted while its interface is let go.
        (had_one || ledger.counters.seen.packets > 0).then(|| MeasuredInterface {
            slot: Self::SLOT,
            name: NAME.to_owned(),
            index: None,
            alias: None,
            mode: Obtained::Shared.name(),
            counts: if counted_buffers { Counts::Buffers } else { Counts::Packets },
            direction: None,
            feeds: self.feeds(),
            coverage: None,
            coverage_bytes: None,
            blind: self.blind.take(),
            trouble: self.trouble().map(str::to_owned),
        })
    }

    /// Says anew what each of them feeds.
    pub fn feed(&mut self, feeds: impl Fn(u32, Way) -> Feeds) {
        for (&(ifindex, way), member) in &mut self.members {
            member.feeds = feeds(ifindex, way);
            if let Some(Hold::Socket { tap }) = &member.hold {
                tap.set_feeds(member.feeds);
            }
        }
    }

    /// What they feed together, as reports name it.
    fn feeds(&self) -> &'static str {
        let mut all = self.members.values().map(|member| member.feeds);
        let first = all.next().unwrap_or_default();
        if all.all(|feeds| feeds == first) { first.name() } else { "mixed" }
    }

    /// Detaches from all, for good.
    pub fn detach(&mut self) {
        self.members.clear();
    }

    /// What was taken over from an earlier weir goes with this one from now on.
    pub fn settle(&mut self) {
        self.members.values_mut().filter_map(|member| member.hold.as_mut()).for_each(Hold::settle);
    }

    /// Lets go of all. Programs stay on their interfaces, for the next weir.
    pub fn leave_behind(&mut self) {
        self.members.drain().filter_map(|(_, member)| member.hold).for_each(Hold::leave_behind);
    }

    fn note(&mut self) {
        self.had_one |= !self.members.is_empty();
        self.counted_buffers |= self.members.values().any(|member| member.obtained.counts() == Counts::Buffers);
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;

    use super::{
        super::{netlink::Device, plan::wanted},
        *,
    };
    use crate::config::{Direction, Interface, Mode};

    #[test]
    fn they_are_reported_while_there_are_some_and_let_go_with_their_interface() {
        let rules = [Interface { name: "ppp*".to_owned(), mode: Mode::Auto, direction: Direction::Both, feeds: None }];
        let device = |ifindex| Device { ifindex, name: format!("ppp{ifindex}"), hardware: 512, ..Device::default() };
        let devices = [device(7), device(8)];
        let wanted = wanted(&rules, &devices, true);
        let (mut others, ledger) = (Others::default(), Ledger::default());
        assert_eq!(others.close(&ledger), None, "there was none");
        let first: Vec<_> =
            wanted.iter().map(|wanted| others.take(wanted, (Obtained::Tcx, Feeds::All), None)).collect();
        assert_eq!(first, [true, false, false, false]);
        let listed = others.close(&ledger).unwrap();
        assert_eq!(listed.feeds, "all");
        others.feed(|ifindex, _| if ifindex == 7 { Feeds::None } else { Feeds::All });
        assert_eq!(others.close(&ledger).unwrap().feeds, "mixed");
        assert_eq!((listed.name.as_str(), listed.mode, listed.direction), ("others", "others", None));
        others.let_go(&wanted[1..], &HashSet::from([8]));
        let left = [(7, Way::Ingress), (7, Way::Egress), (8, Way::Ingress), (8, Way::Egress)];
        assert_eq!(left.map(|(ifindex, way)| others.has(ifindex, way)), [false, true, false, false]);
        others.let_go(&[], &HashSet::new());
        assert!(others.close(&ledger).is_some(), "there was one at the beginning of this window");
        assert_eq!(others.close(&ledger), None);
        let mut late = ledger;
        late.counters.seen = Tally::new(1, 60);
        assert!(others.close(&late).is_some(), "no packet is missing from the report");
    }

    #[test]
    fn one_that_counts_buffers_is_said_of_all() {
        let rules = [Interface { name: "e*".to_owned(), mode: Mode::Auto, direction: Direction::Ingress, feeds: None }];
        let devices = [Device { ifindex: 3, name: "e3".to_owned(), hardware: 1, ..Device::default() }];
        let mut others = Others::default();
        others.take(&wanted(&rules, &devices, true)[0], (Obtained::Generic, Feeds::All), None);
        assert_eq!(others.close(&Ledger::default()).unwrap().counts, Counts::Buffers);
    }
}
