//! Examines what the kernel supports, and what this process may do with it.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use aya::{maps::MapType, programs::ProgramError, sys::is_map_supported};
use rustix::{
    process::{Resource, Rlimit, geteuid, getrlimit, setrlimit},
    system::uname,
    thread::{CapabilitySet, capabilities},
};
use weir_attach::{Nat, Unknown};
use weir_common::packet::Link;
use weir_config::{Config, interface::Way};
use weir_datapath::{
    Cpus, Features, FlushProgram, Kernel, KernelError, LoadedProgram, Plan, Preemption, online_cpus, probe_tcx,
    tap::{PacketSocket, needs_programs, stand_in},
};
use weir_measure::question::Views;
use weir_sketch::hash::Key;
use weir_system::{bounded, privileges::way_out};

use super::{Answer, Finding, bypass, reasons, restart, rights, time};
use crate::memory::Memory;

/// The oldest Linux that weir supports.
const FLOOR: Version = Version(5, 10);
/// The only one of these findings that packet sockets also need.
const KERNEL: &str = "kernel";
/// How to give a process a missing capability.
fn grant(is_root: bool) -> &'static str {
    if is_root {
        "this is root without it, as in a container: grant it"
    } else {
        "run as root, or grant it (AmbientCapabilities= in config/weir.service)"
    }
}

/// All findings except those about interfaces.
pub struct Machine {
    /// The findings about the machine.
    pub findings: Vec<Finding>,
    /// The programs that the kernel accepted.
    pub programs: Vec<LoadedProgram>,
    /// True if `weir run` would use kernel programs when the configuration leaves the choice to it.
    pub has_programs: bool,
}

/// Examines everything except the interfaces.
pub fn examine(config: &Config) -> Machine {
    let release = uname().release().to_string_lossy().into_owned();
    let version = Version::of(&release);
    let mut findings = vec![kernel(&release, version)];
    findings.extend(process_capabilities());
    findings.extend([
        user_namespace(bounded::read_to_string("/proc/self/uid_map").ok().as_deref()),
        preemption(Preemption::of_this_kernel()),
        cpus(),
        memory(config, version),
        ring_buffer(),
        link(version),
        fragments(Features::ask()),
        tcx(),
        btf(),
        compiler(&bounded::read_to_string("/proc/sys/net/core/bpf_jit_enable")),
        time::examine(),
        translation(&Nat::ask()),
    ]);
    findings.extend(bypass::of_machine());
    let Machine { findings: found, programs, has_programs } = load(config);
    findings.extend(found);
    if !has_programs {
        // Packet sockets do not need these findings.
        for finding in findings.iter_mut().filter(|finding| finding.name != KERNEL) {
            finding.needed = false;
        }
        findings.push(packet_sockets(PacketSocket::is_permitted()));
    }
    findings.extend(rights::examine(&config.interfaces, has_programs, probe_tcx()));
    findings.push(rights::sandbox(config.sandbox));
    findings.push(restart::examine(config));
    Machine { findings, programs, has_programs }
}

/// A kernel's version: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    /// Parses a release such as `6.1.0-56-cloud-amd64`.
    fn of(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

fn kernel(release: &str, version: Option<Version>) -> Finding {
    let name = KERNEL;
    match version {
        Some(version) if version < FLOOR => {
            Finding::needed(name, Answer::No, format!("Linux {release}: weir needs {}.{} or later", FLOOR.0, FLOOR.1))
        }
        Some(_) => Finding::needed(name, Answer::Yes, format!("Linux {release}")),
        None => {
            Finding::needed(name, Answer::Unknown, format!("Linux {release}: weir does not understand this version"))
        }
    }
}

fn preemption(found: Preemption) -> Finding {
    let answer = match found {
        Preemption::None | Preemption::Locked => Answer::Yes,
        Preemption::Possible => Answer::No,
        Preemption::Unknown => Answer::Unknown,
    };
    Finding::needed("whole packets", answer, found.words())
}

fn process_capabilities() -> Vec<Finding> {
    match capabilities(None) {
        Ok(sets) => judge_capabilities(sets.effective, geteuid().is_root()),
        Err(error) => {
            vec![Finding::needed("capabilities", Answer::Unknown, format!("the kernel gives no answer: {error}"))]
        }
    }
}

fn judge_capabilities(effective: CapabilitySet, is_root: bool) -> Vec<Finding> {
    let admin = effective.contains(CapabilitySet::SYS_ADMIN);
    let wanted = [
        ("CAP_BPF", CapabilitySet::BPF, "load programs and maps"),
        ("CAP_PERFMON", CapabilitySet::PERFMON, "use variable packet offsets in programs, which the parser needs"),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, "attach to interfaces"),
    ];
    let mut findings: Vec<_> = wanted
        .into_iter()
        .map(|(name, capability, purpose)| {
            // CAP_SYS_ADMIN still includes the capabilities that were split off from it.
            if effective.contains(capability) {
                Finding::needed(name, Answer::Yes, format!("may {purpose}"))
            } else if admin && capability != CapabilitySet::NET_ADMIN {
                Finding::needed(name, Answer::Yes, format!("may {purpose}, by CAP_SYS_ADMIN"))
            } else {
                Finding::needed(name, Answer::No, format!("may not {purpose}: {}", grant(is_root)))
            }
        })
        .collect();
    findings.push(if effective.contains(CapabilitySet::NET_RAW) {
        Finding::new("CAP_NET_RAW", Answer::Yes, "may open packet sockets, which only `mode: afpacket` needs")
    } else {
        Finding::new("CAP_NET_RAW", Answer::No, "may not open packet sockets, which only `mode: afpacket` needs")
    });
    findings
}

