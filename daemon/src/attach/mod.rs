//! Attaching programs to interfaces, and following interfaces that appear, vanish, come back, or change their names.
//!
//! [`Attachments`] holds one slot for each direction of each measured interface. Whenever the kernel tells of a change
//! ([`netlink`]), the interfaces there are and the configuration give what should be measured (`plan`); what should no
//! longer be is detached, what should is attached by the best of the `ladder`, and the rest is left alone. At each
//! window's edge what the programs saw is compared with what the interfaces counted (`coverage`).

mod coverage;
mod ladder;
pub mod netlink;
mod plan;

use std::{
    collections::{HashMap, HashSet},
    io,
    time::Duration,
};

use aya::programs::ProgramError;
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use thiserror::Error;
use tracing::{info, warn};
use weir_common::{
    control::{INTERFACES_MAX, egress},
    ledger::Ledger,
};

pub use self::ladder::{Ladder, Programs};
pub(crate) use self::ladder::{link_layer, rungs};
use self::{
    coverage::{Coverage, Finding},
    ladder::{Hold, whole},
    netlink::{Link, Links},
    plan::{Wanted, wanted},
};
use crate::{
    config::{Interface, Way},
    datapath::kernel::{InterfaceTable, KernelError},
    report::compose::Measured,
};

/// Why an interface cannot be measured.
#[derive(Debug, Error)]
pub enum AttachError {
    /// There is none of that name.
    #[error("interface \"{name}\" not found (have: {have})")]
    NotFound {
        /// The name.
        name: String,
        /// The interfaces that there are.
        have: String,
    },
    /// It was there a moment ago.
    #[error("interface \"{0}\" vanished while weir attached to it")]
    Vanished(String),
    /// Another program is there, and stays.
    #[error(
        "interface \"{0}\" has an XDP program of somebody else, which weir never replaces: \
         use `mode: auto` or `mode: tcx`, detach it (`ip link set dev {0} xdp off`), or leave the interface out"
    )]
    Taken(String),
    /// No privilege.
    #[error("not permitted to attach to interface \"{0}\": run as root, or with the capability CAP_NET_ADMIN")]
    NotPermitted(String),
    /// The mode asked for is not to be had.
    #[error("interface \"{name}\" does not take weir's program as {mode}")]
    Refused {
        /// The interface.
        name: String,
        /// The mode.
        mode: &'static str,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// No privilege for packet sockets.
    #[error(
        "not permitted to open a packet socket on interface \"{0}\": run as root, or with the capability CAP_NET_RAW"
    )]
    NoPacketSocket(String),
    /// A packet socket failed.
    #[error("cannot open a packet socket on interface \"{name}\"")]
    Socket {
        /// The interface.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A kernel without TCX.
    #[error(
        "interface \"{0}\" cannot be measured by TCX, which this kernel does not have, or not as weir needs it (Linux 6.6 or later)"
    )]
    NoTcx(String),
    /// XDP on an interface that has no Ethernet headers.
    #[error("interface \"{name}\" has no Ethernet headers, which {mode} is for: use `mode: auto` or `mode: tcx`")]
    NoEthernet {
        /// The interface.
        name: String,
        /// The mode.
        mode: &'static str,
    },
    /// A link layer that weir does not read.
    #[error("interface \"{name}\" is of hardware type {hardware}, which weir does not read: leave it out")]
    LinkLayer {
        /// The interface.
        name: String,
        /// Its type (`ARPHRD_*`).
        hardware: u16,
    },
    /// The kernel attached by netlink, which outlives the daemon.
    #[error(
        "the kernel cannot attach to interface \"{0}\" by a link that ends with weir (it needs Linux 5.9 or later)"
    )]
    NoLink(String),
    /// No slot is free.
    #[error("interface \"{0}\" is one more than the {INTERFACES_MAX} that weir measures")]
    NoSlot(String),
    /// The interfaces cannot be listed.
    #[error("cannot ask the kernel for its interfaces")]
    Links(#[from] io::Error),
    /// The interface table is full or gone.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// How an interface's packets are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obtained {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the kernel's stack, after it.
    Generic,
    /// At the tc hook.
    Tcx,
    /// By a packet socket.
    AfPacket,
    /// Not at all: the interface is gone.
    Gone,
    /// Not here: the same packets are counted on an interface below.
    LeftOut,
}

impl Obtained {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "xdp-native",
            Self::Generic => "xdp-generic",
            Self::Tcx => "tcx",
            Self::AfPacket => "afpacket",
            Self::Gone => "gone",
            Self::LeftOut => "left-out",
        }
    }
}

