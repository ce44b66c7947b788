//! How an interface's packets are seen, and what that may miss.

use crate::config::Way;

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

/// Why a program may not see what the interface counts.
pub const fn reason_for_missing(obtained: Obtained, way: Way, has_xdp: bool) -> &'static str {
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
