//! Which packets feed totals and lists: each packet once, however many measured interfaces carry it.
//!
//! A packet may pass several interfaces: a VLAN and its parent, a bridge and its port, a tunnel and the card below it,
//! the interface where it arrives and the one where it leaves. It is in the ledger of each. This file decides on which
//! one it feeds, based on the properties of the interfaces. It makes no changes in the kernel.
//!
//! - **Received**: a packet feeds on the lowest measured interface. So an interface feeds `none` if measured interfaces
//!   below it carry everything that it receives. If they carry only a part (one port of a bridge), the upper one feeds,
//!   and those below do not.
//! - **Sent**: a packet feeds unless it already fed when it was received, which the tc hook can tell for each packet
//!   (`local`). In stacks the lowest interface feeds here, too. A packet socket only recognizes the router's own
//!   packets, by their source address, and only if the router does not translate addresses.
//! - **Tunnels**: packets that a tunnel interface receives arrived inside packets of another interface, and the kernel
//!   does not always report which. Then it may be any measured interface, and the tunnel feeds `none`; the operator can
//!   configure something else.

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
};

use tracing::{info, warn};
use weir_common::control::{Feeds, Passing};
use weir_config::{Interface, interface::Way};

use super::{
    error::NO_DEFAULT_ROUTE,
    nat::Sources,
    netlink::{Device, Devices},
    plan::{PlannedAttachment, covers, list, wanted},
    stack::{Carriers, Stack, listed},
};

/// The decision which packets one direction of one interface feeds, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The packets that it feeds.
    pub feeds: Feeds,
    /// Why not all packets feed; empty if all do.
    pub why: String,
    /// An assumption that only the operator can check, and what follows if it is wrong.
    pub caveat: Option<String>,
}

/// The decisions for all measured interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feeding {
    decisions: HashMap<(u32, Way), Decision>,
    /// The interfaces whose received packets have fed totals and lists.
    pub fed: HashSet<u32>,
}

impl Feeding {
    /// Decides for all these interfaces, each of which is wanted by its rule. `sources` is for packet sockets.
    pub fn new(wanted: &[PlannedAttachment<'_>], devices: &[Device], sources: Sources) -> Self {
        let stack = Stack::new(wanted, devices);
        let mut feeding = Self::default();
        for wanted in wanted.iter().filter(|wanted| wanted.way == Way::Ingress) {
            feeding.decisions.insert((wanted.device.ifindex, wanted.way), received(&stack, wanted));
        }
        let mut unfed = Unfed { in_part: Vec::new(), whole: Vec::new(), sources };
        for device in devices {
            let decision = feeding.decision(device.ifindex, Way::Ingress);
            if decision.is_some_and(|decision| decision.feeds == Feeds::All) || stack.is_fed_elsewhere(device) {
                feeding.fed.insert(device.ifindex);
            } else if decision.is_none() && stack.is_fed_in_part(device) {
                unfed.in_part.push(device.name.as_str());
            } else if device.up && !device.loopback {
                unfed.whole.push(device.name.as_str());
            }
        }
        for wanted in wanted.iter().filter(|wanted| wanted.way == Way::Egress) {
            let decision = sent(&stack, wanted, &feeding.fed, &unfed);
            feeding.decisions.insert((wanted.device.ifindex, wanted.way), decision);
        }
        feeding
    }

    /// Returns which packets this direction of an interface feeds; all packets if there is no decision.
    pub fn of(&self, ifindex: u32, way: Way) -> Feeds {
        self.decision(ifindex, way).map_or(Feeds::All, |decision| decision.feeds)
    }

    /// Returns the facts about interfaces that the programs need, by interface index.
    pub fn for_the_programs(&self) -> HashMap<u32, Passing> {
        let ifindexes = self.fed.iter().chain(self.decisions.keys().map(|(ifindex, _)| ifindex));
        let passing = |ifindex: u32| {
            let [received, sent] = [Way::Ingress, Way::Egress].map(|way| self.of(ifindex, way));
            Passing::new(self.fed.contains(&ifindex), received, sent)
        };
        let all = ifindexes.map(|&ifindex| (ifindex, passing(ifindex)));
        all.filter(|(_, passing)| *passing != Passing::default()).collect()
    }

    /// Logs why not all packets of this direction feed, and the caveat for the operator.
    pub fn tell(&self, device: &Device, way: Way) {
        let Some(Decision { feeds, why, caveat }) = self.decision(device.ifindex, way) else { return };
        let (interface, direction) = (&device.name, way.name());
        if let Some(caveat) = caveat {
            let why = if why.is_empty() { why.clone() } else { format!(": {why}") };
            warn!(%interface, direction, "feeds {}{why}. {caveat}", feeds.name());
        } else if !why.is_empty() {
            info!(%interface, direction, "feeds {}: {why}", feeds.name());
        }
    }

    /// The decision for this direction of an interface.
    pub fn decision(&self, ifindex: u32, way: Way) -> Option<&Decision> {
        self.decisions.get(&(ifindex, way))
    }
}

/// The packets that each interface of a configuration would feed now, or the reason why a rule matches no interface.
pub struct Survey(Vec<(String, Fed)>);

/// The decision for one direction of an interface, or the reason why there is no interface.
type Fed = Result<(Way, Decision), &'static str>;

impl Survey {
    /// Decides for all interfaces that these rules match, in the order of the rules.
    ///
    /// # Errors
    ///
    /// The kernel does not list its interfaces.
    pub fn new(rules: &[Interface], has_programs: bool) -> io::Result<Self> {
        let devices = list(&mut Devices::open()?, rules)?;
        Ok(Self::of(rules, &devices, has_programs, Sources::ask()))
    }

