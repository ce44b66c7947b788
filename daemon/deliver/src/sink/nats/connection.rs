//! A connection to a NATS server, and the thread that drives it.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, ConnectError, ConnectOptions, Event, HeaderMap, ServerInfo,
    connection::State,
    jetstream::{
        self,
        context::{ContextBuilder, PublishError},
        message::PublishMessage,
        publish::PublishAck,
    },
};
use tokio::sync::watch;
use weir_config::Nats;

use super::{BATCH, login::login};
use crate::sink::{
    DeliveryError,
    client::{Driver, quoted, tls, unavailable},
};

/// A connection for one purpose that never reconnects by itself: it would use old secrets, and messages of an abandoned
/// attempt could mix with those of the next one.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    stream: jetstream::Context,
    /// The first problem: an error of the server, or the end of the connection.
    trouble: watch::Receiver<Option<String>>,
    driver: Driver,
}

impl Connection {
    /// Connects. If that fails, `last` is set to the thread that may still be looking up the name.
    pub fn open(settings: &Nats, within: Duration, last: &mut Option<Driver>) -> Result<Self, DeliveryError> {
        let failed = |why: String| unavailable(quoted(&format!("cannot connect to {}: {why}", settings.url)));
        let (said, trouble) = watch::channel(None);
        let options = login(options(within, said), settings).map_err(|error| unavailable(error.to_string()))?;
        let options = if settings.url.is_tls {
            let tls = tls::config(&settings.tls).map_err(|error| unavailable(error.to_string()))?;
            options.require_tls(true).tls_client_config(tls)
        } else {
            options
        };
        let mut driver = Driver::start("nats").map_err(|error| failed(error.to_string()))?;
        let connecting = async {
            let client = options.connect(settings.url.to_string()).await?;
            // Each delivery has its own, earlier deadline.
            let stream = ContextBuilder::new().timeout(2 * settings.timeout).max_ack_inflight(BATCH);
            Ok::<_, ConnectError>((stream.build(client.clone()), client))
        };
        let (stream, client) = match driver.block_on(within, connecting) {
            Some(Ok(both)) => both,
            failure => {
                driver.stop();
                *last = Some(driver);
                return Err(failed(match failure {
                    Some(Err(error)) => error.to_string(),
                    _ => format!("no answer within {:?}", settings.timeout),
                }));
            }
        };
        Ok(Self { client, stream, trouble, driver })
    }

    /// Returns true if the server has reported no problem.
    pub fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected && self.trouble.borrow().is_none()
    }

    /// The server's information about itself.
    pub fn info(&self) -> ServerInfo {
        self.client.server_info()
    }

    /// Sends messages, and waits for the stream's answer to each of them.
    ///
    /// # Errors
    ///
    /// Not all answers have come, and the connection cannot be used any more. The text is the reason.
    pub fn publish(
        &mut self,
        subject: &str,
        messages: impl Iterator<Item = (HeaderMap, Vec<u8>)>,
        within: Duration,
    ) -> Result<Vec<Result<PublishAck, PublishError>>, String> {
        let Self { stream, trouble, driver, .. } = self;
        let answers = async {
            let mut pending = Vec::with_capacity(BATCH);
            for (headers, payload) in messages {
                let message = PublishMessage::build().headers(headers).payload(payload.into());
                pending.push(stream.send_publish(subject.to_owned(), message).await);
            }
            let mut answers = Vec::with_capacity(pending.len());
            for one in pending {
                answers.push(match one {
                    Ok(answer) => answer.await,
                    Err(error) => Err(error),
                });
            }
            answers
        };
        let answered = async {
            tokio::select! {
                answers = answers => Ok(answers),
                why = trouble.wait_for(Option::is_some) => {
                    Err(why.ok().and_then(|why| why.clone()).unwrap_or_else(|| "the connection has ended".to_owned()))
                }
            }
        };
        driver
            .block_on(within, answered)
            .unwrap_or_else(|| Err(format!("no stream has acknowledged it within {within:?}")))
    }

    /// Closes the connection. Data that was not sent yet is never sent.
    pub fn close(self) -> Driver {
        let mut driver = self.driver;
        driver.stop();
        driver
    }
}

/// Makes the options of a connection. The first problem is sent to `said`.
fn options(within: Duration, said: watch::Sender<Option<String>>) -> ConnectOptions {
    let was_connected = Arc::new(AtomicBool::new(false));
    ConnectOptions::new()
        .name(concat!("weir/", env!("CARGO_PKG_VERSION")))
        .connection_timeout(within)
        .client_capacity(BATCH)
        .ignore_discovered_servers()
        .reconnect_to_server_callback(move |_, _| {
            let was_connected = was_connected.swap(true, Ordering::Relaxed);
            async move { if was_connected { future::pending().await } else { None } }
        })
        .event_callback(move |event| {
            let why = match event {
                Event::Disconnected | Event::Closed => Some("the server has closed the connection".to_owned()),
                Event::ServerError(error) => Some(format!("the server says: {error}")),
                _ => None,
            };
            said.send_if_modified(|known| {
                let is_news = known.is_none() && why.is_some();
                if is_news {
                    *known = why;
                }
                is_news
            });
            future::ready(())
        })
}
