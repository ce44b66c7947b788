//! The transport header.

use super::{Bytes, Parsed, Window};
use crate::{flow::class, proto};

/// The end of both ports, from the start of a transport header.
pub(super) const PORTS_END: usize = 4;
/// The end of the TCP flags.
pub(super) const FLAGS_END: usize = 14;
/// The end of the ICMP type and code.
const TYPE_END: usize = 2;

/// Reads the ports, or the type and code of ICMP, and the TCP flags, from a header at `at` of a packet that ends at
/// `end`. The frame may be longer, because short ones are padded.
///
/// Both ports are one read. From two optional reads LLVM would make a pointer where the verifier needs a number.
#[inline(always)]
pub(super) fn transport<B: Bytes + ?Sized>(packet: &B, at: usize, end: usize, parsed: Parsed) -> Parsed {
    let Parsed { mut key, mut tcp_flags, tos, vlan } = parsed;
    match key.proto() {
        proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE => {
            if at + PORTS_END <= end
                && let Some(window) = packet.window::<PORTS_END>(at)
            {
                let ports = u32::from_be(window.word32::<0>());
                key = key.with_both_ports(ports);
                if key.proto() == proto::TCP && at + FLAGS_END <= end {
                    tcp_flags = packet.u8(at + 13).unwrap_or(0);
                }
            } else {
                key = key.with_class(class::NO_TRANSPORT);
            }
        }
        proto::ICMP | proto::ICMPV6 => {
            if at + TYPE_END <= end
                && let Some(window) = packet.window::<TYPE_END>(at)
            {
                key = key.with_ports(window.u8::<0>().into(), window.u8::<1>().into());
            } else {
                key = key.with_class(class::NO_TRANSPORT);
            }
        }
        _ => {}
    }
    Parsed { key, tcp_flags, tos, vlan }
}
