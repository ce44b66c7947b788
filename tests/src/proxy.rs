//! A proxy between a client and a server, which can drop the server's acknowledgements.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Result;

/// The proxy; its threads end with the connections, and with the test.
pub struct Proxy {
    drops: Arc<AtomicBool>,
}

/// Bytes from a server to a client.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The bytes of the answer.
    pub bytes: &'a [u8],
    /// How many bytes the client has sent on this connection so far.
    pub sent: usize,
}

impl Proxy {
    /// Accepts connections at `address` for a server. `is_acknowledgement` recognises the answers that it can drop.
    ///
    /// # Errors
    ///
    /// The address is not free.
    pub fn start(address: SocketAddr, server: SocketAddr, is_acknowledgement: fn(Answer<'_>) -> bool) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let drops = Arc::new(AtomicBool::new(false));
        let shared = drops.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (Ok(asks), Ok(answers)) = (client.try_clone(), server.try_clone()) else { continue };
                let (shared, sent) = (shared.clone(), Arc::new(AtomicUsize::new(0)));
                let counted = sent.clone();
                thread::spawn(move || {
                    forward(asks, server, |bytes| {
                        counted.fetch_add(bytes.len(), Ordering::SeqCst);
                        true
                    });
                });
                thread::spawn(move || {
                    forward(answers, client, |bytes| {
                        let answer = Answer { bytes, sent: sent.load(Ordering::SeqCst) };
                        !(shared.load(Ordering::SeqCst) && is_acknowledgement(answer))
                    });
                });
            }
        });
        Ok(Self { drops })
    }

    /// Drops acknowledgements from now on.
    pub fn drop_acknowledgements(&self) {
        self.drops.store(true, Ordering::SeqCst);
    }

    /// Stops dropping acknowledgements.
    pub fn let_through(&self) {
        self.drops.store(false, Ordering::SeqCst);
    }
}

/// Forwards the bytes that pass.
fn forward(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        if passes(bytes) && to.write_all(bytes).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Both);
}
