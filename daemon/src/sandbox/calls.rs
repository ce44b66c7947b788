//! Which system calls weir makes once it measures.
//!
//! A list of what is allowed, as that of a service manager: a call that is not in it is answered as by a kernel that
//! does not know it. Then libraries go another way where there is one. What weir itself never does is missing: to run a
//! program, to make a process, to load an eBPF program or make a map, to change mounts, users, the clock or the
//! keyring, to look into other processes.

use std::collections::BTreeMap;

use aya_obj::generated::bpf_cmd;
use libc::c_long;
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};
use thiserror::Error;

use crate::privileges::Kept;

/// Why system calls are not restricted.
#[derive(Debug, Error)]
pub(super) enum CallsError {
    /// For this kind of processor there is no list.
    #[error("there is no list of system calls for processors of the kind {0}")]
    Processor(&'static str),
    /// The kernel refused the list, or it was no list.
    #[error(transparent)]
    Refused(#[from] seccompiler::Error),
}

impl From<seccompiler::BackendError> for CallsError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Refused(error.into())
    }
}

/// From now on no thread of this process makes any other system call. These capabilities stay, with the calls that they
/// are for.
///
/// # Errors
///
/// See [`CallsError`].
pub(super) fn forbid_calls(kept: &[Kept]) -> Result<(), CallsError> {
    let kept = kept.iter().fold(CapabilitySet::empty(), |all, (one, ..)| all.union(*one));
    let arguments = program(forbidden_arguments(kept)?, SeccompAction::Allow, errno(libc::EPERM))?;
    let calls = program(allowed_calls(), errno(libc::ENOSYS), SeccompAction::Allow)?;
    apply_filter_all_threads(&arguments)?;
    Ok(apply_filter_all_threads(&calls)?)
}

const fn errno(error: i32) -> SeccompAction {
    SeccompAction::Errno(error as u32)
}

fn program(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<BpfProgram, CallsError> {
    let processor = std::env::consts::ARCH;
    let target = TargetArch::try_from(processor).map_err(|_| CallsError::Processor(processor))?;
    Ok(SeccompFilter::new(rules, others, these, target)?.try_into()?)
}

/// What is true of the arguments of system calls.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Whatever the arguments are.
fn allowed_calls() -> Rules {
    let groups = [FILES, MEMORY, THREADS, TIME, SOCKETS, BY_ARGUMENT, OLD];
    groups.into_iter().flatten().map(|call| (*call, Vec::new())).collect()
}

/// Arguments with which a call is refused.
fn forbidden_arguments(kept: CapabilitySet) -> Result<Rules, CallsError> {
    // The first argument is none of these.
    let none_of = |values: &mut dyn Iterator<Item = u64>| {
        let conditions = values.map(|value| SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, value));
        Ok::<_, CallsError>(vec![SeccompRule::new(conditions.collect::<Result<_, _>>()?)?])
    };
    let makes = kept.intersects(CapabilitySet::BPF | CapabilitySet::PERFMON);
    let mut commands = BPF_USE.iter().chain(BPF_MAKE.iter().filter(|_| makes)).map(|command| *command as u64);
    let packets = kept.contains(CapabilitySet::NET_RAW).then_some(libc::AF_PACKET);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut families = families.into_iter().chain(packets).map(|family| family as u64);
    let thread = libc::CLONE_THREAD as u64;
    let no_thread = SeccompCondition::new(0, Dword, SeccompCmpOp::MaskedEq(thread), 0)?;
    Ok(BTreeMap::from([
        (libc::SYS_bpf, none_of(&mut commands)?),
        (libc::SYS_socket, none_of(&mut families)?),
        (libc::SYS_clone, vec![SeccompRule::new(vec![no_thread])?]),
        // To abort itself.
        (libc::SYS_tgkill, none_of(&mut [u64::from(std::process::id())].into_iter())?),
    ]))
}

/// `bpf(2)`: what works with maps, programs and links that are there, and asks for them.
const BPF_USE: &[bpf_cmd] = &[
    bpf_cmd::BPF_MAP_LOOKUP_ELEM,
    bpf_cmd::BPF_MAP_UPDATE_ELEM,
    bpf_cmd::BPF_MAP_DELETE_ELEM,
    bpf_cmd::BPF_MAP_GET_NEXT_KEY,
    bpf_cmd::BPF_MAP_LOOKUP_BATCH,
    bpf_cmd::BPF_MAP_UPDATE_BATCH,
    bpf_cmd::BPF_PROG_ATTACH,
    bpf_cmd::BPF_PROG_DETACH,
    bpf_cmd::BPF_PROG_TEST_RUN,
    bpf_cmd::BPF_PROG_QUERY,
    bpf_cmd::BPF_PROG_GET_FD_BY_ID,
    bpf_cmd::BPF_OBJ_GET_INFO_BY_FD,
    bpf_cmd::BPF_LINK_CREATE,
    bpf_cmd::BPF_LINK_UPDATE,
    bpf_cmd::BPF_LINK_DETACH,
    bpf_cmd::BPF_LINK_GET_FD_BY_ID,
];

/// What makes something new, where a capability for that is kept.
const BPF_MAKE: &[bpf_cmd] = &[bpf_cmd::BPF_MAP_CREATE, bpf_cmd::BPF_PROG_LOAD, bpf_cmd::BPF_BTF_LOAD];

/// Calls of which [`forbidden_arguments`] says more. `clone3` has its flags in memory, where no filter can look:
/// libraries take `clone` instead.
const BY_ARGUMENT: &[c_long] = &[libc::SYS_bpf, libc::SYS_clone, libc::SYS_socket, libc::SYS_tgkill];

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
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
];

const THREADS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_setpriority,
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
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
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
    libc::SYS_listen,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// Calls that have newer forms. Only old processors have them.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
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
/// `renameat`, for which the library has no name there.
#[cfg(target_arch = "aarch64")]
const OLD: &[c_long] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dangerous_is_in_no_list() {
        let allowed = allowed_calls();
        assert!(allowed.contains_key(&libc::SYS_read));
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
        ];
        for call in dangerous {
            assert!(!allowed.contains_key(&call), "{call}");
        }
        let restricted = forbidden_arguments(CapabilitySet::all()).unwrap();
        assert!(BY_ARGUMENT.iter().all(|call| restricted.contains_key(call)));
        assert_eq!(BY_ARGUMENT.len(), restricted.len());
    }

    /// The kernel says in which of its rules a thread is that made a call.
    #[test]
    fn a_thread_with_these_lists_does_its_work_and_nothing_else() {
        std::thread::spawn(|| {
            let kept = CapabilitySet::empty();
            let arguments =
                program(forbidden_arguments(kept).unwrap(), SeccompAction::Allow, errno(libc::EPERM)).unwrap();
            let calls = program(allowed_calls(), errno(libc::ENOSYS), SeccompAction::Allow).unwrap();
            seccompiler::apply_filter(&arguments).unwrap();
            seccompiler::apply_filter(&calls).unwrap();
            let refused = |error: std::io::Error| error.raw_os_error();
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7, "another thread");
            assert!(std::fs::read("/proc/self/stat").is_ok());
            assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
            let program = std::process::Command::new("/bin/true").status();
            assert!(matches!(program.map_err(refused), Err(Some(libc::ENOSYS | libc::EPERM))), "a program");
            let packets = rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::RAW, None);
            assert_eq!(packets.map(drop), Err(rustix::io::Errno::PERM));
            assert_eq!(rustix::process::chroot("/"), Err(rustix::io::Errno::NOSYS));
        })
        .join()
        .unwrap();
    }
}
