//! The ledger equals the interface's own count, in every mode, and with any other programs beside weir's.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    foreign::Foreign,
    inject::{self, Pace},
    netns::{self, Lab, Namespace, QuietPair},
    traffic::{Mix, Plan, Traffic},
    trial::{needed, optional, trial},
};

use crate::watch::{self, ONE_WINDOW, ROOMY_PACKET_RINGS, measure, modes, one_window, seen_in};

tests![own_copies_are_not_received];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// The configurable modes, and the mode that a veth is measured in for each of them.
const MODES: [(&str, &str); 5] =
    [("native", "xdp-native"), ("generic", "xdp-generic"), ("tcx", "tcx"), ("tc", "tc"), ("afpacket", "afpacket")];
/// The router's own addresses. Most of them look like the `EtherType` of IPv4, IPv6 or VLAN, at the place where a link
/// header would have it.
const OWN: [[u8; 4]; 4] = [[10, 1, 0, 1], [8, 0, 69, 7], [134, 221, 96, 1], [129, 0, 8, 0]];
const OWN_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x86dd, 0x6000, 0, 0, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_IPV6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x86dd, 0x6001);
const FIRST_PORT: u16 = 7_007;

/// The kernel delivers a copy of each multicast and broadcast packet that the router sends to the router's own sockets.
/// The copy takes the receive path of the interface.
fn own_copies_are_not_received() -> Result<()> {
    for (mode, obtained) in MODES {
        for sampling in ["", "sampling: {packets: 10}\n"] {
            check_own_copies(mode, obtained, sampling).with_context(|| format!("mode: {mode}, {sampling:?}"))?;
        }
    }
    Ok(())
}

fn check_own_copies(mode: &str, obtained: &str, sampling: &str) -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let observer = &pair.observer;
    observer.set(&format!("ipv6/conf/{INTERFACE}/disable_ipv6"), "0")?;
    for [a, b, c, d] in OWN {
        observer.ip(&format!("address add {a}.{b}.{c}.{d}/24 broadcast {a}.{b}.{c}.255 dev {INTERFACE}"))?;
    }
    observer.ip(&format!("address add {OWN_IPV6}/64 dev {INTERFACE} nodad"))?;
    let interfaces = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}, direction: both}}]\n");
    let mut daemon = measure(observer, &format!("{interfaces}{sampling}{ROOMY_PACKET_RINGS}{ONE_WINDOW}"))?;
    let sent = send_to_all(observer)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    ensure!(modes(INTERFACE, &reports)[0] == obtained, "{:?}", modes(INTERFACE, &reports));
    let [received, seen] = [observer.counters(INTERFACE)?.received, seen_in(INTERFACE, "ingress", &reports)?];
    ensure!(seen == received, "the interface has received {received:?}, and weir saw {seen:?}");
    let seen = seen_in(INTERFACE, "egress", &reports)?;
    ensure!(sent > 0 && seen.packets >= sent, "{sent} were sent, and weir saw {seen:?}");
    Ok(())
}

/// Sends broadcast and multicast packets, each of which comes back to a socket of the sender. Returns how many. Some
/// are longer than the interface's MTU: they come back in one piece.
fn send_to_all(router: &Namespace) -> Result<u64> {
    const LENGTHS: [usize; 3] = [1, 400, 3_000];
    let mut ways = vec![(IpAddr::from(GROUP_IPV6), IpAddr::from(OWN_IPV6))];
    for own @ [a, b, c, _] in OWN {
        let all = [Ipv4Addr::new(a, b, c, 255), Ipv4Addr::BROADCAST, GROUP];
        ways.extend(all.map(|to| (IpAddr::from(to), IpAddr::from(own))));
    }
    let all = || -> Result<u64> {
        let mut copies = 0;
        // Each socket has its own port: a process that is just being started may keep an earlier socket open a little
        // longer.
        for (port, (to, own)) in (FIRST_PORT..).zip(ways) {
            let (gets, sends) = sockets((to, port), own)?;
            for length in LENGTHS {
                sends.send_to(&vec![0; length], (to, port)).with_context(|| format!("from {own} to {to}"))?;
                let came = gets.recv(&mut [0; 4_096]).with_context(|| format!("no copy from {own} to {to}"))?;
                copies += u64::from(came == length);
            }
        }
        Ok(copies)
    };
    router.enter(all)?
}

