//! The classic tc hook of an interface: its queueing discipline, and the filters on it (`linux/pkt_sched.h`,
//! `linux/pkt_cls.h`; tc-bpf(8)).
//!
//! `clsact` has filters for both directions; the older `ingress` has filters only for received packets. Filters run in
//! the order of their priorities. Unlike a link, a filter stays when the process that attached it ends.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use libc::{RTM_DELTFILTER, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS};
use rustix::io::Errno;
use weir_config::interface::Way;

use super::{
    message::{ALL, ECHO, Message, NESTED, NEW, ONE, put, text, value, word},
    socket::Socket,
};

/// `TCA_CHAIN` of `linux/rtnetlink.h`, which the crate does not define for musl.
const TCA_CHAIN: u16 = 11;
/// `struct tcmsg`: family, index, handle, parent, info.
const TRAFFIC_BYTES: usize = 20;
/// The handle of `clsact` and `ingress`, and their parent: `TC_H_CLSACT`, which equals `TC_H_INGRESS`.
const HOOK_HANDLE: u32 = 0xffff_0000;
const HOOK_PARENT: u32 = 0xffff_fff1;
/// `ETH_P_ALL`, as in the lower half of `tcm_info`.
const EVERY_PROTOCOL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// These are not in `libc`.
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAGS_GEN: u16 = 9;
const TCA_BPF_ID: u16 = 11;
/// `TCA_BPF_FLAG_ACT_DIRECT`: the program's return value is the verdict.
const DIRECT: u32 = 1;
/// `TCA_CLS_FLAGS_SKIP_HW`: the filter is never offloaded to the card.
const NOT_IN_HARDWARE: u32 = 1;

/// The queueing discipline that an interface has at the classic tc hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// `clsact`: filters for both directions.
    Clsact,
    /// `ingress`: filters for received packets. `clsact` cannot be added beside it.
    Ingress,
}

/// A filter that is attached at a tc hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The priority, from 1 on. Filters with lower numbers run first.
    pub priority: u16,
    /// The handle, which is unique within a priority.
    pub handle: u32,
    /// The protocol, in network byte order.
    pub protocol: u16,
    /// The kind of classifier: `bpf`, `u32`, `flower`, ...
    pub kind: String,
    /// The chain that it is on. Packets begin at chain 0.
    pub chain: u32,
    /// The id of its program, if it is a `bpf` filter.
    pub program: Option<u32>,
}

impl Filter {
    /// Returns true if another `bpf` filter for all protocols can have the same priority.
    pub fn is_for_every_packet(&self) -> bool {
        self.kind == "bpf" && self.protocol == EVERY_PROTOCOL && self.chain == 0
    }
}

/// The socket that lists, adds and removes filters.
pub struct Traffic(Socket);

impl Traffic {
    /// Opens the socket, in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel does not support such sockets, or this process lacks permission.
    pub fn open() -> io::Result<Self> {
        Socket::open(None).map(Self)
    }

