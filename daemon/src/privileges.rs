//! Capabilities: which ones weir drops once it measures, and which it still needs then.
//!
//! With the descriptors that it holds, a process without capabilities can still run `flush`, read and write maps, and
//! attach its programs to further interfaces. Only creating new kernel objects needs capabilities: maps, programs,
//! filters of the classic tc hook, and packet sockets.
//!
//! Linux capabilities are per thread, and a thread inherits those of the thread that starts it. So each thread drops
//! its own when it begins, and the main thread when everything is attached.

use std::io;

use rustix::{
    process::geteuid,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    },
};
use tracing::{info, warn};

use crate::config::{Direction, Interface, Mode, limits::TCX_MAX, slots};

/// Root's rights to files of other users. A service has neither.
const FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// The properties of kernel and configuration that decide what is needed later.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Whether programs are loaded, and not only packet sockets used.
    pub has_programs: bool,
    /// Whether the kernel has TCX (Linux 6.6).
    pub has_tcx: bool,
}

impl Needs {
    /// What a thread that reads rings and runs `flush` keeps. Some kernels before 6.6 require it for each use of a map.
    pub fn of_workers(self) -> CapabilitySet {
        if self.has_tcx { CapabilitySet::empty() } else { CapabilitySet::BPF }
    }
}

/// A capability that is still needed.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The capability.
    pub set: CapabilitySet,
    /// Its name.
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// The thread that keeps it.
    pub thread: Keeper,
}

/// A thread that keeps capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The one that attaches.
    Attacher,
    /// The one that asks which programs are at a hook, and does nothing else.
    Chains,
}

impl Keeper {
    /// What this thread keeps of all that is kept.
    pub fn keeps(self, kept: &[Kept]) -> CapabilitySet {
        kept.iter().filter(|one| one.thread == self).fold(CapabilitySet::empty(), |all, one| all | one.set)
    }
}

/// What is still needed once all present interfaces are attached.
pub fn still_needed(interfaces: &[Interface], needs: Needs) -> Vec<Kept> {
    const fn attacher(set: CapabilitySet, name: &'static str, purpose: &'static str) -> Kept {
        Kept { set, name, purpose, thread: Keeper::Attacher }
    }
    const FILTERS: Kept = attacher(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN", "filters of the classic tc hook");
    const CHAINS: Kept =
        Kept { purpose: "to see which programs stand before weir's at the tc hook", thread: Keeper::Chains, ..FILTERS };
    const SOCKETS: Kept = attacher(CapabilitySet::NET_RAW, "CAP_NET_RAW", "packet sockets");
    const OLD: [Kept; 3] = [
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
            // All of them together decide whether those that have the choice get filters.
            let has_filters = has_filters || chosen.count() > 0 && slots(at_tc()) > TCX_MAX;
            let has_chains = at_tc().count() > 0;
            kept.extend(if has_filters { Some(FILTERS) } else { has_chains.then_some(CHAINS) });
        }
    }
    let has_sockets = !needs.has_programs || interfaces.iter().any(|interface| interface.mode == Mode::AfPacket);
    kept.extend(has_sockets.then_some(SOCKETS));
    kept
}

/// What to do about an operation that was refused because these capabilities are missing. It depends on the user: root
/// is not told to become root, and nobody is told to get a capability that is already there.
pub fn way_out(wanted: CapabilitySet) -> String {
    way_out_for(geteuid().is_root(), effective(), wanted)
}

/// Whether this thread has these capabilities.
pub fn has(wanted: CapabilitySet) -> bool {
    allowed_by(effective()).contains(wanted)
}

fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Adds the capabilities that `CAP_SYS_ADMIN` still implies, although they have been split off from it.
fn allowed_by(effective: CapabilitySet) -> CapabilitySet {
    let split = CapabilitySet::BPF | CapabilitySet::PERFMON;
    if effective.contains(CapabilitySet::SYS_ADMIN) { effective | split } else { effective }
}

