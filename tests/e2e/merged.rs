//! Buffers that the kernel itself merges count as the packets that they were: inside tunnels, beyond 64 KiB, and of
//! SCTP, in both directions. The truth is what the other end's interface counts, and arithmetic.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread,
};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, accept, bind, connect, ipproto, listen, recv, socket,
};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::Loss,
    clock::wait_for,
    foreign::{Does, Foreign},
    netns::{self, Lab, Namespace, QuietPair},
    trial::{needed, optional, trial},
};

use crate::{
    forwarding::{TCP_PORT, sum_flow},
    tcx::{resets_sent, segments_sent},
    watch::{self, ONE_WINDOW, ROOMY_PACKET_RINGS, TIMEOUT, measure, one_window, seen_in},
};

/// Short messages, each of which is merged, and then a large amount at once.
const MESSAGE: usize = 3_000;
const MESSAGES: usize = 200;
const BULK: usize = 8 << 20;
/// The addresses of the two ends: on their link, and in the tunnel.
const OUTER: [&str; 2] = ["10.97.0.1", "10.97.0.2"];
const OUTER_V6: [&str; 2] = ["fd97::1", "fd97::2"];
const INNER: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
/// Ethernet's header. Whether an interface counts this header depends on how packets reach it.
const ETHERNET_BYTES: u64 = 14;
const TUNNEL: &str = "tun7";
/// With the headers of any tunnel around it, a packet still fits the link.
const TUNNEL_MTU: u32 = 1_400;
const GENERATOR: &str = QuietPair::GENERATOR_INTERFACE;
const OBSERVER: &str = QuietPair::OBSERVER_INTERFACE;

/// A kind of tunnel as `ip` calls it, and the headers before IPv4 and TCP inside, in bytes.
type Kind = (&'static str, u64);
const VXLAN: Kind = ("vxlan id 7 dstport 4789", 14 + 20 + 8 + 8 + 14);
const GENEVE: Kind = ("geneve id 7", 14 + 20 + 8 + 8 + 14);
const GRETAP: Kind = ("gretap", 14 + 20 + 4 + 14);
const GRE: Kind = ("gre", 14 + 20 + 4);
const IPIP: Kind = ("ipip", 14 + 20);
/// The TCP header with timestamps, how long those are, and how much longer the header of the first segment is.
const TCP_BYTES: u64 = 32;
const TIMESTAMPS: u64 = 12;
const FIRST_MORE: u64 = 8;

/// The tests of this file; each is ignored if the kernel lacks the feature that it tests.
pub fn trials() -> Vec<Trial> {
    let namespaces = needed(netns::requirements());
    let kind = |name: &str, test: fn() -> Result<()>, found: Result<(), String>| {
        trial(name, test, &[&namespaces, &optional(found)])
    };
    vec![
        kind("merged::vxlan", || through(VXLAN), require_device(VXLAN.0)),
        kind("merged::geneve", || through(GENEVE), require_device(GENEVE.0)),
        kind("merged::gretap", || through(GRETAP), require_device(GRETAP.0)),
        kind("merged::gre", || through(GRE), require_device(GRE.0)),
        kind("merged::ipip", || through(IPIP), require_device(IPIP.0)),
        kind("merged::buffers_beyond_64_kib", buffers_beyond_64_kib, require_big_tcp()),
        kind("merged::sctp", sctp, require_sctp()),
    ]
}

/// Checks that the kernel makes tunnels of this kind.
fn require_device(kind: &str) -> Result<(), String> {
    let probe = || Lab::quiet_pair()?.observer.ip(&tunnel(kind, OUTER));
    probe().map(drop).map_err(|_| format!("this kernel has no tunnels of {kind}"))
}

/// The arguments of `ip` that create a tunnel; geneve takes no local address.
fn tunnel(kind: &str, [local, remote]: [&str; 2]) -> String {
    let local = if kind.starts_with("geneve") { String::new() } else { format!("local {local} ") };
    format!("link add {TUNNEL} type {kind} {local}remote {remote}")
}

/// Checks that a veth can have buffers whose length does not fit the IPv6 header (Linux 5.19).
fn require_big_tcp() -> Result<(), String> {
    let probe = || enlarge(&Lab::quiet_pair()?.observer, OBSERVER);
    probe().map_err(|error| format!("this kernel has no BIG TCP: {error:#}"))
}

fn require_sctp() -> Result<(), String> {
    sctp_socket().map(drop).map_err(|error| format!("this kernel has no SCTP: {error}"))
}

fn sctp_socket() -> rustix::io::Result<OwnedFd> {
    socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP))
}

