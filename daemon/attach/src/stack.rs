//! How interfaces are stacked, and which measured interfaces carry the packets of another one.
//!
//! A packet that passes a VLAN on a bridge on a network card is seen on all three. Each must count it in its own
//! ledger, but totals and lists may count it only once. This file answers the questions that decide where: which
//! interfaces are below another one, and which of them are measured.

use std::collections::{HashMap, HashSet};

use weir_common::control::Feeds;
use weir_config::interface::Way;

use super::{netlink::Device, plan::PlannedAttachment};

/// Kinds of interfaces that show the packets of their lower interface again.
pub(super) const STACKED: [&str; 7] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "dsa"];
/// Kinds of interfaces whose packets travel inside packets of other interfaces.
pub(super) const TUNNELS: [&str; 22] = [
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
/// The maximum depth of a stack.
const DEPTH_MAX: usize = 8;

/// How the interfaces of a router are stacked.
pub struct Stack<'l> {
    by_index: HashMap<u32, &'l Device>,
    members: HashMap<u32, Vec<&'l Device>>,
    wanted: HashMap<(u32, Way), &'l PlannedAttachment<'l>>,
    /// Interfaces whose members carry all their packets, but are not all measured.
    partial: HashSet<(u32, Way)>,
    /// Measured interfaces that may carry a tunnel's packets. Those without lower interfaces come first.
    bases: HashMap<Way, Vec<&'l Device>>,
}

/// The interfaces that carry the packets of an interface that is stacked on others.
enum Lower<'s, 'l> {
    /// Each packet passes one of its members.
    Members(&'s [&'l Device]),
    /// All packets pass this interface.
    One(&'l Device),
    /// The packets travel inside packets of some other interface, and the kernel does not report which.
    Unknown,
}

/// Measured interfaces that together carry and feed all packets of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carriers<'l> {
    /// The names of the interfaces.
    names: Vec<&'l str>,
    /// The tunnel in between, if the kernel does not report where its packets travel.
    pub tunnel: Option<&'l str>,
}

impl Carriers<'_> {
    /// Returns the names, as many as fit in a line.
    pub fn names(&self) -> String {
        listed(&self.names)
    }

    fn add(&mut self, other: Self) {
        self.names.extend(other.names);
        self.tunnel = self.tunnel.or(other.tunnel);
    }
}

/// Names in a line, as many as fit.
pub fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    match names {
        names if names.len() <= SHOWN + 1 => names.join(", "),
        names => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
    }
}

/// The level of each interface by its index: how many interfaces are below it.
pub fn levels(devices: &[Device]) -> HashMap<u32, usize> {
    let mut levels: HashMap<_, _> = devices.iter().map(|device| (device.ifindex, 0)).collect();
    let pairs = pairs(devices);
    for _ in 0..DEPTH_MAX {
        for (upper, lower) in &pairs {
            let above = levels.get(lower).map_or(0, |level| level + 1).min(DEPTH_MAX);
            levels.entry(*upper).and_modify(|level| *level = above.max(*level));
        }
    }
    levels
}

/// The indexes of all interfaces below one of the `uppers`, directly or through others.
pub fn under(uppers: HashSet<u32>, devices: &[Device]) -> HashSet<u32> {
    if uppers.is_empty() {
        return uppers;
    }
    let (pairs, mut under, mut above) = (pairs(devices), HashSet::new(), uppers);
    while !above.is_empty() {
        let lower = pairs.iter().filter(|(upper, _)| above.contains(upper)).map(|(_, lower)| *lower);
        above = lower.filter(|lower| !under.contains(lower)).collect();
        under.extend(&above);
    }
    under
}

/// Pairs of indexes: an interface that is stacked on another one, and that other one.
fn pairs(devices: &[Device]) -> Vec<(u32, u32)> {
    let lies_on = |device: &Device| device.lower.filter(|_| !is_veth(device)).map(|lower| (device.ifindex, lower));
    devices.iter().flat_map(|device| lies_on(device).into_iter().chain(carries(device))).collect()
}

fn is_veth(device: &Device) -> bool {
    device.kind.as_deref() == Some("veth")
}

fn carries(device: &Device) -> Option<(u32, u32)> {
    device.master.map(|master| (master, device.ifindex))
}

