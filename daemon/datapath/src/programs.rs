//! Programs that the kernel has accepted, ready to be attached or run.

use std::os::fd::BorrowedFd;

use aya::{
    programs::{ProgramError, ProgramInfo, SchedClassifier, TestRun as _, TestRunOptions, Xdp},
    sys::SyscallError,
};
use rustix::io::Errno;
use tracing::debug;
use weir_common::{
    control::{FlushOrder, Flushed},
    packet::Link,
};
use weir_config::interface::Way;

use super::{error::KernelError, maps::Blocks, syscall};

/// The XDP programs, ready to be attached.
pub struct XdpPrograms<'a> {
    /// The program for native mode. It is loaded with the object.
    pub native: &'a mut Xdp,
    /// The program for generic mode. It is loaded with the tc programs.
    pub(super) generic: &'a mut Xdp,
}

impl XdpPrograms<'_> {
    /// Loads all of them. If the kernel refuses one, the error is reported when that program is needed.
    pub fn load_all(&mut self) {
        if let Err(error) = self.generic() {
            debug!("the program for generic mode is not loaded: {error}");
        }
    }

    /// Lists the programs that the kernel has accepted.
    pub fn loaded(&self) -> impl Iterator<Item = ProgramInfo> {
        [&*self.native, &*self.generic].into_iter().filter_map(|program| program.info().ok())
    }

    /// The program for generic mode.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    pub fn generic(&mut self) -> Result<&mut Xdp, ProgramError> {
        if self.generic.fd().is_err() {
            self.generic.load()?;
        }
        Ok(self.generic)
    }
}

/// The tc programs. The daemon loads all that the kernel supports when it starts; other commands load each one when
/// they first need it.
pub struct TcPrograms<'a> {
    /// The programs for packets that start with an Ethernet header, by [`Way`].
    pub(super) ethernet: [&'a mut SchedClassifier; 2],
    /// The programs for packets that start with an IP header.
    pub(super) ip: [&'a mut SchedClassifier; 2],
}

impl TcPrograms<'_> {
    /// Loads all of them. If the kernel refuses one, the error is reported when that program is needed.
    pub fn load_all(&mut self) {
        for (link, way) in [Link::Ethernet, Link::RawIp].into_iter().flat_map(|link| Way::ALL.map(|way| (link, way))) {
            if let Err(error) = self.get(link, way) {
                debug!("a program for the tc hook is not loaded: {error}");
            }
        }
    }

    /// Lists the programs that the kernel has accepted.
    pub fn loaded(&self) -> impl Iterator<Item = ProgramInfo> {
        self.ethernet.iter().chain(&self.ip).filter_map(|program| program.info().ok())
    }

    /// The program for packets of this direction that start with `link`; `None` if no program supports this link layer.
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

/// The program that closes a CPU's window, with the maps that it uses.
#[derive(Clone, Copy)]
pub struct FlushProgram<'a> {
    pub(super) program: BorrowedFd<'a>,
    pub(super) blocks: &'a Blocks,
}

impl<'a> FlushProgram<'a> {
    /// Wraps the program with this descriptor, which uses these maps.
    pub const fn new(program: BorrowedFd<'a>, blocks: &'a Blocks) -> Self {
        Self { program, blocks }
    }

    /// Runs the program once on `cpu`, through an interrupt if this thread is on another CPU. `None` if `cpu` is
    /// offline.
    ///
    /// # Errors
    ///
    /// The kernel refused to run it.
    pub fn close(&self, cpu: u32) -> Result<Option<Flushed>, KernelError> {
        match self.run(cpu, FlushOrder::Close, Some(cpu)) {
            Ok(flushed) => Ok(Some(flushed)),
            Err(KernelError::Run { source: ProgramError::SyscallError(error), .. })
                if error.io_error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the program once on this thread's CPU for the block of `cpu`, which is offline: see [`FlushOrder`].
    ///
    /// # Errors
    ///
    /// The kernel refused to run it.
    pub fn elsewhere(&self, cpu: u32, order: FlushOrder) -> Result<Flushed, KernelError> {
        self.run(cpu, order, None)
    }

    /// Returns the descriptor of the program.
    pub const fn program(&self) -> BorrowedFd<'a> {
        self.program
    }

    /// The maps that it uses.
    pub const fn blocks(&self) -> &'a Blocks {
        self.blocks
    }

    fn run(&self, cpu: u32, order: FlushOrder, on: Option<u32>) -> Result<Flushed, KernelError> {
        let result = syscall::run(self.program, on, [cpu.into(), order as u64]).map_err(|io_error| {
            let source = SyscallError { call: "bpf_prog_test_run", io_error }.into();
            KernelError::Run { program: "flush", source }
        })?;
        Flushed::from_code(result).ok_or(KernelError::Missing("flush"))
    }
}

/// Runs a program once on a packet, on this thread's CPU. Returns the program's return value.
///
/// # Errors
///
/// The kernel refused to run it.
pub fn test_run(program: &Xdp, name: &'static str, packet: &[u8], context: Option<&[u8]>) -> Result<u32, KernelError> {
    let options = TestRunOptions { data_in: Some(packet), ctx_in: context, ..TestRunOptions::new() };
    let result = program.test_run(options).map_err(|source| KernelError::Run { program: name, source })?;
    Ok(result.return_value)
}
