//! Lists the chains of nftables that translate addresses, and its flowtables (`nfnetlink.h` and `nf_tables.h` of
//! `linux/netfilter`).

use std::io;

use rustix::{net::netlink::NETFILTER, system::uname};
use weir_system::bounded;

use super::{
    message::{ALL, Message, attributes, text, value},
    socket::Socket,
};

/// The nftables subsystem of netfilter's netlink: the upper byte of a message's type.
const NFTABLES: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8;
const NFT_MSG_NEWCHAIN: u16 = libc::NFT_MSG_NEWCHAIN as u16;
const NFT_MSG_GETCHAIN: u16 = libc::NFT_MSG_GETCHAIN as u16;
// libc has no names for these.
const NFT_MSG_NEWFLOWTABLE: u16 = 22;
const NFT_MSG_GETFLOWTABLE: u16 = 23;
/// `struct nfgenmsg`: family, version and a 16-bit resource id.
const HEADER_BYTES: usize = 4;
/// The name of the kernel module.
const MODULE: &str = "nf_tables";

/// The chains that translate addresses and have a rule, as `FAMILY TABLE CHAIN`. iptables creates such chains, too,
/// unless it is the older iptables-legacy.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN`; otherwise the kernel's error.
pub fn nat_chains() -> io::Result<Vec<String>> {
    if !is_there() {
        return Ok(Vec::new());
    }
    // Ask for the chains of all families.
    Socket::open(Some(NETFILTER))?.ask(NFTABLES | NFT_MSG_GETCHAIN, ALL, &[0; HEADER_BYTES], read)
}

fn read(message: &Message<'_>) -> Option<String> {
    const NFTA_CHAIN_TABLE: u16 = 1;
    const NFTA_CHAIN_NAME: u16 = 3;
    const NFTA_CHAIN_USE: u16 = 6;
    const NFTA_CHAIN_TYPE: u16 = 7;
    if message.kind != NFTABLES | NFT_MSG_NEWCHAIN {
        return None;
    }
    let family = family(message)?;
    let body = message.body.get(HEADER_BYTES..)?;
    let is_nat = value(body, NFTA_CHAIN_TYPE).is_some_and(|kind| text(kind) == "nat");
    let rules = value(body, NFTA_CHAIN_USE).and_then(|rules| rules.try_into().ok()).map_or(1, u32::from_be_bytes);
    let name = |attribute| value(body, attribute).map(text);
    (is_nat && rules > 0).then(|| Some(format!("{family} {} {}", name(NFTA_CHAIN_TABLE)?, name(NFTA_CHAIN_NAME)?)))?
}

/// The family of the table that a message is about.
fn family(message: &Message<'_>) -> Option<&'static str> {
    Some(match i32::from(*message.body.first()?) {
        libc::NFPROTO_INET => "inet",
        libc::NFPROTO_IPV4 => "ip",
        libc::NFPROTO_IPV6 => "ip6",
        _ => "other",
    })
}

/// A flowtable: packets of its flows do not pass the rules, and most of the kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowtable {
    /// `FAMILY TABLE FLOWTABLE`.
    pub name: String,
    /// The names of the interfaces whose received packets it forwards.
    pub devices: Vec<String>,
    /// True if cards may forward its flows themselves.
    pub in_hardware: bool,
}

/// All flowtables.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN`; otherwise the kernel's error.
pub fn flowtables() -> io::Result<Vec<Flowtable>> {
    if !is_there() {
        return Ok(Vec::new());
    }
    Socket::open(Some(NETFILTER))?.ask(NFTABLES | NFT_MSG_GETFLOWTABLE, ALL, &[0; HEADER_BYTES], read_flowtable)
}

fn read_flowtable(message: &Message<'_>) -> Option<Flowtable> {
    const NFTA_FLOWTABLE_TABLE: u16 = 1;
    const NFTA_FLOWTABLE_NAME: u16 = 2;
    const NFTA_FLOWTABLE_HOOK: u16 = 3;
    const NFTA_FLOWTABLE_FLAGS: u16 = 7;
    const NFTA_FLOWTABLE_HOOK_DEVS: u16 = 3;
    const NFTA_DEVICE_NAME: u16 = 1;
    const NFT_FLOWTABLE_HW_OFFLOAD: u32 = 1;
    if message.kind != NFTABLES | NFT_MSG_NEWFLOWTABLE {
        return None;
    }
    let body = message.body.get(HEADER_BYTES..)?;
    let name = |attribute| value(body, attribute).map(text);
    let devices = value(body, NFTA_FLOWTABLE_HOOK).and_then(|hook| value(hook, NFTA_FLOWTABLE_HOOK_DEVS));
    let devices = devices.into_iter().flat_map(attributes).filter(|(kind, _)| *kind == NFTA_DEVICE_NAME);
    let flags = value(body, NFTA_FLOWTABLE_FLAGS).and_then(|flags| flags.try_into().ok()).map_or(0, u32::from_be_bytes);
    Some(Flowtable {
        name: format!("{} {} {}", family(message)?, name(NFTA_FLOWTABLE_TABLE)?, name(NFTA_FLOWTABLE_NAME)?),
        devices: devices.map(|(_, name)| text(name)).collect(),
        in_hardware: flags & NFT_FLOWTABLE_HW_OFFLOAD != 0,
    })
}

