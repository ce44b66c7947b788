//! Answers clients, one request each, without ever blocking on one of them.
//!
//! A subscriber gets a message each second. All subscribers share its memory. A subscriber that has not yet read an
//! earlier message skips the new one, so slow subscribers cost neither memory nor time.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::socket_peercred,
    process::{Uid, geteuid, setpriority_process},
};
use weir_deliver::board::{Board, LastSecond};
use weir_history::{Answer, Asker, Query, usage};
use weir_names::Names;
use weir_schema::{Encoded, NO_WINDOW};
use weir_system::{clock, waker::Waker};

use super::{
    keys::{self, Coordinator, answered},
    listener::Listener,
    live::{LiveAnswer, LiveAsker, LiveQuery, Unanswered},
    past,
    protocol::{self, Command, Response},
};
use crate::{
    history,
    reload::{Outcome, Request},
};

/// Maximum number of clients. A further client replaces the one that has been connected longest without a request.
const CLIENTS_MAX: usize = 64;
/// How many new clients are accepted before the server serves all clients again.
const ACCEPTED_MAX: usize = 8;
/// The server pauses this long after some work, so a flood of clients gets at most [`ACCEPTED_MAX`] answers in that
/// time.
const REST: Duration = Duration::from_millis(1);
/// How long a client may take, from connecting to the last byte of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of subscribers. It is lower than [`CLIENTS_MAX`], so other clients can always connect.
const SUBSCRIBERS_MAX: usize = 32;
/// How long a subscriber may go without reading.
const SUBSCRIBER_PATIENCE: Duration = Duration::from_secs(300);
/// Maximum bytes of a request.
const REQUEST_MAX: usize = 16 << 10;
/// The answer if the configuration was not read in time.
const STILL_READING: &str = "weir is still reading the configuration: its log will say whether it was accepted \
                             (`journalctl -u weir`)";
/// The lower priority of this thread, so that measuring comes first. The system may refuse it.
const NICENESS: i32 = 10;

/// Gives orders to the coordinator. No names of interfaces mean all of them.
pub trait Orders {
    /// Detaches from these interfaces.
    fn detach(&self, interfaces: Vec<String>) -> Response;
    /// Attaches again to these interfaces.
    fn attach(&self, interfaces: Vec<String>) -> Response;
}

/// Sources of the answers that are not on the board.
pub struct AnswerSources {
    /// Sends questions to the coordinator.
    pub coordinator: Coordinator,
    /// Gives orders to the coordinator.
    pub orders: Box<dyn Orders + Send>,
    /// Asks about the open window.
    pub live: LiveAsker,
    /// Sends requests to the reloader.
    pub reload: Sender<Request>,
    /// Asks the history, if there is one.
    pub history: Option<Asker>,
    /// Asks about the usage, if it is counted.
    pub usage: Option<usage::Asker>,
    /// The names of hosts.
    pub names: Names,
}

/// The server of the control socket, which has a thread of its own.
pub struct Server {
    listener: Listener,
    end: Waker,
    board: Arc<Board>,
    others: AnswerSources,
    /// Woken when an answer has arrived for a waiting client.
    ready: Waker,
    /// The user that weir runs as.
    owner: Uid,
    clients: Vec<Client>,
    /// [`PATIENCE`], except in tests.
    patience: Duration,
}

struct Client {
    stream: UnixStream,
    /// When it connected, on the monotonic clock.
    since: Duration,
    state: ClientState,
}

enum ClientState {
    /// The part of its request that has arrived.
    Asking(Vec<u8>),
    /// The answer to its request is being prepared.
    Waiting(Receiver<Outcome>),
    /// The history is preparing the answer.
    Remembering(Receiver<Answer>),
    /// The workers are reading the open window for it.
    Reading(Receiver<LiveAnswer>),
    /// It gets its answer. `parts` are what remains of it, the first one from the byte `sent` on.
    Answered { parts: Vec<Chunk>, sent: usize },
    /// It gets a message each second. `parts` are what remains of its latest message, which has the number `last`.
    Subscribed { parts: Vec<Chunk>, sent: usize, last: u64 },
}