impl<'l> Stack<'l> {
    /// The stack of these interfaces; `wanted` are those to be measured.
    pub fn new(wanted: &'l [PlannedAttachment<'l>], devices: &'l [Device]) -> Self {
        let mut members: HashMap<_, Vec<_>> = HashMap::new();
        for device in devices {
            if let Some(master) = device.master {
                members.entry(master).or_default().push(device);
            }
        }
        let mut stack = Self {
            by_index: devices.iter().map(|device| (device.ifindex, device)).collect(),
            members,
            wanted: wanted.iter().map(|one| ((one.device.ifindex, one.way), one)).collect(),
            partial: HashSet::new(),
            bases: HashMap::new(),
        };
        stack.bases = [Way::Ingress, Way::Egress].map(|way| (way, stack.bases(devices, way))).into();
        stack.find_partial();
        stack
    }

    /// Returns true if this direction of an interface is measured, and may feed.
    pub fn is_wanted(&self, device: &Device, way: Way) -> bool {
        self.wanted.get(&(device.ifindex, way)).is_some_and(|wanted| wanted.feeds != Some(Feeds::None))
    }

    /// The measured interfaces below that carry all packets of this direction, if there are any.
    pub fn below(&self, device: &Device, way: Way) -> Option<Carriers<'l>> {
        self.below_within(device, way, DEPTH_MAX)
    }

    fn below_within(&self, device: &Device, way: Way, depth: usize) -> Option<Carriers<'l>> {
        match self.lower(device)? {
            Lower::One(lower) => self.carriers(lower, way, depth),
            Lower::Members(members) => {
                let mut all = Carriers::default();
                for member in members {
                    all.add(self.carriers(member, way, depth)?);
                }
                Some(all)
            }
            Lower::Unknown => {
                let base = self.base(device, way)?;
                let tunnel = self.by_index.get(&device.ifindex).map(|tunnel| tunnel.name.as_str());
                Some(Carriers { names: vec![&base.name], tunnel })
            }
        }
    }

    /// This interface if it feeds, otherwise the interfaces below it.
    fn carriers(&self, device: &'l Device, way: Way, depth: usize) -> Option<Carriers<'l>> {
        if self.feeds_itself(device, way) {
            return Some(Carriers { names: vec![&device.name], tunnel: None });
        }
        if depth == 0 { None } else { self.below_within(device, way, depth - 1) }
    }

    fn feeds_itself(&self, device: &Device, way: Way) -> bool {
        self.is_wanted(device, way) && self.above(device, way).is_none()
    }

    /// The measured interface above that feeds the packets of this one, because not all members of the upper one are
    /// measured.
    pub fn above(&self, device: &Device, way: Way) -> Option<&'l Device> {
        let masters = std::iter::successors(self.master(device), |master| self.master(master));
        masters.take(DEPTH_MAX).find(|master| self.partial.contains(&(master.ifindex, way)))
    }

    fn master(&self, device: &Device) -> Option<&'l Device> {
        self.by_index.get(&device.master?).copied()
    }

    /// The interfaces whose packets feed twice, on these interfaces and on this one. They are below members of an
    /// interface that feeds because not all of its members are measured.
    pub fn twice(&self, device: &Device, way: Way) -> Option<Carriers<'l>> {
        let members = self.members.get(&device.ifindex).filter(|_| self.partial.contains(&(device.ifindex, way)))?;
        let mut all = Carriers::default();
        for carriers in members.iter().filter_map(|member| self.below(member, way)) {
            all.add(carriers);
        }
        (!all.names.is_empty()).then_some(all)
    }

    /// The other end of a veth in this namespace.
    pub fn peer(&self, device: &Device) -> Option<&'l Device> {
        let lower = device.lower.filter(|_| device.kind.as_deref() == Some("veth"))?;
        self.by_index.get(&lower).copied()
    }

    /// Returns true if everything that an interface receives feeds on other interfaces.
    pub fn is_fed_elsewhere(&self, device: &Device) -> bool {
        self.below(device, Way::Ingress).is_some()
            || self.peer(device).is_some_and(|peer| self.is_wanted(peer, Way::Egress))
    }

    /// Returns true if some packets that an interface receives feed on an interface below it.
    pub fn is_fed_in_part(&self, device: &Device) -> bool {
        self.is_fed_in_part_within(device, DEPTH_MAX)
    }

    fn is_fed_in_part_within(&self, device: &Device, depth: usize) -> bool {
        let is_fed = |lower: &Device| {
            self.feeds_itself(lower, Way::Ingress) || depth > 0 && self.is_fed_in_part_within(lower, depth - 1)
        };
        match self.lower(device) {
            Some(Lower::Members(members)) => members.iter().any(|member| is_fed(member)),
            Some(Lower::One(lower)) => is_fed(lower),
            Some(Lower::Unknown) | None => false,
        }
    }

    /// Returns true if `other` is a different interface and not stacked on this one.
    pub fn is_apart(&self, other: u32, device: &Device) -> bool {
        let other = self.by_index.get(&other);
        other.is_some_and(|other| other.ifindex != device.ifindex && !self.lies_on(other, device, DEPTH_MAX))
    }

    fn lower(&self, device: &Device) -> Option<Lower<'_, 'l>> {
        if let Some(members) = self.members.get(&device.ifindex) {
            return Some(Lower::Members(members));
        }
        let lower = device.lower.and_then(|lower| self.by_index.get(&lower)).copied();
        match lower {
            Some(lower) if is_one_of(device, &STACKED) || is_tunnel(device) => Some(Lower::One(lower)),
            None if is_tunnel(device) && !device.elsewhere => Some(Lower::Unknown),
            _ => None,
        }
    }

    fn lies_on(&self, upper: &Device, lower: &Device, depth: usize) -> bool {
        let reaches =
            |next: &Device| next.ifindex == lower.ifindex || depth > 0 && self.lies_on(next, lower, depth - 1);
        match self.lower(upper) {
            Some(Lower::Members(members)) => members.iter().any(|member| reaches(member)),
            Some(Lower::One(next)) => reaches(next),
            Some(Lower::Unknown) | None => false,
        }
    }

    /// A measured interface that may carry a tunnel's packets: one that is not stacked on the tunnel itself.
    fn base(&self, tunnel: &Device, way: Way) -> Option<&'l Device> {
        self.bases.get(&way)?.iter().find(|base| self.is_apart(base.ifindex, tunnel)).copied()
    }

    fn bases(&self, devices: &'l [Device], way: Way) -> Vec<&'l Device> {
        let is_base = |device: &&Device| !device.loopback && !is_tunnel(device) && self.is_wanted(device, way);
        let mut bases: Vec<_> = devices.iter().filter(is_base).collect();
        bases.sort_unstable_by_key(|device| (self.lower(device).is_some(), &device.name));
        bases
    }

    /// Finds the interfaces that feed for their members, whose members then carry nothing for others. Repeats until
    /// nothing changes.
    fn find_partial(&mut self) {
        loop {
            let is_partial = |key: &&(u32, Way)| {
                let device = self.by_index.get(&key.0).filter(|device| self.is_wanted(device, key.1));
                device.is_some_and(|device| self.members.contains_key(&key.0) && self.below(device, key.1).is_none())
            };
            let news = self.wanted.keys().filter(|key| !self.partial.contains(key));
            let news: Vec<_> = news.filter(is_partial).copied().collect();
            if news.is_empty() {
                return;
            }
            self.partial.extend(news);
        }
    }
}

