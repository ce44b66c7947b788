//! Messages between the coordinator and the threads that measure: an order to close the window, and the closed window.
//! An order to read the open window is answered by an [`OpenPart`].

use std::io;

use crossbeam::channel::Sender;
use thiserror::Error;
use weir_config::Sampling;
use weir_datapath::error::KernelError;

pub use super::closed::Closed;
use super::{
    open::{Content, OpenPart, Wanted},
    shard::Shard,
};

/// An order to a worker.
pub enum Order {
    /// Close the window.
    Close(CloseOrder),
    /// Read the open window.
    Read(ReadOrder),
}

/// Orders a worker to read its open window, which goes on.
#[derive(Clone)]
pub struct ReadOrder {
    /// What to read.
    pub wanted: Wanted,
    /// The number of the reading, and that of the worker: they come back with the answer.
    pub of: (u64, usize),
    /// Receives the answer. It has room for the answers of all workers.
    pub reply: Sender<OpenPart>,
}

impl ReadOrder {
    /// Answers. Nobody waits: if the coordinator has given up, the answer is dropped.
    pub fn answer(&self, content: Content) {
        let _ = self.reply.try_send(OpenPart { of: self.of, content });
    }
}

/// Orders a worker to close its window.
pub struct CloseOrder {
    /// The empty shard to go on with.
    pub spare: Box<Shard>,
    /// What changes with the next window, if anything.
    pub change: Option<Change>,
    /// Whether this is the last window. Then the worker reads nothing more: that is for the next weir.
    pub is_last: bool,
}

/// What a new configuration changes for the threads that measure, besides their shards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Interface slots in use: never fewer than before.
    pub interfaces: usize,
    /// How many packets are taken.
    pub sampling: Sampling,
}

/// Why a worker stopped.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// A packet socket failed its reader.
    #[error("cannot read a packet socket")]
    Tap(#[source] io::Error),
    /// Running `flush` failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
