//! Live traffic at more than a million packets a second from one CPU.
//!
//! The kernel makes the packets itself. `BPF_PROG_TEST_RUN` with live frames (Linux 5.18) runs a program on frames of
//! the kernel, and handles each frame according to the return value. The program here (`program`) writes a packet of a
//! different flow each time and redirects it to an interface, where it leaves as if it had been forwarded. The other
//! end of a virtual cable takes such frames only if it polls (NAPI): by an XDP program there, or by `ethtool -K
//! <interface> gro on`.
//!
//! If the other end has no room for a frame, the frame is dropped, as at the end of a real cable. The sender does not
//! learn of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya::{
    Ebpf,
    programs::{TestRun as _, TestRunAttrs, TestRunOptions, Xdp},
};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_datapath::pin;
use weir_system::clock::thread_cpu_time;

use crate::{clock, netns::Namespace};

mod program;

/// Frames that the kernel makes in a batch: its default, and the weight of a device when polling.
const BATCH: u32 = 64;
/// The lowest rate that a generator can keep, in packets a second, because its program can wait only for a limited
/// time.
pub const RATE_MIN: f64 = 400_000.0;
/// No call sends more packets than this.
pub const PACKETS_MAX: u32 = 100_000_000;

/// The flows that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// UDP over IPv4 in [`ZIPF_FLOWS`] flows from as many sources of 10.64.0.0/15 to 198.18.0.0/24; the nth largest has
    /// about 1/n of the packets of the largest (Zipf's law with exponent 1), in steps of powers of two.
    Zipf,
    /// UDP over IPv6 from `2001:db8:f::` to `2001:db8:d::1`, each packet from another address and so of another flow;
    /// but one packet in [`HEAVY_EVERY`] comes from one of [`HEAVY_FLOWS`] addresses, in turn ([`heavy_source`]).
    Flood,
}

/// Powers of two between the smallest and the largest flow of [`Flows::Zipf`].
const ZIPF_LEVELS: u32 = 17;
/// The number of flows of [`Flows::Zipf`].
pub const ZIPF_FLOWS: u32 = (1 << ZIPF_LEVELS) - 1;
/// One packet of [`Flows::Flood`] in this many is of a heavy flow: a power of two.
pub const HEAVY_EVERY: u32 = 16;
/// Heavy flows of [`Flows::Flood`]: a power of two.
pub const HEAVY_FLOWS: u32 = 4;
/// The destinations of all packets of [`Flows::Zipf`].
pub const ZIPF_DESTINATIONS: &str = "198.18.0.0/24";
/// The destinations of all packets of [`Flows::Flood`].
pub const FLOOD_DESTINATIONS: &str = "2001:db8:d::/64";

/// The source of a heavy flow of [`Flows::Flood`], below [`HEAVY_FLOWS`], as reports write it.
pub fn heavy_source(nth: u32) -> String {
    format!("2001:db8:f::{:x}", nth + 1)
}

/// How many of the first `packets` packets of [`Flows::Flood`] are of a heavy flow.
pub const fn heavy_packets(nth: u32, packets: u32) -> u32 {
    // Packets 0, 16, 32, ... are heavy, of the flows 0, 1, 2, 3, 0, ...
    packets.saturating_sub(nth * HEAVY_EVERY).div_ceil(HEAVY_EVERY * HEAVY_FLOWS)
}

/// A generator on an interface.
#[derive(Debug)]
pub struct Generator<'a> {
    namespace: &'a Namespace,
    loaded: Ebpf,
    frame: Vec<u8>,
}

/// The packets that were sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Packets and bytes, whether or not there was room for them.
    pub tally: Tally,
    /// How long it took.
    pub elapsed: Duration,
    /// The CPU time that it took, including all processing of the packets in softirqs on the same CPU.
    pub cpu_time: Duration,
}

impl<'a> Generator<'a> {
    /// A generator that sends out of an interface to the Ethernet address `to`, at a `rate` in packets a second or else
    /// as fast as it can. Attaches nothing.
    ///
    /// # Errors
    ///
    /// There is no such interface, the rate is below [`RATE_MIN`], or the kernel does not accept the program.
    pub fn new(
        namespace: &'a Namespace,
        interface: &str,
        to: [u8; 6],
        flows: Flows,
        rate: Option<f64>,
    ) -> Result<Self> {
        if let Some(rate) = rate {
            ensure!(
                rate >= RATE_MIN,
                "cannot keep a pace of {rate:.0} packets a second: {RATE_MIN} are the least, and this machine has to be fast \
                 enough for them"
            );
        }
        let step = rate.map(|rate| (f64::from(BATCH) * 1e9 / rate) as i32);
        let shown: Value = serde_json::from_str(&namespace.ip(&format!("-j link show dev {interface}"))?)?;
        let index = shown[0]["ifindex"].as_u64().with_context(|| format!("{interface} has no index"))?;
        let frame = program::frame(flows, to);
        let mut loaded = Ebpf::load(&program::elf(flows, &frame, index as u32, step)?)?;
        let program: &mut Xdp = loaded.program_mut(program::NAME).context("no program in its object")?.try_into()?;
        program.load().context("the kernel does not take the generator")?;
        Ok(Self { namespace, loaded, frame })
    }

    /// Sends packets, at the rate if one is set, or as fast as one CPU makes them. Continues with the flows where the
    /// last call has ended.
    ///
    /// # Errors
    ///
    /// More than [`PACKETS_MAX`], a CPU that is not there, or a kernel without live frames.
    pub fn send(&self, cpu: u32, packets: u32) -> Result<Sent> {
        ensure!(packets <= PACKETS_MAX, "{packets} packets are more than {PACKETS_MAX}");
        let program: &Xdp = self.loaded.program(program::NAME).context("no program in its object")?.try_into()?;
        self.namespace.enter(|| -> Result<Sent> {
            pin(cpu)?;
            let options = TestRunOptions {
                data_in: Some(&self.frame),
                repeat: packets,
                attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
                ..TestRunOptions::new()
            };
            let (start, start_cpu) = (clock::now(), thread_cpu_time());
            program.test_run(options).context("the kernel cannot send live frames (it needs Linux 5.18 or later)")?;
            let (elapsed, cpu_time) = (start.elapsed(), thread_cpu_time().saturating_sub(start_cpu));
            let packets = u64::from(packets);
            Ok(Sent { tally: Tally::new(packets, packets * self.frame.len() as u64), elapsed, cpu_time })
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_packets_are_counted_as_they_are_sent() {
        let counted = |nth, packets| {
            (0..packets).filter(|at| at % HEAVY_EVERY == 0 && at / HEAVY_EVERY % HEAVY_FLOWS == nth).count() as u32
        };
        for packets in [0, 1, 16, 17, 63, 64, 65, 1000, 4096] {
            for nth in 0..HEAVY_FLOWS {
                assert_eq!(heavy_packets(nth, packets), counted(nth, packets), "flow {nth} of {packets}");
            }
        }
    }
}
