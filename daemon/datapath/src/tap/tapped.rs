//! One tap as its reader sees it: packets from its socket, and an account of dropped packets.

use std::{
    io,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tracing::debug;
use weir_common::{
    control::Feeds,
    ledger::Tally,
    packet::{Link, REACH_MAX},
};
use weir_system::clock;

use super::{super::userspace::Buffer, own::Own, socket::PacketSocket};

/// A packet that has arrived becomes readable some milliseconds later. After this time it counts as lost, and is
/// skipped if it appears after all.
const OVERDUE: Duration = Duration::from_secs(1);
/// The pause between two checks for such a packet.
const PAUSE: Duration = Duration::from_millis(5);

/// A tap, and its account of the open window.
pub struct Tapped {
    /// The slot that its packets count for.
    pub slot: u8,
    feeding: Feeding,
    link: Link,
    socket: PacketSocket,
    sizes: Sizes,
    /// The number of packets that the socket dropped.
    dropped: u64,
}

/// Which packets of a tap feed totals and lists; its other packets feed on another interface.
#[derive(Clone)]
pub struct Feeding {
    feeds: Arc<AtomicU8>,
    own: Arc<RwLock<Own>>,
}

impl Feeding {
    /// `own` are the router's own addresses.
    pub(super) fn new(feeds: Feeds, own: Arc<RwLock<Own>>) -> Self {
        Self { feeds: Arc::new(AtomicU8::new(feeds as u8)), own }
    }

    /// Changes which packets feed.
    pub(super) fn set(&self, feeds: Feeds) {
        self.feeds.store(feeds as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Feeds {
        let feeds = self.feeds.load(Ordering::Relaxed);
        [Feeds::All, Feeds::Local].into_iter().find(|one| *one as u8 == feeds).unwrap_or(Feeds::None)
    }
}

/// The buffer sizes of a tap. A socket only reports how many buffers it dropped, not their sizes.
struct Sizes {
    /// The buffers received from the socket in the open window, and their bytes on the wire.
    taken: Tally,
    /// The mean bytes on the wire per buffer, in the last window that had any buffer.
    mean: u64,
    /// The most packets and the most bytes on the wire of any buffer since the tap was opened. The bytes are at least
    /// those of the interface's longest packet. A dropped merged buffer may have been larger still.
    largest: Tally,
}

impl Tapped {
    /// Creates a tap whose packets start with `link` and have at most `mtu` bytes after that header.
    pub(super) fn new(slot: u8, feeding: Feeding, link: Link, mtu: u32, socket: PacketSocket) -> Self {
        Self { slot, feeding, link, socket, sizes: Sizes::new(link, mtu), dropped: 0 }
    }

    /// Returns which of its packets currently feed totals and lists.
    pub fn feeds(&self) -> Feeds {
        self.feeding.get()
    }

    /// The socket, for polling.
    pub const fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Passes on at most `most` packets of the next block, if one is ready.
    pub fn read(&mut self, most: u64, mut measure: impl FnMut(u8, &Buffer<'_>)) -> Option<u64> {
        let feeds = self.feeds();
        let &mut Self { slot, link, ref feeding, ref mut socket, ref mut sizes, .. } = self;
        let own = feeding.own.read().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = [0; REACH_MAX];
        socket.read(most, |frame| {
            let headers = frame.headers(&mut scratch);
            let (tally, uncertain) = frame.tally(link, headers);
            sizes.take(tally);
            let (tick, second) = (frame.tick, Some(frame.second));
            let repeated = feeds != Feeds::All;
            let mut buffer = Buffer { headers, link, tally, uncertain, tick, second, repeated };
            if feeds == Feeds::Local {
                buffer.repeated = !own.sends(&buffer.beginning(), link);
            }
            measure(slot, &buffer);
        })
    }

    /// Accounts for the packets that the socket has dropped since the last call, and returns how many.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn look(&mut self) -> io::Result<u64> {
        let dropped = self.socket.drops()?;
        self.dropped += dropped;
        Ok(dropped)
    }

    /// Clears the socket's error. While it is set, waiting for packets returns immediately.
    pub fn clear_error(&self) {
        if let Some(error) = self.socket.take_error() {
            // Most likely its interface went down, and may come up again.
            debug!(slot = self.slot, "a packet socket reports an error: {error}");
        }
    }

    /// Passes on all packets that had arrived at the last reading of the statistics. Returns the estimate of the
    /// packets dropped since the last call, and how far the truth may exceed it.
    ///
    /// # Errors
    ///
    /// The kernel refused to wait.
    pub fn settle(&mut self, mut measure: impl FnMut(u8, &Buffer<'_>)) -> io::Result<(Tally, Tally)> {
        let begun = clock::now().monotonic;
        while self.socket.unread() > 0 {
            let most = self.socket.unread();
            if self.read(most, &mut measure).is_some() {
                continue;
            }
            if clock::now().monotonic.saturating_sub(begun) > OVERDUE {
                self.dropped += self.socket.give_up();
            }
            self.clear_error();
            wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], PAUSE)?;
        }
        Ok(self.sizes.close(std::mem::take(&mut self.dropped)))
    }
}

/// Waits until one of these sockets is readable, or `timeout` has passed.
///
/// # Errors
///
/// The kernel refused to wait.
pub fn wait(sockets: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(sockets, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Sizes {
    fn new(link: Link, mtu: u32) -> Self {
        /// The header with one VLAN tag. The MTU does not include either.
        const ETHERNET_BYTES: u64 = 14 + 4;
        let header = if link == Link::Ethernet { ETHERNET_BYTES } else { 0 };
        let largest = Tally::new(1, u64::from(mtu) + header);
        Self { taken: Tally::default(), mean: largest.bytes, largest }
    }

    /// Accounts for a received buffer.
    fn take(&mut self, tally: Tally) {
        self.taken.add(Tally::new(1, tally.bytes));
        self.largest = Tally::new(self.largest.packets.max(tally.packets), self.largest.bytes.max(tally.bytes));
    }

    /// Ends the window. Returns the estimate for its `dropped` buffers, and how far the truth may exceed it. If no
    /// buffer was measured in this window, it uses the mean size of an earlier one.
    fn close(&mut self, dropped: u64) -> (Tally, Tally) {
        let taken = std::mem::take(&mut self.taken);
        if taken.packets > 0 {
            self.mean = taken.mean_bytes();
        }
        let counted = Tally::new(dropped, dropped * self.mean);
        let most = Tally::new(dropped * self.largest.packets, dropped * self.largest.bytes);
        (counted, most.since(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_buffers_have_the_mean_size_of_earlier_ones() {
        let mut sizes = Sizes::new(Link::Ethernet, 1500);
        sizes.take(Tally::new(1, 1000));
        sizes.take(Tally::new(1, 1200));
        assert_eq!(sizes.close(0), (Tally::default(), Tally::default()));
        assert_eq!(sizes.close(10), (Tally::new(10, 11_000), Tally::new(0, 10 * 1518 - 11_000)));
    }

    #[test]
    fn dropped_buffers_may_be_larger_than_received_ones() {
        let mut sizes = Sizes::new(Link::Ethernet, 1500);
        assert_eq!(sizes.close(1), (Tally::new(1, 1518), Tally::default()), "only the MTU is known");
        sizes.take(Tally::new(1, 66));
        assert_eq!(sizes.close(10), (Tally::new(10, 660), Tally::new(0, 15_180 - 660)));
        sizes.take(Tally::new(45, 68_130));
        assert_eq!(sizes.close(1), (Tally::new(1, 68_130), Tally::new(44, 0)));
        sizes.take(Tally::new(1, 66));
        assert_eq!(
            sizes.close(1),
            (Tally::new(1, 66), Tally::new(44, 68_130 - 66)),
            "the largest size is kept while the tap is open"
        );
        assert_eq!(Sizes::new(Link::RawIp, 1420).largest, Tally::new(1, 1420));
    }
}
