//! How the programs end.

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Done as far as possible: part of the input was broken, or something failed on the way.
    Broken = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Not permitted, or not possible on this machine.
    Impossible = 3,
    /// A second signal to stop, at least a second after the first: stopped at once.
    Interrupted = 130,
}
