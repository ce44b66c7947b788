//! The slots: one for each direction of each measured interface. This file decides which interface gets which slot. It
//! makes no system calls.
//!
//! The kernel programs count into a fixed number of slots, and a slot's counters continue over windows. So an interface
//! keeps its slot while it is renamed or away, and one that has left gives its slot up only when its last window is
//! reported. Slots that the default route may need are never given to patterns.

use std::collections::HashMap;

use weir_config::{self as config, Interface, interface::Way};

use super::{
    attachment::Attachment,
    departures::Departure,
    netlink::Device,
    obtained::Obtained,
    plan::{PlannedAttachment, successor},
    shared_slot::SharedSlot,
    tasks::Number,
};

/// All slots, by number; `None` for a free one.
pub struct Slots(Vec<Option<Attachment>>);

impl Slots {
    /// Creates as many slots as these interfaces may need. A named interface always has its slot, present or not.
    pub fn new(interfaces: &[Interface]) -> Self {
        let named = interfaces.iter().enumerate().filter(|(_, interface)| interface.is_named());
        let named = named.flat_map(|(rule, interface)| {
            interface.direction.ways().iter().map(move |&way| Attachment::new(rule, &interface.name, way))
        });
        let mut slots: Vec<_> = named.map(Some).collect();
        slots.resize_with(config::slots(interfaces).min(SharedSlot::SLOT), || None);
        Self(slots)
    }

    /// Changes from the rules `before` to those of another configuration. Attachments that the new rules want, in the
    /// same mode, keep their slots; the others are leaving. Named interfaces get their slots, present or not. Adds
    /// slots if needed, up to `most` in all. `devices` are the present interfaces.
    pub fn change(&mut self, before: &[Interface], rules: &[Interface], devices: &[Device], most: usize) {
        for attachment in self.iter_mut().filter(|one| !one.is_leaving) {
            let named = Device { name: attachment.name.clone(), ..Device::default() };
            let device = devices.iter().find(|device| device.name == attachment.name).unwrap_or(&named);
            let rule = successor(before, attachment.rule, rules, device, attachment.way);
            match rule {
                Some(rule) => attachment.rule = rule,
                None => attachment.is_leaving = true,
            }
        }
        for (rule, interface) in rules.iter().enumerate().filter(|(_, interface)| interface.is_named()) {
            for &way in interface.direction.ways() {
                let has_slot = |one: &Attachment| !one.is_leaving && one.way == way && one.rule == rule;
                if !self.iter().any(has_slot) {
                    let mut coming = Attachment::new(rule, &interface.name, way);
                    coming.is_coming = true;
                    self.put(coming, most);
                }
            }
        }
        let asked_for = config::slots(rules).min(most);
        if self.0.len() < asked_for {
            self.0.resize_with(asked_for, || None);
        }
    }

    /// Continues measurements whose interface was renamed and is now covered by another rule, for example because two
    /// interfaces have swapped their names. The slot follows the interface. A slot that waited for the new name now
    /// waits for the old one.
    pub fn pass_on(&mut self, rules: &[Interface], wanted: &[PlannedAttachment<'_>], gone: &HashMap<u32, Departure>) {
        for slot in 0..self.0.len() {
            let Some(one) = &self.0[slot] else { continue };
            let Some(to) = one.next_rule(rules, wanted, gone) else { continue };
            let (from, way) = (one.rule, one.way);
            let name = if rules[from].is_named() { &rules[from].name } else { &one.name }.clone();
            let is_its = |other: &Attachment| other.rule == to && other.way == way && !other.is_leaving;
            let reserved = self.0.iter().position(|other| rules[to].is_named() && other.as_ref().is_some_and(is_its));
            match reserved {
                Some(other) => self.0[other].iter_mut().for_each(|other| other.wait_as(from, &name)),
                // The old name keeps a slot.
                None if rules[from].is_named() => {
                    if self.free() <= self.reserved(rules) {
                        continue;
                    }
                    self.put(Attachment::new(from, &name, way), self.0.len());
                }
                None => {}
            }
            if let Some(one) = &mut self.0[slot] {
                one.rule = to;
            }
        }
    }

    fn put(&mut self, attachment: Attachment, most: usize) {
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(attachment);
        } else if self.0.len() < most {
            self.0.push(Some(attachment));
        }
    }

    /// How many slots there are, used or free.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the attachments in the used slots.
    pub fn iter(&self) -> impl Iterator<Item = &Attachment> + Clone {
        self.0.iter().flatten()
    }

