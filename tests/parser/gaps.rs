//! Compares the gaps between sampled packets: the kernel and userspace draw from the same distribution.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_common::{ledger::Tally, packet::Link, record::Record};
use weir_config::Packets;
use weir_datapath::{
    Plan,
    rates::WindowSeconds,
    userspace::{Buffer, UserspaceProgram},
};
use weir_tests::{
    chance,
    object::{Object, PLAN},
};

use crate::frame::{IPV4, ethernet, ipv4, tcp};

const RATE: u32 = 8;
/// Each packet has a different source port, which shows its place in the sequence.
const PACKETS: u16 = 60_000;
/// How many gaps are judged, from the first one on. Some 7,500 are expected, with a standard deviation of 81.
const GAPS: usize = 7_000;

/// The gaps of both follow the geometric distribution: for each bin of gaps the number of them is compared with the
/// binomial distribution, and so is the number of short gaps that follow short ones, because gaps must not depend on
/// each other. All comparisons together fail by chance once in a million runs.
pub fn kernel_and_userspace_draw_with_the_same_distribution() -> Result<()> {
    let plan = Plan { sampling: Packets::OneIn(RATE), interfaces: 1, ..PLAN };
    let found = [in_userspace(&plan), in_the_kernel(plan)?];
    ensure!(found[0] != found[1], "both made the same draws, so nothing was compared");
    for (found, place) in found.iter().zip(["userspace", "the kernel"]) {
        judge(found).map_err(|fault| anyhow::anyhow!("{place}: {fault}"))?;
    }
    // The judge must reject other distributions: every eighth packet, or one in nine.
    ensure!(judge(&[RATE as u16 - 1; GAPS]).is_err(), "a constant gap passes for a random one");
    let rarer = UserspaceProgram::new(&Plan { sampling: Packets::OneIn(RATE + 1), ..plan });
    ensure!(judge(&through(rarer)).is_err(), "one in nine passes for one in eight");
    Ok(())
}

fn judge(gaps: &[u16]) -> Result<(), String> {
    /// The first gap of each bin; the last bin is open.
    const BINS: [u16; 8] = [0, 1, 2, 4, 6, 9, 13, 20];
    const JUDGED: f64 = 2.0 * 2.0 * (BINS.len() + 1) as f64;
    let gaps = gaps.get(..GAPS).ok_or_else(|| format!("only {} gaps", gaps.len()))?;
    let at_least = |gap: u16| (1.0 - 1.0 / f64::from(RATE)).powi(gap.into());
    let hold = |what: &str, count: usize, trials: usize, share: f64| {
        let (count, trials) = (count as u64, trials as u64);
        let tails = [chance::at_least(count, trials, share), chance::at_least(trials - count, trials, 1.0 - share)];
        if tails.into_iter().any(|tail| tail < chance::FALSE_ALARM / JUDGED) {
            return Err(format!("{what}: {count} of {trials}, expected {:.0}", share * trials as f64));
        }
        Ok(())
    };
    for (nth, &first) in BINS.iter().enumerate() {
        let next = BINS.get(nth + 1);
        let count = gaps.iter().filter(|gap| **gap >= first && next.is_none_or(|next| *gap < next)).count();
        let share = at_least(first) - next.map_or(0.0, |next| at_least(*next));
        hold(&format!("gaps from {first} on"), count, gaps.len(), share)?;
    }
    const SHORT: u16 = 5;
    let (pairs, _) = gaps.as_chunks::<2>();
    let both = pairs.iter().filter(|pair| pair.iter().all(|gap| *gap < SHORT)).count();
    hold("pairs of short gaps", both, pairs.len(), (1.0 - at_least(SHORT)).powi(2))
}

fn frame(port: u16) -> Vec<u8> {
    let mut frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(0)));
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn in_userspace(plan: &Plan) -> Vec<u16> {
    through(UserspaceProgram::new(plan))
}

fn through(mut program: UserspaceProgram) -> Vec<u16> {
    let mut taken = Vec::new();
    for port in 0..PACKETS {
        let frame = frame(port);
        let buffer = Buffer {
            headers: &frame,
            link: Link::Ethernet,
            tally: Tally::new(1, 60),
            uncertain: None,
            tick: 0,
            second: None,
            repeated: false,
        };
        program.measure(0, &buffer, |record| taken.push(*record));
    }
    program.close(&WindowSeconds::at(0, Duration::ZERO), |record| taken.push(*record));
    gaps(&taken)
}

fn in_the_kernel(plan: Plan) -> Result<Vec<u16>> {
    let mut taken = Vec::new();
    Object::load(plan, |object| {
        for port in 0..PACKETS {
            object.pass(&frame(port))?;
            if port % 256 == 0 {
                taken.append(&mut object.records()?);
            }
        }
        taken.append(&mut object.records()?);
        taken.append(&mut object.close()?.0.records);
        Ok(())
    })?;
    Ok(gaps(&taken))
}

/// The numbers of packets between those that were taken, and before the first.
fn gaps(taken: &[Record]) -> Vec<u16> {
    let mut ports: Vec<u16> = taken.iter().map(|record| record.key.src_port()).collect();
    ports.sort_unstable();
    let mut next = 0;
    ports.into_iter().map(|port| port - std::mem::replace(&mut next, port + 1)).collect()
}
