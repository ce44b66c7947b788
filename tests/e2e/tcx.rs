//! At the tc hook packets are counted as they were on the wire, in both directions, even if offloads have merged them.

use std::fs;

use anyhow::{Context, Result, ensure};
use tappers::{Interface, Tun};
use weir_common::ledger::Tally;
use weir_tests::{
    account::{Loss, sizes},
    foreign::{Does, Foreign},
    inject::{self, Pace},
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    forwarding::{TCP_PORT, UPLOAD, sum_flow, upload},
    watch::{
        self, ONE_WINDOW, QUIET_LINK, ROOMY_PACKET_RINGS, Watch, has_program, judge, measure, modes, one_window,
        seen_in,
    },
};

tests![
    received_packets_are_exact,
    sent_packets_are_exact,
    both_directions_have_their_own_account,
    merged_segments_count_as_the_packets_that_they_are,
    a_device_without_link_headers_is_exact,
    headers_on_a_parent_in_generic_mode_are_whole,
    two_programs_at_the_tc_hook_both_see_every_packet,
    a_foreign_xdp_program_stays_and_tcx_is_taken
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// Starts weir on a quiet link in the mode that it chooses, with one window.
fn watch(direction: &str) -> Result<Watch> {
    watch_by("auto", direction)
}

/// Starts the watch in a given mode.
pub fn watch_by(mode: &str, direction: &str) -> Result<Watch> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let settings = format!(
        "interfaces: [{{name: {INTERFACE}, mode: {mode}, direction: {direction}}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}"
    );
    let daemon = measure(&pair.observer, &settings)?;
    Ok(Watch { pair, daemon })
}

/// Sends a plan's packets from the observer, and returns what was sent.
pub fn send_out(watch: &Watch, plan: Plan, oracle: &mut Oracle) -> Result<Tally> {
    let [generator, observer] = QUIET_LINK;
    let arrived = || anyhow::Ok(watch.pair.generator.counters(generator)?.received.packets);
    let before = arrived()?;
    let packets = Traffic::new(plan)?.inspect(|packet| oracle.add(&packet.truth));
    let sent = watch.pair.observer.enter(|| inject::send(observer, packets, Pace::Unlimited))??;
    let all = || Ok((arrived()? - before >= sent.packets).then_some(()));
    weir_tests::clock::wait_for("the arrival of all packets", watch::TIMEOUT, all)?;
    Ok(sent)
}

fn received_packets_are_exact() -> Result<()> {
    check_received(watch("ingress")?, "tcx")
}

/// Checks that all odd packets that are received are counted as they were on the wire.
pub fn check_received(watch: Watch, mode: &str) -> Result<()> {
    let mut oracle = Oracle::new();
    // The kernel moves VLAN tags out of the frame before the tc hook.
    watch.send(Plan { seed: 61, packets: 60_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    judge("received packets", oracle.check_report(&reports[0]))?;
    ensure!(modes(INTERFACE, &reports) == [mode], "{:?}", modes(INTERFACE, &reports));
    ensure!(reports[0]["interfaces"][0]["coverage"] == 1.0, "coverage {}", reports[0]["interfaces"][0]["coverage"]);
    Ok(())
}

fn sent_packets_are_exact() -> Result<()> {
    check_sent(watch("egress")?)
}

/// Checks that all odd packets that are sent are counted, and none that is received.
pub fn check_sent(watch: Watch) -> Result<()> {
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 62, packets: 1_000, ..Plan::default() }, &mut Oracle::new())?;
    let plan = Plan { seed: 63, packets: 30_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() };
    send_out(&watch, plan, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    judge("what was sent, and nothing of what was received", oracle.check_report(&reports[0]))?;
    ensure!(reports[0]["interfaces"][0]["coverage"] == 1.0, "coverage {}", reports[0]["interfaces"][0]["coverage"]);
    Ok(())
}

fn both_directions_have_their_own_account() -> Result<()> {
    check_both(watch("both")?)
}

/// Received and sent packets have separate accounts.
pub fn check_both(watch: Watch) -> Result<()> {
    let mut oracle = Oracle::new();
    let plan = |seed, packets| Plan { seed, packets, mix: Mix::odd(), ..Plan::default() };
    let received = watch.send(plan(64, 7_000), &mut oracle)?;
    let sent = send_out(&watch, plan(65, 5_000), &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    for (direction, expected) in [("ingress", received), ("egress", sent)] {
        let seen = seen_in(INTERFACE, direction, &reports)?;
        ensure!(seen == expected, "{direction}: seen {seen:?} of {expected:?}");
    }
    judge("both directions together", oracle.check_report(&reports[0]))
}

/// The number of segments that the namespace's TCP has sent, including retransmitted ones, and the number of those.
pub fn segments_sent(namespace: &Namespace) -> Result<[u64; 2]> {
    let [sent, repeated] = tcp_counters(namespace, ["OutSegs", "RetransSegs"])?;
    Ok([sent + repeated, repeated])
}

/// The number of resets that the namespace's TCP has sent. They have no timestamps in their headers.
pub fn resets_sent(namespace: &Namespace) -> Result<u64> {
    let [resets] = tcp_counters(namespace, ["OutRsts"])?;
    Ok(resets)
}

/// Counters of the namespace's TCP. `/proc/net/snmp` has names in one line and numbers in the next.
fn tcp_counters<const N: usize>(namespace: &Namespace, wanted: [&str; N]) -> Result<[u64; N]> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split(' ').collect()).collect();
    let [names, numbers] = &lines[..] else { anyhow::bail!("no TCP in {text}") };
    let mut all = [0; N];
    for (number, name) in all.iter_mut().zip(wanted) {
        let at = names.iter().position(|candidate| *candidate == name).with_context(|| format!("no {name}"))?;
        *number = numbers[at].parse()?;
    }
    Ok(all)
}

