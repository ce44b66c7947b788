//! Small networks out of network namespaces, for tests on the real kernel.
//!
//! This module makes all interfaces inside its own namespaces, and touches nothing of the machine's own network. It
//! removes what it made on drop, also after a panic, and also when making it fails half-way. Only a process that is
//! killed leaves its namespaces behind; their names contain its process id.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::fd::AsFd,
    process::{self, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use weir_common::ledger::Tally;

use crate::{clock, scratch::Scratch};

/// Why there can be no laboratory here: not root, no `ip` command, or no permission to create namespaces.
///
/// # Errors
///
/// The reason.
pub fn requirements() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let find = || {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        Namespace::new(number(), "probe").map(drop).map_err(|error| format!("{error:#}"))
    };
    FOUND.get_or_init(find).clone()
}

/// A network namespace, removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace `weir-<pid>-<number>-<role>`, with its loopback up.
    fn new(number: u32, role: &str) -> Result<Self> {
        let name = format!("weir-{}-{number}-{role}", process::id());
        ip(["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The namespace that a process is in, under a name of its own: `weir-<pid>-<number>-<role>`. The name goes on
    /// drop; the namespace stays as long as its processes.
    fn of_process(number: u32, role: &str, process: u32) -> Result<Self> {
        let name = format!("weir-{}-{number}-{role}", process::id());
        ip(["netns", "attach", &name, &process.to_string()])?;
        Ok(Self { name })
    }

    /// Returns the name, as `ip netns list` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    ///
    /// The command's process is `program` itself, so that its number may be sent signals. It has a view of `/sys` of
    /// its own, which shows the namespace's interfaces.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip` on this namespace with arguments that are separated by single spaces.
    ///
    /// # Errors
    ///
    /// The command line and what it wrote to its standard error.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        ip(["-n", &self.name].into_iter().chain(arguments.split(' ')))
    }

    /// Runs these one after the other, in one process.
    ///
    /// # Errors
    ///
    /// As of [`Namespace::ip`]. Those after one that fails are not run.
    pub fn ip_batch(&self, all: &[&str]) -> Result<String> {
        let scratch = Scratch::new()?;
        let batch = scratch.file("batch");
        fs::write(&batch, all.join("\n")).with_context(|| format!("cannot write {}", batch.display()))?;
        ip(["-n", &self.name, "-batch", batch.to_str().context("its path is not UTF-8")?])
    }

    /// Runs `inside` on a new thread that has entered the namespace, and waits for it.
    ///
    /// Sockets that it opens and threads that it starts stay in the namespace. `/sys` still shows the machine.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered, or `inside` panicked.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/run/netns/{}", self.name);
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        let entered = || -> Result<T> {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter {path}"))?;
            Ok(inside())
        };
        thread::scope(|scope| scope.spawn(entered).join())
            .map_err(|_| anyhow!("the code inside of {} panicked", self.name))?
    }

    /// Writes a setting of the namespace: `set("ipv4/ip_forward", "1")`.
    ///
    /// # Errors
    ///
    /// The setting's path and why it cannot be written.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{setting}");
        self.enter(|| fs::write(&path, value))?.with_context(|| format!("cannot write {value} to {path}"))
    }

    /// An interface's own counters.
    ///
    /// # Errors
    ///
    /// There is no such interface.
    pub fn counters(&self, interface: &str) -> Result<InterfaceCounters> {
        let text = self.ip(&format!("-j -s link show dev {interface}"))?;
        let shown: Value = serde_json::from_str(&text).context("ip -j wrote no JSON")?;
        let count = |direction: &str, name: &str| {
            let pointer = format!("/0/stats64/{direction}/{name}");
            shown.pointer(&pointer).and_then(Value::as_u64).with_context(|| format!("{pointer} is not in {text}"))
        };
        let tally = |direction| anyhow::Ok(Tally::new(count(direction, "packets")?, count(direction, "bytes")?));
        Ok(InterfaceCounters { received: tally("rx")?, sent: tally("tx")? })
    }

    /// Waits until an interface that was set up, on both ends of its cable, passes packets.
    ///
    /// The kernel brings it up asynchronously. Until then packets are dropped, although sending them succeeds.
    ///
    /// # Errors
    ///
    /// It did not come up within ten seconds, or there is no such interface.
    pub fn wait_until_up(&self, interface: &str) -> Result<()> {
        let up = || {
            let text = self.ip(&format!("-j link show dev {interface}"))?;
            let shown: Value = serde_json::from_str(&text).context("ip -j wrote no JSON")?;
            Ok((shown[0]["operstate"] == "UP" && shown[0]["qdisc"] != "noop").then_some(()))
        };
        clock::wait_for(&format!("{interface} of {} to be up", self.name), Duration::from_secs(10), up)
    }

    /// Switches IPv6 off, so that interfaces that come up later send no packets by themselves.
    fn hush(&self) -> Result<()> {
        self.set("ipv6/conf/all/disable_ipv6", "1")?;
        self.set("ipv6/conf/default/disable_ipv6", "1")
    }

    /// The settings of an ordinary host of the laboratory: addresses work at once, and answers may take another path.
    fn settle(&self) -> Result<()> {
        for (setting, value) in [
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/default/accept_ra", "0"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
        ] {
            self.set(setting, value)?;
        }
        Ok(())
    }

    fn address(&self, interface: &str, addresses: [&str; 2]) -> Result<()> {
        let [v4, v6] = addresses;
        self.ip(&format!("address add {v4} dev {interface}"))?;
        self.ip(&format!("address add {v6} dev {interface} nodad"))?;
        self.ip(&format!("link set {interface} up"))?;
        Ok(())
    }

    fn route_by(&self, gateways: [&str; 2]) -> Result<()> {
        let [v4, v6] = gateways;
        self.ip(&format!("route add default via {v4}"))?;
        self.ip(&format!("-6 route add default via {v6}"))?;
        Ok(())
    }
}

