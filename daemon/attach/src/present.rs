//! An interface to which weir is attached, and the counts with which it came.

use weir_common::ledger::Tally;
use weir_config::interface::Way;
use weir_datapath::tap::LinkAddress;

use super::{netlink::XdpProgram, tasks::Number};

/// The kernel's side of an attachment.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// The interface index.
    pub ifindex: u32,
    /// The XDP program on the interface, weir's or another.
    pub xdp: Option<XdpProgram>,
    /// True if the interface is made by software.
    pub is_virtual: bool,
    /// The link address. It distinguishes the interface from another one with the same name or index.
    pub address: Option<LinkAddress>,
    /// The interface's own counts when its packets became those of this attachment.
    pub origin: Origin,
    /// The attacher's number for it.
    pub number: Number,
}

impl Present {
    /// Returns true if it is the same interface, as far as is known. A card that was moved to another namespace and
    /// back may have a new index.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.address, other.address) {
            (Some(one), Some(other)) => one == other,
            _ => self.ifindex == other.ifindex,
        }
    }
}

/// An interface's own counts of both directions when its packets became those of an attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    least: [Tally; 2],
    /// `None` if only the count at the attachment is an upper bound.
    most: Option<[Tally; 2]>,
    /// True if the kernel has not reported its arrival yet.
    is_awaited: bool,
}

impl Origin {
    /// The kernel has reported that it came with these counts.
    pub const fn arrived(counts: [Tally; 2]) -> Self {
        Self { least: counts, most: Some(counts), is_awaited: false }
    }

    /// It had these counts when it was first listed, if they are known. The kernel may still report its arrival
    /// (`is_awaited`).
    pub const fn listed(counts: Option<[Tally; 2]>, is_awaited: bool) -> Self {
        Self { least: [Tally::new(0, 0); 2], most: counts, is_awaited }
    }

    /// It had these counts when it last had another name.
    pub fn renamed(counts: Option<[Tally; 2]>) -> Self {
        Self { least: counts.unwrap_or_default(), most: None, is_awaited: false }
    }

    /// Returns true if the kernel has not reported its arrival yet: its next report is about that.
    pub const fn is_awaited(self) -> bool {
        self.is_awaited
    }

    /// The lower bound for one direction.
    pub const fn least(self, way: Way) -> Tally {
        self.least[way as usize]
    }

    /// The bounds for one direction, if it has counted `now` in all.
    pub fn bounds(self, way: Way, now: Tally) -> [Tally; 2] {
        let most = self.most.map_or(now, |most| most[way as usize]);
        [self.least[way as usize], most].map(|bound| if bound.packets > now.packets { now } else { bound })
    }
}
