//! The control socket: answers queries to a running weir (`weir status`, `weir report`, `weir ask`), and takes its
//! orders (`weir reload`, `weir detach`).
//!
//! ```text
//! client:       a line of JSON with a request    -> socket
//! server:       reads it, and answers from the board, or asks the coordinator or the reloader -> socket
//! coordinator:  writes the board at each window's end, and looks keys up in the sketches of the last window
//! ```
//!
//! The server is one thread. It never waits for a client, so one that hangs or floods costs nobody else anything.
//! Whoever may open the socket may read everything: its mode is 0660. What changes something is for root and for the
//! user that weir runs as: the kernel tells who asks.

mod board;
pub mod client;
mod listener;
pub mod protocol;
mod server;
mod status;

use std::{
    io,
    path::Path,
    sync::Arc,
    thread::{self, Scope},
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded};
use tracing::warn;

pub use self::{
    board::Board,
    listener::Directory,
    status::{Identity, Status},
};
use self::{
    listener::Listener,
    protocol::Asked,
    server::{Others, Server},
};
use crate::{
    privileges,
    question::{Ask, Views},
    reload::Request,
    waker::Waker,
};

/// Keys that the coordinator is asked for, and where its answer goes.
#[derive(Debug)]
pub struct Question {
    /// The keys.
    pub asks: Vec<Ask>,
    /// The views that they were understood by.
    pub views: Arc<Views>,
    /// Where the answer goes: what is known of each; `None` if the last window was not that of these views.
    pub reply: Sender<Option<Asked>>,
}

/// Interfaces that the coordinator is to detach from, and where its answer goes.
#[derive(Debug)]
pub struct Release {
    /// Their names; all if there is none.
    pub interfaces: Vec<String>,
    /// Where the answer goes: what weir has detached from, or which of them it does not measure.
    pub reply: Sender<Result<Vec<String>, String>>,
}

/// The coordinator's side.
#[derive(Debug)]
pub struct Control {
    /// What is told without asking the coordinator.
    pub board: Arc<Board>,
    /// What it is asked.
    pub questions: Receiver<Question>,
    /// What it is told.
    pub releases: Receiver<Release>,
    end: Waker,
}

impl Control {
    /// Opens the socket, and answers on a thread of `scope` until this is dropped. If the socket cannot be opened, weir
    /// says so and measures without it.
    ///
    /// # Errors
    ///
    /// No thread can be started, or no file descriptor is left.
    pub fn open<'scope>(
        scope: &'scope Scope<'scope, '_>,
        path: Option<&Path>,
        board: Arc<Board>,
        reload: Sender<Request>,
    ) -> io::Result<Self> {
        // One waits while the coordinator answers another.
        let (ask, questions) = bounded(1);
        let (release, releases) = bounded(1);
        let end = Waker::new()?;
        let control = Self { board: board.clone(), questions, releases, end: end.clone() };
        let Some(path) = path else { return Ok(control) };
        match Listener::open(path) {
            Ok(listener) => {
                let others = Others {
                    coordinator: Box::new(move |views, asks| put(&ask, views, asks)),
                    release: Box::new(move |interfaces| tell(&release, interfaces)),
                    reload,
                };
                let server = Server::new(listener, end, board, others)?;
                thread::Builder::new().name("weir-control".to_owned()).spawn_scoped(scope, move || {
                    privileges::give_up_all();
                    server.run();
                })?;
            }
            Err(error) => warn!("no control socket at {}: {error}", path.display()),
        }
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.end.wake();
    }
}

/// How long the server waits for the coordinator, which may be closing a window.
const PATIENCE: Duration = Duration::from_secs(4);

fn busy<T>(_: T) -> String {
    "weir is busy with the end of a window: ask again".to_owned()
}

/// Tells the coordinator to detach. It does so even if its answer comes too late.
fn tell(coordinator: &Sender<Release>, interfaces: Vec<String>) -> Result<Vec<String>, String> {
    let (reply, answer) = bounded(1);
    coordinator.send_timeout(Release { interfaces, reply }, PATIENCE).map_err(busy)?;
    answer.recv_timeout(PATIENCE).map_err(busy)?
}

/// Asks the coordinator.
fn put(coordinator: &Sender<Question>, views: Arc<Views>, asks: Vec<Ask>) -> Result<Asked, String> {
    let (reply, answer) = bounded(1);
    coordinator.send_timeout(Question { asks, views, reply }, PATIENCE).map_err(busy)?;
    let asked = answer.recv_timeout(PATIENCE).map_err(busy)?;
    asked.ok_or_else(|| "a window has just ended, and another configuration is in force: ask again".to_owned())
}