fn is_one_of(device: &Device, kinds: &[&str]) -> bool {
    device.kind.as_deref().is_some_and(|kind| kinds.contains(&kind))
}

/// Returns true for a tunnel. A `tun` with Ethernet headers (`tap`) is the network card of a virtual machine, not a
/// tunnel.
fn is_tunnel(device: &Device) -> bool {
    const ETHERNET: u16 = 1;
    is_one_of(device, &TUNNELS) && !(device.kind.as_deref() == Some("tun") && device.hardware == ETHERNET)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ifindex: u32, kind: &str, lower: Option<u32>, master: Option<u32>) -> Device {
        Device { ifindex, kind: Some(kind.to_owned()), lower, master, ..Device::default() }
    }

    #[test]
    fn an_interface_is_above_all_that_it_is_stacked_on() {
        // A VLAN on a bridge of a bond and a veth, whose other end is in this namespace, too.
        let devices = [
            device(2, "vlan", Some(3), None),
            device(3, "bridge", None, None),
            device(4, "bond", None, Some(3)),
            device(5, "veth", Some(6), Some(3)),
            device(6, "veth", Some(5), None),
            device(7, "dummy", None, Some(4)),
            device(8, "vlan", Some(99), None),
        ];
        let levels = levels(&devices);
        let of: Vec<_> = (2..=8).map(|ifindex| levels[&ifindex]).collect();
        assert_eq!(of, [3, 2, 1, 0, 0, 0, 0]);
        for (upper, expected) in [(2, &[3, 4, 5, 7][..]), (4, &[7]), (5, &[]), (8, &[99])] {
            assert_eq!(under(HashSet::from([upper]), &devices), expected.iter().copied().collect(), "{upper}");
        }
        // Impossible stacks must not loop forever.
        let circle = [device(2, "bridge", None, Some(3)), device(3, "bridge", None, Some(2))];
        assert!(super::levels(&circle).values().all(|level| *level <= DEPTH_MAX));
        assert_eq!(under(HashSet::from([2]), &circle), HashSet::from([2, 3]));
    }
}