fn enlarge(namespace: &Namespace, interface: &str) -> Result<()> {
    namespace.ip(&format!("link set {interface} gso_max_size 185000 gro_max_size 185000"))?;
    Ok(())
}

/// Two ends of a link that know each other's addresses, so that only the packets of a test pass.
struct Link {
    pair: QuietPair,
    /// Programs in the drivers. With these a veth does not pass on merged buffers: it splits them, and merges received
    /// packets again.
    _programs: Vec<Foreign>,
}

impl Link {
    fn new(addresses: [&str; 2], prefix: u8) -> Result<Self> {
        let pair = Lab::quiet_pair()?;
        let link = Self { pair, _programs: Vec::new() };
        for (nth, (namespace, interface)) in link.ends().into_iter().enumerate() {
            namespace.ip(&format!("link set {interface} address {}", mac(nth)))?;
            // Without selective acknowledgements all TCP headers have the same length.
            namespace.set("ipv4/tcp_sack", "0")?;
            let is_v6 = addresses[nth].contains(':');
            if is_v6 {
                namespace.set(&format!("ipv6/conf/{interface}/disable_ipv6"), "0")?;
            }
            let nodad = if is_v6 { "nodad" } else { "" };
            namespace.ip(format!("address add {}/{prefix} dev {interface} {nodad}", addresses[nth]).trim())?;
            namespace.ip(&format!("link set {interface} arp on"))?;
            namespace.ip(&neighbour(addresses[1 - nth], 1 - nth, interface))?;
        }
        Ok(link)
    }

