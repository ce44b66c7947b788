//! Kills weir again and again on a router, while it forwards: every packet must come through.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use weir_tests::{
    clock,
    daemon::{Daemon, Signal},
    forwarded::through,
    netns::Lab,
    quiet::TIMEOUT,
    table,
};

/// All modes with programs. The filters of the classic tc hook outlive their daemon.
const MODES: [&str; 4] = ["native", "generic", "tcx", "tc"];
/// How long weir measures before it is killed, at most.
const LIFE_MAX_MS: u64 = 200;

/// Kills `kills` daemons, one after the other; prints how many packets arrived.
///
/// # Errors
///
/// A packet was lost or came twice; or weir did not start.
pub fn soak(kills: u32) -> Result<bool> {
    let lab = Lab::new()?;
    let quiet = through(&lab, || {
        thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    table::say(format!("without weir: {quiet}"))?;
    ensure!(quiet.expect_whole(), "this machine loses packets without weir: the rest would say nothing");
    let mut is_whole = true;
    for mode in MODES {
        let killed = through(&lab, || (0..kills).try_for_each(|_| live(&lab, mode)))?;
        table::say(format!("with weir in mode {mode}, killed {kills} times: {killed}"))?;
        is_whole &= killed.expect_whole();
    }
    Ok(is_whole)
}

/// Starts weir on both interfaces of the router, and kills it a while after it has begun to measure.
fn live(lab: &Lab, mode: &str) -> Result<()> {
    // XDP has no hook for sent packets.
    let direction = if mode.starts_with("tc") { "both" } else { "ingress" };
    let interface = |name| format!("{{name: {name}, mode: {mode}, direction: {direction}}}");
    let interfaces = Lab::router_interfaces().map(interface).join(", ");
    let mut daemon = Daemon::start(Some(&lab.router), |_| {
        format!("interfaces: [{interfaces}]\nreport: {{interval: 1s}}\nsinks: [{{type: stdout}}]\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    thread::sleep(Duration::from_millis(u64::from(clock::since_epoch().subsec_nanos()) % LIFE_MAX_MS));
    daemon.signal(Signal::KILL)?;
    daemon.wait(TIMEOUT)?;
    Ok(())
}
