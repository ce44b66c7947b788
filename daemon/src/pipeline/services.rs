//! The threads that answer others: the control socket, the page, the metrics, and the history that they read.
//!
//! They start before weir is restricted, because sockets may need rights that weir drops. But they wait at a gate
//! ([`sandbox::Opening`]) and read nothing until all threads are restricted.

use std::{io, path::Path, sync::Arc, thread::Scope};

use crossbeam::channel::Sender;
use weir_deliver::{board::Board, prometheus::Exporter, status::Identity};
use weir_history::{
    History,
    local::{LocalFile, LocalWriter},
    usage::Usage,
};
use weir_names::Names;
use weir_system::{clock, sandbox};
use weir_web::Web;

use super::setup::Setup;
use crate::{control::Control, history, reload::Request, web::Answers};

/// The open services. Fields are dropped in this order, so the gate opens before a service waits for its threads to
/// end: otherwise a start that fails would wait forever.
pub struct Services {
    /// Lets the threads continue when it is dropped.
    pub opening: sandbox::Opening,
    pub control: Control,
    /// The page asks in the same way as clients of the control socket, so it starts after that.
    pub page: Option<Web>,
    pub history: Option<History>,
    pub usage: Option<Usage>,
    pub local: Option<LocalWriter>,
    pub names: Names,
    pub exporter: Option<Exporter>,
    /// The numbers that all of them show.
    pub board: Arc<Board>,
}

/// The services while they are being opened.
struct OpenedSoFar {
    opening: sandbox::Opening,
    history: Option<History>,
    usage: Option<Usage>,
    local: Option<LocalWriter>,
    exporter: Option<Exporter>,
}

impl Services {
    /// Opens the configured services. If the history is kept on disk, it is in the folder `kept_at`. `local_file` gets
    /// what is measured with the local key. Clients of the control socket can `reload` the configuration.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or no file descriptor is left.
    pub fn open<'scope>(
        scope: &'scope Scope<'scope, '_>,
        setup: &Setup,
        kept_at: Option<&Path>,
        local_file: Option<LocalFile>,
        reload: Sender<Request>,
    ) -> io::Result<Self> {
        let config = &setup.config;
        let board = Arc::new(Board::new(identity(setup)));
        let mut so_far =
            OpenedSoFar { opening: sandbox::Opening, history: None, usage: None, local: None, exporter: None };
        so_far.exporter = Exporter::open(&config.prometheus, board.clone(), config.report.interval);
        so_far.history = history::start(config, kept_at, setup.observer.identity())?;
        so_far.usage = history::start_usage(config, kept_at, setup.observer.identity())?;
        so_far.local = local_file.map(LocalWriter::start).transpose()?;
        let names = Names::start(config.names.clone(), config.addresses)?;
        let usage = so_far.usage.as_ref().map(Usage::asker);
        let asker = so_far.history.as_ref().map(History::asker);
        let socket = config.control.socket.as_deref();
        let control = Control::open(scope, socket, board.clone(), reload, asker.clone(), usage.clone(), names.clone())?;
        let answers = Answers {
            board: board.clone(),
            coordinator: control.coordinator(),
            live: control.asker.clone(),
            history: asker,
            usage,
            names: names.clone(),
        };
        let page = Web::open(&config.web, board.clone(), answers.answerer());
        let OpenedSoFar { opening, history, usage, local, exporter } = so_far;
        Ok(Self { opening, control, page, history, usage, local, names, exporter, board })
    }
}

/// How this weir identifies itself to clients of the control socket.
fn identity(setup: &Setup) -> Identity {
    Identity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started: clock::now().wall,
        interval_seconds: setup.config.report.interval.as_secs(),
        memory_bytes: setup.memory.resident(),
    }
}
