//! The system calls that weir makes while it measures.
//!
//! This is an allowlist, like that of a service manager. Any other call fails as on a kernel that does not know it, so
//! that libraries use an alternative if there is one. The list does not include what weir never does while it measures:
//! run a program, create a process, change mounts, users, the clock or the keyring, or look into other processes. It
//! allows loading eBPF programs and creating maps only if weir keeps a capability for that. It does not allow changing
//! who may open a file: Landlock does not restrict that, and root owns most files.

use std::collections::BTreeMap;

use libc::c_long;
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter, apply_filter_all_threads,
};
use thiserror::Error;

use super::bpf;
use crate::privileges::NeededCapability;

/// Why system calls are not restricted.
#[derive(Debug, Error)]
pub(super) enum CallsError {
    /// There is no list for this kind of processor.
    #[error("there is no list of system calls for processors of the kind {0}")]
    Processor(&'static str),
    /// The kernel refused the list, or the list is invalid.
    #[error(transparent)]
    Refused(#[from] seccompiler::Error),
}

impl From<seccompiler::BackendError> for CallsError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Refused(error.into())
    }
}

/// From here on, threads of this process can make only the listed system calls, with the listed arguments. The calls
/// that need the capabilities in `kept` stay allowed.
///
/// # Errors
///
/// See [`CallsError`].
pub(super) fn forbid_calls(kept: &[NeededCapability]) -> Result<(), CallsError> {
    let kept = kept.iter().fold(CapabilitySet::empty(), |all, one| all.union(one.set));
    let Filters { arguments, calls } = Filters::new(kept)?;
    apply_filter_all_threads(&arguments)?;
    Ok(apply_filter_all_threads(&calls)?)
}

/// From here on, this thread can only ask the kernel which programs are at a hook, and wait. It cannot send anything
/// through any socket, and it cannot start a thread.
///
/// # Errors
///
/// See [`CallsError`].
pub(super) fn forbid_all_but_questions() -> Result<(), CallsError> {
    Ok(apply_filter(&program(questions()?, libc::EPERM)?)?)
}

/// From here on, this thread cannot use eBPF. Otherwise it could attach weir's programs, or run one on a packet as if
/// that packet had been received.
///
/// # Errors
///
/// See [`CallsError`].
pub(super) fn forbid_bpf() -> Result<(), CallsError> {
    let all = BTreeMap::from([(libc::SYS_bpf, Vec::new())]);
    Ok(apply_filter(&filter(all, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?)?)
}

/// From here on, this thread cannot open a file.
///
/// # Errors
///
/// See [`CallsError`].
pub(super) fn forbid_opening() -> Result<(), CallsError> {
    let calls = [
        libc::SYS_openat,
        libc::SYS_openat2,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
    ];
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    Ok(apply_filter(&filter(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EACCES as u32))?)?)
}

/// The kernel still applies the filters of [`forbid_calls`], so these rules contain only the additional restrictions.
fn questions() -> Result<Rules, CallsError> {
    let mut rules: Rules = QUESTIONS.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_bpf, one_of(0, [bpf::Command::ProgramQuery as u64])?);
    Ok(rules)
}

/// Two allowlists. The kernel runs both. If both refuse a call, the one that was installed later decides how.
struct Filters {
    /// Refuses calls with other arguments, with the error "not permitted".
    arguments: BpfProgram,
    /// Refuses all other calls, as if the kernel did not know them.
    calls: BpfProgram,
}

impl Filters {
    fn new(kept: CapabilitySet) -> Result<Self, CallsError> {
        let mut names: Rules = allowed_calls().map(|call| (call, Vec::new())).collect();
        // Allow a thread to restrict itself further.
        names.insert(libc::SYS_seccomp, vec![all_of([is(0, libc::SECCOMP_SET_MODE_FILTER.into()), is(1, 0)])?]);
        let mut rules: Rules = allowed_calls().map(|call| (call, Vec::new())).collect();
        rules.append(&mut allowed_arguments(kept)?);
        // The first filter must allow this call, so that the second one can be installed.
        rules.insert(libc::SYS_seccomp, Vec::new());
        Ok(Self { arguments: program(rules, libc::EPERM)?, calls: program(names, libc::ENOSYS)? })
    }
}

