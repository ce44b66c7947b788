//! A thread of another process that makes the system calls that a test asks for, as if an attacker had taken over that
//! process.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use nix::{
    libc::{c_long, user_regs_struct},
    sys::{
        ptrace::{self, AddressType},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// The instruction that makes a system call, on x86-64.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How far below the stack pointer arguments are written, and the room for them, in bytes.
const BELOW_THE_STACK: u64 = 8192;
const ROOM: usize = 4096;
/// Errors are the last numbers: see `MAX_ERRNO` of Linux.
const ERRORS: i64 = 4095;

/// A thread that is stopped while it waits in a system call. When this is dropped, the thread continues where it was.
pub struct Puppet {
    thread: Pid,
    before: user_regs_struct,
    written: usize,
}

/// An argument of a system call.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// A number.
    Number(u64),
    /// The address of these bytes.
    Bytes(&'a [u8]),
}

impl Puppet {
    /// Stops a thread.
    pub fn hold(thread: u32) -> Result<Self> {
        let thread = Pid::from_raw(thread.try_into()?);
        ptrace::seize(thread, ptrace::Options::empty())?;
        ptrace::interrupt(thread)?;
        wait(thread)?;
        let before = ptrace::getregs(thread)?;
        let puppet = Self { thread, before, written: 0 };
        let at = before.rip - SYSCALL.len() as u64;
        let word = ptrace::read(thread, at as AddressType)?.to_le_bytes();
        ensure!(word.starts_with(&SYSCALL), "thread {thread} waits in no system call");
        Ok(puppet)
    }

    /// Makes the thread perform a system call, and returns the kernel's answer.
    pub fn call(&mut self, number: c_long, arguments: &[Argument<'_>]) -> Result<i64> {
        self.written = 0;
        let mut values = [0; 6];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument {
                Argument::Number(number) => *number,
                Argument::Bytes(bytes) => self.write(bytes)?,
            };
        }
        let [rdi, rsi, rdx, r10, r8, r9] = values;
        let registers = user_regs_struct {
            rip: self.before.rip - SYSCALL.len() as u64,
            rax: number as u64,
            // The kernel must not restart the interrupted call.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before
        };
        ptrace::setregs(self.thread, registers)?;
        ptrace::step(self.thread, None)?;
        wait(self.thread)?;
        Ok(ptrace::getregs(self.thread)?.rax as i64)
    }

    /// Copies bytes into the thread's memory, and returns their address.
    fn write(&mut self, bytes: &[u8]) -> Result<u64> {
        let first = (self.before.rsp - BELOW_THE_STACK) & !0xff;
        let address = first + self.written as u64;
        self.written += bytes.len().next_multiple_of(size_of::<c_long>());
        ensure!(self.written <= ROOM, "too much for the stack");
        for (nth, part) in bytes.chunks(size_of::<c_long>()).enumerate() {
            let mut word = [0; size_of::<c_long>()];
            word[..part.len()].copy_from_slice(part);
            let at = address + (nth * word.len()) as u64;
            ptrace::write(self.thread, at as AddressType, c_long::from_le_bytes(word))?;
        }
        Ok(address)
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = ptrace::setregs(self.thread, self.before);
        let _ = ptrace::detach(self.thread, None);
    }
}

fn wait(thread: Pid) -> Result<()> {
    match waitpid(thread, Some(WaitPidFlag::__WALL))? {
        WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(()),
        other => bail!("{other:?} instead of a stop"),
    }
}

/// The result of a call: a number or an error.
pub fn answer(result: i64) -> Result<i64, nix::Error> {
    if (-ERRORS..0).contains(&result) { Err(nix::Error::from_raw(-result as i32)) } else { Ok(result) }
}

/// All threads of a process, with their names.
pub fn threads(process: u32) -> Result<Vec<(u32, String)>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = thread?.path();
        let name = fs::read_to_string(path.join("comm"))?.trim_end().to_owned();
        let number = path.file_name().and_then(|number| number.to_str()).context("a thread without a number")?;
        all.push((number.parse()?, name));
    }
    Ok(all)
}
