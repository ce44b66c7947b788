//! The transport header.

use super::{Bytes, Parsed, Window};
use crate::{flow::class, proto};

/// Where both ports end, from the begin of a transport header.
pub(super) const PORTS_END: usize = 4;
/// Where the flags of TCP end.
pub(super) const FLAGS_END: usize = 14;
/// Where the type and the code of ICMP end.
const TYPE_END: usize = 2;

/// Reads ports, or the type and code of ICMP, and the flags of TCP, from a header at `at` of a packet that ends at
/// `end`. A frame may go on there: short ones are padded.
///
/// Both ports are one read. From two optional reads LLVM would make a pointer where the verifier wants a number.
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