/// A filter that allows these calls, and answers all others with an error.
fn program(these: Rules, error: i32) -> Result<BpfProgram, CallsError> {
    filter(these, SeccompAction::Errno(error as u32), SeccompAction::Allow)
}

/// A filter with one action for these calls, and another for all others.
fn filter(these: Rules, others: SeccompAction, answer: SeccompAction) -> Result<BpfProgram, CallsError> {
    let processor = std::env::consts::ARCH;
    let target = TargetArch::try_from(processor).map_err(|_| CallsError::Processor(processor))?;
    Ok(SeccompFilter::new(these, others, answer, target)?.try_into()?)
}

/// Rules for the arguments of each call. All conditions of at least one rule must hold. Without a rule, any arguments
/// are allowed.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn allowed_calls() -> impl Iterator<Item = c_long> {
    let groups = [FILES, MEMORY, THREADS, TIME, SOCKETS, BY_ARGUMENT, OLD];
    groups.into_iter().flatten().copied()
}

/// The condition that the 32-bit argument number `nth` equals this value.
fn is(nth: u8, value: u64) -> Result<SeccompCondition, CallsError> {
    Ok(SeccompCondition::new(nth, Dword, SeccompCmpOp::Eq, value)?)
}

/// The condition that these bits of argument number `nth` have this value.
fn bits(nth: u8, mask: u64, value: u64) -> Result<SeccompCondition, CallsError> {
    Ok(SeccompCondition::new(nth, Dword, SeccompCmpOp::MaskedEq(mask), value)?)
}

/// The condition that argument number `nth` is a null pointer.
fn require_null(nth: u8) -> Result<SeccompCondition, CallsError> {
    Ok(SeccompCondition::new(nth, Qword, SeccompCmpOp::Eq, 0)?)
}

fn all_of<const N: usize>(conditions: [Result<SeccompCondition, CallsError>; N]) -> Result<SeccompRule, CallsError> {
    Ok(SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)?)
}