    /// Surveys these interfaces.
    fn of(rules: &[Interface], devices: &[Device], has_programs: bool, sources: Sources) -> Self {
        let wanted = wanted(rules, devices, has_programs);
        let feeding = Feeding::new(&wanted, devices, sources);
        let mut all = Vec::new();
        for (nth, rule) in rules.iter().enumerate() {
            let mut its = wanted.iter().filter(|wanted| wanted.rule == nth).peekable();
            if its.peek().is_none() {
                let is_there = devices.iter().any(|device| covers(rule, device));
                let why = match (is_there, rule.is_default_route()) {
                    (true, _) => "other entries cover all interfaces that it matches now",
                    (false, true) => NO_DEFAULT_ROUTE,
                    (false, false) => "not there now",
                };
                all.push((rule.name.clone(), Err(why)));
            }
            all.extend(its.filter_map(|wanted| {
                let decision = feeding.decision(wanted.device.ifindex, wanted.way)?.clone();
                let by = if rule.is_default_route() { " (default route)" } else { "" };
                Some((format!("{}{by}", wanted.device.name), Ok((wanted.way, decision))))
            }));
        }
        Self(all)
    }
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, there) in &self.0 {
            let (way, Decision { feeds, why, caveat }) = match there {
                Ok(there) => there,
                Err(why) => {
                    writeln!(f, "{name}: {why}")?;
                    continue;
                }
            };
            write!(f, "{name} {}: feeds {}", way.name(), feeds.name())?;
            if !why.is_empty() {
                write!(f, ": {why}")?;
            }
            writeln!(f)?;
            if let Some(caveat) = caveat {
                writeln!(f, "    {caveat}")?;
            }
        }
        Ok(())
    }
}

/// Decides which of the packets that an interface receives feed.
fn received(stack: &Stack<'_>, wanted: &PlannedAttachment<'_>) -> Decision {
    let device = wanted.device;
    if let Some(feeds) = wanted.feeds.filter(|feeds| *feeds != Feeds::Local) {
        return told(feeds, stack.below(device, Way::Ingress));
    }
    if let Some(peer) = stack.peer(device).filter(|peer| stack.is_wanted(peer, Way::Egress)) {
        return Decision::none(format!("they feed on {}, its other end, which sends them", peer.name));
    }
    by_place(stack, wanted, "arrive on").unwrap_or_else(|| Decision::all().twice(stack.twice(device, Way::Ingress)))
}

/// Interfaces whose received packets have not fed, and whether source addresses identify the router's own packets.
struct Unfed<'l> {
    /// Interfaces that have fed some of their packets.
    in_part: Vec<&'l str>,
    /// Interfaces that have fed none of their packets.
    whole: Vec<&'l str>,
    sources: Sources,
}

