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
    /// weir is not attached yet, but will be soon.
    Waiting,
    /// weir is not attached, because the interface has not appeared yet.
    Absent,
    /// weir is not attached, because the interface no longer exists.
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
    /// All variants, in the order of their declaration.
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

    /// Returns true if weir sees packets. If not, the traffic of the interface is unknown.
    pub const fn sees_packets(self) -> bool {
        match self {
            Self::Native | Self::Generic | Self::Tcx | Self::Tc | Self::AfPacket | Self::Shared => true,
            Self::Waiting | Self::Absent | Self::Gone | Self::Detached | Self::Blind | Self::Refused => false,
        }
    }

    /// Returns the name that reports use.
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
    /// Returns true for a program or filter at the tc hook.
    pub const fn is_at_tc(self) -> bool {
        matches!(self, Self::Tcx | Self::Tc)
    }

    /// Returns true if a BPF link holds the program.
    pub const fn has_link(self) -> bool {
        matches!(self, Self::Native | Self::Generic | Self::Tcx)
    }

    /// Returns the unit that counts as one packet.
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
/// `xdp` is the XDP program on the interface. A virtual interface has no hardware.
pub fn reason_for_missing(
    obtained: Obtained,
    way: Way,
    xdp: Option<XdpProgram>,
    is_virtual: bool,
) -> Cow<'static, str> {
    let (reason, of_hardware) = match (obtained, way, xdp) {
        (Obtained::Native, ..) if is_virtual => {
            return "likely the driver drops them, or hands them on without running the program".into();
        }
        (Obtained::Native, ..) => {
            return "likely the card forwards flows in hardware (offload), or has queues without the program".into();
        }
        (Obtained::Generic, ..) => (
            "offloads merge packets before the program sees them (use `mode: tcx` or `mode: tc`, or disable them with \
             `ethtool -K DEVICE gro off lro off`)",
            "the card forwards flows in hardware",
        ),
        (_, Way::Ingress, Some(xdp)) => {
            return format!("likely {} drops or redirects them before weir sees them", describe(xdp)).into();
        }
        // It may have been there for a part of the window only.
        (_, Way::Ingress, None) => (
            "another XDP program, which has left the interface since, dropped or redirected them, or the kernel drops \
             broken frames before weir sees them",
            "the card forwards flows in hardware (offload)",
        ),
        (_, Way::Egress, _) => (
            "they were sent without the kernel's stack, by an XDP redirect or AF_XDP",
            "the card forwards flows in hardware (offload)",
        ),
    };
    if is_virtual { format!("likely {reason}").into() } else { format!("likely {reason}, or {of_hardware}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_blamed_only_where_there_is_some_and_last() {
        for obtained in [Obtained::Native, Obtained::Generic, Obtained::Tcx, Obtained::Tc, Obtained::AfPacket] {
            for way in Way::ALL {
                for xdp in [None, Some(XdpProgram { id: None, place: "native" })] {
                    let [of_card, of_veth] =
                        [false, true].map(|is_virtual| reason_for_missing(obtained, way, xdp, is_virtual));
                    assert!(!of_veth.contains("hardware") && !of_veth.contains("card"), "{of_veth}");
                    assert!(of_card.starts_with("likely ") && of_veth.starts_with("likely "), "{of_card} {of_veth}");
                    if obtained == Obtained::Tcx && xdp.is_none() {
                        assert!(of_card.starts_with(&*of_veth) && of_card.contains("hardware"), "{of_card}");
                    }
                }
            }
        }
    }
}