/// The rules that argument number `nth` is one of these values.
fn one_of(nth: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>, CallsError> {
    values.into_iter().map(|value| all_of([is(nth, value)])).collect()
}

/// The arguments with which the calls in [`BY_ARGUMENT`] are allowed.
fn allowed_arguments(kept: CapabilitySet) -> Result<Rules, CallsError> {
    let makes = kept.intersects(CapabilitySet::BPF | CapabilitySet::PERFMON);
    let commands = bpf::USE.iter().chain(bpf::MAKE.iter().filter(|_| makes)).map(|command| *command as u64);
    let runs = libc::PROT_EXEC as u64;
    // These bits are set-user-ID, set-group-ID and sticky.
    let special = libc::S_ISUID | libc::S_ISGID | libc::S_ISVTX;
    let plain = |nth: u8| Ok::<_, CallsError>(vec![all_of([bits(nth, special.into(), 0)])?]);
    // Only old architectures have these.
    #[cfg(target_arch = "x86_64")]
    let old = [(libc::SYS_open, plain(2)?), (libc::SYS_mkdir, plain(1)?)];
    #[cfg(not(target_arch = "x86_64"))]
    let old = [];
    let mut rules = BTreeMap::from([
        (libc::SYS_bpf, one_of(0, commands)?),
        (libc::SYS_socket, sockets(kept)?),
        (libc::SYS_ioctl, one_of(1, REQUESTS.iter().copied())?),
        (libc::SYS_fcntl, one_of(1, FCNTL.iter().map(|command| *command as u64))?),
        (libc::SYS_prctl, one_of(0, PRCTL.iter().map(|option| *option as u64))?),
        // It may only start a thread of this process, in its namespaces.
        (libc::SYS_clone, vec![all_of([bits(0, THREAD_OR_NAMESPACE, libc::CLONE_THREAD as u64)])?]),
        // It may not map new code, neither written by weir nor from libraries, which `libraries` loads before.
        (libc::SYS_mmap, vec![all_of([bits(2, runs, 0)])?]),
        (libc::SYS_mprotect, vec![all_of([bits(2, runs, 0)])?]),
        // It may only signal itself, to abort.
        (libc::SYS_tgkill, one_of(0, [u64::from(std::process::id())])?),
        // It may only read limits, and only its own.
        (libc::SYS_prlimit64, vec![all_of([is(0, 0), require_null(2)])?]),
        (libc::SYS_sched_getaffinity, one_of(0, [0])?),
        // It may only set the priority of the calling thread.
        (libc::SYS_setpriority, vec![all_of([is(0, libc::PRIO_PROCESS as u64), is(1, 0)])?]),
        (libc::SYS_openat, plain(3)?),
        (libc::SYS_mkdirat, plain(2)?),
        (libc::SYS_setsockopt, options()?),
    ]);
    rules.extend(old);
    Ok(rules)
}

/// All options of sockets, except those that `CAP_NET_RAW` and `CAP_NET_ADMIN` allow and weir never sets: marks, by
/// which firewalls and routes recognise packets, and other source addresses than the router's own.
fn options() -> Result<Vec<SeccompRule>, CallsError> {
    const FORBIDDEN: [(i32, i32); 3] = [
        (libc::SOL_SOCKET, libc::SO_MARK),
        (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    ];
    let is_not = |nth: u8, value: i32| -> Result<SeccompCondition, CallsError> {
        Ok(SeccompCondition::new(nth, Dword, SeccompCmpOp::Ne, value as u64)?)
    };
    let mut rules = vec![all_of(FORBIDDEN.map(|(level, _)| is_not(1, level)))?];
    for (level, option) in FORBIDDEN {
        rules.push(all_of([is(1, level as u64), is_not(2, option)])?);
    }
    Ok(rules)
}

/// The allowed families, types and protocols: no Unix sockets, no raw sockets, and only TCP and UDP. Landlock's rules
/// for ports only apply to TCP: other stream protocols, such as MPTCP and SCTP, would bypass them.
fn sockets(kept: CapabilitySet) -> Result<Vec<SeccompRule>, CallsError> {
    /// The other bits of a type are flags (`SOCK_TYPE_MASK`).
    const TYPE: u64 = 0xf;
    let of = |family: i32, kind: i32| [is(0, family as u64), bits(1, TYPE, kind as u64)];
    let mut rules = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)] {
            for protocol in [0, protocol] {
                let [family, kind] = of(family, kind);
                rules.push(all_of([family, kind, is(2, protocol as u64)])?);
            }
        }
    }
    for protocol in [libc::NETLINK_ROUTE, libc::NETLINK_NETFILTER, libc::NETLINK_GENERIC] {
        let [family, kind] = of(libc::AF_NETLINK, libc::SOCK_RAW);
        rules.push(all_of([family, kind, is(2, protocol as u64)])?);
    }
    if kept.contains(CapabilitySet::NET_RAW) {
        rules.push(all_of(of(libc::AF_PACKET, libc::SOCK_RAW))?);
    }
    Ok(rules)
}

/// Threads have the first of these flags. The other flags would create new namespaces.
const THREAD_OR_NAMESPACE: u64 = (libc::CLONE_THREAD
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// `ioctl(2)`: requests that libraries make: whether a descriptor is a terminal and how large it is, how much a
/// connection has not sent yet, and the index of an interface.
#[allow(clippy::unnecessary_cast, reason = "with musl a request is an int")]
const REQUESTS: &[u64] = &[
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::FIONREAD as u64,
    libc::TIOCOUTQ as u64,
    libc::TIOCGWINSZ as u64,
    libc::SIOCGIFINDEX as u64,
    libc::TCGETS as u64,
    TCGETS2,
];
/// `TCGETS2` of newer libraries, which the crate does not define on every platform.
const TCGETS2: u64 = 0x802c_542a;

/// `fcntl(2)`: without `F_SETOWN` and `F_SETSIG`, which make the kernel signal another process.
const FCNTL: &[i32] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
];

/// `prctl(2)`: to name threads and memory, and to give up capabilities. `PR_SET_DUMPABLE` is not included.
const PRCTL: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_CAP_AMBIENT,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_VMA,
];

/// Calls that [`allowed_arguments`] restricts further. `clone3` is not included, because its flags are in memory, which
/// no filter can read: libraries use `clone` instead.
const BY_ARGUMENT: &[c_long] = &[
    libc::SYS_bpf,
    libc::SYS_clone,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
    libc::SYS_setpriority,
    libc::SYS_setsockopt,
    libc::SYS_socket,
    libc::SYS_tgkill,
];

