use std::sync::{Arc, Mutex};

use super::{
    super::stack::{STACKED, TUNNELS},
    *,
};

const INGRESS: &[Way] = &[Way::Ingress];
const EGRESS: &[Way] = &[Way::Egress];
const BOTH: &[Way] = &[Way::Ingress, Way::Egress];

fn card(ifindex: u32) -> Device {
    Device { ifindex, name: format!("if{ifindex}"), hardware: 1, ..Device::default() }
}

fn lo() -> Device {
    Device { loopback: true, hardware: 772, ..card(1) }
}

fn virt(ifindex: u32, kind: &str) -> Device {
    Device { kind: Some(kind.to_owned()), ..card(ifindex) }
}

fn on(lower: u32, device: Device) -> Device {
    Device { lower: Some(lower), ..device }
}

fn member(master: u32, device: Device) -> Device {
    Device { master: Some(master), ..device }
}

/// Returns the decisions for the measured interfaces, received and sent, and the interfaces whose received packets have
/// fed.
fn feeding(devices: &[Device], measured: &[(u32, &[Way])]) -> (Feeding, Vec<u32>) {
    decide(devices, measured, None, true)
}

fn decide(
    devices: &[Device],
    measured: &[(u32, &[Way])],
    told: Option<(u32, Feeds)>,
    knows_origin: bool,
) -> (Feeding, Vec<u32>) {
    decide_by(Sources::Tell, devices, measured, told, knows_origin)
}

fn decide_by(
    sources: Sources,
    devices: &[Device],
    measured: &[(u32, &[Way])],
    told: Option<(u32, Feeds)>,
    knows_origin: bool,
) -> (Feeding, Vec<u32>) {
    let mut wanted = Vec::new();
    for &(ifindex, ways) in measured {
        let device = devices.iter().find(|device| device.ifindex == ifindex).expect("it is there");
        let feeds = told.filter(|(of, _)| *of == ifindex).map(|(_, feeds)| feeds);
        wanted.extend(ways.iter().map(|&way| PlannedAttachment { rule: 0, device, way, feeds, knows_origin }));
    }
    let feeding = Feeding::new(&wanted, devices, sources);
    let mut fed: Vec<_> = feeding.fed.iter().copied().collect();
    fed.sort_unstable();
    (feeding, fed)
}

#[test]
fn forwarded_packets_feed_where_they_arrived() {
    let (feeding, fed) = feeding(&[card(2), card(3)], &[(2, BOTH), (3, BOTH)]);
    for ifindex in [2, 3] {
        assert_eq!(feeding.of(ifindex, Way::Ingress), Feeds::All);
        assert_eq!(feeding.of(ifindex, Way::Egress), Feeds::Local);
    }
    assert_eq!(fed, [2, 3]);
    let told = Passing::new(true, Feeds::All, Feeds::Local);
    assert_eq!(feeding.for_the_programs(), HashMap::from([(2, told), (3, told)]));
    assert!(told.has_fed() && told.feeds(false) == Feeds::All && told.feeds(true) == Feeds::Local);
    assert_eq!(Passing::new(false, Feeds::None, Feeds::All).feeds(false), Feeds::None);
    assert_eq!(feeding.decision(2, Way::Egress), Some(&Decision::local()), "without a caveat");
}

#[test]
fn all_sent_packets_feed_if_no_received_packets_are_measured() {
    let (feeding, fed) = feeding(&[card(2), card(3)], &[(2, EGRESS)]);
    assert_eq!((feeding.of(2, Way::Egress), fed), (Feeds::All, vec![]));
}

#[test]
fn a_packet_socket_feeds_sent_packets_only_if_none_can_have_fed() {
    let devices = [card(2), card(3)];
    for sources in [Sources::Translated, Sources::Unknown] {
        let (feeding, _) = decide_by(sources, &devices, &[(2, BOTH), (3, INGRESS)], None, false);
        assert_eq!(feeding.of(2, Way::Egress), Feeds::None);
        let caveat = feeding.decision(2, Way::Egress).unwrap().caveat.as_ref().unwrap();
        assert!(caveat.contains("translates") && caveat.contains("feeds: local"), "{caveat}");
    }
    let (feeding, _) = decide(&devices, &[(2, BOTH)], None, false);
    assert_eq!(feeding.of(2, Way::Egress), Feeds::All, "forwarded packets arrived on interfaces that do not feed");
    assert!(feeding.decision(2, Way::Egress).unwrap().caveat.as_ref().unwrap().contains("feeds: none"));
    let (feeding, _) = decide(&devices, &[(2, EGRESS)], None, false);
    assert_eq!(feeding.of(2, Way::Egress), Feeds::All);
}