/// A socket that receives packets to these addresses, and one that sends from the router's own address.
fn sockets((to, port): (IpAddr, u16), own: IpAddr) -> Result<(UdpSocket, UdpSocket)> {
    const ANY_INTERFACE: u32 = 0;
    let any: IpAddr = if own.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let gets = UdpSocket::bind((any, port)).with_context(|| format!("port {port} of {any}"))?;
    gets.set_read_timeout(Some(watch::TIMEOUT))?;
    let sends = UdpSocket::bind((own, 0)).with_context(|| format!("a port of {own}"))?;
    match (to, own) {
        (IpAddr::V4(group), IpAddr::V4(own)) if group.is_multicast() => {
            gets.join_multicast_v4(&group, &own)?;
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => gets.join_multicast_v6(&group, ANY_INTERFACE)?,
        _ => sends.set_broadcast(true)?,
    }
    Ok((gets, sends))
}

/// How weir measures the lower interface, and whether a foreign XDP program runs there in generic mode.
const BELOW: [(&str, bool); 8] = [
    ("native", false),
    ("generic", false),
    ("tcx", false),
    ("tc", false),
    ("afpacket", false),
    ("tcx", true),
    ("tc", true),
    ("afpacket", true),
];
/// How it measures the upper interface. Only drivers of network cards, and similar ones such as veth, have the native
/// mode.
const ABOVE: &[&str] = &["generic", "tcx", "tc", "afpacket"];
const OF_A_CABLE: &[&str] = &["native", "generic", "tcx", "tc", "afpacket"];
/// The VLAN of the frames.
const TAG: [u8; 4] = [0x81, 0x00, 0, 5];

/// An interface that is stacked on another one.
struct Stacked {
    /// The kind of the upper interface, in words.
    name: &'static str,
    /// Arguments of `ip`; `LOWER` and `UPPER` stand for the names.
    make: &'static [&'static str],
    /// The modes of the upper interface.
    modes: &'static [&'static str],
    /// True if packets on the lower interface have a tag.
    is_tagged: bool,
    /// True if the two are the ends of one cable, and neither is stacked on the other.
    is_cable: bool,
}

const MACVLAN: Stacked = Stacked {
    name: "a macvlan",
    make: &["link add link LOWER name UPPER type macvlan mode passthru", "link set UPPER arp off up"],
    modes: ABOVE,
    is_tagged: false,
    is_cable: false,
};
/// The bridge has the address that all traffic is sent to, so that it receives everything.
const BRIDGE: Stacked = Stacked {
    name: "a bridge",
    make: &[
        "link add UPPER type bridge mcast_snooping 0",
        "link set LOWER master UPPER",
        "link set UPPER address 02:77:ff:00:00:01 arp off up",
    ],
    modes: ABOVE,
    is_tagged: false,
    is_cable: false,
};
const VLAN: Stacked = Stacked {
    name: "a VLAN",
    make: &["link add link LOWER name UPPER type vlan id 5", "link set UPPER arp off up"],
    modes: ABOVE,
    is_tagged: true,
    is_cable: false,
};
const BOND: Stacked = Stacked {
    name: "a bond",
    make: &[
        "link add UPPER type bond mode active-backup",
        "link set LOWER down",
        "link set LOWER master UPPER",
        "link set LOWER arp off up",
        "link set UPPER arp off up",
    ],
    modes: ABOVE,
    is_tagged: false,
    is_cable: false,
};

const CABLE: Stacked = Stacked {
    name: "a veth",
    make: &["link add LOWER type veth peer name UPPER", "link set LOWER arp off up", "link set UPPER arp off up"],
    modes: OF_A_CABLE,
    is_tagged: false,
    is_cable: true,
};

