//! The TCP connection of a request in a VRF. ureq opens no connection that is bound to a device.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use ureq::{
    Error, Timeout,
    unversioned::transport::{
        Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
        RustlsConnector, Transport,
    },
};

use crate::sink::{now, vrf};

/// Makes connections in this VRF, with TLS and through a proxy as [`ureq`]'s own connector does.
pub(super) fn connector(vrf: String) -> impl Connector<Out = impl Transport> {
    ConnectProxyConnector::default().chain(InVrf(vrf)).chain(RustlsConnector::default())
}

/// Opens a connection in a VRF, if there is none yet.
#[derive(Debug)]
struct InVrf(String);

impl<In: Transport> Connector<In> for InVrf {
    type Out = Either<In, Stream>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        if let Some(open) = chained {
            return Ok(Some(Either::A(open)));
        }
        let began = now();
        let timeout = details.timeout.not_zero().map(|timeout| *timeout);
        let mut failed = Error::HostNotFound;
        for address in &details.addrs {
            let left = timeout.map(|timeout| timeout.saturating_sub(now().saturating_duration_since(began)));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::Timeout(details.timeout.reason));
            }
            match vrf::connect(Some(&self.0), *address, left) {
                Ok(stream) => {
                    stream.set_nodelay(details.config.no_delay())?;
                    let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
                    return Ok(Some(Either::B(Stream { stream, buffers: LazyBuffers::new(input, output) })));
                }
                Err(error) => failed = of_connection(error, Timeout::Connect),
            }
        }
        Err(failed)
    }
}

fn of_connection(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(reason),
        _ => Error::Io(error),
    }
}

/// A connection and its buffers.
struct Stream {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|timeout| *timeout))?;
        let bytes = &self.buffers.output()[..amount];
        self.stream.write_all(bytes).map_err(|error| of_connection(error, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|timeout| *timeout))?;
        let room = self.buffers.input_append_buf();
        let read = loop {
            match self.stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| of_connection(error, timeout.reason))?,
            }
        };
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let is_quiet = peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        is_quiet && self.stream.set_nonblocking(false).is_ok()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("address", &self.stream.peer_addr().ok()).finish_non_exhaustive()
    }
}
