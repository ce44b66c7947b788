//! The control socket: answers queries to a running weir (`weir status`, `weir report`, `weir ask`), and takes its
//! orders (`weir reload`, `weir detach`, `weir attach`).
//!
//! ```text
//! client:       a line of JSON with a request    -> socket
//! server:       reads it, and answers from the board, or asks the coordinator or the reloader -> socket
//! coordinator:  writes the board at each window's end, and looks keys up in the sketches of the last window; has the
//!               workers read the open window
//! ```
//!
//! The server is one thread. It never waits for a client, so a client that hangs or floods does not affect the others.
//! Every user who may open the socket may read everything: its mode is 0660. Only root and the user that weir runs as
//! may change anything: the kernel says which user a client runs as.

pub mod client;
pub mod keys;
mod listener;
pub mod live;
mod orders;
pub mod past;
pub mod protocol;
mod server;

use std::{
    io,
    path::Path,
    sync::Arc,
    thread::{self, Scope},
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded};
use tracing::warn;
use weir_attach::Reattached;
use weir_deliver::board::Board;
use weir_history::{Asker, usage};
use weir_measure::question::{KeyQuery, Views};
use weir_names::Names;
use weir_system::{privileges, sandbox, waker::Waker};

pub use self::listener::Directory;
use self::{
    keys::Coordinator,
    listener::Listener,
    live::{LiveAsker, LiveRequest},
    orders::OrderDesk,
    protocol::KeyAnswers,
    server::{AnswerSources, Server},
};
use crate::reload::Request;

/// Keys to look up, from the server to the coordinator.
#[derive(Debug)]
pub struct Question {
    /// The keys to look up.
    pub asks: Vec<KeyQuery>,
    /// The views that the keys were parsed with.
    pub views: Arc<Views>,
    /// Receives the answer; `None` if the last window had other views.
    pub reply: Sender<Option<KeyAnswers>>,
}

/// An order to the coordinator. No names of interfaces mean all of them.
#[derive(Debug)]
pub enum Order {
    /// Detach from interfaces. The reply has those that weir detached from, or an error with one that it does not
    /// measure.
    Detach(Vec<String>, Sender<Result<Vec<String>, String>>),
    /// Attach again to interfaces that weir was told to detach from. The answer is an error if that is not true of one
    /// of them.
    Attach(Vec<String>, Sender<Result<Reattached, String>>),
}

/// The coordinator's side of the control socket.
#[derive(Debug)]
pub struct Control {
    /// The answers that do not need the coordinator.
    pub board: Arc<Board>,
    /// Questions to the coordinator.
    pub questions: Receiver<Question>,
    /// Orders to detach and to attach again.
    pub orders: Receiver<Order>,
    /// Questions about the open window.
    pub live: Receiver<LiveRequest>,
    /// For other parts of weir that ask about the open window.
    pub asker: LiveAsker,
    ask: Sender<Question>,
    end: Waker,
}

impl Control {
    /// Opens the socket, and answers on a thread of `scope` until this is dropped. If the socket cannot be opened, weir
    /// logs it and measures without it.
    ///
    /// # Errors
    ///
    /// No thread can be started, or no file descriptor is left.
    pub fn open<'scope>(
        scope: &'scope Scope<'scope, '_>,
        path: Option<&Path>,
        board: Arc<Board>,
        reload: Sender<Request>,
        history: Option<Asker>,
        usage: Option<usage::Asker>,
        names: Names,
    ) -> io::Result<Self> {
        // One question waits while the coordinator answers another.
        let (ask, questions) = bounded(1);
        let (order, orders) = bounded(1);
        let end = Waker::new()?;
        let (asker, live) = LiveAsker::new(LIVE_WAITING);
        let control =
            Self { board: board.clone(), questions, orders, live, asker: asker.clone(), ask, end: end.clone() };
        let Some(path) = path else { return Ok(control) };
        match Listener::open(path) {
            Ok(listener) => {
                let others = AnswerSources {
                    coordinator: control.coordinator(),
                    orders: Box::new(OrderDesk { orders: order, waiting: control.orders.clone(), patience: PATIENCE }),
                    live: asker,
                    reload,
                    history,
                    usage,
                    names,
                };
                let server = Server::new(listener, end, board, others)?;
                thread::Builder::new().name("weir-control".to_owned()).spawn_scoped(scope, move || {
                    privileges::give_up_all();
                    sandbox::pass();
                    server.run();
                })?;
            }
            Err(error) => warn!("no control socket at {}: {error}", path.display()),
        }
        Ok(control)
    }

    /// The connection to the coordinator, for other parts of weir that look up keys.
    pub fn coordinator(&self) -> Coordinator {
        let ask = self.ask.clone();
        Box::new(move |views, asks| put(&ask, views, asks))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.end.wake();
    }
}

/// How many queries about the open window may wait until the coordinator has time.
const LIVE_WAITING: usize = 64;
/// How long the server waits for the coordinator, which may be closing a window.
const PATIENCE: Duration = Duration::from_secs(4);

fn busy<T>(_: T) -> String {
    "weir is busy closing a window: ask again".to_owned()
}

/// Asks the coordinator about keys, and waits for its answer.
fn put(coordinator: &Sender<Question>, views: Arc<Views>, asks: Vec<KeyQuery>) -> Result<KeyAnswers, String> {
    let (reply, answer) = bounded(1);
    coordinator.send_timeout(Question { asks, views, reply }, PATIENCE).map_err(busy)?;
    let asked = answer.recv_timeout(PATIENCE).map_err(busy)?;
    asked.ok_or_else(|| "a window has just ended, and a new configuration is in force: ask again".to_owned())
}
