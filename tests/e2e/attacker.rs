//! An attacker has taken over the process of weir while it measures. These tests show what the attacker can and cannot
//! do then, as `docs/SECURITY.md` describes it.

use std::{
    fs,
    net::TcpListener,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, ensure};
use nix::{errno::Errno, libc};
use weir_system::privileges;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal},
    netns::{self, Lab, QuietPair},
    scratch::Scratch,
};

use crate::{
    puppet::{
        Argument::{self, Bytes, Number},
        Puppet, answer, threads,
    },
    reload::wait_until_in_force,
    watch::{INTERVAL, TIMEOUT, measure, native, stop},
};

tests![
    an_attacker_who_takes_weir_over_gains_little,
    the_capability_to_see_other_programs_is_worth_nothing_else,
    a_capability_to_attach_later_is_worth_only_what_is_said,
    answers_are_read_under_all_restrictions,
    without_the_sandbox_files_are_open,
    a_sandbox_that_a_reload_would_need_to_open_stays_closed,
    a_replaced_folder_is_reported_and_a_link_without_a_target_is_followed
];

/// The line in `/proc` for the descriptor of an XDP program: `BPF_PROG_TYPE_XDP`.
const XDP: &str = "prog_type:\t6";
/// `BPF_XDP` of `enum bpf_attach_type`, and `XDP_FLAGS_SKB_MODE`.
const ATTACH_XDP: u32 = 37;
const GENERIC: u32 = 2;
const BPF_MAP_CREATE: u64 = 0;
const BPF_PROG_LOAD: u64 = 5;
const BPF_OBJ_PIN: u64 = 6;
const BPF_PROG_TEST_RUN: u64 = 10;
const BPF_LINK_CREATE: u64 = 28;
/// Constants of `linux/fcntl.h` and `asm/sockios.h`.
const F_SETSIG: u64 = 10;
const FIOSETOWN: u64 = 0x8901;
const LOOPBACK: u32 = 1;
/// The thread with a capability that allows changing the network.
const ASKS: &str = "weir-chains";
/// The thread that keeps a capability to attach later.
const ATTACHES: &str = "weir-attach";
/// Threads that talk to other machines or processes and need no eBPF.
const WITHOUT_EBPF: [&str; 3] = ["sink", "weir-metrics", "weir-control"];
/// The MTU that the attacker would give to the loopback.
const MTU: u32 = 1_280;

/// These tests need namespaces and Landlock.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    if !weir_system::sandbox::is_known() {
        return Err("this kernel has no Landlock".to_owned());
    }
    Ok(())
}

fn path(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\0"].concat()
}

