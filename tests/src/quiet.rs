//! Traffic over a quiet link into a single window; shared by tests and soaks of the running daemon.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use weir_common::ledger::Tally;

use crate::{
    clock,
    inject::{self, Pace},
    netns::QuietPair,
    oracle::Oracle,
    traffic::Packet,
};

/// Far longer than anything takes; only a failing test waits for it.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Settings for a window that lasts longer than the test; see [`one_window`].
pub const ONE_WINDOW: &str = "report: {interval: 1h, first_window: 1h}\nseen_flows: {generation: 1h}\n";
/// The ends of a quiet link: frames are injected at the first and arrive at the second.
pub const QUIET_LINK: [&str; 2] = [QuietPair::GENERATOR_INTERFACE, QuietPair::OBSERVER_INTERFACE];

/// If the next full hour is near, waits until it has passed. So a window of an hour ends only when the daemon ends.
pub fn one_window() {
    const HOUR_SECONDS: u64 = 3600;
    const ENOUGH_SECONDS: u64 = 120;
    let left = HOUR_SECONDS - clock::since_epoch().as_secs() % HOUR_SECONDS;
    if left < ENOUGH_SECONDS {
        thread::sleep(Duration::from_secs(left));
    }
}

/// Sends packets over a link of the pair, adds each to the oracle, and waits until all have arrived. Returns the sum of
/// what was sent.
///
/// # Errors
///
/// The errors of [`inject::send`], or not all packets have arrived.
pub fn send(
    pair: &QuietPair,
    [from, to]: [&str; 2],
    packets: impl Iterator<Item = Packet> + Send,
    pace: Pace,
    oracle: &mut Oracle,
) -> Result<Tally> {
    let arrived = || anyhow::Ok(pair.observer.counters(to)?.received.packets);
    let before = arrived()?;
    let packets = packets.inspect(|packet| oracle.add(&packet.truth));
    let sent = pair.generator.enter(|| inject::send(from, packets, pace))??;
    let all = || Ok((arrived()? - before >= sent.packets).then_some(()));
    clock::wait_for("the arrival of all packets", TIMEOUT, all)
        .with_context(|| format!("{} were sent; arrived: {:?}", sent.packets, arrived().map(|now| now - before)))?;
    Ok(sent)
}