/// How many slots these interfaces need: as many as there are where a pattern may fit any number.
pub fn slots(interfaces: &[Interface]) -> usize {
    if interfaces.iter().any(Interface::is_pattern) {
        return INTERFACES_MAX as usize;
    }
    interfaces.iter().map(|interface| interface.direction.ways().len()).sum()
}

/// What stands for a direction of an interface in the kernel's table.
const fn table_entry(ifindex: u32, way: Way) -> u32 {
    match way {
        Way::Ingress => ifindex,
        Way::Egress => egress(ifindex),
    }
}

/// One direction of an interface, in its slot.
struct Attachment {
    rule: usize,
    name: String,
    way: Way,
    obtained: Obtained,
    present: Option<Present>,
    coverage: Coverage,
    /// In this window it was attached elsewhere or not at all, for a while.
    changed: bool,
}

/// An attachment's kernel side.
struct Present {
    ifindex: u32,
    has_xdp: bool,
    /// Dropping it detaches.
    hold: Option<Hold>,
}

/// All measured interfaces, by slot.
pub struct Attachments<'a> {
    ladder: Ladder<'a>,
    /// The programs' table of interfaces, where there are programs.
    table: Option<&'a mut InterfaceTable>,
    rules: Vec<Interface>,
    slots: Vec<Option<Attachment>>,
    links: Links,
    /// Each interface's own counts, when they were last looked at.
    counts: HashMap<u32, [u64; 2]>,
    /// What was refused and said to be, so that it is not said at every change.
    refused: HashMap<(u32, Way), String>,
    /// Interfaces that fit a pattern but are left out, likewise.
    left_out: HashSet<u32>,
}

impl<'a> Attachments<'a> {
    /// Attaches to every interface that is named, or to none; and to those that fit a pattern, as far as possible.
    ///
    /// # Errors
    ///
    /// The first named interface that cannot be measured, or what makes measuring any impossible.
    pub fn attach(
        ladder: Ladder<'a>,
        table: Option<&'a mut InterfaceTable>,
        interfaces: &[Interface],
    ) -> Result<Self, AttachError> {
        let mut all = Self {
            ladder,
            table,
            rules: interfaces.to_vec(),
            slots: (0..slots(interfaces)).map(|_| None).collect(),
            links: Links::open()?,
            counts: HashMap::new(),
            refused: HashMap::new(),
            left_out: HashSet::new(),
        };
        let links = all.links.list()?;
        // A named interface keeps its slot, there or not.
        let named = interfaces.iter().enumerate().filter(|(_, interface)| !interface.is_pattern());
        let named = named.flat_map(|(rule, interface)| {
            interface.direction.ways().iter().map(move |&way| Attachment::new(rule, &interface.name, way))
        });
        for (slot, attachment) in all.slots.iter_mut().zip(named) {
            *slot = Some(attachment);
        }
        for rule in interfaces {
            if rule.is_pattern() && !links.iter().any(|link| rule.covers(&link.name)) {
                warn!(pattern = %rule.name, "no interface fits; those that come will be measured");
            } else if !rule.is_pattern() && !links.iter().any(|link| link.name == rule.name) {
                let have = links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(AttachError::NotFound { name: rule.name.clone(), have });
            }
        }
        all.settle(&links, &HashSet::new(), true)?;
        Ok(all)
    }

