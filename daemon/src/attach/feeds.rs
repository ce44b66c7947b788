//! What feeds totals and lists: each packet once, however many measured interfaces carry it.
//!
//! A packet may pass several interfaces: a VLAN and its parent, a bridge and its port, a tunnel and the card below it,
//! the interface that it comes by and the one that it leaves by. Each interface's ledger has it. This file decides where
//! it feeds, out of what the interfaces are. It asks and changes nothing in the kernel.
//!
//! - **Received**: it feeds on the lowest measured interface. So an interface feeds `none` if measured interfaces below it
//!   carry everything that it receives. Where they carry only a part (one port of a bridge), the upper one feeds, and
//!   those below do not.
//! - **Sent**: it feeds unless it has fed when it was received, which the tc hook knows for each packet (`local`). On
//!   stacks the lowest interface feeds here, too.
//! - **Tunnels**: what a tunnel interface receives came inside packets of another interface. The kernel does not always
//!   tell which. Then any measured interface may be the one, and the tunnel feeds `none`; the operator may know better.

use std::{
    collections::{HashMap, HashSet},
    io,
};

use tracing::{info, warn};
use weir_common::control::{Feeds, Passing};

use super::{
    netlink::{Device, Devices},
    plan::{Wanted, wanted},
};
use crate::config::{Interface, Way};

/// Kinds of interfaces that show the packets of their lower interface again.
const STACKED: [&str; 7] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "dsa"];
/// Kinds of interfaces whose packets travel inside packets of other interfaces.
const TUNNELS: [&str; 22] = [
    "vxlan",
    "geneve",
    "bareudp",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "ipip",
    "sit",
    "ip6tnl",
    "vti",
    "vti6",
    "xfrm",
    "wireguard",
    "ovpn",
    "ppp",
    "gtp",
    "l2tp",
    "amt",
    "tun",
];
/// Stacks are not deeper than this.
const DEPTH_MAX: usize = 8;

/// What one direction of one interface feeds, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What it feeds.
    pub feeds: Feeds,
    /// Why not all packets feed; empty where they do.
    pub why: String,
    /// What only the operator can know, and what follows if it is otherwise.
    pub doubt: Option<String>,
}

/// The decisions for all measured interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feeding {
    decisions: HashMap<(u32, Way), Decision>,
    /// The interfaces by which packets come that have fed.
    pub fed: HashSet<u32>,
}

impl Feeding {
    /// Decides for all these interfaces, of which each is wanted as its rule says.
    pub fn new(wanted: &[Wanted<'_>], devices: &[Device]) -> Self {
        Stack::new(wanted, devices).decide()
    }

    /// What this direction of an interface feeds; all packets if nothing was decided.
    pub fn of(&self, ifindex: u32, way: Way) -> Feeds {
        self.decision(ifindex, way).map_or(Feeds::All, |decision| decision.feeds)
    }

    /// What the programs have to know of interfaces, by index.
    pub fn for_the_programs(&self) -> HashMap<u32, Passing> {
        let ifindexes = self.fed.iter().chain(self.decisions.keys().map(|(ifindex, _)| ifindex));
        let passing = |ifindex: u32| {
            let [received, sent] = [Way::Ingress, Way::Egress].map(|way| self.of(ifindex, way));
            Passing::new(self.fed.contains(&ifindex), received, sent)
        };
        let all = ifindexes.map(|&ifindex| (ifindex, passing(ifindex)));
        all.filter(|(_, passing)| *passing != Passing::default()).collect()
    }

    /// Says why, where not all packets of this direction feed, or where somebody may know better.
    pub fn tell(&self, device: &Device, way: Way) {
        let Some(Decision { feeds, why, doubt }) = self.decision(device.ifindex, way) else { return };
        let (interface, direction) = (&device.name, way.name());
        if let Some(doubt) = doubt {
            let why = if why.is_empty() { why.clone() } else { format!(": {why}") };
            warn!(%interface, direction, "feeds {}{why}. {doubt}", feeds.name());
        } else if !why.is_empty() {
            info!(%interface, direction, "feeds {}: {why}", feeds.name());
        }
    }

    /// The decision for this direction of an interface.
    pub fn decision(&self, ifindex: u32, way: Way) -> Option<&Decision> {
        self.decisions.get(&(ifindex, way))
    }
}

/// An interface of the configuration with one direction and what it feeds; `None` where the interface is not there.
pub type Surveyed = (String, Option<(Way, Decision)>);

/// What each of these interfaces would feed now, in the order of the rules, with the names of interfaces that are not
/// there.
///
/// # Errors
///
/// The kernel does not tell its interfaces.
pub fn survey(rules: &[Interface], has_programs: bool) -> io::Result<Vec<Surveyed>> {
    let devices = Devices::open()?.list()?;
    let wanted = wanted(rules, &devices, has_programs);
    let feeding = Feeding::new(&wanted, &devices);
    let mut all = Vec::new();
    for (nth, rule) in rules.iter().enumerate() {
        let mut its = wanted.iter().filter(|wanted| wanted.rule == nth).peekable();
        if its.peek().is_none() {
            all.push((rule.name.clone(), None));
        }
        all.extend(its.filter_map(|wanted| {
            let decision = feeding.decision(wanted.device.ifindex, wanted.way)?.clone();
            Some((wanted.device.name.clone(), Some((wanted.way, decision))))
        }));
    }
    Ok(all)
}

/// How the interfaces lie on one another.
struct Stack<'l> {
    devices: &'l [Device],
    by_index: HashMap<u32, &'l Device>,
    members: HashMap<u32, Vec<&'l Device>>,
    wanted: HashMap<(u32, Way), &'l Wanted<'l>>,
}