    /// Returns the attachments in the used slots, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attachment> {
        self.0.iter_mut().flatten()
    }

    /// A slot, used or free; `None` if the number is out of range.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Option<Attachment>> {
        self.0.get_mut(slot)
    }

    /// Returns true if this direction of this interface is attached, or ordered.
    pub fn is_measured(&self, ifindex: u32, way: Way) -> bool {
        let is_its = |one: &Attachment| one.here().is_some_and(|present| present.ifindex == ifindex);
        self.iter().any(|one| one.way == way && is_its(one))
    }

    /// The slot of this attachment, attached or ordered.
    pub fn slot_of(&self, number: Number) -> Option<usize> {
        let has = |one: &Attachment| one.here().is_some_and(|present| present.number == number);
        self.0.iter().position(|slot| slot.as_ref().is_some_and(has))
    }

    /// How many are ordered and were not refused before.
    pub fn waiting(&self) -> usize {
        self.iter().filter(|one| one.is_waiting()).count()
    }

    /// The used slots with their numbers, read-only.
    pub fn all(&self) -> impl Iterator<Item = (usize, &Attachment)> {
        self.0.iter().enumerate().filter_map(|(slot, one)| Some((slot, one.as_ref()?)))
    }

    /// The used slots with their numbers.
    pub fn numbered(&mut self) -> impl Iterator<Item = (usize, &mut Attachment)> {
        self.0.iter_mut().enumerate().filter_map(|(slot, one)| Some((slot, one.as_mut()?)))
    }

    /// How many of them are measured by a packet socket, or will be.
    pub fn sockets(&self) -> usize {
        let is_socket = |one: &&Attachment| match (&one.present, &one.ordered) {
            (Some(_), _) => one.obtained == Obtained::AfPacket,
            (None, Some(ordered)) => ordered.by_socket,
            (None, None) => false,
        };
        self.iter().filter(is_socket).count()
    }

    /// The slot for an interface that is about to be attached: its own slot, the one that it already had in this
    /// window, or a free one. `None` if all slots are used. Some slots are reserved for the default route; patterns do
    /// not get them.
    pub fn place_for(&self, rules: &[Interface], rule: usize, name: &str, way: Way) -> Option<usize> {
        // A slot that waits for a name may also get an interface by one of its alternative names.
        let is_its = |one: &Attachment| one.name == name || one.rule == rule && rules[rule].is_named();
        let is_own = |one: &Attachment| one.way == way && !one.is_leaving && one.here().is_none() && is_its(one);
        let own = self.0.iter().position(|slot| slot.as_ref().is_some_and(is_own));
        own.or_else(|| {
            let reserved = self.reserved(rules);
            let spare = if rules[rule].is_default_route() { reserved } else { self.free().saturating_sub(reserved) };
            self.0.iter().position(Option::is_none).filter(|_| spare > 0)
        })
    }

    fn free(&self) -> usize {
        self.0.iter().filter(|slot| slot.is_none()).count()
    }

    /// How many slots are reserved for interfaces that will carry the default route.
    fn reserved(&self, rules: &[Interface]) -> usize {
        let Some(rule) = rules.iter().position(Interface::is_default_route) else { return 0 };
        let taken = self.iter().filter(|one| one.rule == rule && !one.is_leaving).count();
        rules[rule].slots().saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use weir_config::{Direction, Mode};

    use super::{
        super::{attachment::Fate, plan::wanted},
        *,
    };
    use crate::testing::{attached, device, rule};

    #[test]
    fn a_named_interface_has_its_slot_before_it_exists() {
        let rules = [rule("eth1", Direction::Both), rule("wan0", Direction::Egress)];
        let slots = Slots::new(&rules);
        let taken: Vec<_> = slots.iter().map(|one| (one.rule, one.name.as_str(), one.way)).collect();
        assert_eq!(taken, [(0, "eth1", Way::Ingress), (0, "eth1", Way::Egress), (1, "wan0", Way::Egress)]);
        assert!(slots.iter().all(|one| one.obtained == Obtained::Absent));
        assert_eq!(slots.place_for(&rules, 0, "eth1", Way::Egress), Some(1));
        assert_eq!(slots.place_for(&rules, 1, "wan0", Way::Egress), Some(2));
        assert!(!slots.is_measured(0, Way::Ingress), "nothing is attached");
    }

    #[test]
    fn an_interface_of_a_pattern_gets_its_earlier_slot_or_a_free_one() {
        let rules = [rule("eth0", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), Some(1), "the first slot belongs to eth0");
        *slots.get_mut(1).unwrap() = Some(attached(1, "ppp0", Way::Ingress, 7));
        assert_eq!(slots.place_for(&rules, 1, "ppp1", Way::Ingress), Some(2));
        *slots.get_mut(2).unwrap() = Some(Attachment::new(1, "ppp1", Way::Ingress));
        assert_eq!(slots.place_for(&rules, 1, "ppp1", Way::Ingress), Some(2), "it was there before in this window");
        assert_eq!(slots.place_for(&rules, 1, "ppp2", Way::Ingress), Some(3));
        assert_eq!(
            slots.place_for(&rules, 1, "ppp0", Way::Ingress),
            Some(3),
            "another interface of that name is attached"
        );
        assert!(slots.is_measured(7, Way::Ingress) && !slots.is_measured(7, Way::Egress));
        for slot in 3..SharedSlot::SLOT {
            *slots.get_mut(slot).unwrap() = Some(attached(1, "full", Way::Ingress, slot as u32 + 100));
        }
        assert_eq!(slots.place_for(&rules, 1, "ppp2", Way::Ingress), None, "the last slot is the shared one");
    }

    /// The slots as text: rule, name and direction of each; `!` if it is leaving.
    fn shown(slots: &Slots) -> Vec<String> {
        let one = |one: &Attachment| {
            let mark = if one.is_leaving { "!" } else { "" };
            format!("{mark}{} {} {}", one.rule, one.name, one.way.name())
        };
        slots.0.iter().map(|slot| slot.as_ref().map_or_else(String::new, one)).collect()
    }

    #[test]
    fn another_configuration_keeps_wanted_attachments_in_their_slots() {
        let before =
            [rule("eth0", Direction::Both), rule("eth1", Direction::Ingress), rule("wan0", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        // The order changes, one direction and one interface are removed, and one interface is added.
        let after =
            [rule("lan0", Direction::Ingress), rule("wan0", Direction::Ingress), rule("eth0", Direction::Egress)];
        slots.change(&before, &after, &[], 8);
        let expected = ["!0 eth0 ingress", "2 eth0 egress", "!1 eth1 ingress", "1 wan0 ingress", "0 lan0 ingress"];
        assert_eq!(shown(&slots), expected);
        // Slots that became free are reused, and an attachment that stays keeps its slot.
        for slot in &mut slots.0 {
            _ = slot.take_if(|one| one.is_leaving);
        }
        let last = [rule("eth1", Direction::Both), rule("lan0", Direction::Ingress)];
        slots.change(&after, &last, &[], 8);
        assert_eq!(
            shown(&slots),
            ["0 eth1 ingress", "!2 eth0 egress", "0 eth1 egress", "!1 wan0 ingress", "1 lan0 ingress"]
        );
    }

    #[test]
    fn another_mode_makes_an_attachment_leave_and_return() {
        let before = [rule("eth0", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        *slots.get_mut(1).unwrap() = Some(attached(1, "ppp0", Way::Ingress, 7));
        let mut after = before.clone();
        after[0].mode = Mode::Generic;
        // An interface that matched a pattern and now has its own rule stays as it is.
        after[1].name = "ppp0".to_owned();
        slots.change(&before, &after, &[], 255);
        assert_eq!(shown(&slots)[..3], ["!0 eth0 ingress", "1 ppp0 ingress", "0 eth0 ingress"]);
        assert!(slots.is_measured(7, Way::Ingress));
        assert_eq!(slots.place_for(&after, 0, "eth0", Way::Ingress), Some(2), "not its old slot, which is leaving");
    }

    #[test]
    fn there_are_never_more_slots_than_allowed() {
        let before = [rule("eth0", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        slots.change(&before, &[rule("*", Direction::Both)], &[], 255);
        assert_eq!(slots.len(), 255);
        let mut slots = Slots::new(&before);
        slots.change(&before, &[rule("eth1", Direction::Both)], &[], 2);
        assert_eq!(shown(&slots), ["!0 eth0 ingress", "0 eth1 ingress"]);
    }

    #[test]
    fn slots_are_reserved_for_the_default_route() {
        let rules = [rule("default route", Direction::Ingress), rule("eth0", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        assert_eq!(slots.len(), 5);
        for (slot, name) in (1..).zip(["wan0", "wan1", "wan2", "wan3"]) {
            assert_eq!(slots.place_for(&rules, 0, name, Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(0, name, Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 0, "wan4", Way::Ingress), None);
        slots.get_mut(2).unwrap().as_mut().unwrap().end();
        assert_eq!(
            slots.place_for(&rules, 0, "wan4", Way::Ingress),
            None,
            "its slot is not free until the window is reported"
        );
        assert_eq!(slots.place_for(&rules, 0, "wan1", Way::Ingress), Some(2), "it is back, and gets its earlier slot");

        let rules = [rule("default route", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        for slot in 0..SharedSlot::SLOT - 4 {
            assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(1, "ppp", Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), None);
        for slot in SharedSlot::SLOT - 4..SharedSlot::SLOT {
            assert_eq!(slots.place_for(&rules, 0, "wan0", Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(0, "wan", Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 0, "wan0", Way::Ingress), None);
    }

    #[test]
    fn an_attachment_stays_if_its_interface_gets_the_default_route() {
        let rules = [rule("eth*", Direction::Ingress), rule("default route", Direction::Ingress)];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let devices = [Device { carries_default: true, ..device(2, "eth0") }];
        let wanted = wanted(&rules, &devices, true);
        assert_eq!((wanted[0].rule, one.fate(&rules, &wanted, &HashMap::new())), (1, Some(Fate::Stays(&wanted[0]))));
        // Change the configuration between the two rules, and to the name.
        for after in ["default route", "eth0"] {
            let mut slots = Slots::new(&rules);
            *slots.get_mut(0).unwrap() = Some(attached(0, "eth0", Way::Ingress, 2));
            slots.change(&rules, &[rule(after, Direction::Ingress)], &devices, 255);
            assert_eq!(shown(&slots)[0], "0 eth0 ingress", "{after}");
            slots.change(&[rule(after, Direction::Ingress)], &[rule("wan0", Direction::Ingress)], &devices, 255);
            assert_eq!(shown(&slots)[0], "!0 eth0 ingress", "{after}");
        }
    }

    #[test]
    fn a_renamed_interface_continues_under_its_new_rule_and_the_old_name_keeps_a_slot() {
        let rules = ["eth0", "eth1", "eth*"].map(|name| rule(name, Direction::Ingress));
        let go_on = |attached_to: &[(usize, &str, u32)], devices: &[Device], rules: &[Interface], gone: &[u32]| {
            let mut slots = Slots::new(rules);
            for (rule, name, ifindex) in attached_to {
                *slots.get_mut(*rule).unwrap() = Some(attached(*rule, name, Way::Ingress, *ifindex));
            }
            let gone = gone.iter().map(|ifindex| (*ifindex, Departure::Deleted)).collect();
            slots.pass_on(rules, &wanted(rules, devices, true), &gone);
            shown(&slots).into_iter().take_while(|one| !one.is_empty()).collect::<Vec<_>>()
        };
        let both = [(0, "eth0", 10), (1, "eth1", 11)];
        let swapped = [device(10, "eth1"), device(11, "eth0")];
        // The names follow when each attachment gets its new rule.
        assert_eq!(go_on(&both, &swapped, &rules, &[]), ["1 eth0 ingress", "0 eth1 ingress"]);
        assert_eq!(go_on(&both, &swapped[..1], &rules, &[11]), ["1 eth0 ingress", "0 eth1 ingress"]);
        assert_eq!(
            go_on(&both[..1], &swapped[..1], &rules, &[]),
            ["1 eth0 ingress", "0 eth0 ingress"],
            "a slot waits for eth0"
        );
        let strayed = [device(10, "eth7"), device(11, "eth1")];
        assert_eq!(go_on(&both, &strayed, &rules, &[]), ["2 eth0 ingress", "1 eth1 ingress", "0 eth0 ingress"]);
        let named = [device(12, "eth1")];
        let expected = ["0 eth0 ingress", "2 eth7 ingress", "1 eth7 ingress"];
        assert_eq!(go_on(&[(2, "eth7", 12)], &named, &rules, &[]), expected);
        // Other interfaces have these indexes now, or would be attached in another way.
        let stays = ["0 eth0 ingress", "1 eth1 ingress"];
        assert_eq!(go_on(&both, &swapped, &rules, &[10, 11]), stays);
        let mut other = rules.clone();
        other[1].mode = Mode::Tcx;
        assert_eq!(go_on(&both, &swapped, &other, &[]), stays);
    }
}
