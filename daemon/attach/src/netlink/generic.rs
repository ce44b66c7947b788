//! Asks by generic netlink what the drivers of interfaces support. It looks up a generic netlink family by its name.

use std::io;

use rustix::net::netlink::GENERIC;

use super::{
    message::{Message, NESTED, ONE, attributes, half, put, text, value},
    socket::Socket,
};

/// The request for a family by its name, and the attributes of the request and the answer.
const CTRL_CMD_GETFAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
const CTRL_ATTR_FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
const CTRL_ATTR_FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;

/// The XDP features that the driver of an interface supports, as a set of [`XDP_BASIC`] and others; `None` if the
/// kernel does not report them (before Linux 6.3).
pub fn xdp_features(ifindex: u32) -> Option<u64> {
    const NETDEV_CMD_DEV_GET: u8 = 1;
    const NETDEV_A_DEV_IFINDEX: u16 = 1;
    const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
    let mut question = Vec::new();
    put(&mut question, NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
    let answer = ask("netdev", NETDEV_CMD_DEV_GET, &question).ok()?;
    let features = value(&answer, NETDEV_A_DEV_XDP_FEATURES)?;
    Some(u64::from_ne_bytes(features.try_into().ok()?))
}

/// In [`xdp_features`]: the driver can run programs (`NETDEV_XDP_ACT_BASIC`).
pub const XDP_BASIC: u64 = 1;
/// In [`xdp_features`]: a packet that does not fit into one buffer arrives in several (`NETDEV_XDP_ACT_RX_SG`).
pub const XDP_FRAGMENTS: u64 = 32;

/// The offloads of an interface that are on, by the kernel's names as in `ethtool -k` (`rx-lro`, `hw-tc-offload`);
/// `None` if the kernel does not report them (before Linux 5.7).
pub fn offloads(ifindex: u32) -> Option<Vec<String>> {
    const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
    const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
    const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
    const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
    const ETHTOOL_A_BITSET_BITS: u16 = 3;
    const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
    let (mut header, mut question) = (Vec::new(), Vec::new());
    put(&mut header, ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes());
    put(&mut question, ETHTOOL_A_FEATURES_HEADER | NESTED, &header);
    let answer = ask("ethtool", ETHTOOL_MSG_FEATURES_GET, &question).ok()?;
    let bits = value(value(&answer, ETHTOOL_A_FEATURES_ACTIVE)?, ETHTOOL_A_BITSET_BITS)?;
    Some(attributes(bits).filter_map(|(_, bit)| Some(text(value(bit, ETHTOOL_A_BITSET_BIT_NAME)?))).collect())
}

/// Sends a question to the family with this name; returns the attributes of the first answer.
fn ask(family: &str, command: u8, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = Socket::open(Some(GENERIC))?;
    let mut first = |kind: u16, command: u8, question: &[u8]| -> io::Result<Vec<u8>> {
        let body = [&[command, 1, 0, 0], question].concat();
        let answers = socket.ask(kind, ONE, &body, answer)?;
        answers.into_iter().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    let mut name = Vec::new();
    put(&mut name, CTRL_ATTR_FAMILY_NAME, &[family.as_bytes(), &[0]].concat());
    let about = first(libc::GENL_ID_CTRL as u16, CTRL_CMD_GETFAMILY, &name)?;
    let id = value(&about, CTRL_ATTR_FAMILY_ID).and_then(|id| half(id, 0));
    first(id.ok_or(io::ErrorKind::NotFound)?, command, question)
}

/// Reads the attributes of an answer.
fn answer(message: &Message<'_>) -> Option<Vec<u8>> {
    /// `struct genlmsghdr`: command, version, and two reserved bytes.
    const GENERIC_BYTES: usize = size_of::<libc::genlmsghdr>();
    Some(message.body.get(GENERIC_BYTES..)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_family_is_an_error() {
        assert!(ask("weir-none", 1, &[]).is_err());
    }

    #[test]
    fn the_controller_describes_itself() {
        let mut name = Vec::new();
        put(&mut name, CTRL_ATTR_FAMILY_NAME, b"nlctrl\0");
        let about = ask("nlctrl", CTRL_CMD_GETFAMILY, &name).unwrap();
        assert_eq!(value(&about, CTRL_ATTR_FAMILY_NAME).map(text).as_deref(), Some("nlctrl"));
    }
}
