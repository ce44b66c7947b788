//! Compares the kernel's parser with the same parser in userspace, over mutated frames, on every CPU at once.
//!
//! With `busy` set, each frame with a key makes a separate record at once, so that records come out of the ring in the
//! order of the frames.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use weir_common::{
    ledger::{Counters, Skip, Tally},
    packet::{Link, Parsed, Tunnels, parse, walk},
    record::Record,
    size::size_class,
};
use weir_datapath::{Plan, online_cpus};
use weir_tests::{
    clock,
    object::{Object, Outcome, PLAN},
};

use crate::mutate::Frames;

/// Frames in a chunk, which a thread takes at once and which has its own seed.
const CHUNK: u64 = 1 << 16;
/// Frames between two looks into the ring, which has room for far more.
const BATCH: u64 = 512;
/// Frames that are shown when something is wrong with them.
const SHOWN_MAX: u64 = 5;

/// The findings of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Findings {
    frames: u64,
    /// Frames with a key.
    keys: u64,
    /// Runs that did not return `XDP_PASS`.
    not_passed: u64,
    /// Frames that the program changed.
    changed: u64,
    /// Frames for which the kernel, userspace, and userspace without the fast path did not agree.
    mismatches: u64,
}

impl Findings {
    const fn clean(&self) -> bool {
        self.not_passed == 0 && self.changed == 0 && self.mismatches == 0
    }

    fn add(&mut self, other: Self) {
        let Self { frames, keys, not_passed, changed, mismatches } = other;
        self.frames += frames;
        self.keys += keys;
        self.not_passed += not_passed;
        self.changed += changed;
        self.mismatches += mismatches;
    }
}

/// Compares half of the frames with a look into tunnels, and half without; prints the results. Returns true if nothing
/// was wrong.
///
/// # Errors
///
/// No privilege, or the kernel did not take the object.
pub fn soak(frames: u64, seed: u64) -> Result<bool> {
    let cpus = online_cpus()?;
    let (started, bar) = (clock::now(), progress(frames)?);
    let mut found = Findings::default();
    for (nth, (tunnels, count)) in (0..).zip([(Tunnels::Outer, frames.div_ceil(2)), (Tunnels::Inner, frames / 2)]) {
        let next = AtomicU64::new(0);
        let work =
            Work { tunnels, frames: count, seed: seed.wrapping_mul(2).wrapping_add(nth), next: &next, bar: &bar };
        thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || work.on(cpu))).collect();
            for thread in threads {
                found.add(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
            }
            anyhow::Ok(())
        })?;
    }
    bar.finish_and_clear();
    report(&found, seed, started.elapsed().as_secs_f64(), cpus.len())?;
    Ok(found.clean())
}

fn progress(frames: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} frames, {eta} left")?;
    Ok(ProgressBar::new(frames).with_style(style))
}

fn report(found: &Findings, seed: u64, seconds: f64, cpus: usize) -> Result<()> {
    let Findings { frames, keys, not_passed, changed, mismatches } = *found;
    let mut out = io::stdout().lock();
    writeln!(out, "frames          {frames}, of which {keys} had a key")?;
    writeln!(out, "non-PASS exits  {not_passed}")?;
    writeln!(out, "mismatches      {mismatches}")?;
    writeln!(out, "bytes changed   {changed}")?;
    writeln!(out, "seed            {seed}")?;
    let rate = frames as f64 / seconds / 1e6;
    Ok(writeln!(out, "time            {seconds:.0} s, {rate:.2} million frames a second on {cpus} CPUs")?)
}

/// The state that threads share.
#[derive(Clone, Copy)]
struct Work<'a> {
    tunnels: Tunnels,
    frames: u64,
    seed: u64,
    /// The next chunk that no thread has taken.
    next: &'a AtomicU64,
    bar: &'a ProgressBar,
}

impl Work<'_> {
    fn on(self, cpu: u32) -> Result<Findings> {
        Object::load_on(cpu, Plan { tunnels: self.tunnels, ..PLAN }, |object| {
            let mut check = Check::new(object, self);
            loop {
                let chunk = self.next.fetch_add(1, Ordering::Relaxed);
                let done = chunk * CHUNK;
                if done >= self.frames {
                    return Ok(check.found);
                }
                let seed = self.seed.wrapping_mul(1 << 32).wrapping_add(chunk);
                check.chunk(seed, CHUNK.min(self.frames - done))?;
            }
        })
    }
}

/// The comparison of one thread.
struct Check<'a, 'b> {
    object: &'a mut Object<'b>,
    work: Work<'a>,
    found: Findings,
    /// The counters of userspace for this chunk.
    counters: Counters,
    expected: Vec<(Parsed, u64)>,
    records: Vec<Record>,
    epoch: u8,
}

impl<'a, 'b> Check<'a, 'b> {
    fn new(object: &'a mut Object<'b>, work: Work<'a>) -> Self {
        let (counters, found) = Default::default();
        Self { object, work, found, counters, expected: Vec::new(), records: Vec::new(), epoch: 0 }
    }

