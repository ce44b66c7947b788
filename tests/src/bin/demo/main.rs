//! The demo behind `scripts/demo`: weir on a router that is made of network namespaces, with real traffic.
//!
//! It removes everything that it made, also after a failure or an interrupt.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use weir_schema::{Interface, Report, Style, write_overview};
use weir_tests::{
    account, clock,
    collector::Collector,
    daemon::Daemon,
    inject::{self, Pace},
    netns::{Lab, requirements},
    oracle::Oracle,
    story,
};

mod interrupt;
mod live;
mod show;

use live::Returned;
use show::{heading, step, thousands};

/// The length of a window.
const INTERVAL_SECONDS: u64 = 5;
/// Rows of each top list.
const TOP: usize = 5;
/// The report is drawn for a terminal of this many columns.
const WIDTH: usize = 100;
/// How to see more of a report.
const MORE: &str = "ledger, reasons and bounds of each number: `weir report --full`, or `weir replay --full FILE.pcap`";
/// Lines of JSON that are shown.
const JSON_LINES: usize = 60;
/// Where reports go: inside the router, so that they add nothing to the measured traffic.
const COLLECTOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
/// The generator's packets per second: it sends for some six seconds.
const PACE: Pace = Pace::PacketsPerSecond(420);
/// How long weir may take to start, to report and to stop.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A kernel that joins a network sends some packets for a while. After this long without a packet it has finished.
const QUIET: Duration = Duration::from_millis(600);
/// How often to look for a report that came.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const NEXT: &str = "  weir run --interface eth0      measure an interface of this machine (as root)
  weir top                       who uses the link, live; with --replay FILE.pcap without root
  weir replay FILE.pcap          measure a capture of tcpdump or Wireshark; needs no root
  weir check FILE                every mistake in a configuration, or what it costs in memory
  config/weir.yaml               every setting, explained; config/examples for common cases
  config/weir.service            weir as a systemd service, with capabilities instead of root
  docs/REPORT.md                 what each number of a report means, and its bounds

  The binary is target/quick/weir. For a router, build the smaller and faster one: cargo build --release -p weir";

