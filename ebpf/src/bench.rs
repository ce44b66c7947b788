//! The benchmark's programs: packets of many flows out of one packet, since test-run repeats the same; and what they are
//! compared with.

use core::arch::asm;

use aya_ebpf::{bindings::xdp_action::XDP_PASS, macros::xdp, programs::XdpContext};
use weir_common::{
    hash,
    ledger::{Skip, Tally},
    packet::Parsed,
};

use crate::{
    measure::{Packet, measure},
    xdp::Whole,
};

/// Passes.
#[xdp(frags)]
pub fn baseline(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

/// Draws a flow as [`zipf`] does, and passes: what the draw costs, which no real packet pays.
#[xdp(frags)]
pub fn draw(_ctx: XdpContext) -> u32 {
    /// Packets that were drawn for; the benchmark runs on one CPU.
    static mut NTH: u64 = 0;
    // SAFETY: this program's own, and nothing else runs on the CPU.
    let nth = unsafe {
        NTH = NTH.wrapping_add(1);
        NTH
    };
    let mask = Vary::Zipf.mask(nth);
    // SAFETY: register arithmetic only, and its result goes nowhere: the mask is made because somebody takes it.
    unsafe { asm!("{0} += 0", inout(reg) mask => _, options(nomem, nostack)) };
    XDP_PASS
}

/// Measures packets as those of two flows in turn.
#[xdp(frags)]
pub fn two_flows(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::InTurn));
    XDP_PASS
}

/// Measures every packet as one of a flow of its own.
#[xdp(frags)]
pub fn all_miss(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::Each));
    XDP_PASS
}

/// Measures every packet as one of a million flows, of which some are much larger than others.
#[xdp(frags)]
pub fn zipf(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::Zipf));
    XDP_PASS
}

/// A packet of a flow that depends on its place in the count.
#[derive(Clone, Copy)]
struct Varied(Whole, Vary);

impl Packet for Varied {
    #[inline(always)]
    fn interface(self) -> u32 {
        self.0.interface()
    }
    #[inline(always)]
    fn tally(self) -> Tally {
        self.0.tally()
    }
    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Parsed) -> T) -> Option<T> {
        self.0.common(found)
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        self.0.walk()
    }
    #[inline(always)]
    fn vary(self, nth: u64) -> u64 {
        self.1.mask(nth)
    }
}

/// What a packet's source address is changed by.
#[derive(Clone, Copy)]
enum Vary {
    /// Whether its place in the count is odd: two flows take turns.
    InTurn,
    /// Its place in the count: each packet begins a new flow.
    Each,
    /// A draw from a million flows, of which the nth largest has n^-1.1 of the packets (Zipf).
    Zipf,
}

impl Vary {
    /// What to mix into the address of packet `nth`.
    #[inline(always)]
    const fn mask(self, nth: u64) -> u64 {
        match self {
            Self::InTurn => (nth & 1) << 32,
            Self::Each => nth << 32,
            Self::Zipf => rank(hash::mix(nth)) << 32,
        }
    }
}

/// A flow's rank below 2^20 by Zipf's law, out of 64 random bits. Ranks come in octaves, each less likely than the one before by 2^-0.1;
/// within an octave all are equally likely. Without a branch, of which the CPU would mispredict some.
#[inline(always)]
const fn rank(random: u64) -> u64 {
    const OCTAVES: usize = 20;
    /// Below each of these 32-bit numbers lies the probability of the octaves up to it.
    const UP_TO: [u64; OCTAVES] = {
        /// 2^-0.1, and the reciprocal of the sum of its powers, as parts of 2^32.
        const RATIO: u64 = 4_007_346_186;
        const FIRST: u64 = 383_496_602;
        let (mut octave, mut share, mut up_to) = (0, FIRST, [0; OCTAVES]);
        while octave < OCTAVES {
            up_to[octave] = share + if octave == 0 { 0 } else { up_to[octave - 1] };
            share = (share * RATIO) >> 32;
            octave += 1;
        }
        up_to
    };
    let draw = random >> 32;
    let (mut octave, mut nth) = (0, 0);
    while nth < OCTAVES - 1 {
        // 1 where the draw lies beyond.
        octave += (UP_TO[nth] - 1).wrapping_sub(draw) >> 63;
        nth += 1;
    }
    let first = 1 << octave;
    first | random & (first - 1)
}
