//! Taps: interfaces measured by packet sockets (`AF_PACKET`), where eBPF is not to be had or not asked for.
//!
//! ```text
//! kernel, per tap:   packets that go one way -> ring (`ring`)
//! reader, a thread:  rings of its taps -> what was on the wire (`frame`) -> the kernel program's twin -> shard
//! ```
//!
//! There are as many readers as taps, but no more than CPUs. A tap is a socket of one direction of one interface, so
//! that what a socket dropped is known for each. The attaching thread opens it and hands it to its reader; from then on
//! only the reader touches it. Rings are read whether or not a window closes, and nothing of the eBPF path waits for
//! them.
//!
//! What it costs beside eBPF: the kernel copies each packet's beginning, and userspace parses it. What it sees: ingress
//! after XDP and GRO and before the tc hook, egress after the tc hook and the queueing discipline.

mod frame;
mod reader;
mod ring;

use std::{io, sync::Arc};

use crossbeam::channel::{Receiver, Sender, bounded};
use rustix::thread::{CapabilitySet, capabilities};
use weir_common::{control::INTERFACES_MAX, packet};
use weir_sketch::Seen;

pub use self::{reader::Reader, ring::PacketSocket};
use crate::{
    attach::netlink::Link,
    config::{Config, Interface, Mode, Way},
    datapath::{
        kernel::{KernelError, Plan},
        ring::Waker,
    },
    measure::shard::Shard,
};

/// What the reader of a tap is told.
enum Command {
    /// Measure what this socket sees.
    Open(Box<Opened>),
    /// Measure what the socket of this slot has seen until now, and close it.
    Close(u8),
}

/// A socket for a slot.
struct Opened {
    slot: u8,
    link: packet::Link,
    /// The longest packet after the link layer's header, in bytes.
    mtu: u32,
    socket: PacketSocket,
}

/// Hands taps to the readers.
pub struct Taps {
    readers: Vec<Handle>,
    ring_bytes: usize,
}

#[derive(Clone)]
struct Handle {
    commands: Sender<Command>,
    waker: Waker,
}

/// A tap, which its reader closes when this is dropped.
pub struct Tap {
    slot: u8,
    reader: Handle,
}

impl Taps {
    /// As many readers as there are `shards`, and who hands taps to them.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new(
        config: &Config,
        plan: &Plan,
        seen: &Arc<Seen>,
        shards: impl Iterator<Item = Box<Shard>>,
    ) -> io::Result<(Self, Vec<Reader>)> {
        let (mut handles, mut readers) = (Vec::new(), Vec::new());
        for (nth, shard) in shards.enumerate() {
            // A tap opens and closes, and does not do so again before its reader has closed a window or idled.
            let (commands, told): (_, Receiver<Command>) = bounded(2 * INTERFACES_MAX as usize);
            let waker = Waker::new()?;
            let plan = Plan { slot_key: plan.slot_key.derive(&format!("reader {nth}")), ..*plan };
            readers.push(Reader::new(told, waker.clone(), &plan, &config.sampling, seen.clone(), shard));
            handles.push(Handle { commands, waker });
        }
        Ok((Self { readers: handles, ring_bytes: config.datapath.packet_ring as usize }, readers))
    }

    /// Begins to measure what goes this way by an interface, into a slot.
    ///
    /// # Errors
    ///
    /// Those of [`PacketSocket::open`].
    pub fn open(&self, link: &Link, layer: packet::Link, way: Way, slot: usize) -> io::Result<Tap> {
        let socket = PacketSocket::open(link, way, self.ring_bytes)?;
        let reader = self.readers.get(slot % self.readers.len().max(1));
        let reader = reader.ok_or_else(|| io::Error::other("there is no reader of packet sockets"))?.clone();
        let slot = slot as u8;
        reader.tell(Command::Open(Box::new(Opened { slot, link: layer, mtu: link.mtu, socket })));
        Ok(Tap { slot, reader })
    }
}

impl Handle {
    fn tell(&self, command: Command) {
        // A reader that has ended is noticed by whoever waits for its windows.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.reader.tell(Command::Close(self.slot));
    }
}

/// Whether any of these interfaces is to be measured by a program.
pub fn needs_programs(interfaces: &[Interface]) -> bool {
    interfaces.is_empty() || interfaces.iter().any(|interface| interface.mode != Mode::AfPacket)
}

/// How many taps these interfaces may need, with programs or without.
pub fn count(interfaces: &[Interface], has_programs: bool) -> usize {
    let tapped = |interface: &&Interface| interface.mode == Mode::AfPacket || !has_programs;
    let slots = |interface: &Interface| match interface.is_pattern() {
        true => INTERFACES_MAX as usize,
        false => interface.direction.ways().len(),
    };
    interfaces.iter().filter(tapped).map(slots).sum::<usize>().min(INTERFACES_MAX as usize)
}

/// Whether taps may stand in for programs that could not be loaded: this process lacks the privilege for eBPF but not
/// the one for packet sockets, and no interface asks for a program.
pub fn stand_in(error: &KernelError, interfaces: &[Interface]) -> bool {
    let leaves_it_to_weir = |interface: &Interface| matches!(interface.mode, Mode::Auto | Mode::AfPacket);
    (error.is_not_permitted() || !has_cap_bpf())
        && interfaces.iter().all(leaves_it_to_weir)
        && PacketSocket::is_permitted()
}

/// Whether this process may load programs, as far as its own capabilities go.
fn has_cap_bpf() -> bool {
    let either = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(either))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Direction;

    fn rule(name: &str, mode: Mode, direction: Direction) -> Interface {
        Interface { name: name.to_owned(), mode, direction }
    }

    #[test]
    fn a_tap_is_for_each_direction_that_no_program_measures() {
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
    fn taps_stand_in_for_no_mode_that_was_asked_for() {
        for mode in [Mode::Native, Mode::Generic, Mode::Tcx] {
            let rules = [rule("eth0", Mode::Auto, Direction::Both), rule("eth1", mode, Direction::Ingress)];
            assert!(!stand_in(&KernelError::NotPermitted, &rules));
            assert_eq!(stand_in(&KernelError::NotPermitted, &rules[..1]), PacketSocket::is_permitted());
        }
    }
}