    /// Measures what should be measured now; `gone` are the interfaces that vanished since the last time, even if
    /// others have their indexes and names by now.
    pub fn follow(&mut self, gone: &HashSet<u32>) {
        let settled = match self.links.list() {
            Ok(links) => self.settle(&links, gone, false),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = settled {
            warn!("cannot follow the interfaces: {}", whole(&error));
        }
    }

    fn settle(&mut self, links: &[Link], gone: &HashSet<u32>, strict: bool) -> Result<(), AttachError> {
        let wanted = wanted(&self.rules, links);
        self.let_go(&wanted, gone);
        let mut attached = false;
        for wanted in &wanted {
            match wanted.below {
                Some(below) => self.leave_out(wanted, below),
                None => attached |= self.measure(wanted, strict)?,
            }
        }
        let there: HashSet<_> = links.iter().map(|link| link.ifindex).collect();
        self.refused.retain(|(ifindex, _), _| there.contains(ifindex));
        self.left_out.retain(|ifindex| there.contains(ifindex));
        if attached {
            // The own counts from which on the programs were there.
            self.look();
            for attachment in self.slots.iter_mut().flatten().filter(|attachment| attachment.coverage.is_new()) {
                let own = attachment.own(&self.counts);
                attachment.coverage = Coverage::new(own.filter(|_| !attachment.changed));
            }
        }
        Ok(())
    }

    /// Detaches from what is gone or no longer wanted.
    fn let_go(&mut self, wanted: &[Wanted<'_>], gone: &HashSet<u32>) {
        for attachment in self.slots.iter_mut().flatten() {
            let Some(present) = &mut attachment.present else { continue };
            let ifindex = present.ifindex;
            let still = wanted.iter().find(|wanted| {
                wanted.link.ifindex == ifindex && wanted.rule == attachment.rule && wanted.way == attachment.way
            });
            match still {
                Some(wanted) if wanted.below.is_none() && !gone.contains(&ifindex) => {
                    present.has_xdp = wanted.link.xdp.is_some();
                    if attachment.name != wanted.link.name {
                        info!(interface = %attachment.name, now = %wanted.link.name, "the interface has another name");
                        attachment.name.clone_from(&wanted.link.name);
                    }
                    continue;
                }
                Some(wanted) if wanted.below.is_some() => {}
                _ => {
                    let (interface, direction) = (&attachment.name, attachment.way.name());
                    if self.rules[attachment.rule].is_pattern() {
                        info!(%interface, direction, "the interface is gone");
                    } else {
                        warn!(%interface, direction, "the interface is gone; measuring goes on without it, and with it once it is back");
                    }
                }
            }
            attachment.present = None;
            attachment.obtained = Obtained::Gone;
            attachment.changed = true;
            let table = self.table.as_deref_mut();
            if let Some(Err(error)) = table.map(|table| table.remove(table_entry(ifindex, attachment.way))) {
                warn!(interface = %attachment.name, "cannot forget the interface: {error}");
            }
        }
    }

    /// Notes that an interface's packets are counted below it.
    fn leave_out(&mut self, wanted: &Wanted<'_>, below: &str) {
        let Wanted { rule, link, way, .. } = *wanted;
        let tell = || {
            warn!(
                interface = %link.name, direction = way.name(),
                "left out: its packets are counted on {below}, which it is stacked on; list one of the two"
            );
        };
        let named = self.slots.iter_mut().flatten().find(|slot| (slot.rule, slot.way) == (rule, way));
        match named.filter(|_| !self.rules[rule].is_pattern()) {
            Some(attachment) if attachment.obtained != Obtained::LeftOut => {
                attachment.obtained = Obtained::LeftOut;
                tell();
            }
            Some(_) => {}
            None => {
                if self.left_out.insert(link.ifindex) {
                    tell();
                }
            }
        }
    }

    /// Attaches to what is not measured yet; returns whether it did.
    fn measure(&mut self, wanted: &Wanted<'_>, strict: bool) -> Result<bool, AttachError> {
        let Wanted { rule, link, way, .. } = *wanted;
        let is_it = |slot: &Attachment| slot.present.as_ref().is_some_and(|present| present.ifindex == link.ifindex);
        if self.slots.iter().flatten().any(|slot| slot.way == way && is_it(slot)) {
            return Ok(false);
        }
        match self.attach_one(wanted) {
            Ok(()) => {
                self.refused.remove(&(link.ifindex, way));
                Ok(true)
            }
            Err(
                error @ (AttachError::NotPermitted(_)
                | AttachError::NoPacketSocket(_)
                | AttachError::Kernel(KernelError::NotPermitted)),
            ) if strict => Err(error),
            Err(error) if strict && !self.rules[rule].is_pattern() => Err(error),
            Err(error) => {
                let reason = whole(&error);
                if self.refused.get(&(link.ifindex, way)) != Some(&reason) {
                    warn!(interface = %link.name, direction = way.name(), "cannot attach: {reason}");
                    self.refused.insert((link.ifindex, way), reason);
                }
                Ok(false)
            }
        }
    }

    fn attach_one(&mut self, wanted: &Wanted<'_>) -> Result<(), AttachError> {
        let Wanted { rule, link, way, .. } = *wanted;
        let slot = self.slot_for(rule, &link.name, way).ok_or_else(|| AttachError::NoSlot(link.name.clone()))?;
        let entry = table_entry(link.ifindex, way);
        // In the table before the first packet can come.
        if let Some(table) = &mut self.table {
            table.insert(entry, slot as u32)?;
        }
        match self.ladder.attach(link, self.rules[rule].mode, way, slot) {
            Ok((obtained, hold)) => {
                let Link { ifindex, name, .. } = link;
                info!(interface = %name, ifindex, direction = way.name(), mode = obtained.name(), "attached");
                let attachment = self.slots[slot].get_or_insert_with(|| Attachment::new(rule, name, way));
                attachment.obtained = obtained;
                attachment.coverage = Coverage::default();
                attachment.present = Some(Present { ifindex: *ifindex, has_xdp: link.xdp.is_some(), hold: Some(hold) });
                Ok(())
            }
            Err(error) => {
                if let Some(table) = &mut self.table {
                    table.remove(entry)?;
                }
                Err(error)
            }
        }
    }

    /// The slot that this interface has, or may have: its own, or for a pattern the one it had in this window, or a
    /// free one.
    fn slot_for(&self, rule: usize, name: &str, way: Way) -> Option<usize> {
        let own =
            |slot: &Attachment| (slot.rule, slot.way) == (rule, way) && slot.present.is_none() && slot.name == name;
        let own = self.slots.iter().position(|slot| slot.as_ref().is_some_and(own));
        own.or_else(|| self.slots.iter().position(Option::is_none))
    }

    /// Looks at the interfaces' own counts; to be done right before a window's edge.
    pub fn look(&mut self) {
        self.counts.clear();
        match self.links.list() {
            Ok(links) => {
                self.counts.extend(links.iter().filter_map(|link| Some((link.ifindex, link.packets?))));
            }
            Err(error) => warn!("cannot read the interfaces' own counts: {error}"),
        }
    }

    /// How each interface's packets are seen now.
    pub fn modes(&self) -> impl Iterator<Item = (&str, Way, Obtained)> {
        self.slots.iter().flatten().map(|slot| (slot.name.as_str(), slot.way, slot.obtained))
    }

    /// The account of a window that is closed, of this length and with these ledgers, by slot: what was measured and
    /// how much of it. Warns of packets that a program does not see, and frees the slots of what is gone for good.
    pub fn close(&mut self, ledgers: &[Ledger], length: Duration) -> Vec<Measured> {
        let mut all = Vec::new();
        for (slot, ledger) in ledgers.iter().enumerate() {
            let Some(Some(attachment)) = self.slots.get_mut(slot) else { continue };
            let own = attachment.own(&self.counts);
            let coverage = attachment.cover(own, ledger, length);
            all.push(Measured {
                slot,
                name: attachment.name.clone(),
                mode: attachment.obtained.name(),
                direction: Some(attachment.way.name()),
                coverage,
            });
            attachment.changed = false;
            if attachment.present.is_none() && self.rules[attachment.rule].is_pattern() {
                self.slots[slot] = None;
            }
        }
        all
    }

    /// Detaches from every interface, for good; what was seen of each stays known.
    pub fn detach(&mut self) {
        for present in self.slots.iter_mut().flatten().filter_map(|attachment| attachment.present.as_mut()) {
            present.hold = None;
        }
    }
}

impl Attachment {
    fn new(rule: usize, name: &str, way: Way) -> Self {
        let (present, coverage) = (None, Coverage::default());
        Self { rule, name: name.to_owned(), way, obtained: Obtained::Gone, present, coverage, changed: false }
    }

    /// The interface's own count of this direction.
    fn own(&self, counts: &HashMap<u32, [u64; 2]>) -> Option<u64> {
        let present = self.present.as_ref()?;
        Some(counts.get(&present.ifindex)?[self.way as usize])
    }

    fn cover(&mut self, own: Option<u64>, ledger: &Ledger, length: Duration) -> Option<f64> {
        let Some(present) = &self.present else { return None };
        if self.changed {
            // Not all of the window's packets are of this attachment.
            self.coverage = Coverage::new(own);
            return None;
        }
        let (coverage, finding) = self.coverage.edge(own, &ledger.counters, length);
        let reason = reason(self.obtained, self.way, present.has_xdp);
        let (interface, direction) = (&self.name, self.way.name());
        match finding {
            None => {}
            Some(Finding::Silent { own }) => {
                warn!(%interface, direction, "the interface counted {own} packets and weir's program saw none: {reason}");
            }
            Some(Finding::Missing { packets, own }) => {
                let percent = packets as f64 / own as f64 * 100.0;
                warn!(%interface, direction, "weir's program did not see {packets} of the {own} packets that the interface counted ({percent:.1} %): {reason}");
            }
        }
        coverage
    }
}

/// Why a program may not see what the interface counts.
const fn reason(obtained: Obtained, way: Way, has_xdp: bool) -> &'static str {
    match (obtained, way) {
        (Obtained::Native, _) => {
            "likely the card forwards flows by itself (hardware offload), or has queues without the program"
        }
        (Obtained::Generic, _) => {
            "likely packets were merged before (switch that off with `ethtool -K DEVICE gro off lro off`, or use `mode: \
             tcx`), or the card forwards flows by itself"
        }
        (_, Way::Ingress) if has_xdp => {
            "likely the XDP program on the interface drops or redirects them, which comes before weir's place"
        }
        (_, Way::Ingress) => {
            "likely the card forwards flows by itself (hardware offload), or the kernel dropped frames that it took for \
             broken before weir's place"
        }
        (_, Way::Egress) => {
            "likely they were sent past the kernel's stack: by an XDP program's redirect, AF_XDP, or hardware offload"
        }
    }
}

fn index_of(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    name_to_index(any, name).ok()
}