/// Decides which of the packets that an interface sends feed. `fed`: see [`Feeding::fed`].
fn sent(stack: &Stack<'_>, wanted: &PlannedAttachment<'_>, fed: &HashSet<u32>, unfed: &Unfed<'_>) -> Decision {
    let device = wanted.device;
    if let Some(feeds) = wanted.feeds {
        return told(feeds, stack.below(device, Way::Egress));
    }
    if device.loopback && stack.is_wanted(device, Way::Ingress) {
        return Decision::none("they feed when the loopback receives them".to_owned());
    }
    if let Some(decision) = by_place(stack, wanted, "leave through") {
        return decision;
    }
    if fed.is_empty() {
        return Decision::all().twice(stack.twice(device, Way::Egress));
    }
    if wanted.knows_origin {
        let mut decision = Decision::local().twice(stack.twice(device, Way::Egress));
        // Otherwise packets that have not fed would feed nowhere.
        if decision.caveat.is_none() && !unfed.in_part.is_empty() {
            let names = listed(&unfed.in_part);
            decision.caveat = Some(format!(
                "Only some of the interfaces below {names} are measured. Packets that arrive on these and leave here \
                 count twice in totals and lists. Measure all of them, or {names}"
            ));
        }
        return decision;
    }
    if fed.iter().any(|other| stack.is_apart(*other, device)) {
        by_source(device, unfed)
    } else {
        let caveat = format!(
            "A packet socket does not show which packets {} sends back to where they came from. If the router does that, \
             as with VLANs on one cable, set `feeds: none` for `direction: egress`",
            device.name
        );
        Decision { caveat: Some(caveat), ..Decision::all() }
    }
}

/// Decides which of the packets that an interface sends feed if a packet socket sees them and others may have fed them.
fn by_source(device: &Device, unfed: &Unfed<'_>) -> Decision {
    let name = &device.name;
    let translated = match unfed.sources {
        Sources::Tell => {
            let others: Vec<_> = unfed.whole.iter().copied().filter(|other| *other != name.as_str()).collect();
            let caveat = || {
                format!(
                    "A packet socket does not show on which interface a packet arrived. Packets that arrive on {} and \
                     leave through {name} are in no total and no list. Measure all interfaces, or set `feeds: all` if no \
                     packet that arrived on a measured interface leaves through {name}",
                    listed(&others)
                )
            };
            let why =
                "forwarded packets have fed already; the router's own packets have one of its addresses as the source";
            let caveat = (!others.is_empty()).then(caveat);
            return Decision { feeds: Feeds::Local, why: why.to_owned(), caveat };
        }
        Sources::Translated => "The router translates addresses",
        Sources::Unknown => "weir is not permitted to check whether the router translates addresses",
    };
    let why = "forwarded packets have fed already, and a packet socket does not show which these are";
    let caveat = format!(
        "{translated}, so the source of a packet on {name} does not show whether the router itself sends it. If the \
         router does not translate sources of packets that leave through {name}, set `feeds: local`. If it forwards no \
         packets there that arrived on a measured interface, set `feeds: all`"
    );
    Decision { caveat: Some(caveat), ..Decision::none(why.to_owned()) }
}

/// The decision if interfaces above or below feed the packets. `verb` is "arrive on" or "leave through".
fn by_place(stack: &Stack<'_>, wanted: &PlannedAttachment<'_>, verb: &str) -> Option<Decision> {
    let PlannedAttachment { device, way, .. } = *wanted;
    if let Some(upper) = stack.above(device, way) {
        let why = format!("they feed on {}, because not all interfaces below it are measured", upper.name);
        return Some(Decision::none(why));
    }
    stack.below(device, way).map(|carriers| Decision::below(&carriers, verb))
}

/// The decision that the operator has configured, with its consequences.
fn told(feeds: Feeds, below: Option<Carriers<'_>>) -> Decision {
    let why = if feeds == Feeds::All { String::new() } else { "as configured".to_owned() };
    Decision { feeds, why, caveat: None }.twice(below.filter(|_| feeds != Feeds::None))
}

impl Decision {
    fn all() -> Self {
        Self { feeds: Feeds::All, why: String::new(), caveat: None }
    }

    fn local() -> Self {
        let why = "packets that arrived on an interface that feeds have fed already".to_owned();
        Self { feeds: Feeds::Local, why, caveat: None }
    }

    fn none(why: String) -> Self {
        Self { feeds: Feeds::None, why, caveat: None }
    }

    /// The decision if measured interfaces below feed the packets. `verb` is "arrive on" or "leave through".
    fn below(carriers: &Carriers<'_>, verb: &str) -> Self {
        let lower = carriers.names();
        match carriers.tunnel {
            None => Self::none(format!("they feed on {lower}, below it")),
            Some(tunnel) => Self {
                caveat: Some(format!(
                    "{tunnel} is a tunnel, and the kernel does not report which interface its packets {verb}. If weir does \
                     not measure that interface, set `feeds: all`"
                )),
                ..Self::none(format!("they feed on {lower}, inside its packets"))
            },
        }
    }

    /// Adds a caveat about packets that feed on other interfaces, too.
    fn twice(self, others: Option<Carriers<'_>>) -> Self {
        let caveat = |others: Carriers<'_>| {
            format!("Packets that {} also carries, below it, count twice in totals and lists", others.names())
        };
        Self { caveat: others.map(caveat), ..self }
    }
}

#[cfg(test)]
mod tests;
