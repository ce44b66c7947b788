//! A network that packets cross as fast as they are forwarded: a generator, a router, and a sink.
//!
//! ```text
//! client                 router                 server
//!   eth0 ----------- wan0         lan0 ----------- eth0
//! generates              forwards               drops
//! ```
//!
//! All three run on the CPUs that generate. Each batch of the generator is forwarded, and dropped in the sink, in the
//! softirq that ends the batch; only then comes the next batch. So packets come as fast as they are forwarded and no
//! faster, and the rate shows how much a tool slows forwarding down.

use std::{thread, time::Duration};

use crate::{
    clock,
    livegen::{FLOOD_DESTINATIONS, Flows, Generator, Sent, ZIPF_DESTINATIONS},
    netns::{Lab, Namespace},
};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;

/// The router's interface towards the generator, where the tools measure.
pub const WAN: &str = "wan0";
const LAN: &str = "lan0";
const FAR: &str = "eth0";
/// The next hop's Ethernet address, which no interface has: the sink drops such packets immediately.
const NOBODY: &str = "02:77:00:00:00:66";
const NEXT_HOPS: [&str; 2] = ["10.77.2.66", "fd77:2::66"];
const TIMEOUT: Duration = Duration::from_secs(10);
/// If counters do not change for this long, all packets have arrived.
const REST: Duration = Duration::from_millis(100);

/// A router between two networks, each in a namespace of its own.
pub struct Route {
    lab: Lab,
    mac: [u8; 6],
    cpu: u32,
}

/// The packets of one run.
#[derive(Clone, Copy)]
pub struct Passed {
    /// The packets that the generator made.
    pub sent: Sent,
    /// The packets that the router's interface received.
    pub received: Tally,
    /// The packets that arrived at the sink.
    pub delivered: Tally,
}

impl Passed {
    /// The packets of this run and of a later one.
    #[must_use]
    pub fn and(mut self, later: Self) -> Self {
        self.sent.tally.add(later.sent.tally);
        self.sent.elapsed += later.sent.elapsed;
        self.sent.cpu_time += later.sent.cpu_time;
        self.received.add(later.received);
        self.delivered.add(later.delivered);
        self
    }

    /// Delivered packets a second.
    pub fn rate(&self) -> f64 {
        self.delivered.packets as f64 / self.sent.elapsed.as_secs_f64()
    }

    /// Packets that were sent and did not arrive.
    pub const fn undelivered(&self) -> u64 {
        self.sent.tally.packets.saturating_sub(self.delivered.packets)
    }
}

impl Route {
    /// Builds the network. Packets are generated and forwarded on `cpu`.
    ///
    /// # Errors
    ///
    /// No root, or no `ip` or `ethtool` command.
    pub fn new(cpu: u32) -> Result<Self> {
        let lab = Lab::new()?;
        let router = &lab.router;
        for (family, destinations, via) in
            [("-4", ZIPF_DESTINATIONS, NEXT_HOPS[0]), ("-6", FLOOD_DESTINATIONS, NEXT_HOPS[1])]
        {
            router.ip(&format!("neigh replace {via} lladdr {NOBODY} dev {LAN} nud permanent"))?;
            router.ip(&format!("{family} route add {destinations} via {via} dev {LAN}"))?;
        }
        let mac = mac(router, WAN)?;
        let route = Self { lab, mac, cpu };
        route.poll(true)?;
        Ok(route)
    }

    /// Returns the namespace in which tools run.
    pub const fn router(&self) -> &Namespace {
        &self.lab.router
    }

    /// A generator that sends through the router to the sink, at a rate in packets a second or as fast as it can.
    ///
    /// # Errors
    ///
    /// The kernel does not take it, or it cannot keep the rate.
    pub fn generator(&self, flows: Flows, rate: Option<f64>) -> Result<Generator<'_>> {
        Generator::new(&self.lab.client, FAR, self.mac, flows, rate)
    }

    /// Returns the packets that the router's interface has received.
    ///
    /// # Errors
    ///
    /// The interface is gone.
    pub fn received(&self) -> Result<Tally> {
        Ok(self.lab.router.counters(WAN)?.received)
    }

    /// Generates packets that the router does not receive.
    ///
    /// # Errors
    ///
    /// The errors of the generator.
    pub fn making(&self, generator: &Generator<'_>, packets: u32) -> Result<Sent> {
        self.poll(false)?;
        let made = generator.send(self.cpu, packets)?;
        self.poll(true)?;
        Ok(made)
    }

    /// Switches polling on the router on or off. Without it, packets of the kernel's generator do not arrive.
    fn poll(&self, poll: bool) -> Result<()> {
        run(&self.lab.router, &["ethtool", "-K", WAN, "gro", if poll { "on" } else { "off" }])
    }

    /// Sends packets, and waits until all counters are at rest.
    ///
    /// # Errors
    ///
    /// The errors of the generator, or the counters did not stop changing.
    pub fn send(&self, generator: &Generator<'_>, packets: u32) -> Result<Passed> {
        let delivered = || anyhow::Ok(self.lab.server.counters(FAR)?.received);
        let before = (self.received()?, delivered()?);
        let sent = generator.send(self.cpu, packets)?;
        let mut last = None;
        let (received, delivered) = clock::wait_for("rest after the packets", TIMEOUT, || {
            let now = (self.received()?, delivered()?);
            let at_rest = last.replace(now) == Some(now);
            thread::sleep(REST);
            Ok(at_rest.then_some(now))
        })?;
        Ok(Passed { sent, received: received.since(before.0), delivered: delivered.since(before.1) })
    }

    /// Sends this many packets of the flood from each of these CPUs, all at the same time, and waits until all counters
    /// are at rest. Returns what the router's interface received.
    ///
    /// # Errors
    ///
    /// Those of [`Route::send`].
    pub fn flood(&self, cpus: &[u32], packets: u32) -> Result<Tally> {
        let before = self.received()?;
        let generators: Vec<_> = cpus.iter().map(|_| self.generator(Flows::Flood, None)).collect::<Result<_>>()?;
        thread::scope(|scope| {
            let send = |(cpu, generator): (&u32, &Generator<'_>)| generator.send(*cpu, packets);
            let start = |pair| scope.spawn(move || send(pair));
            let senders: Vec<_> = cpus.iter().zip(&generators).map(start).collect();
            senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic").map(drop))
        })?;
        let mut last = None;
        clock::wait_for("rest after the flood", TIMEOUT, || {
            let now = self.received()?;
            let at_rest = last.replace(now) == Some(now);
            thread::sleep(REST);
            Ok(at_rest.then_some(now.since(before)))
        })
    }
}

fn mac(namespace: &Namespace, interface: &str) -> Result<[u8; 6]> {
    let shown: Value = serde_json::from_str(&namespace.ip(&format!("-j link show dev {interface}"))?)?;
    let text = shown[0]["address"].as_str().with_context(|| format!("{interface} has no address"))?;
    let bytes: Result<Vec<_>, _> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.ok().and_then(|bytes| bytes.try_into().ok()).with_context(|| format!("{text} is no Ethernet address"))
}

/// Runs a command in a namespace to its end.
fn run(namespace: &Namespace, command: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no command") };
    let output = namespace.command(program).args(arguments).output().context("cannot run `ip`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.join(" "), said.trim_end());
    Ok(())
}