    /// The two ends; the one that sends first comes first.
    fn ends(&self) -> [(&Namespace, &'static str); 2] {
        [(&self.pair.generator, GENERATOR), (&self.pair.observer, OBSERVER)]
    }

    /// Makes the driver split and merge buffers.
    fn split(&mut self) -> Result<()> {
        let programs: Result<_> = self
            .ends()
            .into_iter()
            .map(|(namespace, interface)| Foreign::attach(namespace, interface, Does::Pass))
            .collect();
        self._programs = programs?;
        for (namespace, interface) in self.ends() {
            namespace.wait_until_up(interface)?;
        }
        Ok(())
    }

    /// Returns the packets that each end has received, once no more packets come.
    fn received(&self) -> Result<[Tally; 2]> {
        let read = || -> Result<[Tally; 2]> {
            let [one, other] = self.ends().map(|(namespace, interface)| namespace.counters(interface));
            Ok([one?.received, other?.received])
        };
        let mut before = read()?;
        let mut same = 0;
        wait_for("the end of all packets", TIMEOUT, || {
            let now = read()?;
            same = if now == before { same + 1 } else { 0 };
            before = now;
            Ok((same >= 20).then_some(now))
        })
    }

    /// Returns what weir sees at each end in both directions while `traffic` runs, and what each end has received.
    fn measure(&self, traffic: impl FnOnce() -> Result<()>) -> Result<BothEnds> {
        one_window();
        let start = |(namespace, interface): (&Namespace, &str)| {
            let settings =
                format!("interfaces: [{{name: {interface}, direction: both}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}");
            measure(namespace, &settings)
        };
        let mut daemons = self.ends().into_iter().map(start).collect::<Result<Vec<_>>>()?;
        let before = self.received()?;
        traffic()?;
        let after = self.received()?;
        let received = [0, 1].map(|nth| after[nth].since(before[nth]));
        let reports = daemons.iter_mut().map(|daemon| watch::stop(daemon, Loss::None)).collect::<Result<Vec<_>>>()?;
        Ok(BothEnds { reports, received })
    }
}

/// The results at both ends.
struct BothEnds {
    /// The reports of weir at each end.
    reports: Vec<Vec<Value>>,
    /// The packets that each interface has received by its own count.
    received: [Tally; 2],
}

impl BothEnds {
    /// Checks that each end's weir saw what the other end's interface counted, to the byte.
    fn expect_what_was_counted(&self) -> Result<()> {
        for (from, to) in WAYS {
            let interfaces = [GENERATOR, OBSERVER];
            let sent = seen_in(interfaces[from], "egress", &self.reports[from])?;
            let seen = seen_in(interfaces[to], "ingress", &self.reports[to])?;
            let counted = self.received[to];
            let with_headers = Tally::new(counted.packets, counted.bytes + counted.packets * ETHERNET_BYTES);
            for seen in [sent, seen] {
                ensure!(
                    seen == counted || seen == with_headers,
                    "{} to {}: seen {seen:?}, counted {counted:?}",
                    interfaces[from],
                    interfaces[to]
                );
            }
        }
        Ok(())
    }
}

fn mac(nth: usize) -> String {
    format!("02:00:00:00:07:0{nth}")
}

fn neighbour(address: &str, nth: usize, interface: &str) -> String {
    let family = if address.contains(':') { "-6 " } else { "" };
    format!("{family}neighbour replace {address} lladdr {} dev {interface} nud permanent", mac(nth))
}

/// Sends TCP through a tunnel of this kind: with drivers that split merged buffers, and with drivers that pass them on.
fn through(kind: Kind) -> Result<()> {
    through_link(kind, true)?;
    through_link(kind, false)
}

fn through_link((kind, headers): Kind, is_split: bool) -> Result<()> {
    /// The IPv4 header that the tunnel adds.
    const INNER_BYTES: u64 = 20;
    let mut link = Link::new(OUTER, 24)?;
    for (nth, (namespace, _)) in link.ends().into_iter().enumerate() {
        make_tunnel(namespace, kind, nth)?;
    }
    if is_split {
        link.split()?;
    }
    let segments = || -> Result<[[u64; 3]; 2]> {
        let of = |(namespace, _): (&Namespace, _)| {
            let [sent, repeated] = segments_sent(namespace)?;
            anyhow::Ok([sent, repeated, resets_sent(namespace)?])
        };
        let [one, other] = link.ends().map(of);
        Ok([one?, other?])
    };
    let before = segments()?;
    let seen = link.measure(|| {
        for (from, to) in WAYS {
            send(&link, (from, to), INNER[to], MESSAGES)?;
        }
        Ok(())
    })?;
    let after = segments()?;
    if is_split {
        seen.expect_what_was_counted()?;
    }
    for (from, to) in WAYS {
        let [sent, repeated, resets] = [0, 1, 2].map(|nth| after[from][nth] - before[from][nth]);
        // Each end has opened one connection and accepted one. On a slow machine a connection may end with a reset.
        let headers = sent * (headers + INNER_BYTES + TCP_BYTES) + 2 * FIRST_MORE - resets * TIMESTAMPS;
        let bytes = (MESSAGES * MESSAGE + BULK) as u64 + headers;
        for (at, direction) in [(from, "egress"), (to, "ingress")] {
            let there = seen_in(link.ends()[at].1, direction, &seen.reports[at])?;
            let is_right = if repeated == 0 { there == Tally::new(sent, bytes) } else { there.packets == sent };
            ensure!(is_right, "{kind}, split {is_split}, {direction}: seen {there:?}, not {bytes} bytes in {sent}");
        }
        let buffers = match is_split {
            true => link.ends()[from].0.counters(TUNNEL)?.sent.packets,
            false => seen.received[to].packets,
        };
        ensure!(buffers * 2 < sent, "{sent} packets went in {buffers} buffers: nothing was merged");
    }
    Ok(())
}

fn make_tunnel(namespace: &Namespace, kind: &str, nth: usize) -> Result<()> {
    namespace.ip(&tunnel(kind, [OUTER[nth], OUTER[1 - nth]]))?;
    namespace.ip(&format!("address add {}/24 dev {TUNNEL}", INNER[nth]))?;
    let has_addresses = !["gre", "ipip"].contains(&kind);
    if has_addresses {
        namespace.ip(&format!("link set {TUNNEL} address {}", mac(nth)))?;
    }
    // Otherwise the first packets may be fragmented, because the tunnel does not know the path's MTU yet.
    namespace.ip(&format!("link set {TUNNEL} up mtu {TUNNEL_MTU}"))?;
    if has_addresses {
        namespace.ip(&neighbour(INNER[1 - nth], 1 - nth, TUNNEL))?;
    }
    Ok(())
}

/// IPv6 packets whose length does not fit their header (RFC 2675, as Linux uses it for its own buffers).
fn buffers_beyond_64_kib() -> Result<()> {
    /// Ethernet, IPv6 and TCP.
    const HEADERS: u64 = 14 + 40 + TCP_BYTES;
    const BEYOND: u64 = 0xffff;
    let link = Link::new(OUTER_V6, 64)?;
    for (namespace, interface) in link.ends() {
        enlarge(namespace, interface)?;
    }
    let mut uploads = Vec::new();
    let seen = link.measure(|| {
        for (from, to) in WAYS {
            let before = (segments_sent(link.ends()[from].0)?, link.received()?);
            send(&link, (from, to), OUTER_V6[to], 0)?;
            let after = (segments_sent(link.ends()[from].0)?, link.received()?);
            let [segments, repeated] = [0, 1].map(|nth| after.0[nth] - before.0[nth]);
            uploads.push((segments, repeated, after.1[to].since(before.1[to])));
        }
        Ok(())
    })?;
    for ((from, to), (segments, repeated, buffers)) in WAYS.into_iter().zip(uploads) {
        for at in [from, to] {
            let flow = |measure| sum_flow(&seen.reports[at], measure, OUTER_V6[from], OUTER_V6[to], TCP_PORT, "tcp");
            let (packets, bytes) = (flow("packets")?, flow("bytes")?);
            let expected = BULK as u64 + packets * HEADERS + FIRST_MORE;
            let is_right = if repeated == 0 { bytes == expected } else { bytes >= expected };
            ensure!(
                is_right && packets == segments,
                "{bytes} bytes in {packets} packets, not {expected} in {segments}"
            );
        }
        ensure!(buffers.mean_bytes() > BEYOND, "{buffers:?}: no buffer was beyond {BEYOND} bytes");
    }
    Ok(())
}

/// SCTP, whose buffers hold packets of different lengths.
fn sctp() -> Result<()> {
    let mut link = Link::new(OUTER, 24)?;
    link.split()?;
    let seen = link.measure(|| {
        for (from, to) in WAYS {
            send_by_sctp(&link, (from, to))?;
        }
        Ok(())
    })?;
    seen.expect_what_was_counted()
}

/// The two directions, from one end to the other.
const WAYS: [(usize, usize); 2] = [(0, 1), (1, 0)];

/// Sends messages one by one over TCP, and then the rest at once; returns when all of it has arrived.
fn send(link: &Link, (from, to): (usize, usize), address: &str, messages: usize) -> Result<()> {
    let address: SocketAddr = SocketAddr::new(address.parse()?, TCP_PORT);
    let ends = link.ends();
    let listener = ends[to].0.enter(|| TcpListener::bind(address))??;
    let receiving = thread::spawn(move || -> Result<u64> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(std::io::copy(&mut stream, &mut std::io::sink())?)
    });
    ends[from].0.enter(|| -> Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        for _ in 0..messages {
            stream.write_all(&[7; MESSAGE])?;
        }
        stream.write_all(&vec![7; BULK])?;
        stream.shutdown(Shutdown::Write)?;
        ensure!(stream.read(&mut [0])? == 0, "the other end answers");
        Ok(())
    })??;
    let received = receiving.join().expect("receiving does not panic")?;
    ensure!(received == (messages * MESSAGE + BULK) as u64, "{received} bytes arrived");
    Ok(())
}

