//! What newer kernels can do and older ones cannot, found out by asking this one.

use aya::{
    programs::{ProgramError, ProgramType, SchedClassifier, tc::TcAttachType},
    sys::{BpfHelper, is_helper_supported},
};

/// What the programs may use. Each thing has a fallback where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Packets in several pieces, as jumbo frames are (Linux 5.18). Without, native XDP is refused on interfaces with
    /// an MTU beyond a page; generic XDP is not, and sees the packet whole.
    pub fragments: bool,
}

impl Features {
    /// What every kernel that weir knows can do.
    pub const FLOOR: Self = Self { fragments: false };

    /// What this kernel can do.
    ///
    /// Where it does not let itself be asked, everything is said to be there: loading the programs will fail for the
    /// same reason, and tell it.
    pub fn of_this_kernel() -> Self {
        Self::ask().unwrap_or(Self { fragments: true })
    }

    /// What this kernel can do, if it lets itself be asked.
    ///
    /// # Errors
    ///
    /// No privilege, most likely.
    pub fn ask() -> Result<Self, ProgramError> {
        let helper = BpfHelper::BPF_FUNC_xdp_get_buff_len;
        Ok(Self { fragments: is_helper_supported(ProgramType::Xdp, helper)? })
    }

    /// The program that measures an interface's packets.
    pub const fn program(self) -> &'static str {
        if self.fragments { "weir" } else { "weir_linear" }
    }
}

/// Whether this kernel has TCX (Linux 6.6): asks which programs there are on the loopback interface, a question that
/// older ones do not know.
///
/// # Errors
///
/// No privilege, most likely.
pub fn has_tcx() -> Result<bool, ProgramError> {
    const EINVAL: i32 = 22;
    match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
        Ok(_) => Ok(true),
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
