//! A proxy between a client and a server that may drop acknowledgements.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;

/// The proxy; its threads end with the connections, and with the test.
pub struct Proxy {
    swallows: Arc<AtomicBool>,
}

impl Proxy {
    /// Accepts connections at `address` for a server, and drops the server's acknowledgements.
    pub fn start(address: SocketAddr, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let swallows = Arc::new(AtomicBool::new(true));
        let shared = swallows.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (Ok(asks), Ok(answers)) = (client.try_clone(), server.try_clone()) else { continue };
                let shared = shared.clone();
                thread::spawn(move || forward(asks, server, &AtomicBool::new(false)));
                thread::spawn(move || forward(answers, client, &shared));
            }
        });
        Ok(Self { swallows })
    }

    /// Stops dropping acknowledgements, which are the only messages that a server sends to a sink.
    pub fn let_through(&self) {
        self.swallows.store(false, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, swallows: &AtomicBool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let has_message = buffer[..count].windows(5).any(|bytes| bytes == b"MSG _");
        let is_swallowed = has_message && swallows.load(Ordering::SeqCst);
        if !is_swallowed && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Both);
}
