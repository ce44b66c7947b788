//! Wakes a thread that waits for file descriptors (eventfd(2)).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::{EventfdFlags, eventfd};

/// One thread waits for this to become readable. Any thread can wake it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the current or the next wait return.
    pub fn wake(&self) {
        // This can only fail if the counter is full, and then the thread is about to wake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Resets the waker. Otherwise it would stay readable.
    pub fn clear(&self) {
        // This can only fail if the thread was not woken.
        let _ = rustix::io::read(&*self.0, &mut [0; size_of::<u64>()]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn it_stays_readable_until_it_is_cleared() {
        let waker = Waker::new().unwrap();
        let readable = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&waker, PollFlags::IN)], Some(&now)).unwrap() == 1
        };
        assert!(!readable());
        waker.clone().wake();
        waker.wake();
        assert!(readable() && readable());
        waker.clear();
        assert!(!readable());
    }
}
