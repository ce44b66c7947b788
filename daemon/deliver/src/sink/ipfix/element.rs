//! Information elements, by their numbers in IANA's registry "IPFIX Information Elements" (RFC 7012).

/// Byte count. weir counts the bytes of the link layer, as in [`LAYER_2_OCTETS`].
pub const OCTETS: u16 = 1;
pub const PACKETS: u16 = 2;
pub const PROTOCOL: u16 = 4;
pub const TCP_CONTROL_BITS: u16 = 6;
pub const SRC_PORT: u16 = 7;
pub const SRC_V4: u16 = 8;
pub const SRC_V4_LENGTH: u16 = 9;
pub const INGRESS_INTERFACE: u16 = 10;
pub const DST_PORT: u16 = 11;
pub const DST_V4: u16 = 12;
pub const DST_V4_LENGTH: u16 = 13;
pub const EGRESS_INTERFACE: u16 = 14;
pub const SRC_AS: u16 = 16;
pub const DST_AS: u16 = 17;
pub const SRC_V6: u16 = 27;
pub const DST_V6: u16 = 28;
pub const SRC_V6_LENGTH: u16 = 29;
pub const DST_V6_LENGTH: u16 = 30;
pub const ICMP_V4: u16 = 32;
/// One packet in this many was sampled. IANA has newer elements for this, but collectors read this one.
pub const SAMPLING_INTERVAL: u16 = 34;
pub const VLAN: u16 = 58;
pub const IP_VERSION: u16 = 60;
/// 0: received, 1: sent.
pub const DIRECTION: u16 = 61;
pub const INTERFACE_NAME: u16 = 82;
pub const ICMP_V6: u16 = 139;
pub const DOMAIN: u16 = 149;
/// The start of a flow, in milliseconds since 1970.
pub const START: u16 = 152;
pub const END: u16 = 153;
/// Packets that were seen and not measured since the exporter began (RFC 7011 section 4.2).
pub const IGNORED_PACKETS: u16 = 164;
pub const IGNORED_OCTETS: u16 = 165;
pub const DSCP: u16 = 195;
pub const LAYER_2_OCTETS: u16 = 352;
