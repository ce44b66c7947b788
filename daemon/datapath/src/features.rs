//! Detects which features of newer kernels the running kernel supports.

use std::io;

use aya::{
    programs::{ProgramError, ProgramInfo, ProgramType, SchedClassifier, tc::TcAttachType},
    sys::{BpfHelper, is_helper_supported},
};

use super::packet_flags::PacketFlags;

/// How often a hook is listed again if a program leaves meanwhile.
const TRIES: u32 = 10;

/// The features that the programs may use. Each has a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Packets in several fragments, such as jumbo frames (Linux 5.18). Without this feature, native XDP cannot be
    /// attached to an interface whose MTU exceeds a page. Generic XDP can, because it sees such a packet in one piece.
    pub fragments: bool,
    /// Where a packet says whether it has fragments (Linux 6.2). Without this, a helper is asked for the length of each
    /// packet.
    pub packet_flags: Option<PacketFlags>,
}

impl Features {
    /// The features that every kernel supported by weir has.
    pub const FLOOR: Self = Self { fragments: false, packet_flags: None };

    /// The features of this kernel.
    ///
    /// If the kernel refuses to answer, this assumes all features. Loading the programs then fails for the same reason,
    /// with a better message.
    pub fn of_this_kernel() -> Self {
        Self::ask().unwrap_or(Self { fragments: true, packet_flags: None })
    }

    /// The features of this kernel, if it answers.
    ///
    /// # Errors
    ///
    /// Usually a missing privilege.
    pub fn ask() -> Result<Self, ProgramError> {
        let helper = BpfHelper::BPF_FUNC_xdp_get_buff_len;
        let fragments = is_helper_supported(ProgramType::Xdp, helper)?;
        Ok(Self { fragments, packet_flags: if fragments { PacketFlags::of_this_kernel() } else { None } })
    }

    /// The program that measures an interface's packets.
    pub const fn program(self) -> &'static str {
        if self.fragments { "weir" } else { "weir_linear" }
    }

    /// The program for generic mode.
    pub const fn generic_program(self) -> &'static str {
        if self.fragments { "weir_generic" } else { "weir_gen_linear" }
    }
}

/// The programs at a TCX hook, in the order in which they run.
///
/// # Errors
///
/// Usually a missing privilege, or a kernel before Linux 6.6.
pub fn tcx_programs(interface: &str, hook: TcAttachType) -> Result<Vec<ProgramInfo>, ProgramError> {
    let is_gone = |error: &ProgramError| matches!(error, ProgramError::SyscallError(call) if call.io_error.kind() == io::ErrorKind::NotFound);
    let query = || SchedClassifier::query_tcx(interface, hook).map(|(_, programs)| programs);
    // A program may leave between the list of all and the look at it.
    let mut answer = query();
    for _ in 0..TRIES {
        if answer.as_ref().is_err_and(is_gone) {
            answer = query();
        }
    }
    answer
}

/// Finds out if this kernel has TCX (Linux 6.6). It queries the programs on the loopback interface; older kernels do
/// not support that query.
///
/// # Errors
///
/// Usually a missing privilege.
pub fn probe_tcx() -> Result<bool, ProgramError> {
    const EINVAL: i32 = 22;
    match tcx_programs("lo", TcAttachType::Ingress) {
        Ok(_) => Ok(true),
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