impl Drop for Namespace {
    #[expect(clippy::print_stderr, reason = "a drop has no other way to say that it left something behind")]
    fn drop(&mut self) {
        if let Err(error) = ip(["netns", "delete", &self.name]) {
            eprintln!("{error:#}");
        }
    }
}

/// The packets that the kernel has counted on an interface since it was made.
///
/// Its count of dropped packets is left out, because it includes packets that arrived but that no protocol handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// The packets that came in.
    pub received: Tally,
    /// The packets that went out.
    pub sent: Tally,
}

/// A client, a router and a server, on two links with IPv4 and IPv6.
///
/// ```text
/// client                    router                     server
///   eth0 ----------- wan0         lan0 ----------- eth0
///   10.77.1.2   10.77.1.1         10.77.2.1   10.77.2.2
///   fd77:1::2   fd77:1::1         fd77:2::1   fd77:2::2
/// ```
///
/// Offloads are left as they are by default. The kernels talk to each other as kernels do (neighbour discovery,
/// multicast listeners): for exact counts there is [`QuietPair`].
#[derive(Debug)]
pub struct Lab {
    /// The namespace that sends.
    pub client: Namespace,
    /// Forwards: here weir runs.
    pub router: Namespace,
    /// The namespace that answers.
    pub server: Namespace,
}

impl Lab {
    /// The server's addresses, IPv4 and IPv6.
    pub const SERVER: [&str; 2] = ["10.77.2.2", "fd77:2::2"];
    /// The addresses of the client.
    pub const CLIENT: [&str; 2] = ["10.77.1.2", "fd77:1::2"];

    /// Builds the network; packets pass at once.
    ///
    /// # Errors
    ///
    /// The command that failed and what it said.
    pub fn new() -> Result<Self> {
        let number = number();
        Self::around(number, Namespace::new(number, "router")?)
    }

    /// The same, where the router is the namespace that a process is in.
    ///
    /// # Errors
    ///
    /// As for [`Lab::new`].
    pub fn around_process(process: u32) -> Result<Self> {
        let number = number();
        Self::around(number, Namespace::of_process(number, "router", process)?)
    }

