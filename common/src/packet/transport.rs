//! The transport header.

use super::{Bytes, Parsed, Window};
use crate::{flow::class, proto};

/// Reads ports, or the type and code of ICMP, and the flags of TCP.
///
/// Both ports are one read. From two optional reads LLVM would make a pointer where the verifier wants a number.
#[inline(always)]
pub(super) fn transport<B: Bytes + ?Sized>(packet: &B, at: usize, parsed: Parsed) -> Parsed {
    let Parsed { mut key, mut tcp_flags, tos, vlan } = parsed;
    match key.proto() {
        proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE => {
            if let Some(window) = packet.window::<4>(at) {
                let ports = u32::from_be(window.word32::<0>());
                key = key.with_both_ports(ports);
                if key.proto() == proto::TCP {
                    tcp_flags = packet.u8(at + 13).unwrap_or(0);
                }
            } else {
                key = key.with_class(class::NO_TRANSPORT);
            }
        }
        proto::ICMP | proto::ICMPV6 => {
            if let Some(window) = packet.window::<2>(at) {
                key = key.with_ports(window.u8::<0>().into(), window.u8::<1>().into());
            } else {
                key = key.with_class(class::NO_TRANSPORT);
            }
        }
        _ => {}
    }
    Parsed { key, tcp_flags, tos, vlan }
}
