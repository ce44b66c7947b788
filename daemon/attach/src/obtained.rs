//! How the packets of an interface are seen, and why packets may be missing.

use std::borrow::Cow;

use weir_config::interface::Way;
use weir_datapath::interface::Counts;

use super::{netlink::XdpProgram, sign::named};

/// The message about interfaces that are not attached yet.
pub const WAITS: &str = "not attached yet: weir attaches to interfaces one after the other";

/// The message about an interface that the configuration names and that is not there.
pub const ABSENT: &str = "the interface is not there: weir measures it once it is";

/// The message about interfaces that a user has detached.
pub const DETACHED: &str = "detached by `weir detach`, until weir is restarted or reloads other interfaces";

/// How the packets of an interface are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obtained {
    /// In the driver, before a socket buffer exists (XDP native).
    Native,
    /// In the kernel's stack, with a socket buffer (XDP generic).
    Generic,
    /// At the tc hook, by TCX.
    Tcx,
    /// At the tc hook, by a classic filter.
    Tc,
    /// By a packet socket.
    AfPacket,
    /// Not at all: weir will attach soon.
    Waiting,
    /// Not at all: the interface has not appeared yet.
    Absent,
    /// Not at all: the interface no longer exists.
    Gone,
    /// Not at all: a user has told weir to detach.
    Detached,
    /// Not at all: weir's program was removed and cannot be attached again.
    Blind,
    /// Not at all: the interface is there, and weir cannot attach to it.
    Refused,
    /// In several ways: these interfaces share a slot, and each may differ.
    Shared,
}

impl Obtained {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Native,
        Self::Generic,
        Self::Tcx,
        Self::Tc,
        Self::AfPacket,
        Self::Waiting,
        Self::Absent,
        Self::Gone,
        Self::Detached,
        Self::Blind,
        Self::Refused,
        Self::Shared,
    ];

    /// Whether weir sees packets. If not, what the interface carries is unknown.
    pub const fn sees_packets(self) -> bool {
        match self {
            Self::Native | Self::Generic | Self::Tcx | Self::Tc | Self::AfPacket | Self::Shared => true,
            Self::Waiting | Self::Absent | Self::Gone | Self::Detached | Self::Blind | Self::Refused => false,
        }
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "xdp-native",
            Self::Generic => "xdp-generic",
            Self::Tcx => "tcx",
            Self::Tc => "tc",
            Self::AfPacket => "afpacket",
            Self::Waiting => "waiting",
            Self::Absent => "absent",
            Self::Gone => "gone",
            Self::Detached => "detached",
            Self::Blind => "blind",
            Self::Refused => "refused",
            Self::Shared => "others",
        }
    }
}

impl Obtained {
    /// Whether it is at the tc hook.
    pub const fn is_at_tc(self) -> bool {
        matches!(self, Self::Tcx | Self::Tc)
    }

    /// Whether it is a BPF link.
    pub const fn has_link(self) -> bool {
        matches!(self, Self::Native | Self::Generic | Self::Tcx)
    }

    /// What counts as one packet.
    pub const fn counts(self) -> Counts {
        match self {
            Self::Generic => Counts::Buffers,
            _ => Counts::Packets,
        }
    }
}

/// The name of an XDP program for messages.
fn describe(xdp: XdpProgram) -> String {
    let which = xdp.id.map_or_else(String::new, |program| format!("{}, ", named(program)));
    format!("the XDP program on the interface ({which}{})", xdp.place)
}

/// The message about another XDP program that keeps packets back.
pub fn kept_back(xdp: XdpProgram) -> String {
    format!("{} keeps packets back: weir sees only what it passes on", describe(xdp))
}

/// The likely reason why a program sees fewer packets than the interface counts, if no program in front of it is known.
/// `xdp` is the XDP program on the interface.
pub fn reason_for_missing(obtained: Obtained, way: Way, xdp: Option<XdpProgram>) -> Cow<'static, str> {
    match (obtained, way, xdp) {
        (Obtained::Native, ..) => {
            "likely the card forwards flows in hardware (offload), or has queues without the program".into()
        }
        (Obtained::Generic, ..) => {
            "likely offloads merge packets before the program sees them (use `mode: tcx` or `mode: tc`, or disable them \
             with `ethtool -K DEVICE gro off lro off`), or the card forwards flows in hardware"
                .into()
        }
        (_, Way::Ingress, Some(xdp)) => {
            format!("likely {} drops or redirects them before weir sees them", describe(xdp)).into()
        }
        (_, Way::Ingress, None) => {
            // It may have been there for a part of the window only. A virtual interface has no hardware.
            "likely another XDP program, which has left the interface since, dropped or redirected them, the kernel \
             drops broken frames before weir sees them, or a card forwards flows in hardware (offload)"
                .into()
        }
        (_, Way::Egress, _) => {
            "likely they were sent without the kernel's stack: by an XDP redirect, AF_XDP, or hardware offload".into()
        }
    }
}
