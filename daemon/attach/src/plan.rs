//! Decides which of the present interfaces the configuration wants.

use std::io;

use weir_common::control::Feeds;
use weir_config::{Interface, Mode, interface::Way};

use super::netlink::{Device, Devices};

/// One direction of an interface that the configuration wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAttachment<'l> {
    /// The entry of the configuration.
    pub rule: usize,
    /// The interface to attach to.
    pub device: &'l Device,
    /// The direction to measure.
    pub way: Way,
    /// The packets of it that feed totals and lists, if configured.
    pub feeds: Option<Feeds>,
    /// True if weir can find out by which interface a sent packet arrived. A packet socket cannot.
    pub knows_origin: bool,
}

/// All interfaces, with all properties that these rules need. Routes are read only if a rule needs them.
///
/// # Errors
///
/// The kernel did not answer.
pub fn list(devices: &mut Devices, rules: &[Interface]) -> io::Result<Vec<Device>> {
    if rules.iter().any(Interface::is_default_route) { devices.list_with_routes() } else { devices.list() }
}

/// Returns true if a rule covers this interface, by one of its names or by its route. A pattern never covers the
/// loopback.
pub fn covers(rule: &Interface, device: &Device) -> bool {
    let may_fit = !(device.loopback && rule.is_pattern());
    may_fit && device.names().any(|name| rule.covers(name, device.carries_default))
}

/// The operator's name for it: its alias, or else the alternative name that the rule matches.
pub fn alias(rule: &Interface, device: &Device) -> Option<String> {
    let by_other = || device.other_names.iter().find(|name| rule.covers(name, false)).cloned();
    device.alias.clone().or_else(|| if rule.covers(&device.name, false) { None } else { by_other() })
}

/// The rule for this interface. A rule with exactly one of its names comes first, then the default route, then
/// patterns; of several patterns, the first one applies.
pub fn rule_of(rules: &[Interface], device: &Device) -> Option<usize> {
    let kinds = [Interface::is_named, Interface::is_default_route, Interface::is_pattern];
    let first = |is: fn(&Interface) -> bool| rules.iter().position(|rule| is(rule) && covers(rule, device));
    kinds.into_iter().find_map(first)
}

/// Returns true if an interface that is measured under one rule may continue under the other. Both rules must cover
/// interfaces that come and go, and attach in the same way.
pub fn passes_on(from: &Interface, to: &Interface) -> bool {
    from == to || !from.is_named() && !to.is_named() && from.mode == to.mode
}

/// The rule of the new configuration `rules` under which this direction of an interface stays attached. Before, it was
/// attached for rule number `rule` of the configuration `before`. `None` if there is no such rule.
pub fn successor(before: &[Interface], rule: usize, rules: &[Interface], device: &Device, way: Way) -> Option<usize> {
    let next = rule_of(rules, device)?;
    let stays = rules[next].mode == before[rule].mode && rules[next].direction.ways().contains(&way);
    stays.then_some(next)
}

/// Returns everything that `rules` want of these interfaces.
pub fn wanted<'l>(rules: &[Interface], devices: &'l [Device], has_programs: bool) -> Vec<PlannedAttachment<'l>> {
    let mut all = Vec::new();
    for device in devices {
        let Some(rule) = rule_of(rules, device) else { continue };
        let Interface { mode, direction, feeds, .. } = rules[rule];
        let knows_origin = has_programs && mode != Mode::AfPacket;
        all.extend(direction.ways().iter().map(|&way| PlannedAttachment { rule, device, way, feeds, knows_origin }));
    }
    all
}

#[cfg(test)]
mod tests {
    use weir_config::Direction;

    use super::*;
    use crate::testing::{device, rule};

    fn names(rules: &[Interface], devices: &[Device]) -> Vec<String> {
        let shown =
            |wanted: PlannedAttachment<'_>| format!("{} {} {}", wanted.rule, wanted.device.name, wanted.way.name());
        wanted(rules, devices, true).into_iter().map(shown).collect()
    }