fn way_out_for(is_root: bool, effective: CapabilitySet, wanted: CapabilitySet) -> String {
    let has = allowed_by(effective);
    let names = |set: CapabilitySet| {
        let mut all: Vec<_> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        // The newest ones first, which are those of eBPF.
        all.reverse();
        format!("{} {}", if all.len() == 1 { "the capability" } else { "the capabilities" }, list(&all))
    };
    let lacks = wanted - has;
    if lacks.is_empty() {
        let has = names(wanted);
        format!(
            "weir has {has}, so something else forbids it: a security module, a seccomp filter, kernel lockdown, or a \
                 user namespace"
        )
    } else if is_root {
        format!("root lacks {} here, as in a container: grant it", names(lacks))
    } else {
        format!("run as root, or with {}", names(wanted))
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => words.concat(),
    }
}

/// Drops all capabilities of this thread for good, except these; logs which ones stay, and why.
pub fn give_up_all_but(kept: &[Kept]) {
    let set = kept.iter().fold(CapabilitySet::empty(), |set, one| set.union(one.set));
    match keep(set) {
        Ok(()) => {
            for Kept { name, purpose, .. } in kept {
                info!("keeps {name}: {purpose}");
            }
        }
        Err(error) => warn!("cannot give up capabilities: {error}; weir keeps those that it was started with"),
    }
}

/// Drops all capabilities of this thread.
pub fn give_up_all() {
    give_up_silently(CapabilitySet::empty());
}

/// Drops all capabilities of this thread, except root's rights to files, if it has them.
pub fn give_up_all_but_files() {
    give_up_silently(FILES);
}

/// Drops all capabilities of this thread, except these.
pub fn give_up_silently(set: CapabilitySet) {
    // If the system forbids it, the main thread logs that.
    let _ = keep(set);
}

fn keep(set: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable: _ } = capabilities(None)?;
    clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: effective.intersection(set),
        permitted: permitted.intersection(set),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_fits_who_is_refused() {
        let none = CapabilitySet::empty();
        let programs = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
        let user = way_out_for(false, none, programs);
        assert_eq!(user, "run as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN");
        assert_eq!(way_out_for(false, none, CapabilitySet::NET_RAW), "run as root, or with the capability CAP_NET_RAW");
        let root = way_out_for(true, CapabilitySet::NET_ADMIN | CapabilitySet::BPF, programs);
        assert_eq!(root, "root lacks the capability CAP_PERFMON here, as in a container: grant it");
        for (is_root, effective) in [(true, programs), (false, programs)] {
            let forbidden = way_out_for(is_root, effective, programs);
            assert!(
                forbidden.contains("something else forbids it") && !forbidden.contains("run as root"),
                "{forbidden}"
            );
        }
        let admin = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
        assert!(way_out_for(true, admin, programs).contains("something else forbids it"));
    }
    use crate::config::Config;

    fn names(config: &str, needs: Needs) -> Vec<&'static str> {
        let config = Config::parse(config, "weir.yaml").unwrap();
        still_needed(&config.interfaces, needs).into_iter().map(|kept| kept.name).collect()
    }

    #[test]
    fn nothing_is_needed_where_everything_is_there() {
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
        assert_eq!(keeper("interfaces: [eth0, {name: eth1, mode: tcx}]"), Keeper::Chains);
        assert_eq!(keeper("interfaces: [{name: \"ppp*\", mode: tcx}]"), Keeper::Chains, "they have no choice");
        for many in ["[eth0, {name: \"ppp*\", mode: tcx}]", "[\"ppp*\"]", "[{name: eth0, mode: tc}]"] {
            assert_eq!(keeper(&format!("interfaces: {many}")), Keeper::Attacher, "{many}");
        }
        assert_eq!(names("interfaces: [{name: eth1, mode: afpacket}]", new), ["CAP_NET_RAW"]);
        let old = Needs { has_tcx: false, ..new };
        assert_eq!([new, old].map(Needs::of_workers), [CapabilitySet::empty(), CapabilitySet::BPF]);
        assert_eq!(names("interfaces: [eth0]", old), ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]);
        assert_eq!(names("interfaces: [eth0]", Needs { has_programs: false, ..new }), ["CAP_NET_RAW"]);
    }

    #[test]
    fn what_a_thread_gives_up_is_gone_for_it_alone() {
        let before = capabilities(None).unwrap();
        std::thread::spawn(|| {
            give_up_all();
            let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
            assert_eq!([effective, permitted, inheritable], [CapabilitySet::empty(); 3]);
        })
        .join()
        .unwrap();
        assert_eq!(capabilities(None).unwrap().effective, before.effective);
    }
}