/// Tests with kinds of interfaces that not every kernel has.
pub fn kinds() -> Vec<Trial> {
    let root = needed(netns::requirements());
    let [vlan, bond] = [VLAN, BOND].map(|kind| optional(kind.requirement()));
    vec![
        trial("modes::a_macvlan_and_its_parent", || check_stack(&MACVLAN), &[&root]),
        trial("modes::a_bridge_and_its_port", || check_stack(&BRIDGE), &[&root]),
        trial("modes::both_ends_of_a_veth", || check_stack(&CABLE), &[&root]),
        trial("modes::a_vlan_and_its_parent", || check_stack(&VLAN), &[&root, &vlan]),
        trial("modes::a_bond_and_its_member", || check_stack(&BOND), &[&root, &bond]),
    ]
}

impl Stacked {
    /// An error that says why this kernel cannot create such an interface.
    fn requirement(&self) -> Result<(), String> {
        let made = self.told(self.make[0], "lower", "upper");
        let script = format!("ip link add lower type veth peer name far && ip {made}");
        let tried = Command::new("unshare").args(["--net", "sh", "-c", &script]).output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("this kernel cannot make {}: {}", self.name, said.trim()))
            }
            Err(error) => Err(format!("cannot run unshare: {error}")),
        }
    }

    fn told(&self, line: &str, lower: &str, upper: &str) -> String {
        line.replace("LOWER", lower).replace("UPPER", upper)
    }

    fn make(&self, namespace: &Namespace, lower: &str, upper: &str) -> Result<()> {
        self.make.iter().try_for_each(|line| namespace.ip(&self.told(line, lower, upper)).map(drop))
    }
}

/// For all pairs of modes, the ledgers of both interfaces equal the interfaces' own counts. All pairs run at once, each
/// with its own cable.
fn check_stack(kind: &Stacked) -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let Pairs { all, foreign: _foreign } = Pairs::lay(kind, &pair)?;
    let mut interfaces = String::new();
    for one in &all {
        for (name, mode) in [(&one.lower, one.below.0), (&one.upper, one.above)] {
            interfaces += &format!("  - {{name: {name}, mode: {mode}, direction: both}}\n");
        }
    }
    let settings = format!("interfaces:\n{interfaces}datapath: {{packet_ring: 1MiB, ring: 8MiB}}\n{ONE_WINDOW}");
    let mut daemon = measure(&pair.observer, &settings)?;
    for one in &all {
        one.exchange(&pair, kind).with_context(|| one.to_string())?;
    }
    daemon.wait_for_line("XDP runs in generic mode on", watch::TIMEOUT)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    for one in &all {
        one.check(&pair.observer, &reports).with_context(|| format!("{}: {one}", kind.name))?;
    }
    let log = daemon.log()?;
    let told = all.iter().filter(|one| log.contains(&format!("XDP runs in generic mode on {}.", one.lower))).count();
    ensure!(told > 0, "the log does not mention generic XDP below:\n{log}");
    Ok(())
}

/// Cables, and the interfaces on their ends.
struct Pairs {
    all: Vec<Pair>,
    /// Foreign programs, until they are dropped.
    foreign: Vec<Foreign>,
}

struct Pair {
    /// The far end of the cable from the lower one; `None` if that is the upper one.
    far: Option<String>,
    lower: String,
    upper: String,
    below: (&'static str, bool),
    above: &'static str,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, is_foreign) = self.below;
        let beside = if is_foreign { " beside a foreign XDP program in generic mode" } else { "" };
        write!(f, "{mode}{beside} on {}, {} on {}", self.lower, self.above, self.upper)
    }
}

impl Pairs {
    fn lay(kind: &Stacked, QuietPair { generator, observer }: &QuietPair) -> Result<Self> {
        let mut pairs = Self { all: Vec::new(), foreign: Vec::new() };
        let ways = BELOW.into_iter().flat_map(|below| kind.modes.iter().map(move |above| (below, *above)));
        for (nth, (below, above)) in ways.enumerate() {
            let [far, lower, upper] = ["far", "low", "up"].map(|end| format!("{end}{nth}"));
            let far = if kind.is_cable { None } else { Some(far) };
            if let Some(far) = &far {
                generator.ip(&format!("link add {far} type veth peer name {lower} netns {}", observer.name()))?;
                generator.ip(&format!("link set {far} arp off up"))?;
                observer.ip(&format!("link set {lower} arp off up"))?;
            }
            kind.make(observer, &lower, &upper)?;
            if below.1 {
                pairs.foreign.push(Foreign::attach_generic(observer, &lower)?);
            }
            pairs.all.push(Pair { far, lower, upper, below, above });
        }
        for one in &pairs.all {
            let (there, far) = one.far_end(generator, observer);
            there.wait_until_up(far)?;
            observer.wait_until_up(&one.lower)?;
            observer.wait_until_up(&one.upper)?;
        }
        Ok(pairs)
    }
}