/// Returns true if the kernel has nftables now. A request would load the module, and weir must not change anything.
fn is_there() -> bool {
    match bounded::read_to_string("/proc/modules") {
        Ok(modules) if !modules.trim().is_empty() => is_loaded(&modules) || is_built_in(),
        // This kernel does not load modules.
        _ => true,
    }
}

fn is_loaded(modules: &str) -> bool {
    modules.lines().any(|line| line.split(' ').next() == Some(MODULE))
}

fn is_built_in() -> bool {
    let list = format!("/lib/modules/{}/modules.builtin", uname().release().to_string_lossy());
    bounded::read_to_string(list).is_ok_and(|modules| modules.contains(&format!("/{MODULE}.ko")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::put;

    fn chain(kind: Option<&[u8]>, rules: u32) -> Vec<u8> {
        // `struct nfgenmsg` of the family `ip`.
        let mut body = vec![2, 0, 0, 0];
        put(&mut body, 1, b"filter\0");
        put(&mut body, 3, b"out\0");
        put(&mut body, 6, &rules.to_be_bytes());
        if let Some(kind) = &kind {
            put(&mut body, 7, kind);
        }
        body
    }

    #[test]
    fn chains_that_translate_and_have_a_rule_are_listed() {
        let told = |body: &[u8]| read(&Message { kind: NFTABLES | NFT_MSG_NEWCHAIN, flags: 0, sequence: 1, body });
        assert_eq!(told(&chain(Some(b"nat\0"), 1)).as_deref(), Some("ip filter out"));
        assert_eq!(told(&chain(Some(b"nat\0"), 0)), None, "it is empty");
        assert_eq!(told(&chain(Some(b"filter\0"), 3)), None);
        assert_eq!(told(&chain(None, 3)), None, "no hook calls it directly");
        let whole = chain(Some(b"nat\0"), 1);
        for cut in 0..whole.len() {
            drop(told(&whole[..cut]));
        }
        let other = Message { kind: NFTABLES, flags: 0, sequence: 1, body: &whole };
        assert_eq!(read(&other), None, "another message");
    }

    #[test]
    fn a_flowtable_has_its_interfaces_and_says_whether_cards_forward() {
        let body = |flags: Option<u32>| {
            // `struct nfgenmsg` of the family `inet`.
            let (mut body, mut devices, mut hook) = (vec![1, 0, 0, 0], Vec::new(), Vec::new());
            put(&mut devices, 1, b"wan0\0");
            put(&mut devices, 1, b"lan0\0");
            put(&mut hook, 3, &devices);
            put(&mut body, 1, b"fw\0");
            put(&mut body, 2, b"ft\0");
            put(&mut body, 3, &hook);
            if let Some(flags) = flags {
                put(&mut body, 7, &flags.to_be_bytes());
            }
            body
        };
        let kind = NFTABLES | NFT_MSG_NEWFLOWTABLE;
        let told = |body: &[u8]| read_flowtable(&Message { kind, flags: 0, sequence: 1, body });
        for (flags, in_hardware) in [(None, false), (Some(2), false), (Some(1), true), (Some(3), true)] {
            let devices = vec!["wan0".to_owned(), "lan0".to_owned()];
            let expected = Flowtable { name: "inet fw ft".to_owned(), devices, in_hardware };
            assert_eq!(told(&body(flags)), Some(expected), "{flags:?}");
        }
        let whole = body(Some(1));
        for cut in 0..whole.len() {
            drop(told(&whole[..cut]));
        }
        let other = Message { kind: NFTABLES | NFT_MSG_NEWCHAIN, flags: 0, sequence: 1, body: &whole };
        assert_eq!(read_flowtable(&other), None, "another message");
    }

    #[test]
    fn a_module_is_found_by_its_whole_name() {
        const MODULES: &str = "nft_chain_nat 16384 1 - Live 0x0\nnf_tables 401408 3 nft_chain_nat, Live 0x0\n";
        assert!(is_loaded(MODULES));
        assert!(!is_loaded("nf_tables_set 1 0 - Live 0x0\nxt_nf_tables 1 0 - Live 0x0\n"));
    }
}
