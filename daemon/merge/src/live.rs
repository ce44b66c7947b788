//! The source of the live screen: follows the inputs on a thread.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;
use weir_system::{clock, numbers::grouped};
use weir_top::{Fleet, Request, Source, Update};

use crate::{
    board::{Board, KEPT},
    follow::Follower,
    line::parse_all,
};

/// How many updates may wait for the screen.
const WAITING_MAX: usize = 16;
/// Lines that are parsed together.
const TOGETHER: usize = 512;
/// How often inputs at their end are looked at.
const POLL: Duration = Duration::from_millis(250);
/// Ages are written in seconds.
const SHOWN_EACH: Duration = Duration::from_secs(1);
/// Everything has been read once.
const HAS_READ: u64 = u64::MAX;
/// The answer to questions about earlier times.
const NO_HISTORY: &str = "the screen of a fleet has no history: see `weir merge --window`";

/// A fleet whose files are followed.
pub struct Live {
    updates: Receiver<Update>,
    requests: Sender<Request>,
    /// How many reports were read, until everything was.
    read: Arc<AtomicU64>,
}

impl Live {
    /// Follows these files, with windows of this length and so many rows in each list.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new(files: &[PathBuf], window: Duration, top: usize) -> io::Result<Self> {
        let (send, updates) = sync_channel(WAITING_MAX);
        let (requests, asked) = channel();
        let read = Arc::new(AtomicU64::new(0));
        let board = Board::new(window, top);
        let follower = Follower::new(files, window * KEPT as u32);
        let mut following = Following { follower, board, send, asked, read: read.clone(), shown: Duration::ZERO };
        thread::Builder::new().name("weir-fleet".to_owned()).spawn(move || following.run())?;
        Ok(Self { updates, requests, read })
    }
}

/// The state of the thread that reads.
struct Following {
    follower: Follower,
    board: Board,
    send: SyncSender<Update>,
    asked: Receiver<Request>,
    read: Arc<AtomicU64>,
    /// The time at which something was shown last.
    shown: Duration,
}

impl Following {
    /// Follows until the screen has closed.
    fn run(&mut self) {
        let mut lines = Vec::with_capacity(TOGETHER);
        let reading = Fleet { troubles: vec!["the files are being read".to_owned()], ..Fleet::default() };
        let mut is_alive = self.send.send(Update::Fleet(Box::new(reading))).is_ok();
        while is_alive {
            let has_more = self.follower.read(&mut lines, TOGETHER);
            let (now, has_new) = (clock::now().wall, !lines.is_empty());
            for parsed in parse_all(&lines) {
                self.board.add(parsed, now);
            }
            lines.clear();
            // An answer before everything was read would be wrong a moment later.
            if self.read.load(Ordering::Relaxed) != HAS_READ {
                self.read.store(if has_more { self.board.reports() } else { HAS_READ }, Ordering::Relaxed);
                is_alive = if has_more { self.answer(Duration::ZERO) } else { self.show() };
                continue;
            }
            let is_due = clock::now().monotonic.saturating_sub(self.shown) >= SHOWN_EACH;
            let wants_show = is_due || has_new && !has_more;
            is_alive = (!wants_show || self.show()) && self.answer(if has_more { Duration::ZERO } else { POLL });
        }
    }

    /// Shows the newest window. Returns whether there is still a screen.
    fn show(&mut self) -> bool {
        let now = clock::now();
        self.shown = now.monotonic;
        let troubles = self.follower.troubles().collect();
        self.send.send(Update::Fleet(Box::new(self.board.shown(now.wall, troubles)))).is_ok()
    }

    /// Answers what the screen asks for within this time. Returns whether there is still a screen.
    fn answer(&mut self, within: Duration) -> bool {
        match self.asked.recv_timeout(within) {
            Ok(request) => {
                let answer = match request {
                    Request::Key { key, .. } => Update::KeyDetails(self.board.ask(key, clock::now().wall)),
                    Request::Past(look) => Update::Past(look, Err(NO_HISTORY.to_owned())),
                    Request::PastOfKey { key, .. } => Update::PastOfKey(key, Err(NO_HISTORY.to_owned())),
                };
                self.send.send(answer).is_ok()
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }
}

impl Source for Live {
    fn next(&mut self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    fn ask(&mut self, request: Request) {
        // The thread ends only when this is dropped.
        let _ = self.requests.send(request);
    }

    fn knows_keys(&self) -> bool {
        true
    }

    fn now(&self) -> Timestamp {
        clock::now().wall
    }

    fn kind(&self) -> String {
        match self.read.load(Ordering::Relaxed) {
            HAS_READ => "live".to_owned(),
            reports => format!("reading, {} reports so far", grouped(reports)),
        }
    }
}