    /// The discipline that the interface has at the hook, if any.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the kernel refused.
    pub fn discipline(&mut self, ifindex: u32) -> io::Result<Option<Discipline>> {
        let question = traffic(ifindex, 0, HOOK_PARENT, 0);
        // Only with the echo flag does every kernel send the answer to the requester.
        let answers = self.0.ask(RTM_GETQDISC, ONE | ECHO, &question, |message| {
            value(message.body.get(TRAFFIC_BYTES..)?, TCA_KIND).map(text)
        });
        match answers {
            Ok(kinds) => Ok(kinds.iter().find_map(|kind| match kind.as_str() {
                "clsact" => Some(Discipline::Clsact),
                "ingress" => Some(Discipline::Ingress),
                _ => None,
            })),
            // The kernel returns this error if there is no discipline.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds `clsact`, which has filters for both directions.
    ///
    /// # Errors
    ///
    /// There is already a discipline, or the kernel refused.
    pub fn add_clsact(&mut self, ifindex: u32) -> io::Result<()> {
        let mut question = traffic(ifindex, HOOK_HANDLE, HOOK_PARENT, 0);
        put(&mut question, TCA_KIND, b"clsact\0");
        self.0.ask(RTM_NEWQDISC, ONE | NEW, &question, nothing).map(drop)
    }

    /// All filters for this direction, in the order in which they run. Call it only if the interface has a
    /// [`Discipline`] for this direction: for sent packets, `ingress` would return the filters of received packets.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the kernel refused.
    pub fn filters(&mut self, ifindex: u32, way: Way) -> io::Result<Vec<Filter>> {
        self.0.ask(RTM_GETTFILTER, ALL, &traffic(ifindex, 0, parent(way), 0), read_filter)
    }

    /// Attaches a program as a filter for all packets of this direction.
    ///
    /// # Errors
    ///
    /// The priority and handle are taken, or the kernel refused.
    pub fn add_filter(
        &mut self,
        ifindex: u32,
        way: Way,
        priority: u16,
        handle: u32,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        let mut options = Vec::new();
        put(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
        put(&mut options, TCA_BPF_NAME, &[name.as_bytes(), &[0]].concat());
        put(&mut options, TCA_BPF_FLAGS, &DIRECT.to_ne_bytes());
        put(&mut options, TCA_BPF_FLAGS_GEN, &NOT_IN_HARDWARE.to_ne_bytes());
        let mut question = traffic(ifindex, handle, parent(way), info(priority, EVERY_PROTOCOL));
        put(&mut question, TCA_KIND, b"bpf\0");
        put(&mut question, TCA_OPTIONS | NESTED, &options);
        self.0.ask(RTM_NEWTFILTER, ONE | NEW, &question, nothing).map(drop)
    }

    /// Removes one filter.
    ///
    /// # Errors
    ///
    /// The filter does not exist, or the kernel refused.
    pub fn remove_filter(&mut self, ifindex: u32, way: Way, filter: &Filter) -> io::Result<()> {
        let mut question = traffic(ifindex, filter.handle, parent(way), info(filter.priority, filter.protocol));
        put(&mut question, TCA_KIND, &[filter.kind.as_bytes(), &[0]].concat());
        if filter.chain != 0 {
            put(&mut question, TCA_CHAIN, &filter.chain.to_ne_bytes());
        }
        self.0.ask(RTM_DELTFILTER, ONE, &question, nothing).map(drop)
    }
}

/// The parent of the filters of a direction: `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`, and the same for egress.
const fn parent(way: Way) -> u32 {
    match way {
        Way::Ingress => 0xffff_fff2,
        Way::Egress => 0xffff_fff3,
    }
}

const fn info(priority: u16, protocol: u16) -> u32 {
    (priority as u32) << 16 | protocol as u32
}

fn traffic(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    // The family (`AF_UNSPEC`), padded to four bytes.
    [0, ifindex, handle, parent, info].into_iter().flat_map(u32::to_ne_bytes).collect()
}

const fn nothing(_: &Message<'_>) -> Option<()> {
    None
}

/// Parses an `RTM_NEWTFILTER`. The kernel also reports a priority without filters, as a filter without a handle.
fn read_filter(message: &Message<'_>) -> Option<Filter> {
    let (handle, info) = (word(message.body, 8)?, word(message.body, 16)?);
    if message.kind != RTM_NEWTFILTER || handle == 0 {
        return None;
    }
    let attributes = message.body.get(TRAFFIC_BYTES..)?;
    let kind = text(value(attributes, TCA_KIND)?);
    let of_program = value(attributes, TCA_OPTIONS).filter(|_| kind == "bpf");
    Some(Filter {
        priority: (info >> 16) as u16,
        handle,
        protocol: info as u16,
        chain: value(attributes, TCA_CHAIN).and_then(|chain| word(chain, 0)).unwrap_or_default(),
        program: of_program.and_then(|options| word(value(options, TCA_BPF_ID)?, 0)),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::message::{message, messages},
        *,
    };

    fn told(handle: u32, kind: &[u8], options: &[u8], chain: u32) -> Vec<u8> {
        let mut body = traffic(7, handle, parent(Way::Ingress), info(49_152, EVERY_PROTOCOL));
        put(&mut body, TCA_KIND, kind);
        put(&mut body, TCA_CHAIN, &chain.to_ne_bytes());
        put(&mut body, TCA_OPTIONS | NESTED, options);
        message(RTM_NEWTFILTER, 2, 1, &body)
    }

    fn of_a_program() -> Vec<u8> {
        let mut options = Vec::new();
        put(&mut options, TCA_BPF_NAME, b"somebody\0");
        put(&mut options, TCA_BPF_ID, &42_u32.to_ne_bytes());
        options
    }

    fn read(bytes: &[u8]) -> Vec<Filter> {
        messages(bytes).filter_map(|message| read_filter(&message)).collect()
    }

    #[test]
    fn a_filter_is_read() {
        let other = told(0x8000_0001, b"u32\0", &of_a_program(), 5);
        let both = [told(1, b"bpf\0", &of_a_program(), 0), told(0, b"bpf\0", &[], 0), other].concat();
        let first = Filter {
            priority: 49_152,
            handle: 1,
            protocol: 3_u16.to_be(),
            kind: "bpf".to_owned(),
            chain: 0,
            program: Some(42),
        };
        let kind = "u32".to_owned();
        let second = Filter { handle: 0x8000_0001, kind, chain: 5, program: None, ..first.clone() };
        assert!(first.is_for_every_packet() && !second.is_for_every_packet());
        assert!(!Filter { protocol: 8, ..first.clone() }.is_for_every_packet());
        assert!(!Filter { chain: 1, ..first.clone() }.is_for_every_packet());
        assert_eq!(read(&both), [first, second], "a message without a handle is not a filter");
    }

    #[test]
    fn a_malformed_filter_is_ignored() {
        let whole = told(1, b"bpf\0", &of_a_program(), 0);
        let body = messages(&whole).next().unwrap().body;
        for cut in 0..body.len() {
            let cut_short = Message { kind: RTM_NEWTFILTER, flags: 0, sequence: 1, body: &body[..cut] };
            assert!(read_filter(&cut_short).is_none_or(|filter| filter.handle == 1), "cut at {cut}");
        }
    }

    #[test]
    fn the_loopback_has_no_discipline_and_a_missing_interface_is_an_error() {
        let mut traffic = Traffic::open().unwrap();
        assert_eq!(traffic.discipline(1).unwrap(), None);
        assert_eq!(traffic.filters(1, Way::Ingress).unwrap(), []);
        assert!(traffic.discipline(u32::MAX >> 1).is_err());
    }
}
