//! What weir needs of its operating system, and knows nothing of packets.
//!
//! [`clock`] is the only module that reads a clock. [`log`] never waits for a reader. [`plain_file`] opens files in
//! folders where others may put links and pipes, [`folder`] says whether a folder takes files, and [`lock`] reserves
//! one for a single weir. [`process`] reads what weir uses of the machine. [`privileges`] and [`sandbox`] drop rights;
//! [`confined`] explains why a file cannot be opened then. [`notify`] tells systemd, [`sockopt`] sets options of
//! sockets, [`waker`] wakes a thread, and [`numbers`] and [`text`] write numbers and errors for people.

#![deny(unsafe_code)]

pub mod clock;
pub mod confined;
pub mod exit;
pub mod folder;
pub mod lock;
pub mod log;
pub mod notify;
pub mod numbers;
pub mod plain_file;
pub mod privileges;
pub mod process;
pub mod sandbox;
pub mod signals;
pub mod sockopt;
pub mod text;
pub mod waker;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("weir counts in words of 64 bits and maps rings of gigabytes: it is for 64-bit machines only");
