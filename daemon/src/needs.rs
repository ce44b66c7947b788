//! Which capabilities weir still needs once it measures; it drops the others ([`weir_system::privileges`]).
//!
//! With the descriptors that it holds, a process without capabilities can still run `flush`, read and write maps, and
//! attach its programs to further interfaces. Only creating new kernel objects needs capabilities: maps, programs,
//! filters of the classic tc hook, and packet sockets.

use rustix::thread::CapabilitySet;
use weir_config::{Direction, Interface, Mode, limits::TCX_MAX, slots};
use weir_system::privileges::{NeededCapability, PrivilegedThread};

/// The properties of kernel and configuration that decide which capabilities are needed later.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// True if programs are loaded, and not only packet sockets used.
    pub has_programs: bool,
    /// True if the kernel has TCX (Linux 6.6).
    pub has_tcx: bool,
}

impl Needs {
    /// Returns the capabilities that a thread keeps which reads rings and runs `flush`. Some kernels before 6.6 require
    /// one for each use of a map.
    pub fn of_workers(self) -> CapabilitySet {
        if self.has_tcx { CapabilitySet::empty() } else { CapabilitySet::BPF }
    }
}

/// Returns the capabilities that are still needed once all present interfaces are attached.
pub fn still_needed(interfaces: &[Interface], needs: Needs) -> Vec<NeededCapability> {
    const fn attacher(set: CapabilitySet, name: &'static str, purpose: &'static str) -> NeededCapability {
        NeededCapability { set, name, purpose, thread: PrivilegedThread::Attacher }
    }
    const FILTERS: NeededCapability =
        attacher(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN", "filters of the classic tc hook");
    const CHAINS: NeededCapability = NeededCapability {
        purpose: "to see which programs run before weir's at the tc hook",
        thread: PrivilegedThread::Chains,
        ..FILTERS
    };
    const SOCKETS: NeededCapability = attacher(CapabilitySet::NET_RAW, "CAP_NET_RAW", "packet sockets");
    const OLD: [NeededCapability; 3] = [
        attacher(CapabilitySet::BPF, "CAP_BPF", "before Linux 6.6 each use of a program needs it"),
        attacher(
            CapabilitySet::PERFMON,
            "CAP_PERFMON",
            "before Linux 6.6 programs are loaded when an interface needs them",
        ),
        FILTERS,
    ];
    let mut kept = Vec::new();
    if needs.has_programs {
        if !needs.has_tcx {
            kept.extend(OLD);
        } else {
            let has_filters = interfaces.iter().any(|interface| interface.mode == Mode::Tc);
            // For the other interfaces, the mode decides where they are attached.
            let chosen = interfaces.iter().filter(|interface| match interface.mode {
                Mode::Auto => true,
                Mode::Native | Mode::Generic => interface.direction != Direction::Ingress,
                Mode::Tcx | Mode::Tc | Mode::AfPacket => false,
            });
            let at_tc = |interface: &&Interface| match interface.mode {
                Mode::Auto | Mode::Tcx => true,
                Mode::Native | Mode::Generic => interface.direction != Direction::Ingress,
                Mode::Tc | Mode::AfPacket => false,
            };
            let at_tc = || interfaces.iter().filter(at_tc);
            // The number of all interfaces at the tc hook decides whether those with `mode: auto` get filters.
            let has_filters = has_filters || chosen.count() > 0 && slots(at_tc()) > TCX_MAX;
            let has_chains = at_tc().count() > 0;
            kept.extend(if has_filters { Some(FILTERS) } else { has_chains.then_some(CHAINS) });
        }
    }
    let has_sockets = !needs.has_programs || interfaces.iter().any(|interface| interface.mode == Mode::AfPacket);
    kept.extend(has_sockets.then_some(SOCKETS));
    kept
}

#[cfg(test)]
mod tests {
    use weir_config::Config;

    use super::*;

    fn names(config: &str, needs: Needs) -> Vec<&'static str> {
        let config = Config::parse(config, "weir.yaml").unwrap();
        still_needed(&config.interfaces, needs).into_iter().map(|kept| kept.name).collect()
    }

    #[test]
    fn only_the_capabilities_for_later_attachments_are_kept() {
        let new = Needs { has_programs: true, has_tcx: true };
        assert_eq!(names("interfaces: [{name: eth0, mode: native}]", new), [""; 0]);
        for seen in ["eth0", "{name: \"ppp*\", mode: tcx}", "{name: eth0, mode: native, direction: both}"] {
            assert_eq!(names(&format!("interfaces: [{seen}]"), new), ["CAP_NET_ADMIN"], "{seen}");
        }
        assert_eq!(names("interfaces: [eth0, {name: eth1, mode: tc}]", new), ["CAP_NET_ADMIN"]);
        let keeper = |config: &str| {
            let config = Config::parse(config, "weir.yaml").unwrap();
            still_needed(&config.interfaces, new)[0].thread
        };
        assert_eq!(keeper("interfaces: [eth0, {name: eth1, mode: tcx}]"), PrivilegedThread::Chains);
        assert_eq!(
            keeper("interfaces: [{name: \"ppp*\", mode: tcx}]"),
            PrivilegedThread::Chains,
            "the interfaces have no other method"
        );
        for many in ["[eth0, {name: \"ppp*\", mode: tcx}]", "[\"ppp*\"]", "[{name: eth0, mode: tc}]"] {
            assert_eq!(keeper(&format!("interfaces: {many}")), PrivilegedThread::Attacher, "{many}");
        }
        assert_eq!(names("interfaces: [{name: eth1, mode: afpacket}]", new), ["CAP_NET_RAW"]);
        let old = Needs { has_tcx: false, ..new };
        assert_eq!([new, old].map(Needs::of_workers), [CapabilitySet::empty(), CapabilitySet::BPF]);
        assert_eq!(names("interfaces: [eth0]", old), ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]);
        assert_eq!(names("interfaces: [eth0]", Needs { has_programs: false, ..new }), ["CAP_NET_RAW"]);
    }
}
