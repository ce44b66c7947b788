//! Taps: interfaces measured through packet sockets (`AF_PACKET`), if eBPF is not possible or not wanted.
//!
//! ```text
//! kernel, per tap:   packets of one direction -> the socket's ring (`socket`)
//! reader, a thread:  rings of its taps (`tapped`) -> packets on the wire (`frame`) -> userspace program -> shard
//! ```
//!
//! There are as many readers as taps, but no more than CPUs. A tap is a socket for one direction of one interface, so
//! drops are known per direction. The attacher thread opens the tap and hands it to its reader; from then on only the
//! reader uses it. Readers read continuously, not only when a window closes, and nothing in the eBPF path waits for
//! them.
//!
//! The cost compared with eBPF: the kernel copies the beginning of each packet, and userspace parses it. A tap sees
//! ingress after XDP and GRO and before the tc hook, and egress after the tc hook and the queueing discipline.

mod frame;
mod own;
mod socket;
mod tapped;

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};

use crossbeam::channel::{Receiver, Sender, bounded};
use rustix::thread::{CapabilitySet, capabilities};
use tracing::debug;
use weir_common::control::{Feeds, SLOTS_MAX};
use weir_config::{Interface, Mode, limits::TAPS_MAX, slots};
use weir_system::waker::Waker;

pub use self::{
    own::{LinkAddress, OWN_MAX, Own, memory},
    socket::{PacketSocket, Target},
    tapped::{Feeding, Tapped, wait},
};
use super::error::KernelError;

/// A command to the reader of a tap.
pub enum Command {
    /// Begin to measure this tap.
    Open(Box<Tapped>),
    /// Measure the packets that the tap of this slot has seen so far, and close it.
    Close(u8),
}

/// The commands for a reader, and its waker.
pub struct ReaderCommands {
    /// The commands, in order.
    pub commands: Receiver<Command>,
    /// Wakes the reader, so that it looks for commands.
    pub waker: Waker,
}

/// Hands taps to the readers.
pub struct Taps {
    readers: Vec<Handle>,
    ring_bytes: usize,
    own: Arc<RwLock<Own>>,
}

#[derive(Clone)]
struct Handle {
    commands: Sender<Command>,
    waker: Waker,
}

/// A tap. When this is dropped, the reader closes the tap.
pub struct Tap {
    slot: u8,
    feeding: Feeding,
    reader: Handle,
}

impl Taps {
    /// Creates the taps for `readers` readers, with rings of `ring_bytes` bytes, and the commands of these readers.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new(readers: usize, ring_bytes: usize) -> io::Result<(Self, Vec<ReaderCommands>)> {
        let (mut handles, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..readers {
            // Each slot needs at most one open and one close. More commands follow only after the reader has closed a
            // window or been idle.
            let (commands, told) = bounded(2 * SLOTS_MAX as usize);
            let waker = Waker::new()?;
            inboxes.push(ReaderCommands { commands: told, waker: waker.clone() });
            handles.push(Handle { commands, waker });
        }
        Ok((Self { readers: handles, ring_bytes, own: Arc::default() }, inboxes))
    }

    /// Replaces the router's own addresses.
    pub fn set_own(&self, own: Own) {
        let mut known = self.own.write().unwrap_or_else(PoisonError::into_inner);
        if *known != own {
            debug!(addresses = own.count(), "the router's own addresses have changed");
            *known = own;
        }
    }

    /// Starts to measure one direction of an interface, into a slot.
    ///
    /// # Errors
    ///
    /// Those of [`PacketSocket::open`].
    pub fn open(&self, target: &Target<'_>, slot: usize, feeds: Feeds) -> io::Result<Tap> {
        let socket = PacketSocket::open(target, self.ring_bytes)?;
        let reader = self.readers.get(slot % self.readers.len().max(1));
        let reader = reader.ok_or_else(|| io::Error::other("there is no reader of packet sockets"))?.clone();
        let slot = slot as u8;
        let feeding = Feeding::new(feeds, self.own.clone());
        reader.tell(Command::Open(Box::new(Tapped::new(slot, feeding.clone(), target.link, target.mtu, socket))));
        Ok(Tap { slot, feeding, reader })
    }
}

impl Tap {
    /// Changes which of its packets feed totals and lists.
    pub fn set_feeds(&self, feeds: Feeds) {
        self.feeding.set(feeds);
    }
}

impl Handle {
    fn tell(&self, command: Command) {
        // If the reader has ended, the coordinator notices when it waits for the reader's window.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.reader.tell(Command::Close(self.slot));
    }
}

/// Returns true if an eBPF program should measure any of these interfaces.
pub fn needs_programs(interfaces: &[Interface]) -> bool {
    interfaces.is_empty() || interfaces.iter().any(|interface| interface.mode != Mode::AfPacket)
}

/// How many taps these interfaces may need, with or without programs.
pub fn count(interfaces: &[Interface], has_programs: bool) -> usize {
    slots(interfaces.iter().filter(|interface| interface.mode == Mode::AfPacket || !has_programs)).min(TAPS_MAX)
}

/// Returns true if taps may replace programs that could not be loaded: this process may not use eBPF but may open
/// packet sockets, and no interface is configured to use a program.
pub fn stand_in(error: &KernelError, interfaces: &[Interface]) -> bool {
    (error.is_not_permitted() || !has_cap_bpf())
        && interfaces.iter().all(leaves_it_to_weir)
        && PacketSocket::is_permitted()
}

fn leaves_it_to_weir(interface: &Interface) -> bool {
    matches!(interface.mode, Mode::Auto | Mode::AfPacket)
}

/// Returns true if this process has the capabilities to load programs.
fn has_cap_bpf() -> bool {
    let either = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(either))
}

#[cfg(test)]
mod tests {
    use weir_config::Direction;

    use super::*;

    fn rule(name: &str, mode: Mode, direction: Direction) -> Interface {
        Interface { name: name.to_owned(), mode, direction, feeds: None }
    }

    #[test]
    fn each_direction_without_a_program_has_a_tap() {
        let rules = [
            rule("eth0", Mode::AfPacket, Direction::Both),
            rule("eth1", Mode::Auto, Direction::Ingress),
            rule("ppp*", Mode::Auto, Direction::Ingress),
        ];
        for (rules, with_programs, without) in [(&rules[..1], 2, 2), (&rules[..2], 2, 3), (&rules[..], 2, 64)] {
            assert_eq!((count(rules, true), count(rules, false)), (with_programs, without), "{rules:?}");
        }
        assert!(!needs_programs(&rules[..1]) && needs_programs(&rules) && needs_programs(&[]));
    }

    #[test]
    fn taps_do_not_replace_a_configured_mode() {
        for mode in [Mode::Native, Mode::Generic, Mode::Tcx, Mode::Tc] {
            let rules = [rule("eth0", Mode::Auto, Direction::Both), rule("eth1", mode, Direction::Ingress)];
            assert!(!stand_in(&KernelError::NotPermitted, &rules));
            assert_eq!(stand_in(&KernelError::NotPermitted, &rules[..1]), PacketSocket::is_permitted());
        }
    }
}