#[test]
fn a_packet_socket_recognizes_the_routers_own_packets_by_their_source() {
    let up = |ifindex| Device { up: true, ..card(ifindex) };
    let devices = [Device { up: true, ..lo() }, up(2), up(3), card(4)];
    let (feeding, _) = decide(&devices, &[(2, BOTH), (3, INGRESS)], None, false);
    assert_eq!(feeding.of(2, Way::Egress), Feeds::Local);
    assert_eq!(feeding.decision(2, Way::Egress).unwrap().caveat, None, "all interfaces that are up are measured");
    let devices = [&devices[..], &[up(5)]].concat();
    let (feeding, _) = decide(&devices, &[(2, BOTH), (3, INGRESS)], None, false);
    let caveat = feeding.decision(2, Way::Egress).unwrap().caveat.as_ref().unwrap();
    assert!(caveat.contains("arrive on if5 and leave through if2"), "{caveat}");
}

#[test]
fn a_stack_feeds_at_its_lowest_measured_interface() {
    for kind in STACKED {
        let devices = [card(2), on(2, virt(3, kind)), on(3, virt(4, kind)), card(5)];
        let (feeding, fed) = feeding(&devices, &[(2, BOTH), (4, BOTH)]);
        assert_eq!((feeding.of(2, Way::Ingress), feeding.of(4, Way::Ingress)), (Feeds::All, Feeds::None), "{kind}");
        assert_eq!((feeding.of(2, Way::Egress), feeding.of(4, Way::Egress)), (Feeds::Local, Feeds::None), "{kind}");
        assert_eq!(fed, [2, 3, 4], "packets of an unmeasured interface have fed below, too");
    }
    let devices = [card(2), on(2, virt(3, "vlan"))];
    let (feeding, fed) = feeding(&devices, &[(3, INGRESS)]);
    assert_eq!((feeding.of(3, Way::Ingress), fed), (Feeds::All, vec![3]), "its parent is not measured");
    // A stack without any measured interface is no reason for a caveat.
    let devices = [devices.to_vec(), vec![card(5)]].concat();
    let (feeding, _) = decide(&devices, &[(5, BOTH)], None, true);
    assert_eq!(feeding.decision(5, Way::Egress), Some(&Decision::local()));
}

#[test]
fn a_bridge_feeds_nothing_if_all_its_ports_are_measured() {
    for kind in ["bridge", "bond", "team", "vrf"] {
        let devices = [member(4, card(2)), member(4, card(3)), virt(4, kind), on(4, virt(5, "vlan"))];
        let (feeding, fed) = feeding(&devices, &[(2, BOTH), (3, BOTH), (4, BOTH), (5, BOTH)]);
        for (ifindex, received, sent) in [
            (2, Feeds::All, Feeds::Local),
            (3, Feeds::All, Feeds::Local),
            (4, Feeds::None, Feeds::None),
            (5, Feeds::None, Feeds::None),
        ] {
            let decided = (feeding.of(ifindex, Way::Ingress), feeding.of(ifindex, Way::Egress));
            assert_eq!(decided, (received, sent), "{kind} {ifindex}");
        }
        assert_eq!(fed, [2, 3, 4, 5]);
    }
}

#[test]
fn a_bridge_feeds_instead_of_its_ports_if_only_some_are_measured() {
    let devices = [member(4, card(2)), member(4, card(3)), virt(4, "bridge"), on(4, virt(5, "vlan"))];
    let (feeding, fed) = feeding(&devices, &[(2, BOTH), (4, BOTH), (5, BOTH)]);
    let decided = [2, 4, 5].map(|ifindex| feeding.of(ifindex, Way::Ingress));
    assert_eq!(decided, [Feeds::None, Feeds::All, Feeds::None], "packets that arrive on if3 are not lost");
    assert_eq!(feeding.of(2, Way::Egress), Feeds::None);
    assert!(fed.contains(&4) && fed.contains(&5) && !fed.contains(&2), "{fed:?}");
    assert!(feeding.decision(2, Way::Ingress).unwrap().why.contains("if4"));
    // The bridge itself is not measured: packets that arrive on its other port have not fed, and are not lost.
    let (feeding, fed) = decide(&devices, &[(2, BOTH)], None, true);
    assert_eq!((feeding.of(2, Way::Ingress), fed), (Feeds::All, vec![2]));
}