/// For eBPF, capabilities count only in the initial user namespace, which maps every user to itself.
fn user_namespace(uid_map: Option<&str>) -> Finding {
    let name = "user namespace";
    let Some(map) = uid_map else {
        return Finding::needed(name, Answer::Unknown, "/proc/self/uid_map is not readable");
    };
    if map.split_ascii_whitespace().eq(["0", "0", "4294967295"]) {
        Finding::needed(name, Answer::Yes, "the initial one")
    } else {
        let detail = "not the initial one (a rootless container?). The kernel accepts capabilities for eBPF there \
                      only: run weir outside";
        Finding::needed(name, Answer::No, detail)
    }
}

/// Counts the CPUs, because each online CPU has a ring.
fn cpus() -> Finding {
    match Cpus::of_this_machine() {
        Ok(cpus) => Finding::needed("CPUs", Answer::Yes, format!("{} run, and all are measured", cpus.online.len())),
        Err(error) => Finding::needed("CPUs", Answer::No, reasons(&error)),
    }
}

/// Compares the limit of locked memory with the maps, which count as locked before Linux 5.11.
fn memory(config: &Config, version: Option<Version>) -> Finding {
    let name = "locked memory";
    if version.is_some_and(|version| version >= Version(5, 11)) {
        return Finding::new(name, Answer::Yes, "not limited: maps count against the memory cgroup");
    }
    // Loading programs raises this limit in the same way. The change lasts only as long as this process.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    let needed = Cpus::of_this_machine().map_or(0, |cpus| {
        Memory::plan(config, &Views::built_in(&config.estimates, config.report.top), &cpus, true).kernel()
    });
    judge_memory(getrlimit(Resource::Memlock).current, needed)
}

fn judge_memory(limit: Option<u64>, needed: u64) -> Finding {
    let name = "locked memory";
    match limit {
        Some(limit) if limit < needed => {
            let detail = format!(
                "the limit is {limit} bytes, but weir's maps need {needed}: raise it (ulimit -l, LimitMEMLOCK=)"
            );
            Finding::needed(name, Answer::No, detail)
        }
        Some(limit) => Finding::needed(name, Answer::Yes, format!("{needed} of {limit} bytes")),
        None => Finding::needed(name, Answer::Yes, "not limited"),
    }
}

fn ring_buffer() -> Finding {
    let name = "ring buffer";
    match is_map_supported(MapType::RingBuf) {
        Ok(true) => Finding::needed(name, Answer::Yes, "one per CPU brings records to the daemon"),
        Ok(false) => Finding::needed(name, Answer::No, "needs Linux 5.8 or later"),
        Err(error) => Finding::needed(name, Answer::Unknown, format!("the kernel gives no answer: {}", error.io_error)),
    }
}

fn link(version: Option<Version>) -> Finding {
    let name = "XDP link";
    match version {
        Some(version) if version < Version(5, 9) => Finding::needed(
            name,
            Answer::No,
            "needs Linux 5.9 or later: without it programs would stay attached after weir has ended",
        ),
        Some(_) => Finding::needed(name, Answer::Yes, "programs are detached when weir ends, even if it crashes"),
        None => Finding::needed(name, Answer::Unknown, "needs Linux 5.9 or later"),
    }
}

fn fragments(features: Result<Features, ProgramError>) -> Finding {
    let name = "XDP fragments";
    let features = match features {
        Ok(features) => features,
        Err(error) => return Finding::new(name, Answer::Unknown, brief_error(&error)),
    };
    if features.fragments {
        Finding::new(name, Answer::Yes, "native XDP also measures jumbo frames in several pieces")
    } else {
        let detail = "needs Linux 5.18 or later: without it weir may have to measure interfaces with jumbo frames in \
                      generic mode, and `weir replay --kernel` does not work";
        Finding::new(name, Answer::No, detail)
    }
}

