//! The parts of weir that depend on the operating system and do not deal with packets.
//!
//! [`clock`] is the only module that reads a clock. [`bounded`] reads files of unknown size. [`log`] never waits for a
//! reader. [`plain_file`] opens files in folders where other users may put links and pipes, [`folder`] checks whether
//! files can be created in a folder, and [`lock`] reserves a folder for a single weir. [`magic`] knows the first bytes
//! of files. [`memory`] is how each crate says what it needs. [`process`] reads how much of the machine weir uses.
//! [`privileges`] and [`sandbox`] drop rights; [`confined`] explains why a file cannot be opened then. [`notify`] sends
//! messages to systemd, [`sockopt`] sets options of sockets, [`waker`] wakes a thread, [`numbers`] and [`text`] format
//! numbers and errors for people, [`screen`] prints what commands answer, and [`terminal`] knows the width and colours
//! that it can have.

#![deny(unsafe_code)]

pub mod bounded;
pub mod clock;
pub mod confined;
pub mod exit;
pub mod folder;
pub mod lock;
pub mod log;
pub mod magic;
pub mod memory;
pub mod notify;
pub mod numbers;
pub mod plain_file;
pub mod privileges;
pub mod process;
pub mod sandbox;
pub mod screen;
pub mod signals;
pub mod sockopt;
pub mod terminal;
pub mod text;
pub mod waker;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("weir counts in words of 64 bits and maps rings of gigabytes: it is for 64-bit machines only");
