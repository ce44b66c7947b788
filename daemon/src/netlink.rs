//! Questions to the kernel about its interfaces, by netlink (RFC 3549; `Documentation/userspace-api/netlink` of Linux).
//!
//! One question, one answer: each is a socket of its own. Nothing is changed, and no privilege is needed.

use std::io;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::GENERIC, recv, send,
        socket_with,
    },
};

/// What precedes each message: its length, type, flags, sequence and port.
const HEADER: usize = 16;
/// More than any answer about one interface; the kernel cuts lists into pieces of half of it.
const ANSWER_MAX: usize = 64 << 10;
/// Set in the type of an attribute that holds attributes (`NLA_F_NESTED`), and the one beside it.
const TYPE_FLAGS: u16 = 0xc000;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// An interface as the kernel's routing netlink knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware type (`ARPHRD_*`).
    pub hardware: u16,
    /// The longest packet after the link layer's header, in bytes.
    pub mtu: u32,
    /// Whether it was set up.
    pub up: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Of a virtual interface, what it is: `veth`, `bridge`, `vlan`.
    pub kind: Option<String>,
    /// The XDP program on it.
    pub xdp: Option<XdpProgram>,
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// Its number; `None` where there are several.
    pub id: Option<u32>,
    /// Where it is.
    pub place: &'static str,
}