#[test]
fn the_parent_of_a_port_can_stand_in_for_the_port() {
    let devices = [card(2), member(5, on(2, virt(3, "vlan"))), member(5, card(4)), virt(5, "bridge")];
    let (feeding, fed) = feeding(&devices, &[(2, BOTH), (4, BOTH), (5, BOTH)]);
    let decided = [2, 4, 5].map(|ifindex| feeding.of(ifindex, Way::Ingress));
    assert_eq!(decided, [Feeds::All, Feeds::All, Feeds::None], "each packet feeds on one interface");
    assert_eq!(fed, [2, 3, 4, 5]);
}

#[test]
fn packets_that_feed_twice_at_a_bridge_cause_a_caveat() {
    let vlan = member(5, on(2, virt(3, "vlan")));
    let devices = [card(2), vlan, member(5, card(4)), virt(5, "bridge")];
    let (feeding, _) = feeding(&devices, &[(2, INGRESS), (5, INGRESS)]);
    let decided = [2, 5].map(|ifindex| feeding.of(ifindex, Way::Ingress));
    assert_eq!(decided, [Feeds::All, Feeds::All], "if2 and if5 both have packets that the other one has not");
    let caveat = feeding.decision(5, Way::Ingress).unwrap().caveat.as_ref().unwrap();
    assert!(caveat.contains("if2") && caveat.contains("count twice"), "{caveat}");
}

#[test]
fn packets_of_bonds_in_a_bridge_feed_once() {
    // if2 and if3 form the bond if4, which is a port of the bridge if6, together with if5.
    let devices =
        [member(4, card(2)), member(4, card(3)), member(6, virt(4, "bond")), member(6, card(5)), virt(6, "bridge")];
    for (measured, feeds) in [
        (vec![2, 3, 4, 5, 6], vec![2, 3, 5]),
        (vec![2, 3, 5, 6], vec![2, 3, 5]),
        (vec![4, 5, 6], vec![4, 5]),
        (vec![2, 3, 4, 6], vec![6]),
        (vec![2, 3, 6], vec![6]),
        (vec![2, 6], vec![6]),
        (vec![2, 4, 5, 6], vec![4, 5]),
        (vec![2, 4, 6], vec![6]),
        (vec![2, 4], vec![4]),
        (vec![2, 3], vec![2, 3]),
    ] {
        let wanted: Vec<_> = measured.iter().map(|ifindex| (*ifindex, INGRESS)).collect();
        let (feeding, _) = feeding(&devices, &wanted);
        let feed = |ifindex: &u32| feeding.of(*ifindex, Way::Ingress) == Feeds::All;
        assert_eq!(measured.iter().copied().filter(feed).collect::<Vec<_>>(), feeds, "{measured:?}");
    }
    // If one half of the bond is measured, what the VLAN above forwards may feed twice, and a caveat says so.
    let devices = [devices.to_vec(), vec![on(6, virt(7, "vlan")), card(8)]].concat();
    let (feeding, fed) = feeding(&devices, &[(2, INGRESS), (8, EGRESS)]);
    assert_eq!((feeding.of(8, Way::Egress), fed), (Feeds::Local, vec![2]));
    let caveat = feeding.decision(8, Way::Egress).unwrap().caveat.as_ref().unwrap();
    assert!(caveat.contains("below if4, if6, if7") && caveat.contains("twice"), "{caveat}");
}

#[test]
fn a_bridge_does_not_carry_the_tunnel_that_is_its_port() {
    let tunnel = member(5, Device { hardware: 1, ..virt(7, "vxlan") });
    let devices = [tunnel.clone(), member(5, card(4)), virt(5, "bridge")];
    for measured in [vec![(7, INGRESS), (4, INGRESS), (5, INGRESS)], vec![(7, INGRESS), (5, INGRESS)]] {
        let (feeding, _) = feeding(&devices[..], &measured);
        let feed = |(ifindex, _): &&(u32, &[Way])| feeding.of(*ifindex, Way::Ingress) == Feeds::All;
        let feed: Vec<_> = measured.iter().filter(feed).map(|(ifindex, _)| *ifindex).collect();
        assert_eq!(feed, if measured.len() == 3 { [4].as_slice() } else { &[5] }, "{measured:?}");
    }
    // The bridge above the tunnel must not hide which interface below it is the tunnel.
    let (feeding, _) = feeding(&devices, &[(4, INGRESS), (5, INGRESS)]);
    let decision = feeding.decision(5, Way::Ingress).unwrap();
    assert_eq!(decision.feeds, Feeds::None);
    assert!(decision.caveat.as_ref().unwrap().starts_with("if7 is a tunnel"), "{decision:?}");
}

