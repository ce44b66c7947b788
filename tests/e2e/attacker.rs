//! Somebody has taken over the process of weir while it measures. What he cannot do then, and what he can: each line of
//! this is in `docs/SECURITY.md`.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use nix::{errno::Errno, libc};
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
    who_takes_weir_over_gains_little,
    without_the_sandbox_files_are_open,
    a_sandbox_that_a_reload_would_need_to_open_stays_closed,
    a_folder_that_is_replaced_is_told_and_a_link_to_nothing_yet_is_followed
];

/// What `/proc` says of an XDP program's descriptor: `BPF_PROG_TYPE_XDP`.
const XDP: &str = "prog_type:\t6";
/// `BPF_XDP` of `enum bpf_attach_type`, and `XDP_FLAGS_SKB_MODE`.
const ATTACH_XDP: u32 = 37;
const GENERIC: u32 = 2;
const BPF_MAP_CREATE: u64 = 0;
const BPF_PROG_LOAD: u64 = 5;
const BPF_LINK_CREATE: u64 = 28;
const LOOPBACK: u32 = 1;

/// Namespaces, Landlock, and a processor whose registers are known here.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    if !cfg!(target_arch = "x86_64") {
        return Err("puppets are made of x86-64".to_owned());
    }
    if !weir::sandbox::is_known() {
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

/// A folder of which weir's configuration says nothing, with a file that only root may read.
fn foreign() -> Result<(Scratch, PathBuf)> {
    let scratch = Scratch::new()?;
    let folder = scratch.path().join("of-others");
    fs::create_dir(&folder)?;
    let secret = folder.join("secret");
    fs::write(&secret, "secret")?;
    Ok((scratch, secret))
}

/// What nobody may, with the error that says so.
fn forbidden(puppet: &mut Puppet, secret: &Path) -> Result<()> {
    let beside = path(&secret.with_file_name("new"));
    let secret = path(secret);
    let nothing = [0_u8; 128];
    let (n, b) = (Number, Bytes);
    let me = u64::from(std::process::id());
    let write = libc::O_WRONLY | libc::O_CREAT;
    let files: [(&str, (libc::c_long, [Argument<'_>; 4])); 6] = [
        ("read a file of others", open(&secret, libc::O_RDONLY)),
        ("write a file of others", open(&secret, libc::O_WRONLY)),
        ("make a file elsewhere", open(&beside, write)),
        ("make a file in /etc", open(b"/etc/weir-attacker\0", write)),
        ("change the kernel's settings", open(b"/proc/sys/kernel/core_pattern\0", libc::O_WRONLY)),
        ("remove a file of others", (libc::SYS_unlinkat, [n(libc::AT_FDCWD as u64), b(&secret), n(0), n(0)])),
    ];
    for (what, (call, arguments)) in files {
        let got = answer(puppet.call(call, &arguments)?);
        ensure!(got == Err(Errno::EACCES), "{what}: {got:?}");
    }
    let calls: [(&str, libc::c_long, &[Argument<'_>], Errno); 20] = [
        ("run a program", libc::SYS_execve, &[b(b"/bin/true\0"), n(0), n(0)], Errno::ENOSYS),
        ("make a process", libc::SYS_clone, &[n(libc::SIGCHLD as u64), n(0), n(0), n(0), n(0)], Errno::EPERM),
        ("make a process (clone3)", libc::SYS_clone3, &[b(&nothing), n(88)], Errno::ENOSYS),
        ("load an eBPF program", libc::SYS_bpf, &[n(BPF_PROG_LOAD), b(&nothing), n(128)], Errno::EPERM),
        ("make a map", libc::SYS_bpf, &[n(BPF_MAP_CREATE), b(&nothing), n(72)], Errno::EPERM),
        ("read packets by a socket", libc::SYS_socket, &[n(libc::AF_PACKET as u64), n(3), n(0)], Errno::EPERM),
        ("have a user namespace", libc::SYS_unshare, &[n(libc::CLONE_NEWUSER as u64)], Errno::ENOSYS),
        ("enter a namespace", libc::SYS_setns, &[n(0), n(0)], Errno::ENOSYS),
        ("mount", libc::SYS_mount, &[b(b"x\0"), b(b"/\0"), b(b"tmpfs\0"), n(0), n(0)], Errno::ENOSYS),
        ("change the root", libc::SYS_chroot, &[b(b"/\0")], Errno::ENOSYS),
        ("look into a process", libc::SYS_ptrace, &[n(0x4206), n(me), n(0), n(0)], Errno::ENOSYS),
        ("write into a process", libc::SYS_process_vm_writev, &[n(me), n(0), n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("signal a process", libc::SYS_kill, &[n(me), n(0)], Errno::ENOSYS),
        ("signal a thread", libc::SYS_tgkill, &[n(me), n(me), n(0)], Errno::EPERM),
        ("be another user", libc::SYS_setresuid, &[n(0), n(0), n(0)], Errno::ENOSYS),
        ("set the clock", libc::SYS_clock_settime, &[n(999), b(&nothing)], Errno::ENOSYS),
        ("load a module", libc::SYS_finit_module, &[n(u64::MAX), b(b"\0"), n(0)], Errno::ENOSYS),
        ("restart the machine", libc::SYS_reboot, &[n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("count events", libc::SYS_perf_event_open, &[b(&nothing), n(0), n(0), n(0), n(0)], Errno::ENOSYS),
        ("make an io_uring", libc::SYS_io_uring_setup, &[n(1), b(&nothing)], Errno::ENOSYS),
    ];
    for (what, call, arguments, expected) in calls {
        let got = answer(puppet.call(call, arguments)?);
        ensure!(got == Err(expected), "{what}: {got:?}");
    }
    let socket = descriptor(puppet, libc::SYS_socket, &[n(libc::AF_INET as u64), n(libc::SOCK_DGRAM as u64), n(0)])?;
    // `struct ifreq`: a name of 16 bytes, and no flag: down.
    let mut request = [0; 40];
    request[..QuietPair::OBSERVER_INTERFACE.len()].copy_from_slice(QuietPair::OBSERVER_INTERFACE.as_bytes());
    let got = answer(puppet.call(libc::SYS_ioctl, &[n(socket), n(libc::SIOCSIFFLAGS), b(&request)])?);
    ensure!(got == Err(Errno::EPERM), "take an interface down: {got:?}");
    close(puppet, socket)?;
    let stream = descriptor(puppet, libc::SYS_socket, &[n(libc::AF_INET as u64), n(libc::SOCK_STREAM as u64), n(0)])?;
    // `struct sockaddr_in`: port 9469, any address.
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[libc::AF_INET as u8, 0, 0x24, 0xfd]);
    let got = answer(puppet.call(libc::SYS_bind, &[n(stream), b(&address), n(16)])?);
    ensure!(got == Err(Errno::EACCES), "serve on a port: {got:?}");
    close(puppet, stream)
}

fn descriptor(puppet: &mut Puppet, call: libc::c_long, arguments: &[Argument<'_>]) -> Result<u64> {
    Ok(answer(puppet.call(call, arguments)?).context("a descriptor")?.try_into()?)
}

fn close(puppet: &mut Puppet, descriptor: u64) -> Result<()> {
    answer(puppet.call(libc::SYS_close, &[Number(descriptor)])?)?;
    Ok(())
}

/// What is left to him.
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

/// The descriptor of weir's XDP program.
fn program(process: u32) -> Result<u64> {
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let path = entry?.path();
        // Some are closed meanwhile.
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

/// Holds a thread as soon as it waits for something.
fn hold(thread: u32) -> Result<Puppet> {
    clock::wait_for("a thread that waits", TIMEOUT, || Ok(Puppet::hold(thread).ok()))
}

fn who_takes_weir_over_gains_little() -> Result<()> {
    let (_pair, mut daemon) = start("")?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let (_scratch, secret) = foreign()?;
    let threads = threads(daemon.pid())?;
    ensure!(threads.len() > 5, "{threads:?}");
    for (thread, name) in threads {
        forbidden(&mut hold(thread)?, &secret).with_context(|| format!("thread {name}"))?;
    }
    allowed(&mut hold(daemon.pid())?, &daemon)?;
    ensure!(fs::read_to_string(&secret)? == "secret");
    // It measures on, as if nothing had been.
    let reports = daemon.reports()?.len();
    daemon.wait_for_reports(reports + 2, TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}

/// The other tests could not fail otherwise: it is the sandbox that closes files to a process of root's.
fn without_the_sandbox_files_are_open() -> Result<()> {
    let (_pair, mut daemon) = start("sandbox: false\n")?;
    daemon.wait_for_line("weir keeps all files and system calls", TIMEOUT)?;
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
    // A file beside those that it has needs none.
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

fn a_folder_that_is_replaced_is_told_and_a_link_to_nothing_yet_is_followed() -> Result<()> {
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
