//! How the programs end.

/// The exit codes of weir's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The program has done what it was asked to do.
    Done = 0,
    /// Everything possible is done, but part of the input was broken, or something failed.
    Broken = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The operation is not permitted, or not possible on this machine.
    Impossible = 3,
    /// A second signal to stop arrived at least a second after the first, and weir stopped immediately.
    Interrupted = 130,
}