#[test]
fn only_some_of_many_ports_are_named() {
    let ports = (10..30).map(|ifindex| member(5, card(ifindex)));
    let devices: Vec<_> = ports.chain([virt(5, "bridge")]).collect();
    let wanted: Vec<_> = devices.iter().map(|device| (device.ifindex, INGRESS)).collect();
    let (feeding, _) = feeding(&devices, &wanted);
    let why = &feeding.decision(5, Way::Ingress).unwrap().why;
    assert_eq!(why, "they feed on if10, if11, if12 and 17 more, below it");
    assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c, d", "a count would not be shorter");
    assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
}

#[test]
fn a_tunnel_feeds_nothing_if_an_interface_that_may_carry_it_is_measured() {
    for kind in TUNNELS {
        let tunnel = Device { hardware: 65_534, ..virt(7, kind) };
        let devices = [card(2), card(3), tunnel.clone(), on(7, virt(8, "vlan"))];
        let (feeding, fed) = decide(&devices, &[(2, INGRESS), (7, BOTH)], None, true);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::None, "{kind}");
        let decision = feeding.decision(7, Way::Ingress).unwrap();
        assert!(decision.why.contains("if2") && decision.caveat.as_ref().unwrap().contains("feeds: all"));
        assert_eq!(feeding.of(7, Way::Egress), Feeds::Local, "packets sent by if2 are not measured");
        assert!(fed.contains(&7), "{kind}");
        let (alone, _) = decide(&devices, &[(7, INGRESS), (8, INGRESS)], None, true);
        assert_eq!(alone.of(7, Way::Ingress), Feeds::All, "an interface stacked on a tunnel does not carry it");
        let others = [on(8, virt(9, "vlan")), Device { ifindex: 10, ..tunnel.clone() }, lo()];
        let devices = [devices.to_vec(), others.to_vec()].concat();
        for other in [9, 10, 1] {
            let (feeding, _) = decide(&devices, &[(7, INGRESS), (other, INGRESS)], None, true);
            assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "{kind} is not carried by {other}");
        }
        // The kernel reports which interface the tunnel is stacked on.
        let devices = [card(2), card(3), on(3, tunnel.clone())];
        let (feeding, _) = decide(&devices, &[(2, INGRESS), (7, INGRESS)], None, true);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "{kind} is stacked on another one");
        let (feeding, _) = decide(&devices, &[(3, INGRESS), (7, INGRESS)], None, true);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::None);
        let elsewhere = Device { elsewhere: true, ..tunnel };
        let (feeding, _) = decide(&[card(2), elsewhere], &[(2, INGRESS), (7, INGRESS)], None, true);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "its packets travel in another namespace");
    }
    let tap = virt(7, "tun");
    let (feeding, _) = feeding(&[card(2), tap], &[(2, INGRESS), (7, INGRESS)]);
    assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "a tap is the card of a virtual machine");
}

#[test]
fn both_ends_of_a_veth_feed_their_sent_packets() {
    let devices = [on(3, virt(2, "veth")), on(2, virt(3, "veth"))];
    let (both, fed) = feeding(&devices, &[(2, BOTH), (3, BOTH)]);
    for ifindex in [2, 3] {
        assert_eq!(both.of(ifindex, Way::Ingress), Feeds::None);
        assert_eq!(both.of(ifindex, Way::Egress), Feeds::Local);
    }
    assert_eq!(fed, [2, 3]);
    let (received, _) = feeding(&devices, &[(2, INGRESS), (3, INGRESS)]);
    assert_eq!([2, 3].map(|ifindex| received.of(ifindex, Way::Ingress)), [Feeds::All; 2]);
}

#[test]
fn the_loopback_feeds_what_it_receives() {
    let (both, _) = feeding(&[lo()], &[(1, BOTH)]);
    assert_eq!((both.of(1, Way::Ingress), both.of(1, Way::Egress)), (Feeds::All, Feeds::None));
    let (sent, _) = feeding(&[lo()], &[(1, EGRESS)]);
    assert_eq!(sent.of(1, Way::Egress), Feeds::All);
}

