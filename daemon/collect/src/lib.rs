//! The reference collector (`weir-collect`, also called `weir collect`): receives reports over HTTP, and stores each of
//! them once in a database.
//!
//! ```text
//! sender -> api (check token, type and size; parse lines) -> keeper (one thread: a transaction a body) -> `SQLite`
//! browser -> page (another port, another thread) -> answers (a thread that only reads) -> `SQLite`
//! ```
//!
//! The collector answers once the reports are on disk in the database. A sender that gets no answer sends again, and
//! what arrives twice is stored once, because `id` is unique. If the database cannot store reports now, the answer is
//! 503, and nothing is lost, because the sender keeps them.

#![forbid(unsafe_code)]

mod api;
mod body;
pub mod cli;
mod counters;
mod keeper;
mod line;
pub mod page;
pub mod query;
mod store;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crossbeam::{channel::never, select};
use tracing::info;
use weir_http::{Limits, Server};
use weir_system::{privileges, signals::Signals};

pub use self::store::StoreError;
use self::{api::Api, counters::Counters, keeper::StoreHandle, page::PageError, store::Store};
use weir_page::{Token, TokenError};

const LIMITS: Limits = Limits { connections: 64, request: Duration::from_secs(60), grace: Duration::from_secs(5) };

/// The options of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The database; it is created if it does not exist.
    pub database: &'a Path,
    /// The file with the token that senders must present.
    pub token_file: Option<&'a Path>,
    /// True if any client may send, also from other machines.
    pub for_everybody: bool,
    /// The page of the fleet, if there is one.
    pub page: Option<page::Settings<'a>>,
}

/// Why the collector cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Other machines could send reports without a token.
    #[error(
        "{0} can be reached from other machines, and everybody there could store reports: give a token by \
         --token-file FILE, or listen at 127.0.0.1, or say --no-token"
    )]
    Open(SocketAddr),
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// There is no page.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address cannot be used.
    #[error("cannot listen at {address}: {cause}")]
    Listen {
        /// The address in the options.
        address: SocketAddr,
        /// The cause.
        cause: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The server or the database thread has ended by itself.
    #[error("the collector stopped unexpectedly: all reports that it acknowledged are in {}, and senders repeat the others", .0.display())]
    Broken(PathBuf),
}

/// Collects until a signal ends it.
///
/// # Errors
///
/// Why it cannot start or go on.
pub fn run(options: Options<'_>, signals: &Signals) -> Result<(), CollectError> {
    let Options { listen, database, token_file, for_everybody, page } = options;
    let token = token_file.map(Token::read).transpose()?;
    if token.is_none() && !for_everybody && !listen.ip().is_loopback() {
        return Err(CollectError::Open(listen));
    }
    let store = Store::open(database)?;
    let known = store.counts()?;
    let counters = Arc::<Counters>::default();
    let page = page.map(|page| page::open(page, database.to_owned(), counters.clone())).transpose()?;
    let (keeper, ended) = StoreHandle::start(store, counters).map_err(CollectError::Thread)?;
    let router = Api::new(token, keeper).router();
    let server = Server::start("weir-collect", listen, router, LIMITS)
        .map_err(|cause| CollectError::Listen { address: listen, cause })?;
    privileges::give_up_all();
    info!(
        reports = known.reports,
        tombstones = known.tombstones,
        "collecting at http://{}/ into {}",
        server.address(),
        database.display()
    );
    if let Some(page) = &page {
        info!("the page is at http://{}/", page.address());
    }
    let is_broken = wait(signals, [server.ended(), &ended]);
    // The server finishes the requests that have begun; after that nothing more reaches the keeper.
    drop(server);
    let _ = ended.recv();
    if is_broken { Err(CollectError::Broken(database.to_owned())) } else { Ok(()) }
}

/// Waits for a signal. Returns whether a thread has ended instead.
fn wait(signals: &Signals, [server, keeper]: [&crossbeam::channel::Receiver<Infallible>; 2]) -> bool {
    let mut hangups = signals.hangups.clone();
    loop {
        select! {
            recv(signals.stop) -> _ => return false,
            // There is no configuration to reload, so SIGHUP ends the collector, as it ends a program whose terminal is
            // closed.
            recv(hangups) -> hangup => match hangup {
                Ok(()) => return false,
                Err(_) => hangups = never(),
            },
            recv(server) -> _ => return true,
            recv(keeper) -> _ => return true,
        }
    }
}