impl Pair {
    /// Where frames for the upper interface are sent.
    fn far_end<'p>(&'p self, generator: &'p Namespace, observer: &'p Namespace) -> (&'p Namespace, &'p str) {
        self.far.as_ref().map_or((observer, &*self.lower), |far| (generator, &**far))
    }

    /// Sends frames in both directions, up to the upper interface and down from it.
    fn exchange(&self, QuietPair { generator, observer }: &QuietPair, kind: &Stacked) -> Result<()> {
        const PACKETS: u64 = 60;
        const ELSEWHERE: [u8; 6] = [2, 0x78, 0, 0, 0, 9];
        let plan = |seed| Plan { seed, packets: PACKETS, mix: Mix::plain(), ..Plan::default() };
        let tag = |frame: Vec<u8>| if kind.is_tagged { [&frame[..12], &TAG, &frame[12..]].concat() } else { frame };
        let frames: Vec<_> = Traffic::new(plan(91))?.map(|packet| tag(packet.frame)).collect();
        let (there, far) = self.far_end(generator, observer);
        let before = (observer.counters(&self.upper)?.received, there.counters(far)?.received);
        there.enter(|| inject::send(far, frames, Pace::Unlimited))??;
        let mut frames: Vec<_> = Traffic::new(plan(92))?.map(|packet| packet.frame).collect();
        for frame in &mut frames {
            // The destination must not be the bridge itself, which would not send such a frame on.
            frame[..6].copy_from_slice(&ELSEWHERE);
        }
        observer.enter(|| inject::send(&self.upper, frames, Pace::Unlimited))??;
        let all = || {
            let up = observer.counters(&self.upper)?.received.since(before.0);
            let down = there.counters(far)?.received.since(before.1);
            Ok((up.packets >= PACKETS && down.packets >= PACKETS).then_some(()))
        };
        clock::wait_for("the arrival of all packets", watch::TIMEOUT, all)
    }

    /// Checks both ledgers: nothing but these frames has passed since the interfaces were created.
    fn check(&self, observer: &Namespace, reports: &[Value]) -> Result<()> {
        for (name, mode) in [(&self.lower, self.below.0), (&self.upper, self.above)] {
            let counted = observer.counters(name)?;
            let obtained = modes(name, reports);
            ensure!(obtained.iter().any(|one| one.ends_with(mode)), "{name} is measured by {obtained:?}");
            for (direction, counted) in [("ingress", counted.received), ("egress", counted.sent)] {
                let seen = seen_in(name, direction, reports)?;
                // Some interfaces count no Ethernet header, or no tag.
                let left_out = seen.bytes.checked_sub(counted.bytes).map(|bytes| bytes as f64 / seen.packets as f64);
                let is_known = left_out.is_some_and(|bytes| [0.0, 4.0, 14.0, 18.0].contains(&bytes));
                ensure!(seen.packets == counted.packets && is_known, "{name} {direction}: {seen:?} of {counted:?}");
            }
        }
        let attributed = |name: &str| -> Result<u64> {
            let interfaces = watch::list(&reports[0]["interfaces"])?;
            let one = interfaces.iter().find(|one| one["name"] == name && one["direction"] == "ingress");
            watch::number(&one.context("it is not in the report")?["ledger"]["attributed"]["packets"])
        };
        let [lower, upper] = [attributed(&self.lower)?, attributed(&self.upper)?];
        ensure!(
            (lower == upper || self.far.is_none()) && lower > 0 && upper > 0,
            "{lower} packets belong to flows below, and {upper} above"
        );
        Ok(())
    }
}