    #[test]
    fn a_name_precedes_a_pattern_and_no_pattern_covers_the_loopback() {
        let devices = [device(1, "lo"), device(2, "eth0"), device(3, "eth1"), device(4, "wan0")];
        let rules = [rule("eth*", Direction::Ingress), rule("eth1", Direction::Both), rule("*", Direction::Egress)];
        assert_eq!(names(&rules, &devices), ["0 eth0 ingress", "1 eth1 ingress", "1 eth1 egress", "2 wan0 egress"]);
        assert_eq!(names(&[rule("lo", Direction::Ingress)], &devices), ["0 lo ingress"]);
    }

    #[test]
    fn rules_cover_alternative_names() {
        let long = "the-uplink-to-the-provider-of-the-north";
        let other =
            |device, names: &[&str]| Device { other_names: names.iter().map(|&name| name.into()).collect(), ..device };
        let devices = [other(device(2, "eth0"), &["uplink0", long]), other(device(3, "eth1"), &["uplink1"])];
        for (names_of, expected) in [
            (&["uplink0"][..], &["0 eth0 ingress"][..]),
            (&[long], &["0 eth0 ingress"]),
            (&["uplink*"], &["0 eth0 ingress", "0 eth1 ingress"]),
            (&["*-north"], &["0 eth0 ingress"]),
            (&["eth*", "uplink1"], &["0 eth0 ingress", "1 eth1 ingress"]),
            (&["uplink"], &[]),
        ] {
            let rules: Vec<_> = names_of.iter().map(|name| rule(name, Direction::Ingress)).collect();
            assert_eq!(names(&rules, &devices), expected, "{names_of:?}");
        }
        let called = |name: &str, device: &Device| alias(&rule(name, Direction::Ingress), device);
        assert_eq!(called("uplink*", &devices[0]).as_deref(), Some("uplink0"));
        assert_eq!(called("eth0", &devices[0]), None, "its own name is enough");
        assert_eq!(called("default route", &devices[0]), None);
        let described = Device { alias: Some("Acme".into()), ..devices[0].clone() };
        assert_eq!(called("uplink0", &described).as_deref(), Some("Acme"));
        let loopback = Device { loopback: true, ..other(device(1, "lo"), &["uplink9"]) };
        assert!(names(&[rule("uplink*", Direction::Ingress)], std::slice::from_ref(&loopback)).is_empty());
        assert_eq!(names(&[rule("uplink9", Direction::Ingress)], &[loopback]), ["0 lo ingress"]);
    }

    #[test]
    fn the_default_route_comes_after_names_and_before_patterns() {
        let carries = |device| Device { carries_default: true, ..device };
        let devices = [device(2, "eth0"), carries(device(3, "eth1")), carries(device(4, "wan0")), device(5, "wan1")];
        let (pattern, route) = (rule("eth*", Direction::Ingress), rule("default route", Direction::Egress));
        let rules = [pattern.clone(), route.clone(), rule("wan0", Direction::Ingress)];
        assert_eq!(names(&rules, &devices), ["0 eth0 ingress", "1 eth1 egress", "2 wan0 ingress"]);
        assert_eq!(names(std::slice::from_ref(&route), &devices), ["0 eth1 egress", "0 wan0 egress"]);
        assert!(passes_on(&pattern, &route) && passes_on(&rules[2], &rules[2]) && !passes_on(&pattern, &rules[2]));
        assert!(!passes_on(&pattern, &Interface { mode: Mode::Tcx, ..route }), "it would be attached in another way");
    }

    #[test]
    fn all_interfaces_are_listed_with_their_routes_and_without() {
        let mut devices = Devices::open().unwrap();
        for name in ["eth*", "default route"] {
            let listed = list(&mut devices, &[rule(name, Direction::Ingress)]).unwrap();
            assert!(listed.iter().any(|device| device.name == "lo" && device.ifindex > 0), "{name}: {listed:?}");
        }
    }

    #[test]
    fn a_packet_socket_knows_no_origin() {
        let (devices, mut rules) = ([device(2, "eth0")], [rule("eth0", Direction::Egress)]);
        assert!(wanted(&rules, &devices, true)[0].knows_origin && !wanted(&rules, &devices, false)[0].knows_origin);
        rules[0].mode = Mode::AfPacket;
        assert!(!wanted(&rules, &devices, true)[0].knows_origin);
    }
}