fn open(path: &[u8], flags: i32) -> (libc::c_long, [Argument<'_>; 4]) {
    let here = Number(libc::AT_FDCWD as u64);
    (libc::SYS_openat, [here, Bytes(path), Number((flags | libc::O_CLOEXEC) as u64), Number(0o600)])
}

/// A folder that weir's configuration does not name, with a file that only root may read.
fn foreign() -> Result<(Scratch, PathBuf)> {
    let scratch = Scratch::new()?;
    let folder = scratch.path().join("of-others");
    fs::create_dir(&folder)?;
    let secret = folder.join("secret");
    fs::write(&secret, "secret")?;
    Ok((scratch, secret))
}

/// Calls that are forbidden in every thread, each with its error.
fn forbidden(puppet: &mut Puppet, secret: &Path) -> Result<()> {
    let beside = path(&secret.with_file_name("new"));
    let secret = path(secret);
    let nothing = [0_u8; 128];
    let (n, b) = (Number, Bytes);
    let me = u64::from(std::process::id());
    let (here, cpu) = (n(libc::AT_FDCWD as u64), u64::from(libc::RLIMIT_CPU));
    let thread = (libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM | libc::CLONE_NEWNET) as u64;
    let write = libc::O_WRONLY | libc::O_CREAT;
    let files: [(&str, (libc::c_long, [Argument<'_>; 4])); 6] = [
        ("read a file of others", open(&secret, libc::O_RDONLY)),
        ("write a file of others", open(&secret, libc::O_WRONLY)),
        ("make a file elsewhere", open(&beside, write)),
        ("make a file in /etc", open(b"/etc/weir-attacker\0", write)),
        ("change the kernel's settings", open(b"/proc/sys/kernel/core_pattern\0", libc::O_WRONLY)),
        ("remove a file of others", (libc::SYS_unlinkat, [here, b(&secret), n(0), n(0)])),
    ];
    for (what, (call, arguments)) in files {
        let got = answer(puppet.call(call, &arguments)?);
        ensure!(got == Err(Errno::EACCES), "{what}: {got:?}");
    }
    let calls: [(&str, libc::c_long, &[Argument<'_>], Errno); 39] = [
        ("run a program", libc::SYS_execve, &[b(b"/bin/true\0"), n(0), n(0)], Errno::ENOSYS),
        ("run a program (execveat)", libc::SYS_execveat, &[n(0), b(b"/bin/true\0"), n(0), n(0), n(0)], Errno::ENOSYS),
        ("make a process", libc::SYS_clone, &[n(libc::SIGCHLD as u64), n(0), n(0), n(0), n(0)], Errno::EPERM),
        ("make a process (clone3)", libc::SYS_clone3, &[b(&nothing), n(88)], Errno::ENOSYS),
        ("make a process (fork)", libc::SYS_fork, &[], Errno::ENOSYS),
        ("make a thread in a network of its own", libc::SYS_clone, &[n(thread), n(0), n(0), n(0), n(0)], Errno::EPERM),
        ("load an eBPF program", libc::SYS_bpf, &[n(BPF_PROG_LOAD), b(&nothing), n(128)], Errno::EPERM),
        ("make a map", libc::SYS_bpf, &[n(BPF_MAP_CREATE), b(&nothing), n(72)], Errno::EPERM),
        ("pin a map", libc::SYS_bpf, &[n(BPF_OBJ_PIN), b(&nothing), n(16)], Errno::EPERM),
        ("create a user namespace", libc::SYS_unshare, &[n(libc::CLONE_NEWUSER as u64)], Errno::ENOSYS),
        ("enter a namespace", libc::SYS_setns, &[n(0), n(0)], Errno::ENOSYS),
        ("mount", libc::SYS_mount, &[b(b"x\0"), b(b"/\0"), b(b"tmpfs\0"), n(0), n(0)], Errno::ENOSYS),
        ("change the root", libc::SYS_chroot, &[b(b"/\0")], Errno::ENOSYS),
        ("inspect a process", libc::SYS_ptrace, &[n(0x4206), n(me), n(0), n(0)], Errno::ENOSYS),
        ("read a process", libc::SYS_process_vm_readv, &[n(me), n(0), n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("write into a process", libc::SYS_process_vm_writev, &[n(me), n(0), n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("take a file of a process", libc::SYS_pidfd_open, &[n(me), n(0)], Errno::ENOSYS),
        ("signal a process", libc::SYS_kill, &[n(me), n(0)], Errno::ENOSYS),
        ("signal a thread", libc::SYS_tgkill, &[n(me), n(me), n(0)], Errno::EPERM),
        ("signal a thread (tkill)", libc::SYS_tkill, &[n(me), n(0)], Errno::ENOSYS),
        ("limit a process", libc::SYS_prlimit64, &[n(me), n(cpu), b(&nothing), n(0)], Errno::EPERM),
        ("read a process's limits", libc::SYS_prlimit64, &[n(me), n(cpu), n(0), b(&nothing)], Errno::EPERM),
        ("raise its own limits", libc::SYS_prlimit64, &[n(0), n(cpu), b(&nothing), n(0)], Errno::EPERM),
        ("slow a process down", libc::SYS_setpriority, &[n(0), n(me), n(19)], Errno::EPERM),
        ("move a process", libc::SYS_sched_setaffinity, &[n(me), n(8), b(&[1; 8])], Errno::ENOSYS),
        ("run a process first", libc::SYS_sched_setscheduler, &[n(me), n(1), b(&nothing)], Errno::ENOSYS),
        ("lock memory", libc::SYS_mlockall, &[n(3)], Errno::ENOSYS),
        ("become another user", libc::SYS_setresuid, &[n(0), n(0), n(0)], Errno::ENOSYS),
        ("allow inspection", libc::SYS_prctl, &[n(libc::PR_SET_DUMPABLE as u64), n(1)], Errno::EPERM),
        ("set the clock", libc::SYS_clock_settime, &[n(999), b(&nothing)], Errno::ENOSYS),
        ("load a module", libc::SYS_finit_module, &[n(u64::MAX), b(b"\0"), n(0)], Errno::ENOSYS),
        ("restart the machine", libc::SYS_reboot, &[n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("count events", libc::SYS_perf_event_open, &[b(&nothing), n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("make an io_uring", libc::SYS_io_uring_setup, &[n(1), b(&nothing)], Errno::ENOSYS),
        ("read keys of the kernel", libc::SYS_keyctl, &[n(0), n(0)], Errno::ENOSYS),
        ("open by handle", libc::SYS_open_by_handle_at, &[n(0), b(&nothing), n(0)], Errno::ENOSYS),
        ("make a device", libc::SYS_mknodat, &[here, b(&beside), n(0o020_666), n(0x103)], Errno::ENOSYS),
        ("make code", libc::SYS_mmap, &[n(0), n(4096), n(7), n(0x22), n(u64::MAX), n(0)], Errno::EPERM),
        ("turn data into code", libc::SYS_mprotect, &[n(0x1000), n(4096), n(5)], Errno::EPERM),
    ];
    for (what, call, arguments, expected) in calls {
        let got = answer(puppet.call(call, arguments)?);
        ensure!(got == Err(expected), "{what}: {got:?}");
    }
    network(puppet)?;
    permissions(puppet, &secret)?;
    sockets(puppet)?;
    let socket = descriptor(puppet, libc::SYS_socket, &[n(libc::AF_INET as u64), n(libc::SOCK_DGRAM as u64), n(0)])?;
    // `struct ifreq`: a name of 16 bytes and no flags, which means "down".
    let mut request = [0; 40];
    request[..QuietPair::OBSERVER_INTERFACE.len()].copy_from_slice(QuietPair::OBSERVER_INTERFACE.as_bytes());
    let got = answer(puppet.call(libc::SYS_ioctl, &[n(socket), n(libc::SIOCSIFFLAGS), b(&request)])?);
    ensure!(got == Err(Errno::EPERM), "take an interface down: {got:?}");
    for (what, call, command, argument) in [
        ("type into a terminal", libc::SYS_ioctl, libc::TIOCSTI, b(b"x")),
        ("take a terminal", libc::SYS_ioctl, libc::TIOCSCTTY, n(1)),
        ("have a process signalled (ioctl)", libc::SYS_ioctl, FIOSETOWN, b(&[1, 0, 0, 0])),
        ("have a process signalled (fcntl)", libc::SYS_fcntl, libc::F_SETOWN as u64, n(me)),
        ("choose that signal", libc::SYS_fcntl, F_SETSIG, n(9)),
        ("lease a file", libc::SYS_fcntl, libc::F_SETLEASE as u64, n(1)),
    ] {
        let got = answer(puppet.call(call, &[n(socket), n(command), argument])?);
        ensure!(got == Err(Errno::EPERM), "{what}: {got:?}");
    }
    close(puppet, socket)?;
    let stream = descriptor(puppet, libc::SYS_socket, &[n(libc::AF_INET as u64), n(libc::SOCK_STREAM as u64), n(0)])?;
    // `struct sockaddr_in`: port 9469, any address.
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[libc::AF_INET as u8, 0, 0x24, 0xfd]);
    let got = answer(puppet.call(libc::SYS_bind, &[n(stream), b(&address), n(16)])?);
    ensure!(got == Err(Errno::EACCES), "serve on a port: {got:?}");
    let got = answer(puppet.call(libc::SYS_listen, &[n(stream), n(1)])?);
    ensure!(got == Err(Errno::ENOSYS), "serve on any port: {got:?}");
    close(puppet, stream)
}

/// Tries what `CAP_NET_ADMIN` would allow.
fn network(puppet: &mut Puppet) -> Result<()> {
    let n = Number;
    let socket = descriptor(puppet, libc::SYS_socket, &[n(libc::AF_INET as u64), n(libc::SOCK_DGRAM as u64), n(0)])?;
    close(puppet, socket)?;
    marks(puppet)?;
    let netlink = [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE].map(|value| n(value as u64));
    let socket = descriptor(puppet, libc::SYS_socket, &netlink)?;
    let request = change_of_mtu();
    // The kernel's answer is not read here: the test checks the interface at its end.
    answer(puppet.call(libc::SYS_sendto, &[n(socket), Bytes(&request), n(request.len() as u64), n(0), n(0), n(0)])?)?;
    close(puppet, socket)
}

/// Tries what `CAP_NET_ADMIN` and `CAP_NET_RAW` would allow by the options of a socket.
fn marks(puppet: &mut Puppet) -> Result<()> {
    let n = Number;
    for (what, family, level, option) in [
        ("mark packets", libc::AF_INET, libc::SOL_SOCKET, libc::SO_MARK),
        ("send from any address", libc::AF_INET, libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        ("send from any IPv6 address", libc::AF_INET6, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    ] {
        let socket = descriptor(puppet, libc::SYS_socket, &[n(family as u64), n(libc::SOCK_DGRAM as u64), n(0)])?;
        let set = [n(socket), n(level as u64), n(option as u64), Bytes(&[1, 0, 0, 0]), n(4)];
        let got = answer(puppet.call(libc::SYS_setsockopt, &set)?);
        ensure!(got == Err(Errno::EPERM), "{what}: {got:?}");
        close(puppet, socket)?;
    }
    Ok(())
}

/// `struct nlmsghdr` and `struct ifinfomsg`, for the loopback, with one attribute.
fn change_of_mtu() -> Vec<u8> {
    const REQUEST: u16 = 1;
    let attribute = [8_u16.to_ne_bytes(), libc::IFLA_MTU.to_ne_bytes()].concat();
    let interface = [[0; 4], LOOPBACK.to_ne_bytes(), [0; 4], [0; 4]].concat();
    let head = [libc::RTM_NEWLINK.to_ne_bytes(), REQUEST.to_ne_bytes()].concat();
    let body = [&head[..], &[0; 8], &interface, &attribute, &MTU.to_ne_bytes()].concat();
    [&(4 + body.len() as u32).to_ne_bytes()[..], &body].concat()
}

/// Landlock does not restrict these calls, and root owns the files.
fn permissions(puppet: &mut Puppet, secret: &[u8]) -> Result<()> {
    let (n, b) = (Number, Bytes);
    let here = n(libc::AT_FDCWD as u64);
    let (call, arguments) = open(b"/etc/passwd\0", libc::O_RDONLY);
    let file = descriptor(puppet, call, &arguments)?;
    let calls: [(&str, libc::c_long, &[Argument<'_>]); 8] = [
        ("open a file to all", libc::SYS_chmod, &[b(secret), n(0o666)]),
        ("open a file to all (fchmodat)", libc::SYS_fchmodat, &[here, b(secret), n(0o4777)]),
        ("open a file to all (fchmod)", libc::SYS_fchmod, &[n(file), n(0o666)]),
        ("give a file away", libc::SYS_fchownat, &[here, b(secret), n(1), n(1), n(0)]),
        ("give capabilities to a file", libc::SYS_setxattr, &[b(secret), b(b"user.x\0"), b(b"1"), n(1), n(0)]),
        ("change a file's times", libc::SYS_utimensat, &[here, b(secret), n(0), n(0)]),
        ("make a link to a file", libc::SYS_linkat, &[here, b(secret), here, b(b"weir-link\0"), n(0)]),
        ("make a symbolic link", libc::SYS_symlinkat, &[b(secret), here, b(b"weir-link\0")]),
    ];
    for (what, call, arguments) in calls {
        let got = answer(puppet.call(call, arguments)?);
        ensure!(got == Err(Errno::ENOSYS), "{what}: {got:?}");
    }
    close(puppet, file)
}

/// Sockets that weir does not need: families, types and protocols. Without a Unix socket there is no other process to
/// connect to.
fn sockets(puppet: &mut Puppet) -> Result<()> {
    const MPTCP: i32 = 262;
    const RDS: i32 = 21;
    for (what, family, kind, protocol) in [
        ("talk to the system's services", libc::AF_UNIX, libc::SOCK_STREAM, 0),
        ("talk to the system's log", libc::AF_UNIX, libc::SOCK_DGRAM, 0),
        ("talk to other processes", libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0),
        ("serve by MPTCP", libc::AF_INET, libc::SOCK_STREAM, MPTCP),
        ("serve by MPTCP over IPv6", libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, MPTCP),
        ("serve by SCTP", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
        ("forge packets", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW),
        ("read packets by a socket", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("read packets without headers", libc::AF_PACKET, libc::SOCK_DGRAM, 0),
        ("read the audit", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ("read the kernel's events", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT),
        ("show programs as weir's", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_USERSOCK),
        ("use the kernel's ciphers", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("talk to the host of a virtual machine", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("use another protocol", RDS, libc::SOCK_SEQPACKET, 0),
    ] {
        let arguments = [family, kind, protocol].map(|value| Number(value as u64));
        let got = answer(puppet.call(libc::SYS_socket, &arguments)?);
        ensure!(got == Err(Errno::EPERM), "{what}: {got:?}");
    }
    let pair = [Number(libc::AF_UNIX as u64), Number(libc::SOCK_DGRAM as u64), Number(0), Bytes(&[0; 8])];
    let got = answer(puppet.call(libc::SYS_socketpair, &pair)?);
    ensure!(got == Err(Errno::ENOSYS), "make a pair of Unix sockets: {got:?}");
    Ok(())
}

fn descriptor(puppet: &mut Puppet, call: libc::c_long, arguments: &[Argument<'_>]) -> Result<u64> {
    Ok(answer(puppet.call(call, arguments)?).context("a descriptor")?.try_into()?)
}

fn close(puppet: &mut Puppet, descriptor: u64) -> Result<()> {
    answer(puppet.call(libc::SYS_close, &[Number(descriptor)])?)?;
    Ok(())
}

/// The thread that asks which programs are at a hook keeps `CAP_NET_ADMIN`, but can make no other call with it.
fn asks_only(puppet: &mut Puppet) -> Result<()> {
    let (n, b) = (Number, Bytes);
    let netlink = [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE].map(|value| n(value as u64));
    let thread = (libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM) as u64;
    let request = change_of_mtu();
    let length = n(request.len() as u64);
    let link = [LOOPBACK, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let mut calls: Vec<(&str, libc::c_long, Vec<Argument<'_>>)> = vec![
        ("make a socket", libc::SYS_socket, netlink.to_vec()),
        ("start a thread with the same capability", libc::SYS_clone, vec![n(thread), n(0), n(0), n(0), n(0)]),
        ("attach a program", libc::SYS_bpf, vec![n(BPF_LINK_CREATE), b(&link), n(16)]),
        ("run a program once", libc::SYS_bpf, vec![n(BPF_PROG_TEST_RUN), b(&link), n(16)]),
        ("open a file", libc::SYS_openat, vec![n(libc::AT_FDCWD as u64), b(b"/etc/passwd\0"), n(0), n(0)]),
        ("change its capabilities", libc::SYS_capset, vec![n(0), n(0)]),
        ("run a program", libc::SYS_execve, vec![b(b"/bin/true\0"), n(0), n(0)]),
        ("make code", libc::SYS_mmap, vec![n(0), n(4096), n(7), n(0x22), n(u64::MAX), n(0)]),
    ];
    // These calls use sockets of other threads.
    for socket in 3..64 {
        calls.push(("send (sendto)", libc::SYS_sendto, vec![n(socket), b(&request), length, n(0), n(0), n(0)]));
        calls.push(("send (write)", libc::SYS_write, vec![n(socket), b(&request), length]));
    }
    for (what, call) in [
        ("send (sendmsg)", libc::SYS_sendmsg),
        ("send (sendmmsg)", libc::SYS_sendmmsg),
        ("send (writev)", libc::SYS_writev),
        ("set an option", libc::SYS_setsockopt),
        ("ask a driver", libc::SYS_ioctl),
    ] {
        calls.push((what, call, vec![n(3), b(&[0; 64]), n(1), n(0), n(0)]));
    }
    for (what, call, arguments) in calls {
        let got = answer(puppet.call(call, &arguments)?);
        ensure!(got == Err(Errno::EPERM), "{what}: {got:?}");
    }
    Ok(())
}

/// Does what the attacker is still allowed to do.
fn allowed(puppet: &mut Puppet, daemon: &Daemon) -> Result<()> {
    let own = path(&daemon.directory().join("of-the-attacker"));
    for (what, file, flags) in [
        ("read what every program reads", &b"/etc/passwd\0"[..], libc::O_RDONLY),
        ("write beside the reports", &own, libc::O_WRONLY | libc::O_CREAT),
    ] {
        let (call, arguments) = open(file, flags);
        let file = descriptor(puppet, call, &arguments).context(what)?;
        close(puppet, file)?;
    }
    // weir's own program, on the loopback of its namespace.
    let program = u32::try_from(program(daemon.pid())?)?;
    let mut link = [0; 64];
    for (at, value) in [(0, program), (4, LOOPBACK), (8, ATTACH_XDP), (12, GENERIC)] {
        link[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let link = [Number(BPF_LINK_CREATE), Bytes(&link), Number(64)];
    let link = descriptor(puppet, libc::SYS_bpf, &link).context("attach weir's own program elsewhere")?;
    close(puppet, link)
}

/// The attacker can neither run a written file nor make root run it.
fn files_of_its_own(puppet: &mut Puppet, daemon: &Daemon) -> Result<()> {
    let n = Number;
    let own = path(&daemon.directory().join("of-the-attacker"));
    let here = n(libc::AT_FDCWD as u64);
    let [read, write] = [libc::O_RDWR, libc::O_RDWR | libc::O_CREAT].map(|flags| n((flags | libc::O_CLOEXEC) as u64));
    for mode in [0o4755, 0o2755, 0o1755] {
        let got = answer(puppet.call(libc::SYS_openat, &[here, Bytes(&own), write, n(mode)])?);
        ensure!(got == Err(Errno::EPERM), "make a set-user-ID program ({mode:o}): {got:?}");
        let got = answer(puppet.call(libc::SYS_mkdirat, &[here, Bytes(&own), n(mode)])?);
        ensure!(got == Err(Errno::EPERM), "make a special folder ({mode:o}): {got:?}");
    }
    let file = descriptor(puppet, libc::SYS_openat, &[here, Bytes(&own), write, n(0o600)])?;
    let code = answer(puppet.call(libc::SYS_pwrite64, &[n(file), Bytes(&[0xc3; 64]), n(64), n(0)])?)?;
    ensure!(code == 64);
    let memory = descriptor(puppet, libc::SYS_memfd_create, &[Bytes(b"code\0"), n(0)])?;
    for (what, file) in [("a file", file), ("memory", memory)] {
        for sharing in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
            let runs = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            let map = [n(0), n(4096), n(runs), n(sharing as u64), n(file), n(0)];
            let got = answer(puppet.call(libc::SYS_mmap, &map)?);
            ensure!(got == Err(Errno::EPERM), "run code written to {what}: {got:?}");
        }
        close(puppet, file)?;
    }
    let again = descriptor(puppet, libc::SYS_openat, &[here, Bytes(&own), read, n(0)])?;
    close(puppet, again)?;
    answer(puppet.call(libc::SYS_unlinkat, &[here, Bytes(&own), n(0)])?)?;
    Ok(())
}

/// The descriptor of weir's XDP program.
fn program(process: u32) -> Result<u64> {
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let path = entry?.path();
        // Some descriptors are closed meanwhile.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.contains(XDP) && !text.contains("link_type") {
            return Ok(path.file_name().and_then(|name| name.to_str()).context("no number")?.parse()?);
        }
    }
    anyhow::bail!("weir holds no XDP program")
}

fn start(settings: &str) -> Result<(QuietPair, Daemon)> {
    let pair = Lab::quiet_pair()?;
    let interface = native(QuietPair::OBSERVER_INTERFACE);
    let daemon = measure(&pair.observer, &format!("interfaces: [{interface}]\n{INTERVAL}{settings}"))?;
    Ok((pair, daemon))
}

/// Stops a thread as soon as it waits for something.
fn hold(thread: u32) -> Result<Puppet> {
    clock::wait_for("a thread that waits", TIMEOUT, || Ok(Puppet::hold(thread).ok()))
}

/// Returns true if another process of the same user, without capabilities, may inspect this one. If it may, the kernel
/// also writes core dumps of this process.
fn is_open_to_its_user(process: u32) -> Result<bool> {
    let look = move || {
        privileges::give_up_all();
        fs::read(format!("/proc/{process}/environ")).is_ok()
    };
    thread::spawn(look).join().map_err(|_| anyhow::anyhow!("cannot give up capabilities"))
}

/// With filters of the classic tc hook and with packet sockets, the thread that attaches keeps a capability.
fn a_capability_to_attach_later_is_worth_only_what_is_said() -> Result<()> {
    let n = Number;
    for mode in ["tc", "afpacket"] {
        let pair = Lab::quiet_pair()?;
        let interface = format!("{{name: {}, mode: {mode}}}", QuietPair::OBSERVER_INTERFACE);
        let mut daemon = measure(&pair.observer, &format!("interfaces: [{interface}]\n{INTERVAL}"))?;
        daemon.wait_for_reports(1, TIMEOUT)?;
        let (_scratch, secret) = foreign()?;
        for (thread, name) in threads(daemon.pid())?.into_iter().filter(|(_, name)| name != ASKS) {
            let in_thread = || format!("mode {mode}, thread {name}");
            let mut puppet = hold(thread)?;
            marks(&mut puppet).with_context(in_thread)?;
            let packets = [libc::AF_PACKET, libc::SOCK_RAW, 0].map(|value| n(value as u64));
            let got = answer(puppet.call(libc::SYS_socket, &packets)?);
            let may = mode == "afpacket" && name == ATTACHES;
            ensure!(got.is_ok() == may, "a packet socket, {}: {got:?}", in_thread());
            // It says that the file is there, and opens nothing.
            let secret = path(&secret);
            let (call, arguments) = open(&secret, libc::O_PATH);
            let place = descriptor(&mut puppet, call, &arguments)?;
            let read = answer(puppet.call(libc::SYS_read, &[n(place), Bytes(&[0; 8]), n(8)])?);
            ensure!(read == Err(Errno::EBADF), "{}: {read:?}", in_thread());
        }
        stop(&mut daemon, Loss::None)?;
    }
    Ok(())
}

fn an_attacker_who_takes_weir_over_gains_little() -> Result<()> {
    let (_pair, mut daemon) = start("")?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let (_scratch, secret) = foreign()?;
    let threads = threads(daemon.pid())?;
    ensure!(threads.len() > 5, "{threads:?}");
    ensure!(!is_open_to_its_user(daemon.pid())?, "other processes of its user may inspect weir");
    for (thread, name) in threads {
        forbidden(&mut hold(thread)?, &secret).with_context(|| format!("thread {name}"))?;
    }
    files_of_its_own(&mut hold(daemon.pid())?, &daemon)?;
    allowed(&mut hold(daemon.pid())?, &daemon)?;
    ensure!(fs::read_to_string(&secret)? == "secret");
    // weir goes on measuring as before.
    let reports = daemon.reports()?.len();
    daemon.wait_for_reports(reports + 2, TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}

/// In the default mode weir checks every second which programs run before its own.
fn the_capability_to_see_other_programs_is_worth_nothing_else() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let interfaces = format!(
        "interfaces: [{}]\n{INTERVAL}prometheus: {{listen: \"127.0.0.1:9470\"}}\n",
        QuietPair::OBSERVER_INTERFACE
    );
    let mut daemon = measure(&pair.observer, &interfaces)?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let (_scratch, secret) = foreign()?;
    let threads = threads(daemon.pid())?;
    ensure!(
        [ASKS, "sink", "weir-metrics"].iter().all(|one| threads.iter().any(|(_, name)| name == one)),
        "{threads:?}"
    );
    for (thread, name) in threads {
        let puppet = &mut hold(thread)?;
        if WITHOUT_EBPF.contains(&name.as_str()) {
            let got = answer(puppet.call(libc::SYS_bpf, &[Number(BPF_PROG_TEST_RUN), Bytes(&[0; 64]), Number(64)])?);
            ensure!(got == Err(Errno::EPERM), "{name} runs an eBPF program on a packet: {got:?}");
        }
        if name == ASKS { asks_only(puppet) } else { forbidden(puppet, &secret) }
            .with_context(|| format!("thread {name}"))?;
    }
    let loopback = pair.observer.ip("link show lo")?;
    ensure!(!loopback.contains(&format!("mtu {MTU} ")), "the MTU has changed: {loopback}");
    let reports = daemon.reports()?.len();
    daemon.wait_for_reports(reports + 2, TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}

/// A collector that has been down may be an attacker's by now. Reports that wait for it are sent at once when weir
/// starts again, but no answer is read before every thread is restricted.
fn answers_are_read_under_all_restrictions() -> Result<()> {
    let (pair, scratch) = (Lab::quiet_pair()?, Scratch::new()?);
    let listen = |port: u16| pair.observer.enter(|| TcpListener::bind(("127.0.0.1", port)))?.context("a free port");
    let port = listen(0)?.local_addr()?.port();
    let start = || {
        Daemon::start(Some(&pair.observer), |reports| {
            let sink = format!("{{type: http, url: \"http://127.0.0.1:{port}/\"}}");
            format!(
                "interfaces: [{}]\n{INTERVAL}spool: {{path: {}}}\nsinks: [{sink}, {{type: file, path: {}}}]\n",
                QuietPair::OBSERVER_INTERFACE,
                scratch.file("spool").display(),
                reports.display()
            )
        })
    };
    let mut before = start()?;
    before.wait_for_reports(2, TIMEOUT)?;
    before.signal(Signal::KILL)?;
    before.wait(TIMEOUT)?;
    let collector = listen(port)?;
    collector.set_nonblocking(true)?;
    let daemon = start()?;
    let _client = clock::wait_for("a report", TIMEOUT, || Ok(collector.accept().ok()))?;
    for (thread, name) in threads(daemon.pid())? {
        let status = fs::read_to_string(format!("/proc/{}/task/{thread}/status", daemon.pid()))?;
        ensure!(status.lines().any(|line| line == "Seccomp:\t2"), "{name} is not restricted: {status}");
    }
    Ok(())
}

/// This shows that the other tests can fail: without the sandbox a process of root may open all files.
fn without_the_sandbox_files_are_open() -> Result<()> {
    let (_pair, mut daemon) = start("sandbox: false\n")?;
    daemon.wait_for_line("weir keeps all system calls and access to all files", TIMEOUT)?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    ensure!(is_open_to_its_user(daemon.pid())?);
    let (_scratch, secret) = foreign()?;
    let secret = path(&secret);
    {
        let mut puppet = hold(daemon.pid())?;
        let (call, arguments) = open(&secret, libc::O_RDONLY);
        let file = descriptor(&mut puppet, call, &arguments)?;
        close(&mut puppet, file)?;
        let signal = answer(puppet.call(libc::SYS_kill, &[Number(std::process::id().into()), Number(0)])?);
        ensure!(signal.is_ok(), "{signal:?}");
    }
    stop(&mut daemon, Loss::None).map(drop)
}

fn a_sandbox_that_a_reload_would_need_to_open_stays_closed() -> Result<()> {
    let (_pair, mut daemon) = start("")?;
    let (_scratch, secret) = foreign()?;
    let file = daemon.directory().join("weir.yaml");
    let text = fs::read_to_string(&file)?;
    let with =
        |file: &Path| text.replacen("sinks:\n", &format!("sinks:\n  - {{type: file, path: {}}}\n", file.display()), 1);
    let elsewhere = secret.with_file_name("reports.ndjson");
    fs::write(&file, with(&elsewhere))?;
    daemon.signal(Signal::HUP)?;
    let refusal = daemon.wait_for_line("sinks[0].path: needs a restart: weir writes only files in folders", TIMEOUT)?;
    ensure!(refusal.contains(&elsewhere.display().to_string()), "{refusal}");
    // A file in a folder that weir may already write to needs no restart.
    let beside = daemon.directory().join("second.ndjson");
    fs::write(&file, with(&beside))?;
    daemon.signal(Signal::HUP)?;
    wait_until_in_force(&daemon, 1)?;
    clock::wait_for("a report in the second file", TIMEOUT, || {
        Ok(fs::metadata(&beside).ok().filter(|file| file.len() > 0))
    })?;
    ensure!(!elsewhere.exists());
    stop(&mut daemon, Loss::None).map(drop)
}

fn a_replaced_folder_is_reported_and_a_link_without_a_target_is_followed() -> Result<()> {
    let (scratch, secret) = foreign()?;
    let [out, links] = ["out", "links"].map(|name| scratch.path().join(name));
    fs::create_dir(&out)?;
    fs::create_dir(&links)?;
    let linked = links.join("reports.ndjson");
    let target = secret.with_file_name("reports.ndjson");
    symlink(&target, &linked)?;
    let pair = Lab::quiet_pair()?;
    let sinks =
        [out.join("reports.ndjson"), linked].map(|path| format!("  - {{type: file, path: {}}}\n", path.display()));
    let mut daemon = Daemon::start(Some(&pair.observer), |_| {
        let interface = native(QuietPair::OBSERVER_INTERFACE);
        format!("interfaces: [{interface}]\n{INTERVAL}sinks:\n{}", sinks.concat())
    })?;
    let written = |file: PathBuf| move || Ok(fs::metadata(&file).ok().filter(|file| file.len() > 0).map(drop));
    clock::wait_for("a report through the link", TIMEOUT, written(target))?;
    clock::wait_for("a report", TIMEOUT, written(out.join("reports.ndjson")))?;
    fs::remove_dir_all(&out)?;
    fs::create_dir(&out)?;
    daemon.wait_for_line("if nothing else is wrong, restart it (`sandbox`)", TIMEOUT)?;
    daemon.stop(TIMEOUT).map(drop)
}