/// An interface below another one that carries its packets.
enum Below {
    /// All of them, as far as the interfaces tell.
    Whole(String),
    /// All of them, if they come by this interface; the kernel does not tell.
    Likely(String),
}

impl Below {
    fn name(self) -> String {
        match self {
            Self::Whole(name) | Self::Likely(name) => name,
        }
    }
}

impl<'l> Stack<'l> {
    fn new(wanted: &'l [Wanted<'l>], devices: &'l [Device]) -> Self {
        let mut members: HashMap<_, Vec<_>> = HashMap::new();
        for device in devices {
            if let Some(master) = device.master {
                members.entry(master).or_default().push(device);
            }
        }
        let by_index = devices.iter().map(|device| (device.ifindex, device)).collect();
        let wanted = wanted.iter().map(|one| ((one.device.ifindex, one.way), one)).collect();
        Self { devices, by_index, members, wanted }
    }

    fn decide(&self) -> Feeding {
        let mut feeding = Feeding::default();
        for (&key, wanted) in &self.wanted {
            if key.1 == Way::Ingress {
                feeding.decisions.insert(key, self.received(wanted));
            }
        }
        let feeds = |device: &Device| match feeding.decisions.get(&(device.ifindex, Way::Ingress)) {
            Some(decision) => decision.feeds == Feeds::All || self.is_fed_elsewhere(device),
            None => self.is_fed_elsewhere(device) || self.has_fed_member(device),
        };
        let fed: HashSet<u32> =
            self.devices.iter().filter(|device| feeds(device)).map(|device| device.ifindex).collect();
        for (&key, wanted) in &self.wanted {
            if key.1 == Way::Egress {
                feeding.decisions.insert(key, self.sent(wanted, &fed));
            }
        }
        feeding.fed = fed;
        feeding
    }

    /// What an interface feeds of the packets that it receives.
    fn received(&self, wanted: &Wanted<'_>) -> Decision {
        let device = wanted.device;
        let below = self.below(device, Way::Ingress, DEPTH_MAX);
        if let Some(feeds) = wanted.feeds.filter(|feeds| *feeds != Feeds::Local) {
            return self.told(feeds, below);
        }
        if let Some(peer) = self.peer(device).filter(|peer| self.is_wanted(peer, Way::Egress)) {
            return Decision::none(format!("they feed on {}, its other end, which sends them", peer.name));
        }
        if let Some(upper) = self.partly_below(device, Way::Ingress) {
            return Decision::none(format!(
                "they feed on {}, of which not all interfaces below are measured",
                upper.name
            ));
        }
        match below {
            Some(below) => Decision::below(below, "come"),
            None => Decision::all(),
        }
    }

    /// What an interface feeds of the packets that it sends. `fed`: see [`Feeding::fed`].
    fn sent(&self, wanted: &Wanted<'_>, fed: &HashSet<u32>) -> Decision {
        let device = wanted.device;
        let below = self.below(device, Way::Egress, DEPTH_MAX);
        if let Some(feeds) = wanted.feeds {
            return self.told(feeds, below);
        }
        if device.loopback && self.is_wanted(device, Way::Ingress) {
            return Decision::none("they feed when the loopback receives them".to_owned());
        }
        if let Some(upper) = self.partly_below(device, Way::Egress) {
            return Decision::none(format!(
                "they feed on {}, of which not all interfaces below are measured",
                upper.name
            ));
        }
        match below {
            Some(below) => Decision::below(below, "leave"),
            None if fed.is_empty() => Decision::all(),
            None if wanted.knows_origin => Decision::local(),
            None if !fed.iter().any(|other| self.is_apart(*other, device)) => Decision {
                doubt: Some(format!(
                    "A packet socket does not tell which packets {} sends back to where they came from. If the router \
                     does that, as with VLANs on one cable, set `feeds: none` for `direction: egress`",
                    device.name
                )),
                ..Decision::all()
            },
            None => Decision {
                doubt: Some(format!(
                    "A packet socket does not tell which packets of {} the router forwards. If it forwards none that \
                     came by a measured interface, set `feeds: all`",
                    device.name
                )),
                ..Decision::none(
                    "those that the router forwards have fed already, and a packet socket does not tell which"
                        .to_owned(),
                )
            },
        }
    }

    /// What the operator told, and what follows.
    fn told(&self, feeds: Feeds, below: Option<Below>) -> Decision {
        let doubt = match (feeds, below) {
            (Feeds::All | Feeds::Local, Some(below)) => {
                Some(format!("Packets that {} carries too, below it, count twice in totals and lists", below.name()))
            }
            _ => None,
        };
        let why = if feeds == Feeds::All { String::new() } else { "so says the configuration".to_owned() };
        Decision { feeds, why, doubt }
    }

    /// The measured interfaces below that carry all packets of this direction, if they do.
    fn below(&self, device: &Device, way: Way, depth: usize) -> Option<Below> {
        let carries = |lower: &Device| {
            if self.is_wanted(lower, way) && self.partly_below(lower, way).is_none() {
                return Some(Below::Whole(lower.name.clone()));
            }
            if depth == 0 { None } else { self.below(lower, way, depth - 1) }
        };
        if let Some(members) = self.members.get(&device.ifindex) {
            let carried: Option<Vec<_>> = members.iter().map(|member| carries(member)).collect();
            let names: Vec<_> = carried?.into_iter().map(Below::name).collect();
            return Some(Below::Whole(names.join(", ")));
        }
        let lower = device.lower.and_then(|lower| self.by_index.get(&lower)).copied();
        if is_one_of(device, &STACKED) {
            return lower.and_then(carries);
        }
        if is_tunnel(device) {
            return match lower {
                Some(lower) => carries(lower),
                None if device.elsewhere => None,
                None => self.any_base(device, way).map(Below::Likely),
            };
        }
        None
    }

    /// A measured interface that is no tunnel and does not lie on `tunnel`.
    fn any_base(&self, tunnel: &Device, way: Way) -> Option<String> {
        let is_base = |device: &&Device| {
            !device.loopback && !is_tunnel(device) && device.ifindex != tunnel.ifindex && !self.lies_on(device, tunnel)
        };
        let mut names: Vec<_> = self
            .devices
            .iter()
            .filter(is_base)
            .filter(|device| self.is_wanted(device, way))
            .map(|device| &device.name)
            .collect();
        names.sort_unstable();
        names.first().map(|name| (*name).clone())
    }

    /// Whether it is another interface, and does not lie on this one.
    fn is_apart(&self, other: u32, device: &Device) -> bool {
        let other = self.by_index.get(&other);
        other.is_some_and(|other| other.ifindex != device.ifindex && !self.lies_on(other, device))
    }

    fn lies_on(&self, upper: &Device, lower: &Device) -> bool {
        let mut at = upper;
        for _ in 0..DEPTH_MAX {
            match at.lower.and_then(|lower| self.by_index.get(&lower)) {
                Some(next) if next.ifindex == lower.ifindex => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }

    /// The measured interface above that has all packets of this one, and of whose members others are not measured.
    fn partly_below(&self, device: &Device, way: Way) -> Option<&'l Device> {
        let upper = *self.by_index.get(&device.master?)?;
        let members = self.members.get(&upper.ifindex)?;
        let all = members.iter().all(|member| {
            self.is_wanted(member, way)
                || self.members.contains_key(&member.ifindex) && self.below(member, way, 1).is_some()
        });
        (self.is_wanted(upper, way) && !all).then_some(upper)
    }

    /// Whether what an interface receives has fed on others.
    fn is_fed_elsewhere(&self, device: &Device) -> bool {
        self.below(device, Way::Ingress, DEPTH_MAX).is_some()
            || self.peer(device).is_some_and(|peer| self.is_wanted(peer, Way::Egress))
    }

    /// Whether some of what a bridge, a bond or the like receives has fed: then forwarded packets do not feed again.
    fn has_fed_member(&self, device: &Device) -> bool {
        let members = self.members.get(&device.ifindex).into_iter().flatten();
        members.into_iter().any(|member| self.is_wanted(member, Way::Ingress))
    }

    /// The other end of a veth in this namespace.
    fn peer(&self, device: &Device) -> Option<&'l Device> {
        let lower = device.lower.filter(|_| device.kind.as_deref() == Some("veth"))?;
        self.by_index.get(&lower).copied()
    }

    fn is_wanted(&self, device: &Device, way: Way) -> bool {
        self.wanted.get(&(device.ifindex, way)).is_some_and(|wanted| wanted.feeds != Some(Feeds::None))
    }
}

