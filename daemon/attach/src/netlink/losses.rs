//! Reads the losses that an interface itself counted (`struct rtnl_link_stats64` of `linux/if_link.h`).

use std::io;

use libc::{IFLA_STATS64, RTM_GETLINK, RTM_NEWLINK};

use super::{
    message::{Message, ONE, double, value},
    routing::LINK_BYTES,
    socket::Socket,
};

/// The counters of lost packets: their names in `ip -s -s link`, and their offsets in the structure.
const COUNTERS: [(&str, usize); 8] = [
    ("rx_errors", 4),
    ("tx_errors", 5),
    ("rx_dropped", 6),
    ("tx_dropped", 7),
    ("rx_over_errors", 11),
    ("rx_fifo_errors", 14),
    ("rx_missed_errors", 15),
    ("rx_nohandler", 23),
];

/// The counters that are not zero. They count since the interface was created or its driver was loaded.
///
/// # Errors
///
/// There is no such interface, or the kernel refused.
pub fn losses(ifindex: u32) -> io::Result<Vec<(&'static str, u64)>> {
    let mut question = [0; LINK_BYTES];
    question[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let answers = Socket::open(None)?.ask(RTM_GETLINK, ONE, &question, read)?;
    Ok(answers.into_iter().next().unwrap_or_default())
}

fn read(message: &Message<'_>) -> Option<Vec<(&'static str, u64)>> {
    if message.kind != RTM_NEWLINK {
        return None;
    }
    let counted = value(message.body.get(LINK_BYTES..)?, IFLA_STATS64)?;
    let one = |(name, place): (&'static str, usize)| Some((name, double(counted, 8 * place)?));
    Some(COUNTERS.into_iter().filter_map(one).filter(|(_, count)| *count > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::{super::message::put, *};

    #[test]
    fn counters_that_are_not_zero_are_returned_by_name() {
        let mut counters = [0_u64; 24];
        (counters[0], counters[6], counters[15]) = (1_000, 12, 3);
        let bytes: Vec<u8> = counters.into_iter().flat_map(u64::to_ne_bytes).collect();
        let mut body = vec![0; LINK_BYTES];
        put(&mut body, IFLA_STATS64, &bytes);
        let message = |body| Message { kind: RTM_NEWLINK, flags: 0, sequence: 1, body };
        assert_eq!(read(&message(&body)).unwrap(), [("rx_dropped", 12), ("rx_missed_errors", 3)]);
        // Older kernels have fewer counters.
        let mut short = vec![0; LINK_BYTES];
        put(&mut short, IFLA_STATS64, &bytes[..8 * 7]);
        assert_eq!(read(&message(&short)).unwrap(), [("rx_dropped", 12)]);
        assert!(read(&message(&[])).is_none());
    }

    #[test]
    fn the_loopback_has_losses_and_a_missing_interface_is_an_error() {
        assert!(losses(1).is_ok());
        assert!(losses(u32::MAX >> 1).is_err());
    }
}