    fn around(number: u32, router: Namespace) -> Result<Self> {
        let lab = Self { client: Namespace::new(number, "client")?, router, server: Namespace::new(number, "server")? };
        let Self { client, router, server } = &lab;
        for namespace in [client, router, server] {
            namespace.settle()?;
        }
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            router.set(setting, "1")?;
        }
        join((client, "eth0"), (router, "wan0"))?;
        join((router, "lan0"), (server, "eth0"))?;
        client.address("eth0", ["10.77.1.2/24", "fd77:1::2/64"])?;
        router.address("wan0", ["10.77.1.1/24", "fd77:1::1/64"])?;
        router.address("lan0", ["10.77.2.1/24", "fd77:2::1/64"])?;
        server.address("eth0", ["10.77.2.2/24", "fd77:2::2/64"])?;
        for (namespace, interface) in [(client, "eth0"), (router, "wan0"), (router, "lan0"), (server, "eth0")] {
            namespace.wait_until_up(interface)?;
        }
        client.route_by(["10.77.1.1", "fd77:1::1"])?;
        server.route_by(["10.77.2.1", "fd77:2::1"])?;
        Ok(lab)
    }

    /// The router's interfaces: towards the client and towards the server.
    pub const fn router_interfaces() -> [&'static str; 2] {
        ["wan0", "lan0"]
    }

    /// A link that carries only packets that a test injects.
    ///
    /// # Errors
    ///
    /// As for [`Lab::new`].
    pub fn quiet_pair() -> Result<QuietPair> {
        let number = number();
        Self::quiet(QuietPair { generator: Namespace::new(number, "gen")?, observer: Namespace::new(number, "obs")? })
    }

    /// The same, where the observer is the namespace that a process is in.
    ///
    /// # Errors
    ///
    /// As for [`Lab::new`].
    pub fn quiet_pair_to(process: u32) -> Result<QuietPair> {
        let number = number();
        let observer = Namespace::of_process(number, "obs", process)?;
        Self::quiet(QuietPair { generator: Namespace::new(number, "gen")?, observer })
    }

    fn quiet(pair: QuietPair) -> Result<QuietPair> {
        let QuietPair { generator, observer } = &pair;
        for namespace in [generator, observer] {
            namespace.hush()?;
        }
        join((generator, QuietPair::GENERATOR_INTERFACE), (observer, QuietPair::OBSERVER_INTERFACE))?;
        let ends = [(generator, QuietPair::GENERATOR_INTERFACE), (observer, QuietPair::OBSERVER_INTERFACE)];
        for (namespace, interface) in ends {
            namespace.ip(&format!("link set {interface} arp off up"))?;
        }
        for (namespace, interface) in ends {
            namespace.wait_until_up(interface)?;
        }
        Ok(pair)
    }
}

/// Two namespaces on one link, without addresses, ARP and IPv6: their kernels send nothing of their own.
#[derive(Debug)]
pub struct QuietPair {
    /// The namespace in which frames are injected, on [`QuietPair::GENERATOR_INTERFACE`].
    pub generator: Namespace,
    /// The namespace in which they arrive, on [`QuietPair::OBSERVER_INTERFACE`]: here weir runs.
    pub observer: Namespace,
}

impl QuietPair {
    /// The generator's end of the link.
    pub const GENERATOR_INTERFACE: &'static str = "gen0";
    /// The interface at the observer's end.
    pub const OBSERVER_INTERFACE: &'static str = "obs0";
}

/// A number that is unique among the networks of this process.
fn number() -> u32 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    MADE.fetch_add(1, Ordering::Relaxed)
}

/// Joins two namespaces by a virtual cable.
fn join((one, its): (&Namespace, &str), (other, others): (&Namespace, &str)) -> Result<()> {
    one.ip(&format!("link add {its} type veth peer name {others} netns {}", other.name))?;
    Ok(())
}

/// Runs `ip` and returns what it wrote.
fn ip<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let line = format!("ip {}", arguments.join(" "));
    let output = match Command::new("ip").args(&arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no `ip` command (Debian: apt-get install iproute2)")
        }
        Err(error) => return Err(error).context(line),
    };
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