#[expect(clippy::print_stderr, reason = "this is where the demo says why it broke off")]
fn main() -> ExitCode {
    match interrupt::listen().and_then(|()| demo()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if interrupt::happened() => {
            eprintln!("\n  interrupted; the demo has removed what it made");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("\nscripts/demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<()> {
    requirements().map_err(|reason| anyhow!(reason))?;
    heading("weir on a router")?;
    let lab = Lab::new()?;
    silence(&lab)?;
    step("lab", "client ─── wan0 [router] lan0 ─── server: three network namespaces, IPv4 and IPv6")?;
    let collector = lab.router.enter(|| Collector::listen(COLLECTOR))??;
    let earlier = Sent::read(&lab)?;
    let mut weir = Daemon::start(Some(&lab.router), |_| config(&collector))?;
    weir.wait_for_line("measuring every packet", TIMEOUT)?;
    step("weir", format_args!("`weir run` in the router, on wan0 and lan0; a report every {INTERVAL_SECONDS} s"))?;
    step("", format_args!("by HTTP to a small collector at {}", collector.url()))?;

    let before = Sent::read(&lab)?;
    let mut reports = Vec::new();
    let traffic = send(&lab, &collector, &mut reports)?;
    let sent = Sent::read(&lab)?.since(&before);
    let status = weir.stop(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}\n{}", weir.log()?);
    let most = Sent::read(&lab)?.since(&earlier);
    step("stop", "SIGTERM: weir closes the window, delivers the last report and ends")?;
    while take_report(&collector, Duration::ZERO, &mut reports)? {}

    let fullest = reports.iter().max_by_key(|report| report.totals.packets).context("no report came")?;
    heading(&format!("Report {} of {}", fullest.observer.seq, reports.len()))?;
    let style = Style { color: show::color(), width: WIDTH, lines: None };
    write_overview(fullest, style, MORE, &mut io::stdout().lock())?;
    heading("The same report, as JSON")?;
    show::write(&show::beginning(&show::json(fullest)?, JSON_LINES))?;
    heading("Is it right?")?;
    check(&reports, [&sent, &most], &traffic)?;
    heading("Where to go next")?;
    show::write(NEXT)
}

fn config(collector: &Collector) -> String {
    format!(
        "observer: {{name: router}}\n\
         interfaces: [{{name: wan0, mode: native}}, lan0]\n\
         report: {{interval: {INTERVAL_SECONDS}s, top: {TOP}}}\n\
         sinks: [{{type: http, url: \"{}\"}}]\n",
        collector.url()
    )
}

/// Keeps the hosts from sending packets of their own: they send no router solicitations, and this waits until they have
/// joined the network. Then all packets come from the demo. It also switches off GSO on the hosts: weir counts each of
/// the merged packets, but the interface's counter, which the demo compares with, counts them as one.
fn silence(lab: &Lab) -> Result<()> {
    for host in [&lab.client, &lab.server] {
        host.set("ipv6/conf/eth0/router_solicitations", "0")?;
        host.ip("link set dev eth0 gso_max_segs 1")?;
    }
    let mut last = (Sent::read(lab)?, clock::now());
    clock::wait_for("silence in the laboratory", TIMEOUT, || {
        interrupt::check()?;
        let now = Sent::read(lab)?;
        if now != last.0 {
            last = (now, clock::now());
        }
        Ok((last.1.elapsed() >= QUIET).then_some(()))
    })
}

/// Packets that the client and the server sent towards the router, as their own kernels count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    client: u64,
    server: u64,
}

impl Sent {
    fn read(lab: &Lab) -> Result<Self> {
        let [client, server] = [&lab.client, &lab.server].map(|host| host.counters("eth0"));
        Ok(Self { client: client?.sent.packets, server: server?.sent.packets })
    }

    fn since(self, earlier: &Self) -> Self {
        Self { client: self.client - earlier.client, server: self.server - earlier.server }
    }
}

/// The packets sent, by the demo's own count.
struct Traffic {
    injected: Oracle,
    returned: Returned,
}

/// Sends all traffic, and shows the reports that come meanwhile.
fn send(lab: &Lab, collector: &Collector, reports: &mut Vec<Report>) -> Result<Traffic> {
    let packets = story::packets()?;
    step(
        "traffic",
        format_args!("{} generated packets on wan0, as in tests/corpus/demo.pcap:", thousands(packets.len() as u64)),
    )?;
    step("", "VLANs, fragments, extension headers, ARP, damaged packets, a scan;")?;
    step("", "and live TCP and UDP from the client; the server sends every byte back")?;
    thread::scope(|scope| {
        let generator = scope.spawn(|| {
            let mut injected = Oracle::new();
            let packets = packets.iter().take_while(|_| !interrupt::happened());
            let packets = packets.inspect(|packet| injected.add(&packet.truth));
            lab.client.enter(|| inject::send("eth0", packets, PACE))??;
            anyhow::Ok(injected)
        });
        let live = scope.spawn(|| live::exchange(lab));
        while !(generator.is_finished() && live.is_finished()) {
            take_report(collector, POLL_INTERVAL, reports)?;
        }
        let panicked = |_| anyhow!("a thread that sends traffic panicked");
        let injected = generator.join().map_err(panicked)?.context("cannot inject")?;
        let returned = live.join().map_err(panicked)?.context("live traffic was harmed")?;
        interrupt::check()?;
        Ok(Traffic { injected, returned })
    })
}

/// Takes the next report, if one comes in time, and prints its content.
fn take_report(collector: &Collector, timeout: Duration, reports: &mut Vec<Report>) -> Result<bool> {
    let Some(received) = collector.next(timeout) else { return Ok(false) };
    let report: Report = serde_json::from_value(received.report).context("the collector received no report")?;
    let Report { window, observer, interfaces, totals, .. } = &report;
    let seen = interfaces.iter().map(|one| format!("{} {}", one.name, thousands(one.ledger.seen.packets)));
    step(
        "report",
        format_args!(
            "{}  {} – {} UTC  {:>7} packets ({})",
            observer.seq,
            window.start.strftime("%H:%M:%S"),
            window.end.strftime("%H:%M:%S"),
            thousands(totals.packets),
            seen.collect::<Vec<_>>().join(", "),
        ),
    )?;
    if reports.is_empty() {
        let hook = |one: &Interface| format!("{} by {}", one.name, one.mode);
        let hooks = report.interfaces.iter().map(hook).collect::<Vec<_>>().join(", ");
        step("", format_args!("seen on {hooks}: wan0 as `mode: native` asks, lan0 as weir chose"))?;
    }
    reports.push(report);
    Ok(true)
}

/// Prints what was sent, and what weir saw of it.
///
/// weir must have seen at least what the hosts sent while it certainly measured, and at most what they sent from before
/// it attached until after it ended. The two are equal, except for packets that a kernel sends on its own in between.
fn check(reports: &[Report], [sent, most]: [&Sent; 2], traffic: &Traffic) -> Result<()> {
    let Sent { client, server } = *sent;
    let Traffic { injected, returned: Returned { stream_bytes, datagrams } } = traffic;
    let mut right = true;
    let mut line = |what: &str, text: String, holds: bool| {
        right &= holds;
        step(what, format_args!("{text}{}", if holds { "" } else { "   <-- WRONG" }))
    };
    for (interface, who, sent, most) in
        [("wan0", "client", client, most.client), ("lan0", "server", server, most.server)]
    {
        let seen = seen_on(reports, interface);
        let holds = (sent..=most).contains(&seen);
        let verdict = match holds {
            true if seen == sent => "equal".to_owned(),
            true => format!("right, {} passed while it attached or ended", most - sent),
            false => "NOT EQUAL".to_owned(),
        };
        let text = format!("the {who} sent {} packets, weir saw {}: {verdict}", thousands(sent), thousands(seen));
        line(interface, text, holds)?;
    }
    let text = format!(
        "{} of the packets on wan0 are from the generator, by its own count",
        thousands(injected.sent().packets)
    );
    line("", text, injected.sent().packets <= client)?;
    let (skipped, known) = (skipped_without_arp(reports), injected.skipped().clone());
    let known: BTreeMap<_, _> = known.into_iter().filter(|(reason, _)| *reason != "arp").collect();
    let equal = skipped
        .iter()
        .map(|(reason, packets)| (reason.as_str(), *packets))
        .eq(known.iter().map(|(reason, tally)| (*reason, tally.packets)));
    let text = format!(
        "{} of them are damaged or neither IP nor ARP: weir skipped {}, for the same reasons",
        known.values().map(|tally| tally.packets).sum::<u64>(),
        skipped.values().sum::<u64>()
    );
    line("", text, equal)?;
    let values = reports.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    let account = account::add_up(&values);
    let text = match &account {
        Ok(ledger) => format!(
            "balances in all {} reports, to the packet and the byte; {} packets lost",
            reports.len(),
            ledger.all_lost().packets
        ),
        Err(error) => format!("DOES NOT BALANCE: {error:#}"),
    };
    line("ledger", text, account.is_ok())?;
    let text = format!(
        "{} MiB by TCP and {} UDP datagrams came back unchanged: weir did not disturb them",
        *stream_bytes >> 20,
        thousands(*datagrams)
    );
    line("live", text, true)?;
    ensure!(right, "weir's reports are wrong: please report this as a defect");
    Ok(())
}

/// Packets without a flow, by reason. ARP is left out, because the kernels of the laboratory send it, too.
fn skipped_without_arp(reports: &[Report]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for interface in reports.iter().flat_map(|report| &report.interfaces) {
        for (reason, tally) in interface.ledger.skipped.iter().filter(|(reason, _)| *reason != "arp") {
            *sums.entry(reason.clone()).or_default() += tally.packets;
        }
    }
    sums
}

fn seen_on(reports: &[Report], interface: &str) -> u64 {
    let interfaces = reports.iter().flat_map(|report| &report.interfaces);
    interfaces.filter(|one| one.name == interface).map(|one| one.ledger.seen.packets).sum()
}
