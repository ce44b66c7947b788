//! Why an interface cannot be measured.

use std::io;

use aya::programs::ProgramError;
use rustix::thread::CapabilitySet;
use thiserror::Error;
use weir_config::limits::{DEFAULT_ROUTES_MAX, INTERFACES_MAX, TAPS_MAX};
use weir_datapath::KernelError;
use weir_system::privileges::way_out;

use super::netlink::Device;

/// The message for a pattern that matches nothing yet.
pub const NONE_FITS: &str = "no interface fits this pattern now; weir will measure those that appear later";
/// The message if no interface carries the default route yet.
pub const NO_DEFAULT_ROUTE: &str = "no interface carries a default route now; weir will measure interfaces that carry one later (`ip route add default ...`)";

/// Why an interface cannot be measured.
#[derive(Debug, Error)]
pub enum AttachError {
    /// There is no interface of that name.
    #[error("interface \"{name}\" not found (have: {have})")]
    NotFound {
        /// The name in the configuration.
        name: String,
        /// The names of the present interfaces.
        have: String,
    },
    /// The interface has vanished meanwhile.
    #[error("interface \"{0}\" vanished while weir attached to it")]
    Vanished(String),
    /// Another program is attached, and stays.
    #[error(
        "interface \"{0}\" has another XDP program, and weir never replaces it: \
         use `mode: auto`, detach it (end the program that has attached it, or `ip link set dev {0} xdp off`), or leave \
         the interface out"
    )]
    Taken(String),
    /// An interface stacked on this one has a generic XDP program, so the kernel permits none here.
    #[error(
        "interface \"{0}\" accepts no XDP program: an interface stacked on it (a bridge, a bond, a VLAN) has one in \
         generic mode, and Linux allows none below. Use `mode: tcx` or `mode: tc` for one of them"
    )]
    BelowGeneric(String),
    /// weir lacks the privilege to attach to this interface.
    #[error("not permitted to attach to interface \"{0}\": {way}", way = way_out(CapabilitySet::NET_ADMIN))]
    NotPermitted(String),
    /// The interface does not support the configured mode.
    #[error("interface \"{name}\" does not accept weir's program as {mode}")]
    Refused {
        /// The name of the interface.
        name: String,
        /// The mode of attachment that was tried.
        mode: &'static str,
        /// The kernel's answer.
        #[source]
        source: ProgramError,
    },
    /// Missing privileges for packet sockets.
    #[error("not permitted to open a packet socket on interface \"{0}\": {way}", way = way_out(CapabilitySet::NET_RAW))]
    NoPacketSocket(String),
    /// A packet socket failed.
    #[error("cannot open a packet socket on interface \"{name}\"")]
    Socket {
        /// The name of the interface.
        name: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A kernel without TCX.
    #[error(
        "interface \"{0}\" cannot be measured by TCX: this kernel has none, or not the one that weir needs (Linux 6.6 or later): use `mode: auto` or `mode: tc`"
    )]
    NoTcx(String),
    /// The classic tc hook only has room for received packets.
    #[error(
        "packets that interface \"{0}\" sends cannot be measured at the classic tc hook: it has the queueing \
         discipline `ingress`, which leaves no room for `clsact`. Remove it (`tc qdisc del dev {0} ingress`), or measure \
         `direction: ingress`"
    )]
    OnlyIngress(String),
    /// The classic tc hook accepts no filter.
    #[error(
        "interface \"{name}\" takes no filter at the classic tc hook (does this kernel have the modules sch_ingress and \
         cls_bpf?)"
    )]
    NoFilter {
        /// The name of the interface.
        name: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// This kernel rejected the program for the tc hook.
    #[error("interface \"{0}\" cannot be measured at the tc hook: this kernel refused weir's program for it")]
    NoTcProgram(String),
    /// XDP on an interface without Ethernet headers.
    #[error(
        "interface \"{name}\" has no Ethernet headers, but {mode} needs them: use `mode: auto`, `mode: tcx` or `mode: tc`"
    )]
    NoEthernet {
        /// The name of the interface.
        name: String,
        /// The mode of attachment that was tried.
        mode: &'static str,
    },
    /// weir cannot parse this link layer.
    #[error("interface \"{name}\" has hardware type {hardware}, and weir cannot read its packets: leave it out")]
    LinkLayer {
        /// The name of the interface.
        name: String,
        /// The type of its link layer (`ARPHRD_*`).
        hardware: u16,
    },
    /// The kernel attached the program by netlink, which would outlive the daemon.
    #[error("the program on interface \"{0}\" would stay attached after weir has ended: weir needs Linux 5.9 or later")]
    NoLink(String),
    /// No slot is free.
    #[error(
        "all {INTERFACES_MAX} accounts of interfaces are in use, one for each direction, and \"{0}\" needs one more: measure \
         fewer interfaces or directions, or name them by a pattern, so that they can share an account"
    )]
    NoSlot(String),
    /// All slots that are reserved for the default route are used.
    #[error(
        "`default route` means at most {DEFAULT_ROUTES_MAX} interfaces in a window, and \"{0}\" is one more: to measure it, list it by its name"
    )]
    NoSlotOfRoutes(String),
    /// No packet socket is left.
    #[error(
        "weir opens at most {TAPS_MAX} packet sockets, and \"{0}\" would need one more: measure it by a program (`mode: \
         auto`, and the capability CAP_BPF), or leave it out"
    )]
    NoTap(String),
    /// The kernel does not list the interfaces.
    #[error("cannot ask the kernel for its interfaces")]
    List(#[from] io::Error),
    /// The kernel side failed, for example because the interface table is full.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl AttachError {
    /// Makes the error for a name that none of these interfaces has.
    pub fn not_found(name: &str, devices: &[Device]) -> Self {
        let have = devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
        Self::NotFound { name: name.to_owned(), have }
    }

    /// Returns true if this error prevents the start. Any error of a named interface does. For an interface that only
    /// matches a pattern, only a missing privilege does, because it affects all of them.
    pub const fn forbids_start(&self, is_named: bool) -> bool {
        is_named
            || matches!(self, Self::NotPermitted(_) | Self::NoPacketSocket(_) | Self::Kernel(KernelError::NotPermitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_may_fail_at_one_interface_but_not_for_a_missing_privilege() {
        let one = || "eth0".to_owned();
        for (error, for_a_pattern) in [
            (AttachError::Taken(one()), false),
            (AttachError::Vanished(one()), false),
            (AttachError::NoSlot(one()), false),
            (AttachError::NoSlotOfRoutes(one()), false),
            (AttachError::Kernel(KernelError::Missing("ring")), false),
            (AttachError::NotPermitted(one()), true),
            (AttachError::NoPacketSocket(one()), true),
            (AttachError::Kernel(KernelError::NotPermitted), true),
        ] {
            assert_eq!((error.forbids_start(false), error.forbids_start(true)), (for_a_pattern, true), "{error}");
        }
    }
}