/// The first bytes of a buffer that several clients may share.
struct Chunk {
    memory: Arc<[u8]>,
    bytes: usize,
}

impl<const N: usize> From<[u8; N]> for Chunk {
    fn from(bytes: [u8; N]) -> Self {
        Self { memory: Arc::new(bytes), bytes: N }
    }
}

impl ClientState {
    /// An answer of the history, which is JSON already.
    fn remembered(answer: Answer) -> Self {
        match answer {
            Ok(json) => {
                let json = Chunk { bytes: json.len(), memory: json.into_bytes().into() };
                Self::Answered { parts: vec![Chunk::from(*b"{\"answer\":"), json, Chunk::from(*b"}\n")], sent: 0 }
            }
            Err(why) => Self::answered(&Response::Unavailable(why)),
        }
    }

    fn answered(response: &Response) -> Self {
        let mut line = serde_json::to_vec(response).unwrap_or_default();
        line.push(b'\n');
        Self::Answered { parts: vec![Chunk { bytes: line.len(), memory: line.into() }], sent: 0 }
    }

    /// All clients that get the same answer share its memory.
    fn of_live(answer: LiveAnswer) -> Self {
        match answer {
            Ok(memory) => {
                let answer = Chunk { bytes: memory.len(), memory };
                let parts = vec![Chunk::from(*b"{\"answer\":"), answer, Chunk::from(*b"}\n")];
                Self::Answered { parts, sent: 0 }
            }
            Err(Unanswered::Refused(why)) => Self::answered(&Response::Refused(why)),
            Err(Unanswered::Busy) => Self::answered(&Response::Unavailable(Unanswered::Busy.text())),
        }
    }
}

