//! Programs that the kernel accepted, ready to be attached or run.

use aya::programs::{ProgramError, SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use weir_common::{control::Flush, packet::Link};

use super::error::KernelError;
use crate::config::Way;

/// The programs of the tc hook. Each is loaded when it is first needed: a kernel may not support them, and most
/// interfaces do not need them.
pub struct TcPrograms<'a> {
    /// For packets that begin with an Ethernet header, by [`Way`].
    pub(super) ethernet: [&'a mut SchedClassifier; 2],
    /// For packets that begin with an IP header.
    pub(super) ip: [&'a mut SchedClassifier; 2],
}

impl TcPrograms<'_> {
    /// The program for packets of this direction that begin with `link`; `None` for a link layer that no program reads.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    pub fn get(&mut self, link: Link, way: Way) -> Result<Option<&mut SchedClassifier>, ProgramError> {
        let programs = match link {
            Link::Ethernet => &mut self.ethernet,
            Link::RawIp => &mut self.ip,
            _ => return Ok(None),
        };
        let program = &mut *programs[way as usize];
        if program.fd().is_err() {
            program.load()?;
        }
        Ok(Some(program))
    }
}

/// The program that closes the window of the CPU on which it runs.
#[derive(Clone, Copy)]
pub struct FlushProgram<'a>(pub(super) &'a Xdp);

impl FlushProgram<'_> {
    /// Runs it once, on this thread's CPU.
    ///
    /// # Errors
    ///
    /// The kernel refused to run it.
    pub fn run(&self) -> Result<Flush, KernelError> {
        // The program reads no packet, but the kernel wants at least an Ethernet header.
        let result = test_run(self.0, "flush", &[0; 64], None)?;
        Flush::from_code(result).ok_or(KernelError::Missing("flush"))
    }
}

/// Runs a program once on a packet, on this thread's CPU; returns the program's return value.
///
/// # Errors
///
/// The kernel refused to run it.
pub fn test_run(program: &Xdp, name: &'static str, packet: &[u8], context: Option<&[u8]>) -> Result<u32, KernelError> {
    let options = TestRunOptions { data_in: Some(packet), ctx_in: context, ..TestRunOptions::new() };
    let result = program.test_run(options).map_err(|source| KernelError::Run { program: name, source })?;
    Ok(result.return_value)
}
