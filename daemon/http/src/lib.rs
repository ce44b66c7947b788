//! A small HTTP server for everything that weir serves over HTTP. Its clients are untrusted, so each has limits.
//!
//! It is one thread with its own runtime and without capabilities. Clients share a fixed number of slots. If all are
//! taken, a new client replaces the one that weir has waited for longest. So clients that connect and stay silent, or
//! send a byte a second, block no other client.

mod client_slot;
pub mod host;

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    pin::pin,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, StatusCode, header::HOST},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use crossbeam::channel::{Receiver, bounded};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use weir_system::{clock, log::Lasting, sandbox};

use self::client_slot::ClientSlots;
pub use self::client_slot::{Busy, ClientSlot};
use weir_system::privileges;

/// Maximum bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of headers in a request.
const HEADERS_MAX: usize = 64;
/// How long a client has for the head of a request, and how long a connection may be idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// The most bytes of answers that the kernel keeps until a client reads them.
const SEND_BYTES: usize = 128 << 10;
/// Pause after an error of accept(2): no descriptor is left, and some will be released.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// How long a request may take, from its head to the last byte of the answer, not counting the time that weir
    /// takes.
    pub request: Duration,
    /// How long requests that have begun may go on when the server has to end.
    pub grace: Duration,
}

/// A server on its own thread. It ends on drop.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    end: watch::Sender<bool>,
    ended: Receiver<Infallible>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at an address and serves `router`, whose handlers get the [`ClientSlot`] of their client as an
    /// extension.
    ///
    /// # Errors
    ///
    /// The address cannot be used, or the system refuses a thread or a descriptor.
    pub fn start(name: &str, address: SocketAddr, router: Router, limits: Limits) -> io::Result<Self> {
        let router = router.layer(middleware::from_fn(with_one_host));
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // Connections inherit this size.
        set_socket_send_buffer_size(&listener, SEND_BYTES)?;
        let address = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (end, ending) = watch::channel(false);
        let (open, ended) = bounded(0);
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let serve = move || {
            privileges::give_up_all();
            sandbox::pass();
            let _open = open;
            runtime.block_on(accept(listener, router, limits, ending));
        };
        let thread = Some(thread::Builder::new().name(name.to_owned()).spawn(serve)?);
        Ok(Self { address, end, ended, thread })
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Disconnected when the server has ended. That happens by itself only if its thread dies.
    pub const fn ended(&self) -> &Receiver<Infallible> {
        &self.ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This fails only if the thread has ended.
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Accepts clients until the end, and then gives them a little time to finish.
async fn accept(listener: TcpListener, router: Router, limits: Limits, mut ending: watch::Receiver<bool>) {
    let mut clients = JoinSet::new();
    let mut slots = ClientSlots::new(limits.connections);
    let mut taking = Lasting::new("take a connection");
    loop {
        // Removes only tasks that have ended. On an empty set `join_next` gives `None` at once, and the loop would
        // spin.
        while clients.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.changed() => break,
        };
        let Some((stream, peer)) = taking.note(accepted) else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let slot = Arc::new(ClientSlot::new(peer.ip(), clock::now().monotonic));
        if !slots.free_one() {
            // weir waits for none of its clients, because all are being served. This one may try again.
            continue;
        }
        let task = clients.spawn(serve(stream, router.clone(), slot.clone(), limits, ending.clone()));
        slots.take(slot, task);
    }
    drop(listener);
    let _ = timeout(limits.grace, async { while clients.join_next().await.is_some() {} }).await;
}

/// Serves one client, request by request.
async fn serve(
    stream: TcpStream,
    router: Router,
    slot: Arc<ClientSlot>,
    limits: Limits,
    mut ending: watch::Receiver<bool>,
) {
    // If this fails, answers still arrive, only later.
    let _ = stream.set_nodelay(true);
    let service = service(router, slot.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut is_ending = false;
    loop {
        let left = slot.left(limits.request, clock::now().monotonic);
        tokio::select! {
            // An error is the client's fault, and the client has already got an answer.
            _ = connection.as_mut() => return,
            () = sleep(left) => {
                if slot.left(limits.request, clock::now().monotonic).is_zero() {
                    return;
                }
            }
            _ = ending.changed(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Makes sure that each request names one host. A request with two `Host` headers, or with one that is no host, is
/// refused. A host in the request line replaces the header (RFC 9112 sections 3.2 and 3.2.2), so that handlers only
/// have to read the header.
async fn with_one_host(mut request: Request, next: Next) -> Response {
    if request.headers().get_all(HOST).iter().count() > 1 {
        return bad_request("the request has more than one header `Host`\n");
    }
    if !request.headers().get_all(HOST).iter().all(is_host) {
        return bad_request("the header `Host` is not a name or an address, with or without a port\n");
    }
    if request.uri().authority().is_some_and(|authority| !host::is_valid(authority.as_str())) {
        return bad_request("the host in the request line is not a name or an address, with or without a port\n");
    }
    let named = request.uri().host().and_then(|host| HeaderValue::try_from(host).ok());
    if let Some(host) = named {
        request.headers_mut().insert(HOST, host);
    }
    next.run(request).await
}

fn is_host(host: &HeaderValue) -> bool {
    host.to_str().is_ok_and(host::is_valid)
}

fn bad_request(why: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, why).into_response()
}

/// The router, with the client's slot attached to each request.
fn service(
    router: Router,
    slot: Arc<ClientSlot>,
) -> impl Service<
    hyper::Request<Incoming>,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Result<Response, Infallible>> + Send,
> {
    let service = TowerToHyperService::new(router);
    service_fn(move |mut request: hyper::Request<Incoming>| {
        slot.request_begins(clock::now().monotonic);
        request.extensions_mut().insert(slot.clone());
        service.call(request)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpStream},
    };

    use axum::{http::HeaderMap, routing::get};

    use super::*;

    /// Far longer than anything takes here; only a failing test waits for it.
    const LONG: Duration = Duration::from_secs(20);
    const LIMITS: Limits = Limits { connections: 4, request: LONG, grace: LONG };

    fn server(limits: Limits) -> Server {
        let host = |headers: HeaderMap| async move { headers[HOST].to_str().unwrap_or_default().to_owned() };
        let router = Router::new().route("/", get(|| async { "hello" })).route("/host", get(host));
        Server::start("weir-test", (Ipv4Addr::LOCALHOST, 0).into(), router, limits).unwrap()
    }

    fn connect(server: &Server) -> TcpStream {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Returns everything that the server answers to these bytes, until it closes the connection.
    fn answer(server: &Server, request: &[u8]) -> String {
        let mut stream = connect(server);
        // If the server has closed the connection, it has sent its reason before.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    const HELLO: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    #[test]
    fn silent_clients_keep_no_other_client_out() {
        let server = server(LIMITS);
        let mut silent: Vec<_> = (0..40).map(|_| connect(&server)).collect();
        for stream in &mut silent {
            // The first of them are closed already.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ");
        }
        for _ in 0..10 {
            assert!(answer(&server, HELLO).ends_with("hello"));
        }
        let mut first = Vec::new();
        // A close may arrive as a reset, because the server has not read what was sent.
        let _ = silent[0].read_to_end(&mut first);
        assert!(first.is_empty());
    }

    #[test]
    fn garbage_costs_its_connection_only() {
        let server = server(LIMITS);
        let refused = answer(&server, b"\x16\x03\x01\x02\x00 this is not HTTP\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        let many = [&b"GET / HTTP/1.1\r\nHost: x\r\n"[..], &b"a: b\r\n".repeat(HEADERS_MAX + 1), b"\r\n"].concat();
        assert!(answer(&server, &many).starts_with("HTTP/1.1 431"));
        let large = [&b"GET / HTTP/1.1\r\nHost: x\r\nx: "[..], &b"y".repeat(2 * HEAD_BYTES_MAX)].concat();
        let refused = answer(&server, &large);
        assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
        assert!(answer(&server, HELLO).ends_with("hello"));
    }

    #[test]
    fn a_request_names_one_host() {
        let server = server(LIMITS);
        let host = |target: &str, hosts: &str| {
            answer(&server, format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n").as_bytes())
        };
        assert!(host("/host", "Host: localhost:1\r\n").ends_with("\r\n\r\nlocalhost:1"));
        let two = host("/host", "Host: localhost\r\nX: y\r\nhost: evil.example\r\n");
        assert!(two.starts_with("HTTP/1.1 400") && two.contains("more than one header `Host`"), "{two}");
        let absolute = host("http://evil.example:9469/host", "Host: localhost\r\n");
        assert!(absolute.ends_with("\r\n\r\nevil.example"), "the request line counts: {absolute}");
        for refused in [
            host("/host", "Host: localhost:80@evil.example\r\n"),
            host("/host", "Host: user@localhost\r\n"),
            host("http://localhost:80@evil.example:9469/host", "Host: localhost\r\n"),
        ] {
            assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("not a name or an address"), "{refused}");
        }
    }

    #[test]
    fn a_request_that_takes_too_long_is_broken_off() {
        let server = server(Limits { request: Duration::from_millis(50), ..LIMITS });
        assert_eq!(answer(&server, b"GET / HTTP/1.1\r\nHost: x\r\n"), "", "half of a request");
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let server = server(LIMITS);
        let address = server.address();
        let _idle = connect(&server);
        let ended = server.ended().clone();
        drop(server);
        assert!(ended.recv().is_err() && TcpStream::connect(address).is_err());
    }
}