fn merged_segments_count_as_the_packets_that_they_are() -> Result<()> {
    check_merged("auto")
}

/// Every segment of bulk TCP that offloads merge is counted, in both directions.
pub fn check_merged(mode: &str) -> Result<()> {
    /// Ethernet, IP and TCP with its timestamps; the first segment has eight bytes more of options.
    const HEADERS: [u64; 2] = [14 + 20 + 32, 14 + 40 + 32];
    const FIRST_MORE: u64 = 8;
    let [wan, lan] = Lab::router_interfaces();
    for (interface, direction) in [(wan, "ingress"), (lan, "egress")] {
        one_window();
        let lab = Lab::new()?;
        let settings = format!(
            "interfaces: [{{name: {interface}, mode: {mode}, direction: {direction}}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}"
        );
        let mut daemon = measure(&lab.router, &settings)?;
        let buffers = || anyhow::Ok(lab.router.counters(wan)?.received.packets);
        let (buffers_before, [segments_before, repeated_before]) = (buffers()?, segments_sent(&lab.client)?);
        for server in Lab::SERVER {
            upload(&lab, server.parse()?)?;
        }
        let (buffers, [segments, repeated]) = (buffers()? - buffers_before, segments_sent(&lab.client)?);
        let (segments, repeated) = (segments - segments_before, repeated - repeated_before);
        let reports = watch::stop(&mut daemon, Loss::None)?;
        // The packets of a merged buffer count with their mean size, which is at most a full segment.
        let larger = sizes(&reports[0]["interfaces"][0])?.into_iter().filter(|(edge, _)| *edge > 1518);
        ensure!(
            larger.clone().all(|(_, packets)| packets == 0),
            "{interface} {direction}: {:?}",
            larger.collect::<Vec<_>>()
        );
        let mut packets_seen = 0;
        for (nth, (client, server)) in Lab::CLIENT.into_iter().zip(Lab::SERVER).enumerate() {
            let flow = |measure| sum_flow(&reports, measure, client, server, TCP_PORT, "tcp");
            let (packets, bytes) = (flow("packets")?, flow("bytes")?);
            let expected = UPLOAD as u64 + packets * HEADERS[nth] + FIRST_MORE;
            // Retransmitted segments are counted again.
            let is_right = if repeated == 0 { bytes == expected } else { bytes >= expected };
            ensure!(is_right, "{interface} {direction}: {bytes} bytes in {packets} packets, not {expected}");
            packets_seen += packets;
        }
        ensure!(packets_seen == segments, "{interface} {direction}: {packets_seen} packets of {segments} segments");
        ensure!(buffers * 2 < segments, "{segments} segments came in {buffers} buffers: nothing was merged");
        let coverage = reports[0]["interfaces"][0]["coverage"].as_f64().context("no coverage")?;
        ensure!((0.98..=1.02).contains(&coverage), "{interface} {direction}: coverage {coverage}");
    }
    Ok(())
}

fn a_device_without_link_headers_is_exact() -> Result<()> {
    check_without_link_headers("auto", "tcx")
}

