//! Messages between the coordinator and the threads that measure. The answer to an order to close the window is the
//! closed window, and the answer to an order to read the open window is an [`OpenPart`].

use std::io;

use crossbeam::channel::Sender;
use thiserror::Error;
use weir_config::Sampling;
use weir_datapath::error::KernelError;

pub use super::closed::Closed;
use super::{
    open::{Content, OpenPart, OpenRequest},
    shard::Shard,
};

/// An order to a worker.
pub enum Order {
    /// Close the window on this worker.
    Close(CloseOrder),
    /// Read the open window.
    Read(ReadOrder),
    /// Answer at once. The coordinator asks this before all shards change.
    Answer(Sender<()>),
}

/// Orders a worker to read its open window without closing it.
#[derive(Clone)]
pub struct ReadOrder {
    /// The part to read.
    pub wanted: OpenRequest,
    /// The numbers of the reading and of the worker. The answer repeats them.
    pub of: (u64, usize),
    /// Receives the answers. It has room for those of all workers.
    pub reply: Sender<OpenPart>,
}

impl ReadOrder {
    /// Sends the answer without waiting. If the coordinator has given up, the answer is dropped.
    pub fn answer(&self, content: Content) {
        let _ = self.reply.try_send(OpenPart { of: self.of, content });
    }
}

/// Orders a worker to close its window.
pub struct CloseOrder {
    /// The empty shard for the next window. `None` if this is the last window: then the worker reads nothing more and
    /// leaves the rest to the next weir.
    pub spare: Option<Box<Shard>>,
    /// The changes from the next window on, if any.
    pub change: Option<Change>,
}

/// The changes of a new configuration for the threads that measure, besides their shards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Interface slots in use. The number never decreases.
    pub interfaces: usize,
    /// The sampling rate from now on.
    pub sampling: Sampling,
}

/// Why a worker stopped.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// A packet socket cannot be read.
    #[error("cannot read a packet socket")]
    Tap(#[source] io::Error),
    /// The kernel could not run `flush`.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
