//! The connection under a request. It adds two things to ureq: it sends the whole URL to a proxy, and it notices a
//! server that answers before it has read the request.
//!
//! weir holds back the last byte of a request for a moment. An answer that arrives before this byte is sent cannot be
//! an answer to the whole request. This delays each request by one such moment.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport},
    },
};

use super::bound;
use crate::sink::now;

/// How long the last byte is held back, in addition to twice the connect time.
const MOMENT: Duration = Duration::from_millis(20);
/// The longest time that it is held back.
const MOMENT_MAX: Duration = Duration::from_millis(500);

/// A flag that is set if the answer to the last request came before the request had left.
#[derive(Clone, Debug, Default)]
pub(super) struct AnsweredEarly(Arc<AtomicBool>);

impl AnsweredEarly {
    /// Returns true if the answer came early. Resets the flag for the next request.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes connections to the collector, directly or through a proxy.
#[derive(Debug)]
pub(super) struct Connections {
    early: AnsweredEarly,
    /// The prefix of the path in a request to a proxy: `http://host:port` of the collector.
    origin: Option<String>,
    inner: Inner,
}

type Inner = Box<dyn Connector<Out = Box<dyn Transport>>>;

impl Connections {
    /// Makes them in this VRF, if there is one.
    pub fn new(early: AnsweredEarly, origin: Option<String>, vrf: Option<String>) -> Self {
        let inner: Inner = match vrf {
            Some(vrf) => Box::new(Boxing(bound::connector(vrf))),
            None => Box::new(DefaultConnector::default()),
        };
        Self { early, origin, inner }
    }
}

/// Makes the connections of another connector, of one type.
#[derive(Debug)]
struct Boxing<C>(C);

impl<C: Connector> Connector for Boxing<C> {
    type Out = Box<dyn Transport>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<()>) -> Result<Option<Self::Out>, Error> {
        let open = self.0.connect(details, chained)?;
        Ok(open.map(|open| -> Box<dyn Transport> { Box::new(open) }))
    }
}

impl Connector for Connections {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails, chained: Option<()>) -> Result<Option<Connection>, Error> {
        let began = now();
        let Some(inner) = self.inner.connect(details, chained)? else { return Ok(None) };
        let moment = (MOMENT + 2 * now().saturating_duration_since(began)).min(MOMENT_MAX);
        let (early, origin) = (self.early.clone(), self.origin.clone());
        Ok(Some(Connection { inner, early, origin, moment, held: None, is_inside: false }))
    }
}

/// A connection to the server, or to the proxy.
pub(super) struct Connection {
    inner: Box<dyn Transport>,
    early: AnsweredEarly,
    origin: Option<String>,
    moment: Duration,
    /// The last byte of what was sent.
    held: Option<u8>,
    /// True if a request has begun.
    is_inside: bool,
}

impl Connection {
    fn send(&mut self, bytes: &[u8], timeout: NextTimeout) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let output = self.inner.buffers().output();
            let (now, later) = rest.split_at(rest.len().min(output.len()));
            output[..now.len()].copy_from_slice(now);
            self.inner.transmit_output(now.len(), timeout)?;
            rest = later;
        }
        Ok(())
    }

    /// Sends the last byte of a request, after giving the server a moment to answer without it. Returns whether the
    /// server did.
    fn finish(&mut self, last: u8, timeout: NextTimeout) -> Result<bool, Error> {
        let moment = self.moment.min(*timeout.after);
        let is_early = match self.inner.await_input(NextTimeout { after: moment.into(), ..timeout }) {
            Ok(is_early) => is_early,
            Err(Error::Timeout(_)) => false,
            Err(error) => return Err(error),
        };
        if is_early {
            self.early.note();
        }
        // A server that has answered may have closed the connection: its answer still says why.
        self.send(&[last], timeout).or_else(|error| if is_early { Ok(()) } else { Err(error) })?;
        Ok(is_early)
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut bytes: Vec<u8> = self.held.take().into_iter().collect();
        bytes.extend_from_slice(&self.inner.buffers().output()[..amount]);
        if !std::mem::replace(&mut self.is_inside, true)
            && let Some(origin) = &self.origin
            && let Some(blank) = bytes.iter().position(|byte| *byte == b' ')
        {
            bytes.splice(blank + 1..blank + 1, origin.bytes());
        }
        self.held = bytes.pop();
        self.send(&bytes, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.is_inside = false;
        let Some(last) = self.held.take() else { return self.inner.await_input(timeout) };
        if self.finish(last, timeout)? { Ok(true) } else { self.inner.await_input(timeout) }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Resolves the address to connect to: that of the proxy, if requests go to one with their whole URL.
#[derive(Debug)]
pub(super) struct Names {
    proxy: Option<Uri>,
    inner: DefaultResolver,
}

impl Names {
    pub fn new(proxy: Option<Uri>) -> Self {
        Self { proxy, inner: DefaultResolver::default() }
    }
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        self.inner.resolve(self.proxy.as_ref().unwrap_or(uri), config, timeout)
    }
}