const FILES: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_newfstatat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// The calls of a thread that asks the kernel and waits for other threads. The other filters still forbid executable
/// memory.
const QUESTIONS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
];

const MEMORY: &[c_long] =
    &[libc::SYS_brk, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_mremap, libc::SYS_msync, libc::SYS_munmap];

const THREADS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

const TIME: &[c_long] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
];

const SOCKETS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];

/// Calls that have newer forms. Only old architectures have these calls.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
/// `renameat`, for which the library has no name on this architecture.
#[cfg(target_arch = "aarch64")]
const OLD: &[c_long] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_calls_are_in_no_list() {
        let allowed: Vec<_> = allowed_calls().collect();
        assert!(allowed.contains(&libc::SYS_read));
        let dangerous = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone3,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_mount,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_kill,
            libc::SYS_init_module,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_keyctl,
            libc::SYS_open_by_handle_at,
            libc::SYS_setuid,
            libc::SYS_clock_settime,
            libc::SYS_fchmod,
            libc::SYS_fchownat,
            libc::SYS_fsetxattr,
            libc::SYS_listen,
            libc::SYS_sched_setaffinity,
        ];
        for call in dangerous {
            assert!(!allowed.contains(&call), "{call}");
        }
        let restricted = allowed_arguments(CapabilitySet::all()).unwrap();
        assert!(BY_ARGUMENT.iter().all(|call| restricted.contains_key(call)));
        assert_eq!(BY_ARGUMENT.len(), restricted.len());
        assert!(
            restricted.values().all(|rules| !rules.is_empty()),
            "a call without a rule would be allowed with any arguments"
        );
        let mut each = allowed.clone();
        each.sort_unstable();
        each.dedup();
        assert_eq!(each.len(), allowed.len(), "a call is in two groups");
    }

    #[test]
    fn a_thread_without_files_opens_none_and_others_do() {
        let read = || std::fs::read("/proc/self/stat").map(drop);
        let refused = super::super::without_files(|| (read(), read().map_err(|error| error.raw_os_error())));
        assert!(matches!(refused, (Err(_), Err(Some(libc::EACCES)))), "{refused:?}");
        assert!(read().is_ok());
    }

    /// Checks on the real kernel which calls a thread with these filters can make.
    #[test]
    fn a_thread_with_these_lists_does_its_work_and_nothing_else() {
        std::thread::spawn(|| {
            let kept = CapabilitySet::empty();
            let Filters { arguments, calls } = Filters::new(kept).unwrap();
            apply_filter(&arguments).unwrap();
            apply_filter(&calls).unwrap();
            let refused = |error: std::io::Error| error.raw_os_error();
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7, "it can start another thread");
            assert!(std::fs::read("/proc/self/stat").is_ok());
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let set = |level, option| crate::sockopt::set_number(&socket, level, option, 1).map_err(refused);
            for (level, option) in [
                (libc::SOL_SOCKET, libc::SO_MARK),
                (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
                (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
            ] {
                assert_eq!(set(level, option), Err(Some(libc::EPERM)), "{level} {option}");
            }
            // The same numbers at other levels are other options.
            for (level, option) in [(libc::SOL_SOCKET, libc::SO_KEEPALIVE), (libc::IPPROTO_IP, libc::IP_RECVTTL)] {
                assert_eq!(set(level, option), Ok(()), "{level} {option}");
            }
            let program = std::process::Command::new("/bin/true").status();
            assert!(
                matches!(program.map_err(refused), Err(Some(libc::ENOSYS | libc::EPERM))),
                "it cannot load a program"
            );
            let packets = rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::RAW, None);
            assert_eq!(packets.map(drop), Err(rustix::io::Errno::PERM));
            let unix = std::os::unix::net::UnixDatagram::unbound().map_err(refused);
            assert!(matches!(unix, Err(Some(libc::EPERM))), "{unix:?}");
            assert_eq!(rustix::process::chroot("/"), Err(rustix::io::Errno::NOSYS));
        })
        .join()
        .unwrap();
    }
}