impl Server {
    /// A server on this socket; it ends when `end` is woken.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new(listener: Listener, end: Waker, board: Arc<Board>, others: AnswerSources) -> io::Result<Self> {
        let (ready, owner) = (Waker::new()?, geteuid());
        let clients = Vec::with_capacity(CLIENTS_MAX);
        Ok(Self { listener, end, board, others, ready, owner, clients, patience: PATIENCE })
    }

    /// Serves clients until `end` is woken.
    pub fn run(mut self) {
        // A system call filter may refuse this, which does no harm.
        let _ = setpriority_process(None, NICENESS);
        while !self.wait() {
            self.accept();
            let mut clients = std::mem::take(&mut self.clients);
            let now = clock::now().monotonic;
            clients.retain_mut(|client| self.has_time(client, now) && self.step(client));
            self.clients = clients;
            self.board.subscribe(self.subscribers(), &self.ready);
            thread::sleep(REST);
        }
    }

    /// Waits until there is something to do. Returns whether the server has to end.
    fn wait(&mut self) -> bool {
        let own = [self.end.as_fd(), self.ready.as_fd(), self.listener.socket().as_fd()];
        let mut fds: Vec<_> = own.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, client.waits_for())));
        let now = clock::now().monotonic;
        let left = self.clients.iter().map(|client| client.left(self.patience, now)).min();
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // An error means an interruption or lack of memory; serving all clients does no harm in any case.
        let _ = poll(&mut fds, left.as_ref());
        let is_over = !fds[0].revents().is_empty();
        let gone = PollFlags::HUP | PollFlags::ERR;
        let mut has_gone =
            fds[own.len()..].iter().map(|fd| fd.revents().intersects(gone)).collect::<Vec<_>>().into_iter();
        drop(fds);
        self.ready.clear();
        // The server neither reads from nor writes to a subscriber that waits for the next second, so it would not
        // notice that it has disconnected.
        self.clients.retain(|client| !has_gone.next().is_some_and(|gone| gone && client.is_subscriber()));
        is_over
    }

    fn subscribers(&self) -> usize {
        self.clients.iter().filter(|client| client.is_subscriber()).count()
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            // No client is left, or no descriptor is free at the moment.
            let Ok((stream, _)) = self.listener.socket().accept() else { return };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() == CLIENTS_MAX {
                // They are in order of arrival.
                let idle = self.clients.iter().position(|client| matches!(client.state, ClientState::Asking(_)));
                self.clients.remove(idle.unwrap_or(0));
            }
            let since = clock::now().monotonic;
            self.clients.push(Client { stream, since, state: ClientState::Asking(Vec::new()) });
        }
    }

    /// Returns true if the client stays. If it still waits for an answer when its time is up, it gets an error, and
    /// time to read it.
    fn has_time(&self, client: &mut Client, now: Duration) -> bool {
        if client.left(self.patience, now) > Duration::ZERO {
            return true;
        }
        let why = match client.state {
            ClientState::Waiting(_) => STILL_READING.to_owned(),
            ClientState::Reading(_) => Unanswered::Busy.text(),
            _ => return false,
        };
        client.state = ClientState::answered(&Response::Unavailable(why));
        client.since = now;
        true
    }

    /// Reads and writes what is possible now. Returns whether the client stays.
    fn step(&self, client: &mut Client) -> bool {
        if let ClientState::Asking(request) = &mut client.state {
            match read_line(&mut client.stream, request) {
                Ok(None) => return true,
                Ok(Some(line)) => client.state = self.answer(line, &client.stream),
                Err(_) => return false,
            }
        }
        if let ClientState::Waiting(outcome) = &client.state {
            match outcome.try_recv() {
                Err(TryRecvError::Empty) => return true,
                Ok(Ok(reloaded)) => client.state = ClientState::answered(&answered(&reloaded)),
                Ok(Err(why)) => client.state = ClientState::answered(&Response::Refused(why)),
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        if let ClientState::Remembering(answer) = &client.state {
            match answer.try_recv() {
                Err(TryRecvError::Empty) => return true,
                Ok(answer) => client.state = ClientState::remembered(answer),
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        if let ClientState::Reading(answer) = &client.state {
            match answer.try_recv() {
                Err(TryRecvError::Empty) => return true,
                Ok(answer) => client.state = ClientState::of_live(answer),
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        match &mut client.state {
            ClientState::Answered { parts, sent } => matches!(write(&mut client.stream, parts, sent), Ok(false)),
            ClientState::Subscribed { parts, sent, last } => {
                if parts.is_empty() {
                    let Some(second) = self.board.second().filter(|second| second.number > *last) else { return true };
                    *parts = message(&second, second.number - *last - 1);
                    *last = second.number;
                }
                match write(&mut client.stream, parts, sent) {
                    Ok(true) => client.since = clock::now().monotonic,
                    Ok(false) => {}
                    Err(_) => return false,
                }
                true
            }
            _ => true,
        }
    }

    /// The client's next state after this request. All clients that get a report share its memory.
    fn answer(&self, line: Result<&[u8], String>, client: &UnixStream) -> ClientState {
        let command = line.and_then(protocol::Request::parse).map(|request| request.command);
        let response = match command.and_then(|command| self.permit(command, client)) {
            Ok(Command::Status) => answered(&self.board.status()),
            Ok(Command::Report { last: Some(count) }) => {
                let reports = self.board.last(usize::try_from(count).unwrap_or(usize::MAX));
                if !reports.is_empty() {
                    return ClientState::Answered { parts: several(reports), sent: 0 };
                }
                Response::Unavailable(NO_WINDOW.to_owned())
            }
            Ok(Command::Report { last: None }) => match self.board.report() {
                Some(report) => {
                    // The newline is left out.
                    let bytes = report.line.len() - 1;
                    let report = Chunk { memory: report.line, bytes };
                    let parts = vec![Chunk::from(*b"{\"answer\":"), report, Chunk::from(*b"}\n")];
                    return ClientState::Answered { parts, sent: 0 };
                }
                None => Response::Unavailable(NO_WINDOW.to_owned()),
            },
            Ok(Command::Ask { keys, live: false }) => keys::look_up(&self.board, &self.others.coordinator, &keys),
            Ok(Command::Ask { keys, live: true }) if !keys::is_number_allowed(&keys) => keys::wrong_number(&keys),
            Ok(Command::Ask { keys, live: true }) => return self.read(LiveQuery::Keys(keys)),
            Ok(Command::Live { list }) => return self.read(LiveQuery::Lists { only: list }),
            Ok(Command::Subscribe) if self.board.subscribers() < SUBSCRIBERS_MAX => {
                let last = self.board.second().map_or(0, |second| second.number);
                self.board.subscribe(self.board.subscribers() + 1, &self.ready);
                return ClientState::Subscribed { parts: Vec::new(), sent: 0, last };
            }
            Ok(Command::Subscribe) => {
                Response::Unavailable(format!("{SUBSCRIBERS_MAX} clients have subscribed already: try again later"))
            }
            Ok(
                command @ (Command::History { .. }
                | Command::Span { .. }
                | Command::Find { .. }
                | Command::Changes { .. }
                | Command::Flows { .. }),
            ) => return self.remember(past::query(command)),
            Ok(Command::Usage { of, interface, by, last, top, to }) => {
                let question = past::UsageQuestion { of, interface, by, last, top };
                return self.sum_up(history::time(None, to.as_deref()).and_then(|time| past::usage(question, time.to)));
            }
            Ok(Command::Names) => match self.others.names.answer() {
                Ok(names) => answered(&names),
                Err(why) => Response::Refused(why),
            },
            Ok(Command::Detach { interfaces }) => self.others.orders.detach(interfaces),
            Ok(Command::Attach { interfaces }) => self.others.orders.attach(interfaces),
            Ok(Command::Reload) => {
                let (reply, outcome) = bounded(1);
                match self.others.reload.try_send(Request { reply, waker: self.ready.clone() }) {
                    Ok(()) => return ClientState::Waiting(outcome),
                    Err(_) => Response::Unavailable("another reload is already waiting: try again".to_owned()),
                }
            }
            Err(why) => Response::Refused(why),
        };
        ClientState::answered(&response)
    }

    /// Passes a query on to the history.
    fn remember(&self, query: Result<Query, String>) -> ClientState {
        let query = match query {
            Ok(query) => query,
            Err(why) => return ClientState::answered(&Response::Refused(why)),
        };
        let ready = self.ready.clone();
        let asked = match &self.others.history {
            Some(asker) => asker.ask(query, move || ready.wake()),
            None => Err(history::OFF.to_owned()),
        };
        asked.map_or_else(|why| ClientState::answered(&Response::Unavailable(why)), ClientState::Remembering)
    }

    /// Asks about the usage.
    fn sum_up(&self, query: Result<usage::Asked, String>) -> ClientState {
        let query = match query {
            Ok(query) => query,
            Err(why) => return ClientState::answered(&Response::Refused(why)),
        };
        let ready = self.ready.clone();
        let asked = match &self.others.usage {
            Some(asker) => asker.ask(query, move || ready.wake()),
            None => Err(history::NO_USAGE.to_owned()),
        };
        asked.map_or_else(|why| ClientState::answered(&Response::Unavailable(why)), ClientState::Remembering)
    }

    /// The command, if this client may give it.
    fn permit(&self, command: Command, client: &UnixStream) -> Result<Command, String> {
        if !command.is_for_owner() {
            return Ok(command);
        }
        // It has given up waiting, and was told that weir does not answer.
        if has_hung_up(client) {
            return Err("the client has gone".to_owned());
        }
        let user =
            socket_peercred(client).map_err(|error| format!("the kernel does not say who is asking: {error}"))?.uid;
        if user.is_root() || user == self.owner {
            return Ok(command);
        }
        Err(format!(
            "not permitted: user {} may query weir, but not change anything. Become root, or user {}, which weir runs as",
            user.as_raw(),
            self.owner.as_raw()
        ))
    }

    /// Requests a reading of the open window.
    fn read(&self, query: LiveQuery) -> ClientState {
        match self.others.live.ask(query, Some(self.ready.clone())) {
            Ok(answer) => ClientState::Reading(answer),
            Err(why) => ClientState::of_live(Err(why)),
        }
    }
}

/// Returns true if the client has disconnected. A client that only stops sending still reads.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut fds = [PollFd::new(client, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Reports as a list. All clients that get a report share its memory.
fn several(reports: Vec<Encoded>) -> Vec<Chunk> {
    let mut parts = vec![Chunk::from(*b"{\"answer\":[")];
    for (nth, report) in reports.into_iter().enumerate() {
        if nth > 0 {
            parts.push(Chunk::from(*b","));
        }
        // The newline is left out.
        let bytes = report.line.len() - 1;
        parts.push(Chunk { memory: report.line, bytes });
    }
    parts.push(Chunk::from(*b"]}\n"));
    parts
}

/// The message of a second, for a subscriber that missed the `skipped` messages before it.
fn message(second: &LastSecond, skipped: u64) -> Vec<Chunk> {
    let skipped = if skipped > 0 { format!("\"skipped\":{skipped},") } else { String::new() };
    let head = format!("{{\"answer\":{{{skipped}").into_bytes();
    let fields = Chunk { memory: second.fields.clone(), bytes: second.fields.len() };
    vec![Chunk { bytes: head.len(), memory: head.into() }, fields, Chunk::from(*b"}\n")]
}

/// Writes what is possible now. Returns whether everything is written.
///
/// # Errors
///
/// The client has disconnected.
fn write(stream: &mut UnixStream, parts: &mut Vec<Chunk>, sent: &mut usize) -> io::Result<bool> {
    while let Some(part) = parts.first() {
        match stream.write(&part.memory[*sent..part.bytes]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => *sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if *sent == part.bytes {
            (*sent, _) = (0, parts.remove(0));
        }
    }
    Ok(true)
}

impl Client {
    fn left(&self, patience: Duration, now: Duration) -> Duration {
        let patience = if self.is_subscriber() { SUBSCRIBER_PATIENCE } else { patience };
        (self.since + patience).saturating_sub(now)
    }

    const fn is_subscriber(&self) -> bool {
        matches!(self.state, ClientState::Subscribed { .. })
    }

    const fn waits_for(&self) -> PollFlags {
        match &self.state {
            ClientState::Asking(_) => PollFlags::IN,
            ClientState::Waiting(_) | ClientState::Remembering(_) | ClientState::Reading(_) => PollFlags::empty(),
            ClientState::Answered { .. } => PollFlags::OUT,
            ClientState::Subscribed { parts, .. } if parts.is_empty() => PollFlags::empty(),
            ClientState::Subscribed { .. } => PollFlags::OUT,
        }
    }
}

/// Reads what has arrived. Returns the line once it is complete; `Ok(Some(Err))` if it is too long.
///
/// # Errors
///
/// The client has disconnected.
fn read_line<'r>(stream: &mut impl Read, request: &'r mut Vec<u8>) -> io::Result<Option<Result<&'r [u8], String>>> {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                let looked = request.len();
                request.extend_from_slice(&bytes[..count]);
                let end = request[looked..].iter().position(|byte| *byte == b'\n').map(|end| looked + end);
                if end.unwrap_or(request.len()) > REQUEST_MAX {
                    return Ok(Some(Err(format!("a request has at most {REQUEST_MAX} bytes"))));
                }
                if let Some(end) = end {
                    return Ok(Some(Ok(&request[..end])));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