    fn chunk(&mut self, seed: u64, count: u64) -> Result<()> {
        // Closing the previous chunk's window has cleared the cache.
        self.object.change(|cpu| cpu.busy = 1)?;
        let mut frames = Frames::new(seed)?;
        let mut left = count;
        while left > 0 {
            let batch = BATCH.min(left);
            for _ in 0..batch {
                self.frame(frames.next())?;
            }
            self.compare()?;
            left -= batch;
            self.work.bar.inc(batch);
        }
        // Frames without a key must be counted under the same reason.
        let (window, _) = self.object.close()?;
        let kernel = window.edge.counters[0];
        let apart = disagreements(&kernel, &self.counters) + window.records.len() as u64;
        if apart > 0 {
            self.wrong(apart, || format!("chunk {seed}: {kernel:?}\nis not the result of userspace"));
        }
        self.counters = Counters::default();
        self.epoch = self.epoch.wrapping_add(1);
        Ok(())
    }

    fn frame(&mut self, frame: &[u8]) -> Result<()> {
        let Outcome { passed, unchanged } = self.object.run(frame)?;
        self.found.frames += 1;
        self.found.not_passed += u64::from(!passed);
        self.found.changed += u64::from(!unchanged);
        let parsed = parse(frame, Link::Ethernet, self.work.tunnels);
        if parsed != walk(frame, Link::Ethernet, self.work.tunnels) {
            self.wrong(1, || format!("the fast path has another result, {parsed:?}: {frame:02x?}"));
        }
        let bytes = frame.len() as u64;
        self.counters.seen.add(Tally::new(1, bytes));
        self.counters.sizes.count(size_class(bytes), 1);
        match parsed {
            Ok(parsed) => {
                self.found.keys += 1;
                self.counters.tcp.count(parsed.tcp_flags, 1);
                self.expected.push((parsed, bytes));
            }
            Err(skip) => self.counters.skipped[skip as usize].add(Tally::new(1, bytes)),
        }
        Ok(())
    }

    /// Compares the records since the last call with the results of userspace.
    fn compare(&mut self) -> Result<()> {
        self.object.take_records(&mut self.records)?;
        let mut wrong = self.records.len().abs_diff(self.expected.len()) as u64;
        let mut first = None;
        for (record, expected) in self.records.iter().zip(&self.expected) {
            if !is(record, expected, self.epoch) {
                wrong += 1;
                first = first.or(Some((*record, *expected)));
            }
        }
        self.expected.clear();
        if wrong > 0 {
            self.wrong(wrong, || format!("the kernel and userspace: {first:?}"));
        }
        Ok(())
    }

    fn wrong(&mut self, frames: u64, what: impl FnOnce() -> String) {
        if self.found.mismatches < SHOWN_MAX {
            self.work.bar.suspend(|| writeln!(io::stderr(), "{} (seed {})", what(), self.work.seed).ok());
        }
        self.found.mismatches += frames;
    }
}

fn is(record: &Record, (parsed, bytes): &(Parsed, u64), epoch: u8) -> bool {
    record.key.epoch() == epoch
        && record.key.without_scope() == parsed.key
        && record.tally() == Tally::new(1, *bytes)
        && (record.tcp_flags, record.tos, record.vlan) == (parsed.tcp_flags, parsed.tos, parsed.vlan)
}

/// The number of packets by which two accounts differ; at least one if they differ at all.
fn disagreements(kernel: &Counters, userspace: &Counters) -> u64 {
    if kernel == userspace {
        return 0;
    }
    let apart = Skip::ALL.iter().map(|skip| {
        let at = *skip as usize;
        kernel.skipped[at].packets.abs_diff(userspace.skipped[at].packets)
    });
    apart.sum::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use weir_common::{
        flow::{FlowKey, Scope},
        record::Sample,
    };

    use super::*;

    #[test]
    fn whatever_differs_is_found() {
        let key = FlowKey::default().with_proto(6);
        let parsed = Parsed { key: key.with_ports(9, 0), tcp_flags: 2, tos: 3, vlan: 4 };
        let packet = Sample::new(&parsed, Tally::new(1, 60), 1, 1);
        let record = Record::first(parsed.key.with_scope(Scope::new(0, 3)), packet);
        assert!(is(&record, &(parsed, 60), 3));
        assert!(!is(&record, &(parsed, 60), 4) && !is(&record, &(parsed, 61), 3));
        assert!(!is(&Record { tcp_flags: 0, ..record }, &(parsed, 60), 3));
        assert!(
            !is(&Record { tos: 0, ..record }, &(parsed, 60), 3) && !is(&Record { vlan: 0, ..record }, &(parsed, 60), 3)
        );
        let other = key.with_ports(8, 0).with_scope(Scope::new(0, 3));
        assert!(!is(&Record { key: other, ..record }, &(parsed, 60), 3));
        let mut counters = Counters::default();
        counters.skipped[Skip::Arp as usize] = Tally::new(3, 180);
        assert_eq!(disagreements(&counters, &counters), 0);
        assert_eq!(disagreements(&counters, &Counters::default()), 3);
        counters.skipped[Skip::Arp as usize].packets = 0;
        assert_eq!(disagreements(&counters, &Counters::default()), 1, "bytes only");
        assert!(Findings { frames: 1, keys: 1, ..Findings::default() }.clean());
        for found in [
            Findings { not_passed: 1, ..Findings::default() },
            Findings { changed: 1, ..Findings::default() },
            Findings { mismatches: 1, ..Findings::default() },
        ] {
            assert!(!found.clean());
        }
    }
}