impl Decision {
    fn all() -> Self {
        Self { feeds: Feeds::All, why: String::new(), doubt: None }
    }

    fn local() -> Self {
        let why = "those that came by an interface that feeds have fed already".to_owned();
        Self { feeds: Feeds::Local, why, doubt: None }
    }

    fn none(why: String) -> Self {
        Self { feeds: Feeds::None, why, doubt: None }
    }

    /// Packets that `come` or `leave` by measured interfaces below.
    fn below(below: Below, verb: &str) -> Self {
        match below {
            Below::Whole(lower) => Self::none(format!("they feed on {lower}, below it")),
            Below::Likely(lower) => Self {
                doubt: Some(format!(
                    "It is a tunnel, and the kernel does not tell by which interface its packets {verb}. If that is one \
                     that weir does not measure, set `feeds: all`"
                )),
                ..Self::none(format!("they feed on {lower}, inside its packets"))
            },
        }
    }
}

fn is_one_of(device: &Device, kinds: &[&str]) -> bool {
    device.kind.as_deref().is_some_and(|kind| kinds.contains(&kind))
}

/// A `tun` with Ethernet headers (`tap`) is a machine's network card, not a tunnel.
fn is_tunnel(device: &Device) -> bool {
    const ETHERNET: u16 = 1;
    is_one_of(device, &TUNNELS) && !(device.kind.as_deref() == Some("tun") && device.hardware == ETHERNET)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INGRESS: &[Way] = &[Way::Ingress];
    const EGRESS: &[Way] = &[Way::Egress];
    const BOTH: &[Way] = &[Way::Ingress, Way::Egress];

    fn card(ifindex: u32) -> Device {
        Device { ifindex, name: format!("if{ifindex}"), hardware: 1, ..Device::default() }
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

    /// What the measured interfaces feed, received and sent, and by which interfaces packets come that have fed.
    fn feeding(devices: &[Device], measured: &[(u32, &[Way])]) -> (Feeding, Vec<u32>) {
        decide(devices, measured, None, true)
    }

    fn decide(
        devices: &[Device],
        measured: &[(u32, &[Way])],
        told: Option<(u32, Feeds)>,
        knows_origin: bool,
    ) -> (Feeding, Vec<u32>) {
        let mut wanted = Vec::new();
        for &(ifindex, ways) in measured {
            let device = devices.iter().find(|device| device.ifindex == ifindex).expect("it is there");
            let feeds = told.filter(|(of, _)| *of == ifindex).map(|(_, feeds)| feeds);
            wanted.extend(ways.iter().map(|&way| Wanted { rule: 0, device, way, feeds, knows_origin }));
        }
        let feeding = Feeding::new(&wanted, devices);
        let mut fed: Vec<_> = feeding.fed.iter().copied().collect();
        fed.sort_unstable();
        (feeding, fed)
    }

    #[test]
    fn what_is_forwarded_between_two_interfaces_feeds_where_it_came_in() {
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
    }

    #[test]
    fn where_nothing_is_measured_that_is_received_all_that_is_sent_feeds() {
        let (feeding, fed) = feeding(&[card(2), card(3)], &[(2, EGRESS)]);
        assert_eq!((feeding.of(2, Way::Egress), fed), (Feeds::All, vec![]));
    }

    #[test]
    fn a_packet_socket_feeds_what_is_sent_only_where_nothing_can_have_fed() {
        let devices = [card(2), card(3)];
        let (feeding, _) = decide(&devices, &[(2, BOTH), (3, INGRESS)], None, false);
        assert_eq!(feeding.of(2, Way::Egress), Feeds::None);
        assert!(feeding.decision(2, Way::Egress).unwrap().doubt.as_ref().unwrap().contains("feeds: all"));
        let (feeding, _) = decide(&devices, &[(2, BOTH)], None, false);
        assert_eq!(
            feeding.of(2, Way::Egress),
            Feeds::All,
            "what the router forwards came by interfaces that do not feed"
        );
        assert!(feeding.decision(2, Way::Egress).unwrap().doubt.as_ref().unwrap().contains("feeds: none"));
        let (feeding, _) = decide(&devices, &[(2, EGRESS)], None, false);
        assert_eq!(feeding.of(2, Way::Egress), Feeds::All);
    }

    #[test]
    fn a_stack_feeds_at_its_lowest_measured_interface() {
        for kind in STACKED {
            let devices = [card(2), on(2, virt(3, kind)), on(3, virt(4, kind)), card(5)];
            let (feeding, fed) = feeding(&devices, &[(2, BOTH), (4, BOTH)]);
            assert_eq!((feeding.of(2, Way::Ingress), feeding.of(4, Way::Ingress)), (Feeds::All, Feeds::None), "{kind}");
            assert_eq!((feeding.of(2, Way::Egress), feeding.of(4, Way::Egress)), (Feeds::Local, Feeds::None), "{kind}");
            assert_eq!(fed, [2, 3, 4], "what comes by one that is not measured has fed below, too");
        }
        let devices = [card(2), on(2, virt(3, "vlan"))];
        let (feeding, fed) = feeding(&devices, &[(3, INGRESS)]);
        assert_eq!((feeding.of(3, Way::Ingress), fed), (Feeds::All, vec![3]), "its parent is not measured");
    }

    #[test]
    fn a_bridge_feeds_nothing_where_all_its_ports_are_measured() {
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
    fn a_bridge_feeds_where_only_some_of_its_ports_are_measured_and_these_do_not() {
        let devices = [member(4, card(2)), member(4, card(3)), virt(4, "bridge"), on(4, virt(5, "vlan"))];
        let (feeding, fed) = feeding(&devices, &[(2, BOTH), (4, BOTH), (5, BOTH)]);
        let decided = [2, 4, 5].map(|ifindex| feeding.of(ifindex, Way::Ingress));
        assert_eq!(decided, [Feeds::None, Feeds::All, Feeds::None], "what comes by if3 is not lost");
        assert_eq!(feeding.of(2, Way::Egress), Feeds::None);
        assert!(fed.contains(&4) && fed.contains(&5) && !fed.contains(&2), "{fed:?}");
        assert!(feeding.decision(2, Way::Ingress).unwrap().why.contains("if4"));
        // The bridge itself is not measured: what its one port has fed does not feed again.
        let (feeding, fed) = decide(&devices, &[(2, BOTH)], None, true);
        assert_eq!((feeding.of(2, Way::Ingress), fed), (Feeds::All, vec![2, 4]));
    }

    #[test]
    fn a_tunnel_feeds_nothing_where_an_interface_that_may_carry_it_is_measured() {
        for kind in TUNNELS {
            let tunnel = Device { hardware: 65_534, ..virt(7, kind) };
            let devices = [card(2), card(3), tunnel.clone(), on(7, virt(8, "vlan"))];
            let (feeding, fed) = decide(&devices, &[(2, INGRESS), (7, BOTH)], None, true);
            assert_eq!(feeding.of(7, Way::Ingress), Feeds::None, "{kind}");
            let decision = feeding.decision(7, Way::Ingress).unwrap();
            assert!(decision.why.contains("if2") && decision.doubt.as_ref().unwrap().contains("feeds: all"));
            assert_eq!(feeding.of(7, Way::Egress), Feeds::Local, "nothing is measured that if2 sends");
            assert!(fed.contains(&7), "{kind}");
            let (alone, _) = decide(&devices, &[(7, INGRESS), (8, INGRESS)], None, true);
            assert_eq!(alone.of(7, Way::Ingress), Feeds::All, "what lies on a tunnel does not carry it");
            // The kernel tells what it lies on.
            let devices = [card(2), card(3), on(3, tunnel.clone())];
            let (feeding, _) = decide(&devices, &[(2, INGRESS), (7, INGRESS)], None, true);
            assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "{kind} lies on another one");
            let (feeding, _) = decide(&devices, &[(3, INGRESS), (7, INGRESS)], None, true);
            assert_eq!(feeding.of(7, Way::Ingress), Feeds::None);
            let elsewhere = Device { elsewhere: true, ..tunnel };
            let (feeding, _) = decide(&[card(2), elsewhere], &[(2, INGRESS), (7, INGRESS)], None, true);
            assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "it travels in another namespace");
        }
        let tap = virt(7, "tun");
        let (feeding, _) = feeding(&[card(2), tap], &[(2, INGRESS), (7, INGRESS)]);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::All, "a tap is the card of a machine");
    }

    #[test]
    fn both_ends_of_a_veth_feed_where_they_send() {
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
        let lo = Device { loopback: true, hardware: 772, ..card(1) };
        let (both, _) = feeding(std::slice::from_ref(&lo), &[(1, BOTH)]);
        assert_eq!((both.of(1, Way::Ingress), both.of(1, Way::Egress)), (Feeds::All, Feeds::None));
        let (sent, _) = feeding(&[lo], &[(1, EGRESS)]);
        assert_eq!(sent.of(1, Way::Egress), Feeds::All);
    }

    #[test]
    fn what_the_operator_says_counts_with_a_word_of_what_follows() {
        let devices = [card(2), virt(7, "wireguard")];
        let (feeding, _) = decide(&devices, &[(2, INGRESS), (7, INGRESS)], Some((7, Feeds::All)), true);
        assert_eq!(feeding.of(7, Way::Ingress), Feeds::All);
        assert!(feeding.decision(7, Way::Ingress).unwrap().doubt.as_ref().unwrap().contains("count twice"));
        let (feeding, fed) = decide(&devices, &[(2, INGRESS), (7, BOTH)], Some((2, Feeds::None)), true);
        assert_eq!((feeding.of(2, Way::Ingress), feeding.of(7, Way::Ingress)), (Feeds::None, Feeds::All));
        assert_eq!(fed, [7]);
    }

    #[test]
    fn a_circle_has_an_end() {
        let devices = [on(3, virt(2, "vlan")), on(2, virt(3, "vlan"))];
        let (feeding, _) = feeding(&devices, &[(2, INGRESS)]);
        assert_eq!(feeding.of(2, Way::Ingress), Feeds::None);
    }
}
