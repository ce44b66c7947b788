//! The capabilities of this thread, and how it drops them.
//!
//! Linux capabilities are per thread, and a thread inherits those of the thread that starts it. So each thread drops
//! its own when it begins, and the main thread drops its own when everything is attached.

use std::io;

use rustix::{
    process::geteuid,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    },
};
use tracing::{info, warn};

/// Root's rights to files of other users. A service has neither of them.
const FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// A capability that is still needed.
#[derive(Clone, Copy, Debug)]
pub struct NeededCapability {
    /// The capability.
    pub set: CapabilitySet,
    /// The name, as capabilities(7) spells it.
    pub name: &'static str,
    /// The purpose for which weir needs it.
    pub purpose: &'static str,
    /// The thread that keeps it.
    pub thread: PrivilegedThread,
}

/// A thread that keeps capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegedThread {
    /// The thread that attaches.
    Attacher,
    /// The thread that asks which programs are at a hook, and does nothing else.
    Chains,
}

impl PrivilegedThread {
    /// The capabilities in `kept` that this thread keeps.
    pub fn keeps(self, kept: &[NeededCapability]) -> CapabilitySet {
        kept.iter().filter(|one| one.thread == self).fold(CapabilitySet::empty(), |all, one| all | one.set)
    }
}

/// Describes what to do about an operation that was refused because these capabilities are missing. It depends on the
/// user: root is not told to become root, and no capability is named that is already there.
pub fn way_out(wanted: CapabilitySet) -> String {
    way_out_for(geteuid().is_root(), effective(), wanted)
}

/// Returns true if this thread has these capabilities.
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
        // Name the newest capabilities first, which are those of eBPF.
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

/// Joins words: `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => words.concat(),
    }
}

/// Drops all capabilities of this thread for good, except these. Logs which ones stay, and why.
pub fn give_up_all_but(kept: &[NeededCapability]) {
    let set = kept.iter().fold(CapabilitySet::empty(), |set, one| set.union(one.set));
    match keep(set) {
        Ok(()) => {
            for NeededCapability { name, purpose, .. } in kept {
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
    // If the system forbids this, the main thread logs it.
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
    fn the_way_out_depends_on_the_user() {
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

    #[test]
    fn a_thread_only_drops_its_own_capabilities() {
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
