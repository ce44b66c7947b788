//! The rights that weir gives up in addition to its capabilities: access to files that it does not need (`places`, with
//! Landlock), and system calls that it does not need (`calls`, with seccomp). An attacker who takes over the process
//! later has only the remaining rights. Other processes of the same user cannot look into weir, and it leaves no core
//! dump.
//!
//! Files come first: Linux restricts only the calling thread and those that it starts later, so this happens before
//! there is a second thread. System calls come last, for all threads at once, when the programs are loaded.

mod bpf;
mod calls;
mod gate;
mod libraries;
mod places;

use std::{panic::resume_unwind, thread};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use thiserror::Error;
use tracing::{debug, info, warn};

use self::{
    calls::{forbid_all_but_questions, forbid_calls, forbid_opening},
    places::InRoot,
};
pub use self::{
    gate::{Opening, pass},
    places::{Files, Origin, Places},
};
use crate::{confined, notify, privileges::NeededCapability};

/// Before this version (Linux 5.19), Landlock forbids every rename from one folder to another.
const OLDEST: ABI = ABI::V2;
/// The newest version that was tested.
const NEWEST: ABI = ABI::V7;

/// Why files are not restricted.
#[derive(Debug, Error)]
enum FilesError {
    /// The kernel has no Landlock or an older one, or it is disabled.
    #[error(
        "this kernel has no Landlock, or a version that is too old (weir needs Linux 5.19 or later, built with it)"
    )]
    Missing,
    /// The configuration makes it impossible.
    #[error(transparent)]
    InRoot(#[from] InRoot),
    /// The system refused it.
    #[error("Landlock: {0}")]
    Refused(#[from] RulesetError),
}

/// The sandbox that a configuration asks for.
#[derive(Clone, Debug, Default)]
pub struct SandboxConfig {
    /// True to drop rights at all.
    pub is_on: bool,
    /// The files that the configuration names.
    pub files: Files,
    /// The TCP ports to listen on.
    pub ports: Vec<u16>,
}

/// Restricts this thread, and each that it starts, to the files that a weir with this configuration needs, if the
/// configuration and the kernel allow that. Returns these places if it did.
///
/// Call this before any other thread is started.
pub fn close(wanted: &SandboxConfig, origin: Origin<'_>) -> Option<Places> {
    if !wanted.is_on {
        info!("`sandbox: false`: weir keeps all system calls and access to all files of its user");
        return None;
    }
    // The keys are in memory, and must not reach other processes of this user, or a core dump.
    gate::hold();
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!("other processes of this user may look into weir: {error}");
    }
    // No Unix socket can be created later.
    notify::connect();
    let closed = Places::of(&wanted.files, origin).map_err(FilesError::from).and_then(|places| {
        enclose(&places, &wanted.ports)?;
        Ok(places)
    });
    match closed {
        Ok(places) => {
            confined::note();
            debug!("weir opens only files below these: {places:?}");
            Some(places)
        }
        Err(error) => {
            info!("weir keeps access to all files of its user: {error}");
            None
        }
    }
}

/// Restricts all threads to the system calls of a weir that measures, including those that need these capabilities.
pub fn close_calls(kept: &[NeededCapability]) {
    libraries::load();
    match forbid_calls(kept) {
        Ok(()) => gate::restricted(),
        Err(error) => warn!("weir keeps all system calls: {error}"),
    }
}

/// From here on, this thread can only ask the kernel which programs are at a hook. For that it keeps a capability,
/// which would allow much more. Call this once [`close_calls`] has restricted all threads.
pub fn close_to_all_but_questions() {
    if let Err(error) = forbid_all_but_questions() {
        info!("the thread that looks for other programs keeps the system calls of all threads: {error}");
    }
}

/// The result of `work`, which cannot open a file: for libraries that read files which weir does not need. A system
/// without seccomp lets it open them.
pub fn without_files<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let restricted = || {
        if let Err(error) = forbid_opening() {
            debug!("a thread keeps its access to files: {error}");
        }
        work()
    };
    // The restriction ends with the thread.
    thread::scope(|scope| scope.spawn(restricted).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// From here on, this thread, and each that it starts, can open only these files. It also cannot bind a TCP port other
/// than these, signal another process, or connect to another process's abstract socket.
///
/// # Errors
///
/// See [`FilesError`]. In that case nothing is restricted.
fn enclose(places: &Places, ports: &[u16]) -> Result<(), FilesError> {
    if !is_known() {
        return Err(FilesError::Missing);
    }
    Ok(ruleset(places, ports)?.restrict_self().map(drop)?)
}

/// Returns true if the kernel supports the version of Landlock that weir needs.
pub fn is_known() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))
        .and_then(Ruleset::create)
        .is_ok()
}

fn ruleset(places: &Places, ports: &[u16]) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?;
    for (paths, rights) in
        [(&places.read, read), (&places.write, read | write), (&places.emptied, BitFlags::from(AccessFs::RemoveDir))]
    {
        for path in paths {
            // A place that does not exist needs no rights.
            let Ok(place) = PathFd::new(path) else { continue };
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
            rules = rules.add_rule(PathBeneath::new(place, rights))?;
        }
    }
    for port in ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    Ok(rules)
}