fn tcx() -> Finding {
    let name = "TCX";
    match probe_tcx() {
        Ok(true) => Finding::new(name, Answer::Yes, "measures virtual interfaces, and packets that interfaces send"),
        Ok(false) => {
            let detail = "needs Linux 6.6 or later: without it weir measures virtual interfaces, and packets that \
                          interfaces send, at the classic tc hook";
            Finding::new(name, Answer::No, detail)
        }
        Err(error) => Finding::new(name, Answer::Unknown, brief_error(&error)),
    }
}

fn brief_error(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(error) => format!("the kernel gives no answer: {}", error.io_error),
        other => format!("the kernel gives no answer: {other}"),
    }
}

fn btf() -> Finding {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        Finding::new(
            "BTF",
            Answer::Yes,
            "the kernel describes its types: since Linux 6.2 that saves a call for each packet",
        )
    } else {
        Finding::new(
            "BTF",
            Answer::No,
            "/sys/kernel/btf/vmlinux is missing: weir works, but makes one more call for each packet",
        )
    }
}

fn compiler(setting: &io::Result<String>) -> Finding {
    const SETTING: &str = "net.core.bpf_jit_enable";
    let name = "JIT compiler";
    match setting.as_deref().map(str::trim) {
        Ok("0") => {
            let detail =
                "the kernel interprets programs, which costs several times as much: sysctl net.core.bpf_jit_enable=1";
            Finding::new(name, Answer::No, detail)
        }
        Ok(_) => Finding::new(name, Answer::Yes, "programs run as machine code"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let detail = format!("{SETTING} is not here: only the machine's first network namespace has it");
            Finding::new(name, Answer::Unknown, detail)
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let detail = format!("may not read {SETTING}: {}", way_out(CapabilitySet::NET_ADMIN));
            Finding::new(name, Answer::Unknown, detail)
        }
        Err(error) => Finding::new(name, Answer::Unknown, format!("cannot read {SETTING}: {error}")),
    }
}

/// Finds out if lists show addresses that this machine translates (NAT).
fn translation(nat: &Nat) -> Finding {
    let name = "NAT";
    match nat {
        Nat::Rules(_) | Nat::None => Finding::new(name, Answer::Note, nat.to_string()),
        Nat::Unknown(Unknown::NotPermitted) => {
            Finding::new(name, Answer::Unknown, format!("{nat}: {}", way_out(CapabilitySet::NET_ADMIN)))
        }
        Nat::Unknown(Unknown::Failed(_)) => Finding::new(name, Answer::Unknown, nat.to_string()),
    }
}

fn packet_sockets(are_permitted: bool) -> Finding {
    let name = "packet sockets";
    if are_permitted {
        let detail = "weir can use them instead of programs (`mode: afpacket`): they cost more, and lose packets when \
                      they are full";
        Finding::needed(name, Answer::Yes, detail)
    } else {
        Finding::needed(name, Answer::No, format!("may not open them: {}", way_out(CapabilitySet::NET_RAW)))
    }
}

/// Loads the programs as `weir run` does, and runs the one that closes windows.
fn load(config: &Config) -> Machine {
    let loaded = Cpus::of_this_machine().and_then(|cpus| {
        let plan = Plan::new(config, Key([0; 2]), &cpus);
        Kernel::load(&Plan { interfaces: plan.interfaces.max(1), ..plan })
    });
    let mut kernel = match loaded {
        Ok(kernel) => kernel,
        Err(error) => {
            let has_programs = needs_programs(&config.interfaces) && !stand_in(&error, &config.interfaces);
            let findings = vec![Finding::needed("programs", Answer::No, reasons(&error))];
            return Machine { findings, programs: Vec::new(), has_programs };
        }
    };
    let replay = kernel.load_replay();
    let (run, tc) = match kernel.parts() {
        Ok(mut parts) => {
            let tc = [Way::Ingress, Way::Egress].map(|way| parts.tc.get(Link::Ethernet, way).map(drop));
            (close_everywhere(parts.flush), tc.into_iter().collect::<Result<(), _>>())
        }
        Err(error) => (Err(error), Ok(())),
    };
    let programs = kernel.loaded();
    let findings = vec![
        Finding::needed("programs", Answer::Yes, listed(&programs)),
        match run {
            Ok(()) => Finding::needed(
                "test-run on a CPU",
                Answer::Yes,
                "weir can close a window on every CPU that counts packets",
            ),
            Err(error) => Finding::needed("test-run on a CPU", Answer::No, reasons(&error)),
        },
        match tc {
            Ok(()) => Finding::new("tc programs", Answer::Yes, "the kernel accepts them"),
            Err(error) => Finding::new("tc programs", Answer::No, reasons(&error)),
        },
        judge_replay(replay),
    ];
    Machine { findings, programs, has_programs: needs_programs(&config.interfaces) }
}