#[test]
fn the_configuration_decides_and_a_caveat_names_the_consequences() {
    let devices = [card(2), virt(7, "wireguard")];
    let (feeding, _) = decide(&devices, &[(2, INGRESS), (7, INGRESS)], Some((7, Feeds::All)), true);
    assert_eq!(feeding.of(7, Way::Ingress), Feeds::All);
    assert!(feeding.decision(7, Way::Ingress).unwrap().caveat.as_ref().unwrap().contains("count twice"));
    assert_eq!(feeding.decision(7, Way::Ingress).unwrap().why, "");
    let (feeding, fed) = decide(&devices, &[(2, INGRESS), (7, BOTH)], Some((2, Feeds::None)), true);
    let told = Decision::none("as configured".to_owned());
    assert_eq!(feeding.decision(2, Way::Ingress), Some(&told));
    assert_eq!((feeding.of(2, Way::Ingress), feeding.of(7, Way::Ingress)), (Feeds::None, Feeds::All));
    assert_eq!(fed, [7]);
}

#[test]
fn a_circular_stack_is_handled() {
    let devices = [on(3, virt(2, "vlan")), on(2, virt(3, "vlan"))];
    let (feeding, _) = feeding(&devices, &[(2, INGRESS)]);
    assert_eq!(feeding.of(2, Way::Ingress), Feeds::None);
    // This also ends if nothing in it is measured, and for the question whether it is stacked on a tunnel.
    let devices = [devices.to_vec(), vec![card(5), virt(7, "wireguard")]].concat();
    let (feeding, fed) = decide(&devices, &[(5, BOTH)], None, true);
    assert_eq!((feeding.of(5, Way::Ingress), fed), (Feeds::All, vec![5, 7]));
    let (feeding, _) = decide(&devices, &[(2, INGRESS), (7, INGRESS)], None, true);
    assert_eq!(feeding.of(7, Way::Ingress), Feeds::None);
}

/// The log messages of the task.
fn log_of(task: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || writer.clone());
    tracing::subscriber::with_default(log.finish(), task);
    String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn the_log_has_decisions_and_caveats() {
    let devices = [card(2), on(2, virt(3, "vlan")), virt(7, "wireguard")];
    let (feeding, _) = decide(&devices, &[(2, INGRESS), (3, INGRESS), (7, INGRESS)], Some((7, Feeds::All)), true);
    let told = |nth: usize| log_of(|| feeding.tell(&devices[nth], Way::Ingress));
    assert_eq!(told(0), "", "it feeds everything");
    let (below, caveat) = (told(1), told(2));
    assert!(below.contains(" INFO ") && below.contains("feeds none: they feed on if2, below it"), "{below}");
    assert!(caveat.contains(" WARN ") && caveat.contains("feeds all. Packets that if2"), "{caveat}");
}

#[test]
fn a_survey_has_a_line_for_each_interface_and_each_caveat() {
    let caveat = Decision { caveat: Some("Who knows?".to_owned()), ..Decision::all() };
    let survey = Survey(vec![
        ("if2".to_owned(), Ok((Way::Ingress, caveat))),
        ("if3".to_owned(), Ok((Way::Egress, Decision::none("why not".to_owned())))),
        ("if4".to_owned(), Err("not there now")),
    ]);
    let expected = "if2 ingress: feeds all\n    Who knows?\nif3 egress: feeds none: why not\nif4: not there now\n";
    assert_eq!(survey.to_string(), expected);
}

#[test]
fn a_survey_shows_which_interfaces_carry_the_default_route() {
    use weir_config::{Direction, Mode};
    let rule =
        |name: &str| Interface { name: name.to_owned(), mode: Mode::Auto, direction: Direction::Ingress, feeds: None };
    let devices = [Device { carries_default: true, ..card(2) }, card(3)];
    let shown = |names: &[&str], devices: &[Device]| {
        Survey::of(&names.iter().map(|name| rule(name)).collect::<Vec<_>>(), devices, true, Sources::Tell).to_string()
    };
    assert_eq!(shown(&["default route"], &devices), "if2 (default route) ingress: feeds all\n");
    let named = shown(&["default route", "if2", "if4"], &devices);
    assert!(
        named.starts_with("default route: other entries cover all interfaces that it matches now\nif2 ingress"),
        "{named}"
    );
    assert!(named.ends_with("if4: not there now\n"), "{named}");
    assert!(shown(&["default route"], &devices[1..]).starts_with("default route: no interface carries a default"));
}
