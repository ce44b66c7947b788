//! Detects, by asking the running kernel, what newer kernels support and older ones do not.

use aya::{
    programs::{ProgramError, ProgramType, SchedClassifier, tc::TcAttachType},
    sys::{BpfHelper, is_helper_supported},
};

/// What the programs may use. Each feature has a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Packets in several fragments, such as jumbo frames (Linux 5.18). Without this, native XDP cannot be attached to
    /// an interface whose MTU exceeds a page. Generic XDP can, because it sees such a packet in one piece.
    pub fragments: bool,
}

impl Features {
    /// What every kernel that weir supports can do.
    pub const FLOOR: Self = Self { fragments: false };

    /// What this kernel can do.
    ///
    /// If the kernel refuses to answer, this assumes everything: loading the programs then fails for the same reason,
    /// with a better message.
    pub fn of_this_kernel() -> Self {
        Self::ask().unwrap_or(Self { fragments: true })
    }

    /// What this kernel can do, if it answers.
    ///
    /// # Errors
    ///
    /// Usually a missing privilege.
    pub fn ask() -> Result<Self, ProgramError> {
        let helper = BpfHelper::BPF_FUNC_xdp_get_buff_len;
        Ok(Self { fragments: is_helper_supported(ProgramType::Xdp, helper)? })
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

/// Whether this kernel has TCX (Linux 6.6). Queries the programs on the loopback interface; older kernels do not know
/// that query.
///
/// # Errors
///
/// Usually a missing privilege.
pub fn has_tcx() -> Result<bool, ProgramError> {
    const EINVAL: i32 = 22;
    match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
        Ok(_) => Ok(true),
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