/// Sends the messages over SCTP.
fn send_by_sctp(link: &Link, (from, to): (usize, usize)) -> Result<()> {
    /// Longer than a packet, and not longer than what SCTP takes at once.
    const LONG: usize = 40_000;
    let address: SocketAddr = SocketAddr::new(OUTER[to].parse()?, TCP_PORT);
    let ends = link.ends();
    let listener = ends[to].0.enter(|| -> Result<OwnedFd> {
        let socket = sctp_socket()?;
        bind(&socket, &address)?;
        listen(&socket, 1)?;
        Ok(socket)
    })??;
    let receiving = thread::spawn(move || -> Result<usize> {
        let stream = accept(&listener)?;
        let mut received = 0;
        loop {
            match recv(&stream, &mut [0; 1 << 16][..], RecvFlags::empty())?.1 {
                0 => return Ok(received),
                bytes => received += bytes,
            }
        }
    });
    ends[from].0.enter(|| -> Result<()> {
        let stream = sctp_socket()?;
        connect(&stream, &address)?;
        for _ in 0..MESSAGES {
            let sent = rustix::net::send(&stream, &[7; LONG], SendFlags::empty())?;
            ensure!(sent == LONG, "{sent} of {LONG} bytes were sent");
        }
        Ok(())
    })??;
    let received = receiving.join().expect("receiving does not panic")?;
    ensure!(received == MESSAGES * LONG, "{received} bytes arrived");
    Ok(())
}