/// The interface of this name in the process's network namespace; `None` if there is none.
///
/// # Errors
///
/// The kernel did not answer.
pub fn link(name: &str) -> io::Result<Option<Link>> {
    const IFLA_IFNAME: u16 = 3;
    let mut question = vec![0; INTERFACE_HEADER];
    put(&mut question, IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    match ask(None, RTM_GETLINK, 0, &question) {
        Ok(answers) => Ok(answers.iter().find_map(Answer::link)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NODEV | Errno::RANGE | Errno::INVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The names of all interfaces of the process's network namespace.
///
/// # Errors
///
/// The kernel did not answer.
pub fn names() -> io::Result<Vec<String>> {
    let answers = ask(None, RTM_GETLINK, NLM_F_DUMP, &[0; INTERFACE_HEADER])?;
    Ok(answers.iter().filter_map(Answer::link).map(|link| link.name).collect())
}

/// What the driver of an interface can do with XDP, as a set of [`XDP_BASIC`] and others; `None` where the kernel does
/// not tell (before Linux 6.3).
pub fn xdp_features(index: u32) -> Option<u64> {
    const NETDEV_CMD_DEV_GET: u8 = 1;
    const NETDEV_A_DEV_IFINDEX: u16 = 1;
    const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
    let mut question = Vec::new();
    put(&mut question, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let answer = ask_generic("netdev", NETDEV_CMD_DEV_GET, &question).ok()?;
    let features = value(&answer, NETDEV_A_DEV_XDP_FEATURES)?;
    Some(u64::from_ne_bytes(features.try_into().ok()?))
}

/// Of [`xdp_features`]: programs run in the driver (`NETDEV_XDP_ACT_BASIC`).
pub const XDP_BASIC: u64 = 1;
/// Of [`xdp_features`]: packets come in several pieces where one is too small (`NETDEV_XDP_ACT_RX_SG`).
pub const XDP_FRAGMENTS: u64 = 32;

/// The offloads of an interface that are on, by the names that `ethtool -k` knows them by in the kernel (`rx-lro`,
/// `hw-tc-offload`); `None` where the kernel does not tell (before Linux 5.7).
pub fn offloads(index: u32) -> Option<Vec<String>> {
    const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
    const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
    const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
    const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
    const ETHTOOL_A_BITSET_BITS: u16 = 3;
    const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
    let (mut header, mut question) = (Vec::new(), Vec::new());
    put(&mut header, ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    put(&mut question, ETHTOOL_A_FEATURES_HEADER | NESTED, &header);
    let answer = ask_generic("ethtool", ETHTOOL_MSG_FEATURES_GET, &question).ok()?;
    let bits = value(value(&answer, ETHTOOL_A_FEATURES_ACTIVE)?, ETHTOOL_A_BITSET_BITS)?;
    Some(attributes(bits).filter_map(|(_, bit)| Some(text(value(bit, ETHTOOL_A_BITSET_BIT_NAME)?))).collect())
}

const NESTED: u16 = 0x8000;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`: family, type, index, flags, change.
const INTERFACE_HEADER: usize = 16;

/// Reads the body of an `RTM_NEWLINK`.
fn read_link(body: &[u8]) -> Option<Link> {
    const IFF_UP: u32 = 1;
    const IFF_LOOPBACK: u32 = 8;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_XDP: u16 = 43;
    let flags = u32_at(body, 8)?;
    let rest = body.get(INTERFACE_HEADER..)?;
    Some(Link {
        index: u32_at(body, 4)?,
        hardware: u16::from_ne_bytes(body.get(2..4)?.try_into().ok()?),
        name: text(value(rest, IFLA_IFNAME)?),
        mtu: value(rest, IFLA_MTU).and_then(|mtu| u32_at(mtu, 0)).unwrap_or_default(),
        up: flags & IFF_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        kind: value(rest, IFLA_LINKINFO).and_then(|info| value(info, IFLA_INFO_KIND)).map(text),
        xdp: value(rest, IFLA_XDP).and_then(read_xdp),
    })
}

fn read_xdp(attribute: &[u8]) -> Option<XdpProgram> {
    const IFLA_XDP_ATTACHED: u16 = 2;
    const IFLA_XDP_PROG_ID: u16 = 4;
    let place = match value(attribute, IFLA_XDP_ATTACHED)?.first()? {
        0 => return None,
        1 => "native",
        2 => "generic",
        3 => "offloaded",
        _ => "several modes",
    };
    let id = value(attribute, IFLA_XDP_PROG_ID).and_then(|id| u32_at(id, 0));
    Some(XdpProgram { id, place })
}

/// A message that the kernel sent.
struct Answer {
    kind: u16,
    body: Vec<u8>,
}

impl Answer {
    fn link(&self) -> Option<Link> {
        if self.kind == RTM_NEWLINK { read_link(&self.body) } else { None }
    }
}

/// Asks one of the families of generic netlink, by its name; the attributes of the first answer.
fn ask_generic(family: &str, command: u8, question: &[u8]) -> io::Result<Vec<u8>> {
    const CONTROLLER: u16 = 16;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    /// `struct genlmsghdr`: command, version, and two bytes of nothing.
    const GENERIC_HEADER: usize = 4;
    let first = |kind: u16, command: u8, question: &[u8]| -> io::Result<Vec<u8>> {
        let body = [&[command, 1, 0, 0], question].concat();
        let answers = ask(Some(GENERIC), kind, 0, &body)?;
        let answer = answers.iter().find_map(|answer| answer.body.get(GENERIC_HEADER..));
        answer.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    let mut name = Vec::new();
    put(&mut name, CTRL_ATTR_FAMILY_NAME, &[family.as_bytes(), &[0]].concat());
    let about = first(CONTROLLER, CTRL_CMD_GETFAMILY, &name)?;
    let id = value(&about, CTRL_ATTR_FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
    first(id.ok_or(io::ErrorKind::NotFound)?, command, question)
}

/// Sends a question and takes all answers to it.
fn ask(protocol: Option<Protocol>, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Answer>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let mut question = Vec::with_capacity(HEADER + body.len());
    question.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    question.extend_from_slice(&kind.to_ne_bytes());
    question.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    question.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    question.extend_from_slice(body);
    send(&socket, &question, SendFlags::empty())?;

    let (mut answers, mut buffer) = (Vec::new(), vec![0; ANSWER_MAX]);
    loop {
        let (_, length) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for answer in messages(&buffer[..length.min(ANSWER_MAX)]) {
            match answer.kind {
                NLMSG_DONE => return Ok(answers),
                NLMSG_ERROR => {
                    let errno = u32_at(&answer.body, 0).map_or(0, |errno| (errno as i32).saturating_neg());
                    return if errno == 0 { Ok(answers) } else { Err(io::Error::from_raw_os_error(errno)) };
                }
                _ => answers.push(answer),
            }
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The messages in what was received.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Answer> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER..length)?.to_vec();
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some(Answer { kind, body })
    })
}

/// The attributes in a message or in another attribute: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind & !TYPE_FLAGS, value))
    })
}

/// The value of the first attribute of this type.
fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(candidate, _)| *candidate == kind).map(|(_, value)| value)
}

/// Appends an attribute.
fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(padded(bytes.len()), 0);
}

const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A string, which the kernel ends with a zero.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_and_named() {
        let lo = link("lo").unwrap().expect("every network namespace has one");
        assert_eq!((lo.index, lo.name.as_str(), lo.loopback, lo.kind), (1, "lo", true, None));
        assert!(lo.mtu > 0);
        assert!(names().unwrap().contains(&"lo".to_owned()));
    }

    #[test]
    fn an_interface_that_is_not_there_is_none() {
        for name in ["weir-none0", "", "a-name-that-is-longer-than-an-interface-may-have"] {
            assert_eq!(link(name).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_link_is_read_with_its_program() {
        let (mut xdp, mut info, mut body) = (Vec::new(), Vec::new(), vec![0; INTERFACE_HEADER]);
        body[2] = 1;
        body[4] = 7;
        body[8] = 1;
        put(&mut xdp, 2, &[1]);
        put(&mut xdp, 4, &42u32.to_ne_bytes());
        put(&mut info, 1, b"veth");
        put(&mut body, 3, b"wan0\0");
        put(&mut body, 4, &1500u32.to_ne_bytes());
        put(&mut body, 18 | NESTED, &info);
        put(&mut body, 43 | NESTED, &xdp);
        let expected = Link {
            index: 7,
            name: "wan0".into(),
            hardware: 1,
            mtu: 1500,
            up: true,
            loopback: false,
            kind: Some("veth".into()),
            xdp: Some(XdpProgram { id: Some(42), place: "native" }),
        };
        assert_eq!(read_link(&body), Some(expected));
    }

    #[test]
    fn what_is_cut_anywhere_is_no_answer_and_no_panic() {
        let mut body = vec![0; INTERFACE_HEADER];
        put(&mut body, 3, b"wan0\0");
        for end in 0..body.len() {
            if let Some(link) = read_link(&body[..end]) {
                assert_eq!(link.name, "wan0");
            }
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than its own header");
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0, "of no length");
    }
}
