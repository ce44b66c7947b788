//! Which of the interfaces that exist now the configuration asks for, and which of them are left out because weir
//! counts their packets on an interface below.

use std::collections::HashSet;

use super::netlink::Device;
use crate::config::{Interface, Way};

/// Kinds of interfaces that show the packets of their lower interface again.
const STACKED: [&str; 7] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "dsa"];
/// Stacks are not deeper than this.
const DEPTH_MAX: usize = 8;

/// One direction of an interface that the configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'l> {
    /// The entry of the configuration.
    pub rule: usize,
    /// The interface.
    pub device: &'l Device,
    /// The direction.
    pub way: Way,
    /// The measured interface below that has the same packets, if any.
    pub below: Option<&'l str>,
}

/// Everything that `rules` ask for among these interfaces. A rule with the interface's exact name comes before
/// patterns; among patterns the first one counts.
pub fn wanted<'l>(rules: &[Interface], devices: &'l [Device]) -> Vec<Wanted<'l>> {
    let mut all = Vec::new();
    for device in devices {
        let named = rules.iter().position(|rule| !rule.is_pattern() && rule.covers(&device.name));
        let rule = named.or_else(|| rules.iter().position(|rule| rule.covers(&device.name)));
        let Some(rule) = rule else { continue };
        let ways = rules[rule].direction.ways().iter();
        all.extend(ways.map(|&way| Wanted { rule, device, way, below: None }));
    }
    let measured: HashSet<_> = all.iter().map(|wanted| (wanted.device.ifindex, wanted.way)).collect();
    for wanted in &mut all {
        wanted.below =
            below(wanted.device, devices, &|device| measured.contains(&(device.ifindex, wanted.way)), DEPTH_MAX);
    }
    all
}

fn below<'l>(
    upper: &Device,
    devices: &'l [Device],
    is_measured: &dyn Fn(&Device) -> bool,
    depth: usize,
) -> Option<&'l str> {
    let stacked = upper.kind.as_deref().is_some_and(|kind| STACKED.contains(&kind));
    let lower =
        |device: &&Device| (stacked && upper.lower == Some(device.ifindex)) || device.master == Some(upper.ifindex);
    devices.iter().filter(lower).find_map(|device| match is_measured(device) {
        true => Some(device.name.as_str()),
        false if depth > 0 => below(device, devices, is_measured, depth - 1),
        false => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Direction, Mode};

    fn rule(name: &str, direction: Direction) -> Interface {
        Interface { name: name.to_owned(), mode: Mode::Auto, direction }
    }

    fn device(ifindex: u32, name: &str, kind: &str) -> Device {
        let kind = (!kind.is_empty()).then(|| kind.to_owned());
        Device { ifindex, name: name.to_owned(), hardware: 1, kind, ..Device::default() }
    }

    fn names(rules: &[Interface], devices: &[Device]) -> Vec<String> {
        let shown = |wanted: Wanted<'_>| {
            let below = wanted.below.map(|below| format!(" on {below}")).unwrap_or_default();
            format!("{} {} {}{below}", wanted.rule, wanted.device.name, wanted.way.name())
        };
        wanted(rules, devices).into_iter().map(shown).collect()
    }

    #[test]
    fn a_name_goes_before_a_pattern_and_no_pattern_means_the_loopback() {
        let devices = [device(1, "lo", ""), device(2, "eth0", ""), device(3, "eth1", ""), device(4, "wan0", "")];
        let rules = [rule("eth*", Direction::Ingress), rule("eth1", Direction::Both), rule("*", Direction::Egress)];
        assert_eq!(names(&rules, &devices), ["0 eth0 ingress", "1 eth1 ingress", "1 eth1 egress", "2 wan0 egress"]);
        assert_eq!(names(&[rule("lo", Direction::Ingress)], &devices), ["0 lo ingress"]);
    }

    #[test]
    fn what_is_stacked_on_a_measured_interface_is_left_out() {
        let vlan = |ifindex, name, lower| Device { lower: Some(lower), ..device(ifindex, name, "vlan") };
        let member = |ifindex, name, master| Device { master: Some(master), ..device(ifindex, name, "") };
        let devices = [member(2, "eth0", 3), device(3, "bond0", "bond"), vlan(4, "bond0.7", 3), device(5, "eth1", "")];
        let all = [rule("*", Direction::Ingress)];
        let left_out = ["0 eth0 ingress", "0 bond0 ingress on eth0", "0 bond0.7 ingress on bond0", "0 eth1 ingress"];
        assert_eq!(names(&all, &devices), left_out);
        let ends = [rule("eth0", Direction::Both), rule("bond0.7", Direction::Ingress)];
        assert_eq!(names(&ends, &devices), ["0 eth0 ingress", "0 eth0 egress", "1 bond0.7 ingress on eth0"]);
        let directions = [rule("eth0", Direction::Ingress), rule("bond0", Direction::Egress)];
        assert_eq!(names(&directions, &devices), ["0 eth0 ingress", "1 bond0 egress"], "each packet counts once");
        assert_eq!(names(&[rule("bond0.7", Direction::Ingress)], &devices), ["0 bond0.7 ingress"]);
    }

    #[test]
    fn the_ends_of_a_veth_are_no_stack_and_a_loop_has_an_end() {
        let peers = [
            Device { lower: Some(3), ..device(2, "v0", "veth") },
            Device { lower: Some(2), ..device(3, "v1", "veth") },
        ];
        assert_eq!(names(&[rule("v*", Direction::Ingress)], &peers), ["0 v0 ingress", "0 v1 ingress"]);
        let circle = [
            Device { lower: Some(3), ..device(2, "m0", "vlan") },
            Device { lower: Some(2), ..device(3, "n0", "vlan") },
        ];
        assert_eq!(
            names(&[rule("x", Direction::Ingress), rule("m0", Direction::Ingress)], &circle),
            ["1 m0 ingress on m0"]
        );
    }
}
