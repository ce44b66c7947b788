//! A proxy between a client and a broker that may lose acknowledgements.

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

/// A connection that has sent so many bytes sends records.
const SENDS_RECORDS: usize = 4096;

/// The proxy; its threads end with the connections, and with the test.
pub struct Proxy {
    swallows: Arc<AtomicBool>,
}

impl Proxy {
    /// Accepts connections at `address` for a broker.
    pub fn start(address: SocketAddr, broker: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let swallows = Arc::new(AtomicBool::new(false));
        let shared = swallows.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(broker) = TcpStream::connect(broker) else { continue };
                let (Ok(asks), Ok(answers)) = (client.try_clone(), broker.try_clone()) else { continue };
                let (shared, sent) = (shared.clone(), Arc::new(AtomicUsize::new(0)));
                let counted = sent.clone();
                thread::spawn(move || {
                    forward(asks, broker, |count| {
                        counted.fetch_add(count, Ordering::SeqCst);
                        true
                    });
                });
                thread::spawn(move || {
                    let is_heard = |_| sent.load(Ordering::SeqCst) < SENDS_RECORDS || !shared.load(Ordering::SeqCst);
                    forward(answers, client, is_heard);
                });
            }
        });
        Ok(Self { swallows })
    }

    /// Drops the broker's answers to records from now on.
    pub fn swallow(&self) {
        self.swallows.store(true, Ordering::SeqCst);
    }

    /// Stops dropping answers.
    pub fn let_through(&self) {
        self.swallows.store(false, Ordering::SeqCst);
    }
}

/// Forwards what `passes`, given its bytes.
fn forward(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(usize) -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if passes(count) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Both);
}
