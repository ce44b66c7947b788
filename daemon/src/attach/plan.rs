//! Which of the interfaces that exist now the configuration asks for.

use weir_common::control::Feeds;

use super::netlink::Device;
use crate::{
    config::{Interface, Mode},
    interface::Way,
};

/// One direction of an interface that the configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'l> {
    /// The entry of the configuration.
    pub rule: usize,
    /// The interface.
    pub device: &'l Device,
    /// The direction.
    pub way: Way,
    /// What feeds totals and lists, where the configuration says so.
    pub feeds: Option<Feeds>,
    /// Whether it can be known of a packet that is sent by which interface it came: not by a packet socket.
    pub knows_origin: bool,
}

/// The rule for the interface of this name. One with exactly that name comes before patterns; among patterns the first one
/// counts.
pub fn rule_of(rules: &[Interface], name: &str) -> Option<usize> {
    let named = rules.iter().position(|rule| !rule.is_pattern() && rule.covers(name));
    named.or_else(|| rules.iter().position(|rule| rule.covers(name)))
}

/// Everything that `rules` ask for among these interfaces.
pub fn wanted<'l>(rules: &[Interface], devices: &'l [Device], has_programs: bool) -> Vec<Wanted<'l>> {
    let mut all = Vec::new();
    for device in devices {
        let Some(rule) = rule_of(rules, &device.name) else { continue };
        let Interface { mode, direction, feeds, .. } = rules[rule];
        let knows_origin = has_programs && mode != Mode::AfPacket;
        all.extend(direction.ways().iter().map(|&way| Wanted { rule, device, way, feeds, knows_origin }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Direction;

    fn rule(name: &str, direction: Direction) -> Interface {
        Interface { name: name.to_owned(), mode: Mode::Auto, direction, feeds: None }
    }

    fn device(ifindex: u32, name: &str) -> Device {
        Device { ifindex, name: name.to_owned(), hardware: 1, ..Device::default() }
    }

    fn names(rules: &[Interface], devices: &[Device]) -> Vec<String> {
        let shown = |wanted: Wanted<'_>| format!("{} {} {}", wanted.rule, wanted.device.name, wanted.way.name());
        wanted(rules, devices, true).into_iter().map(shown).collect()
    }

    #[test]
    fn a_name_goes_before_a_pattern_and_no_pattern_means_the_loopback() {
        let devices = [device(1, "lo"), device(2, "eth0"), device(3, "eth1"), device(4, "wan0")];
        let rules = [rule("eth*", Direction::Ingress), rule("eth1", Direction::Both), rule("*", Direction::Egress)];
        assert_eq!(names(&rules, &devices), ["0 eth0 ingress", "1 eth1 ingress", "1 eth1 egress", "2 wan0 egress"]);
        assert_eq!(names(&[rule("lo", Direction::Ingress)], &devices), ["0 lo ingress"]);
    }

    #[test]
    fn a_packet_socket_knows_no_origin() {
        let (devices, mut rules) = ([device(2, "eth0")], [rule("eth0", Direction::Egress)]);
        assert!(wanted(&rules, &devices, true)[0].knows_origin && !wanted(&rules, &devices, false)[0].knows_origin);
        rules[0].mode = Mode::AfPacket;
        assert!(!wanted(&rules, &devices, true)[0].knows_origin);
    }
}
