//! The properties of a measured interface, apart from its ledger.

use std::time::Duration;

use weir_common::ledger::Tally;

/// The unit that the ledger counts as a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// A packet as it was on the wire.
    Packets,
    /// A buffer of the kernel: one packet, or several that an offload merged.
    Buffers,
}

impl Counts {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Buffers => "buffers",
        }
    }
}

/// Gives each interface and direction a unique name: two may have had the same name in a window, one after the other.
/// The current one keeps it; the others get a number, as in `eth0 (2)`. So no list of a report has the same key twice.
pub fn tell_apart(interfaces: &mut [MeasuredInterface]) {
    let earlier: Vec<usize> = interfaces.iter().map(|one| ahead_of(one, interfaces)).collect();
    for (interface, earlier) in interfaces.iter_mut().zip(earlier).filter(|(_, earlier)| *earlier > 0) {
        interface.name = format!("{} ({})", interface.name, earlier + 1);
    }
}

/// How many interfaces with the same name and direction come before this one.
fn ahead_of(one: &MeasuredInterface, interfaces: &[MeasuredInterface]) -> usize {
    let order = |one: &MeasuredInterface| (one.index.is_none(), one.slot);
    let is_ahead = |other: &&MeasuredInterface| {
        other.name == one.name && other.direction == one.direction && order(other) < order(one)
    };
    interfaces.iter().filter(is_ahead).count()
}

/// One direction of an interface, as a window's report describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredInterface {
    /// The index of its ledger in the summary. `None` if it has none: weir could not attach to it.
    pub slot: Option<usize>,
    /// The name of the interface.
    pub name: String,
    /// The name that it had when the window began, if it was renamed since then.
    pub earlier_name: Option<String>,
    /// The index of the interface in the kernel (ifIndex), if it has one now.
    pub index: Option<u32>,
    /// The operator's name for it, if any.
    pub alias: Option<String>,
    /// The name of the VRF that it is in, if any.
    pub vrf: Option<String>,
    /// How its packets were seen.
    pub mode: &'static str,
    /// The unit that counts as a packet.
    pub counts: Counts,
    /// The direction of its packets; `None` for a capture.
    pub direction: Option<&'static str>,
    /// The packets of it that feed totals and lists.
    pub feeds: &'static str,
    /// Packets seen per packet that the interface itself counted, if known.
    pub coverage: Option<Share>,
    /// Bytes seen per byte that the interface itself counted, if known.
    pub coverage_bytes: Option<Share>,
    /// Bounds of the packets that the interface counted and weir did not see, if some are certainly missing.
    pub unseen: Option<[Tally; 2]>,
    /// How long weir may have been blind to its packets, if at all.
    pub blind: Option<Duration>,
    /// The reason why weir does not see all its packets now.
    pub trouble: Option<String>,
}

/// A share with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The likeliest value.
    pub value: f64,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_owner_keeps_a_name_and_earlier_ones_get_a_number() {
        let measured = |slot, name: &str, direction, index| MeasuredInterface {
            slot: Some(slot),
            name: name.to_owned(),
            earlier_name: None,
            index,
            alias: None,
            vrf: None,
            mode: "tcx",
            counts: Counts::Packets,
            direction: Some(direction),
            feeds: "all",
            coverage: None,
            coverage_bytes: None,
            unseen: None,
            blind: None,
            trouble: None,
        };
        let mut interfaces = [
            measured(0, "eth0", "ingress", None),
            measured(1, "eth0", "egress", None),
            measured(2, "eth0", "ingress", Some(7)),
            measured(3, "eth1", "ingress", Some(8)),
            measured(4, "eth0", "ingress", None),
        ];
        tell_apart(&mut interfaces);
        let names: Vec<_> = interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0 (2)", "eth0", "eth0", "eth1", "eth0 (3)"]);
    }
}