/// Checks that all packets of a tun device are counted, which begin with their IP header.
pub fn check_without_link_headers(mode: &str, obtained: &str) -> Result<()> {
    const ETHERNET_BYTES: usize = 14;
    const DEVICE: &str = "tun0";
    one_window();
    let pair = Lab::quiet_pair()?;
    let tun = pair.observer.enter(|| Tun::new_named(Interface::new(DEVICE)?))??;
    pair.observer.ip(&format!("link set {DEVICE} up"))?;
    let mut daemon = measure(
        &pair.observer,
        &format!("interfaces: [{{name: {DEVICE}, mode: {mode}}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}"),
    )?;
    let plan = Plan { seed: 66, packets: 20_000, flows: 1_000, mix: Mix::plain(), ..Plan::default() };
    let mut oracle = Oracle::new();
    for packet in Traffic::new(plan)? {
        let mut truth = packet.truth;
        truth.bytes -= ETHERNET_BYTES as u64;
        oracle.add(&truth);
        tun.send(&packet.frame[ETHERNET_BYTES..])?;
    }
    let reports = watch::stop(&mut daemon, Loss::None)?;
    judge("packets that begin with their IP header", oracle.check_report(&reports[0]))?;
    ensure!(modes(DEVICE, &reports) == [obtained], "{:?}", modes(DEVICE, &reports));
    Ok(())
}

/// XDP in generic mode on the parent makes the kernel hide the link header from the programs of the child.
fn headers_on_a_parent_in_generic_mode_are_whole() -> Result<()> {
    const CHILD: &str = "mac0";
    one_window();
    let pair = Lab::quiet_pair()?;
    pair.observer.ip(&format!("link add link {INTERFACE} name {CHILD} type macvlan mode passthru"))?;
    pair.observer.ip(&format!("link set {CHILD} arp off up"))?;
    let settings = format!(
        "interfaces: [{{name: {INTERFACE}, mode: generic}}, {{name: {CHILD}, mode: tcx}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}"
    );
    let mut daemon = measure(&pair.observer, &settings)?;
    let received = || anyhow::Ok(pair.observer.counters(CHILD)?.received);
    let before = received()?;
    let plan = Plan { seed: 69, packets: 5_000, mix: Mix::plain(), ..Plan::default() };
    let packets = Traffic::new(plan)?;
    let sent = watch::send(&pair, QUIET_LINK, packets, Pace::Unlimited, &mut Oracle::new())?;
    let all = || Ok((received()?.packets - before.packets >= sent.packets).then_some(()));
    weir_tests::clock::wait_for("the arrival of all packets at the child", watch::TIMEOUT, all)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    for interface in [INTERFACE, CHILD] {
        let seen = seen_in(interface, "ingress", &reports)?;
        ensure!(seen == sent, "{interface}: seen {seen:?} of {sent:?}");
    }
    let interfaces = watch::list(&reports[0]["interfaces"])?;
    let ledgers: Vec<_> = interfaces.iter().map(|interface| &interface["ledger"]["attributed"]).collect();
    ensure!(ledgers.len() == 2 && ledgers[0] == ledgers[1], "attributed: {ledgers:?}");
    Ok(())
}

fn two_programs_at_the_tc_hook_both_see_every_packet() -> Result<()> {
    let watch = watch("ingress")?;
    let mut second = measure(&watch.pair.observer, &format!("interfaces: [{INTERFACE}]\n{ONE_WINDOW}"))?;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 68, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
    for (which, reports) in
        [("the second", watch::stop(&mut second, Loss::None)?), ("the first", watch.stop(Loss::None)?)]
    {
        judge(which, oracle.check_report(&reports[0]))?;
        ensure!(modes(INTERFACE, &reports) == ["tcx"], "{which}: {:?}", modes(INTERFACE, &reports));
    }
    Ok(())
}

fn a_foreign_xdp_program_stays_and_tcx_is_taken() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let _foreign = Foreign::attach(&pair.observer, INTERFACE, Does::Pass)?;
    let daemon = measure(&pair.observer, &format!("interfaces: [{INTERFACE}]\n{ONE_WINDOW}"))?;
    let watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 67, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
    ensure!(has_program(&watch.pair.observer, INTERFACE)?, "the foreign program is gone");
    let Watch { pair, mut daemon } = watch;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    judge("beside a foreign program", oracle.check_report(&reports[0]))?;
    ensure!(modes(INTERFACE, &reports) == ["tcx"], "{:?}", modes(INTERFACE, &reports));
    ensure!(has_program(&pair.observer, INTERFACE)?, "the foreign program went with weir's");
    Ok(())
}