/// Runs the program that closes windows on each CPU.
fn close_everywhere(flush: FlushProgram<'_>) -> Result<(), KernelError> {
    for cpu in online_cpus()? {
        flush.close(cpu)?;
    }
    Ok(())
}

fn judge_replay(loaded: Result<(), KernelError>) -> Finding {
    let name = "replay --kernel";
    match loaded {
        Ok(()) => Finding::new(name, Answer::Yes, "weir can send captures through the kernel's program"),
        Err(error) => Finding::new(
            name,
            Answer::No,
            format!("use `weir replay` without --kernel, which measures the same: {}", reasons(&error)),
        ),
    }
}

fn listed(programs: &[LoadedProgram]) -> String {
    let one = |LoadedProgram { name, verified_instructions }: &LoadedProgram| match verified_instructions {
        Some(count) => format!("{name} ({count} instructions verified)"),
        None => (*name).to_owned(),
    };
    format!("the kernel accepts {}", programs.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_of_distributions_are_parsed() {
        for (release, version) in [
            ("6.1.0-56-cloud-amd64", Some(Version(6, 1))),
            ("5.10.251", Some(Version(5, 10))),
            ("6.12.117+deb12-cloud-amd64", Some(Version(6, 12))),
            ("7.0-rc1", Some(Version(7, 0))),
            ("linux", None),
            ("", None),
            ("6", None),
        ] {
            assert_eq!(Version::of(release), version, "{release}");
        }
    }

    #[test]
    fn the_finding_for_a_too_old_kernel_names_the_oldest_that_works() {
        let judge = |release: &str| kernel(release, Version::of(release));
        assert!(!judge("5.10.0").forbids() && !judge("6.0.1").forbids() && !judge("odd").forbids());
        let old = judge("5.4.290");
        assert!(old.forbids() && old.detail.contains("5.10 or later"), "{old:?}");
    }

    #[test]
    fn each_capability_has_its_own_reason() {
        let forbidden = |set| {
            let findings = judge_capabilities(set, false);
            findings.into_iter().filter(Finding::forbids).map(|finding| finding.name).collect::<Vec<_>>()
        };
        let unit = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
        assert_eq!(forbidden(CapabilitySet::empty()), ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]);
        assert_eq!(forbidden(unit), [""; 0]);
        assert_eq!(forbidden(unit - CapabilitySet::PERFMON), ["CAP_PERFMON"]);
        assert_eq!(forbidden(CapabilitySet::SYS_ADMIN), ["CAP_NET_ADMIN"]);
        let said = |is_root| judge_capabilities(CapabilitySet::empty(), is_root)[0].detail.clone();
        assert!(said(false).contains("run as root") && !said(true).contains("run as root"), "{}", said(true));
    }

    #[test]
    fn only_the_initial_user_namespace_is_accepted() {
        assert!(!user_namespace(Some("         0          0 4294967295\n")).forbids());
        assert!(user_namespace(Some("         0       1000          1\n")).forbids());
        assert!(user_namespace(Some("0 0 65536\n65536 65536 1\n")).forbids());
        assert_eq!(user_namespace(None).answer, Answer::Unknown);
    }

    #[test]
    fn too_little_lockable_memory_forbids() {
        assert!(judge_memory(Some(64 << 10), 1 << 20).forbids());
        assert!(!judge_memory(Some(1 << 20), 1 << 20).forbids());
        assert!(!judge_memory(None, 1 << 40).forbids());
    }

    #[test]
    fn a_missing_jit_compiler_is_reported() {
        assert_eq!(compiler(&Ok("0\n".to_owned())).answer, Answer::No);
        assert_eq!(compiler(&Ok("1\n".to_owned())).answer, Answer::Yes);
        let unknown = |error: ErrorKind| {
            let finding = compiler(&Err(error.into()));
            assert_eq!(finding.answer, Answer::Unknown);
            finding.detail
        };
        assert!(unknown(ErrorKind::NotFound).contains("network namespace"));
        assert!(unknown(ErrorKind::PermissionDenied).contains("may not read"));
        assert!(unknown(ErrorKind::InvalidData).contains("cannot read"));
    }

    #[test]
    fn programs_are_listed_with_their_instructions_if_known() {
        let programs = [("weir", Some(5)), ("flush", None)]
            .map(|(name, verified_instructions)| LoadedProgram { name, verified_instructions });
        assert_eq!(listed(&programs), "the kernel accepts weir (5 instructions verified), flush");
    }
}
