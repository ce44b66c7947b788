//! Live traffic: sends frames on an interface, unchanged.
//!
//! It uses an `AF_PACKET` socket, which takes a whole frame with its Ethernet header. The frames arrive at the other
//! end of a virtual cable.

use std::{io, thread, time::Duration};

use anyhow::{Context, Result, anyhow, bail, ensure};
use pnet::datalink::{self, Channel, Config, DataLinkSender};
use rustix::io::Errno;
use weir_common::ledger::Tally;

use crate::clock;

/// No call sends more packets than this: at a million a second, a minute and a half.
pub const PACKETS_MAX: u64 = 100_000_000;
/// How long to wait when the kernel has no room, before the same frame is tried again.
const RETRY_INTERVAL: Duration = Duration::from_micros(50);
/// How often one frame is tried again: for about ten seconds.
const RETRIES_MAX: u32 = 200_000;
/// Above this rate, pacing waits only after every few packets, because a sleep takes some 60 us.
const PACED_SINGLY_MAX: u32 = 1_000;

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the kernel takes it.
    Unlimited,
    /// This many packets a second (0 counts as 1), evenly within some milliseconds.
    PacketsPerSecond(u32),
}

/// Sends frames on `interface` of the network namespace that the calling thread is in, and returns what was sent.
///
/// If there is no room for a frame, it is tried again, so that none is left out.
///
/// # Errors
///
/// No such interface; no permission (`CAP_NET_RAW`); a frame that the interface does not take, with its number and
/// length; more than [`PACKETS_MAX`] frames.
pub fn send<F: AsRef<[u8]>>(interface: &str, frames: impl IntoIterator<Item = F>, pace: Pace) -> Result<Tally> {
    let mut sender = open(interface)?;
    let mut sent = Tally::default();
    let start = clock::now();
    for frame in frames {
        let frame = frame.as_ref();
        ensure!(sent.packets < PACKETS_MAX, "{PACKETS_MAX} packets are sent and that is the most");
        if let Some(early) = pace.due(sent.packets).and_then(|due| due.checked_sub(start.elapsed())) {
            thread::sleep(early);
        }
        send_one(&mut *sender, frame)
            .with_context(|| format!("cannot send frame {} of {} bytes on {interface}", sent.packets, frame.len()))?;
        sent.add(Tally::new(1, frame.len() as u64));
    }
    Ok(sent)
}

impl Pace {
    /// When packet `nth` is due after the start; `None` if the sender does not wait for it.
    fn due(self, nth: u64) -> Option<Duration> {
        let Self::PacketsPerSecond(rate) = self else { return None };
        let rate = rate.max(1);
        let stride = u64::from((rate / PACED_SINGLY_MAX).max(1));
        nth.is_multiple_of(stride).then(|| Duration::from_secs_f64(nth as f64 / f64::from(rate)))
    }
}

fn open(interface: &str) -> Result<Box<dyn DataLinkSender>> {
    let interfaces = datalink::interfaces();
    let found = interfaces.iter().find(|candidate| candidate.name == interface).ok_or_else(|| {
        let names: Vec<_> = interfaces.iter().map(|candidate| candidate.name.as_str()).collect();
        anyhow!("interface \"{interface}\" not found (have: {})", names.join(", "))
    })?;
    let config = Config { promiscuous: false, ..Config::default() };
    match datalink::channel(found, config).with_context(|| format!("cannot open a packet socket on {interface}"))? {
        Channel::Ethernet(sender, _) => Ok(sender),
        _ => bail!("the packet socket on {interface} is not one for Ethernet"),
    }
}

fn send_one(sender: &mut dyn DataLinkSender, frame: &[u8]) -> io::Result<()> {
    for _ in 0..RETRIES_MAX {
        match sender.send_to(frame, None) {
            None => return Err(io::Error::other("the packet socket took nothing")),
            Some(Err(error)) if is_no_room(&error) => thread::sleep(RETRY_INTERVAL),
            Some(result) => return result,
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("there was no room for it {RETRIES_MAX} times")))
}

fn is_no_room(error: &io::Error) -> bool {
    const NO_ROOM: [Errno; 3] = [Errno::NOBUFS, Errno::AGAIN, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| NO_ROOM.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paced_packets_are_due_evenly() {
        assert_eq!(Pace::Unlimited.due(5), None);
        assert_eq!(Pace::PacketsPerSecond(100).due(250), Some(Duration::from_millis(2500)));
        let fast = Pace::PacketsPerSecond(50_000);
        assert_eq!((fast.due(49), fast.due(50)), (None, Some(Duration::from_millis(1))));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_with_those_that_are() {
        let error = send("weir-none0", [[0u8; 60]], Pace::Unlimited).unwrap_err().to_string();
        assert!(error.starts_with("interface \"weir-none0\" not found (have: lo"), "{error}");
    }
}
