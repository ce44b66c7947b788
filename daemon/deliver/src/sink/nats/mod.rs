//! Sends reports to a stream of NATS JetStream.

mod connection;
mod login;

use std::{error::Error, time::Instant};

use async_nats::{
    HeaderMap,
    header::NATS_MESSAGE_ID,
    jetstream::{
        self, ErrorCode,
        context::{PublishError, PublishErrorKind},
    },
};
use weir_config::{self as config, is_credential_of_service};

use self::connection::Connection;
use super::{
    DeliveryError, OpenError, Sink,
    client::{self, Driver, left, quoted, tls, unavailable},
    now,
};
use crate::spool::Item;

/// Maximum number of messages in flight.
const BATCH: usize = 100;
/// The frame of a message's headers, and the overhead of each header.
const HEADERS_FRAME: usize = "NATS/1.0\r\n\r\n".len();
const HEADER_FRAME: usize = ": \r\n".len();

/// A subject of a NATS server that a JetStream stream captures.
///
/// Each report and tombstone is a message: a line of JSON without its newline. Its header `Nats-Msg-Id` is its id, so
/// the stream stores it once even if it is sent again within the stream's duplicate window. Delivered means that the
/// stream has acknowledged all messages of a batch. If the stream neither acknowledges nor answers with an error, the
/// connection is closed, so that nothing of this attempt is sent alongside the next one. The next one reads the files
/// with secrets again.
#[derive(Debug)]
pub struct Nats {
    settings: config::Nats,
    connection: Option<Connection>,
    /// The thread of the last connection, which may still be looking up the server's name.
    last: Option<Driver>,
}

impl Nats {
    /// The sink of these settings; it connects when there is something to deliver.
    ///
    /// # Errors
    /// A file with certificates or a key cannot be used.
    pub fn new(settings: &config::Nats) -> Result<Self, OpenError> {
        if settings.url.is_tls {
            tls::config(&settings.tls).map_err(|source| OpenError::Tls { name: "nats", source: source.into() })?;
        }
        Ok(Self { settings: settings.clone(), connection: None, last: None })
    }

    /// The open connection, or a new one.
    fn connected(&mut self, until: Instant) -> Result<&mut Connection, DeliveryError> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_up()) {
            self.hang_up();
        }
        if self.connection.is_none() {
            client::wait_for_last(&mut self.last, until, &self.settings.url.host)?;
            self.connection = Some(Connection::open(&self.settings, left(until), &mut self.last)?);
        }
        self.connection.as_mut().ok_or_else(|| unavailable("there is no connection".to_owned()))
    }

    fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last = Some(connection.close());
        }
    }

    /// Decides what happens to the batch after an error.
    fn failure(&self, error: &PublishError, has_jetstream: bool) -> DeliveryError {
        let subject = &self.settings.subject;
        match (error.kind(), told(error)) {
            (PublishErrorKind::StreamNotFound, _) => {
                let why = if has_jetstream { "" } else { " (this server says that it runs without JetStream)" };
                unavailable(format!(
                    "no JetStream stream takes the subject {subject:?}{why}: create one, for example `nats stream add WEIR \
                     --subjects {subject} --dupe-window 24h --defaults`"
                ))
            }
            (_, Some(told)) if REFUSALS.contains(&told.error_code()) => {
                DeliveryError::Refused(quoted(&format!("the stream refuses it: {told}")))
            }
            (PublishErrorKind::MaxPayloadExceeded, _) => DeliveryError::Refused(error.to_string()),
            (_, Some(told)) => unavailable(quoted(&format!("the stream does not take it now: {told}"))),
            (_, None) => unavailable(quoted(&error.to_string())),
        }
    }
}

/// Answers that a stream would give again to the same message: the message or its headers exceed `max_msg_size`.
const REFUSALS: [ErrorCode; 2] = [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];

/// The stream's own error.
fn told(error: &PublishError) -> Option<&jetstream::Error> {
    error.source().and_then(|source| source.downcast_ref())
}

/// Returns true if an error is an answer to its message, after which the connection is still usable.
fn is_answer(error: &PublishError) -> bool {
    matches!(error.kind(), PublishErrorKind::StreamNotFound | PublishErrorKind::MaxPayloadExceeded)
        || told(error).is_some()
}

impl Sink for Nats {
    fn name(&self) -> String {
        self.settings.place()
    }

    fn check(&self) -> Result<(), String> {
        let config::Nats { credentials_file, token_file, password_file, .. } = &self.settings;
        if [credentials_file, token_file, password_file]
            .into_iter()
            .flatten()
            .any(|file| is_credential_of_service(file))
        {
            return Ok(());
        }
        login::login(async_nats::ConnectOptions::new(), &self.settings).map(drop).map_err(|error| error.to_string())
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let until = now() + self.settings.timeout;
        let subject = self.settings.subject.clone();
        let connection = self.connected(until)?;
        let info = connection.info();
        let messages: Vec<_> = batch.iter().map(Message::new).collect();
        for message in &messages {
            if message.bytes() > info.max_payload {
                return Err(DeliveryError::Refused(format!(
                    "as a message it has {} bytes, and the server takes {} (`max_payload`)",
                    message.bytes(),
                    info.max_payload
                )));
            }
        }
        let messages = messages.into_iter().map(|message| (message.headers(), message.payload.to_vec()));
        let answers = match connection.publish(&subject, messages, left(until)) {
            Ok(answers) => answers,
            Err(why) => {
                self.hang_up();
                return Err(unavailable(quoted(&why)));
            }
        };
        let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        if !errors.iter().all(is_answer) {
            self.hang_up();
        }
        let failures: Vec<_> = errors.iter().map(|error| self.failure(error, info.jetstream)).collect();
        // A temporary failure has precedence: then all messages are tried again.
        failures.iter().find(may_pass).or(failures.first()).cloned().map_or(Ok(()), Err)
    }
}

fn may_pass(failure: &&DeliveryError) -> bool {
    matches!(failure, DeliveryError::Unavailable { .. })
}

/// A report or a tombstone as a message.
struct Message<'a> {
    id: &'a str,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    const TYPE: &'static str = "Content-Type";
    const JSON: &'static str = "application/json";

    fn new(parcel: &'a Item) -> Self {
        let line = &*parcel.encoded.line;
        Self { id: &parcel.encoded.id, payload: line.strip_suffix(b"\n").unwrap_or(line) }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.id);
        headers.insert(Self::TYPE, Self::JSON);
        headers
    }

    /// Returns the size in bytes as the server counts it: headers and payload.
    fn bytes(&self) -> usize {
        let headers = [(NATS_MESSAGE_ID.as_ref(), self.id), (Self::TYPE, Self::JSON)];
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_FRAME).sum();
        HEADERS_FRAME + headers + self.payload.len()
    }
}
