//! The object that only `scripts/bench datapath` loads: weir's programs and maps, and these programs beside them.
//!
//! | program | runs | does |
//! |---|---|---|
//! | `baseline` | by test-run | nothing: what a run costs without weir |
//! | `draw` | by test-run | draws one of a million flows (Zipf 1.1), and nothing else |
//! | `two_flows` | by test-run | the same as `weir`, as if packets were of two flows in turn |
//! | `all_miss` | by test-run | the same as `weir`, as if every packet began a new flow |
//! | `zipf` | by test-run | the same as `weir`, as if packets were of a million flows (Zipf 1.1) |
//!
//! Test-run repeats one packet. To the hot path, which knows nothing of that, each repetition is shown with another
//! source address.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![allow(missing_docs, reason = "the macro of the programs drops their doc comments")]
#![allow(unsafe_code, reason = "a counter of a program's own; each use says why it is sound")]

use core::arch::asm;

use aya_ebpf::{bindings::xdp_action::XDP_PASS, macros::xdp, programs::XdpContext};
use weir_common::{
    hash,
    ledger::{Skip, Tally},
    packet::Parsed,
};
use weir_ebpf::{
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
    let mask = Vary::Zipf.mask(nth());
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
    fn came_by(self) -> u32 {
        self.0.came_by()
    }
    #[inline(always)]
    fn tally(self) -> Tally {
        self.0.tally()
    }
    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Parsed) -> T) -> Option<T> {
        self.0.common(
            #[inline(always)]
            |mut parsed| {
                parsed.key.src.0[1] ^= self.1.mask(nth());
                found(parsed)
            },
        )
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        self.0.walk()
    }
}

/// The place of this packet in the count of all that a program was shown.
#[inline(always)]
fn nth() -> u64 {
    static mut SHOWN: u64 = 0;
    // SAFETY: the benchmark runs one program at a time, on one CPU.
    unsafe {
        SHOWN = SHOWN.wrapping_add(1);
        SHOWN
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

/// A flow's rank below 2^20 by Zipf's law, out of 64 random bits. Ranks come in octaves, each less likely than the one
/// before by 2^-0.1; within an octave all are equally likely. Without a branch, of which the CPU would mispredict some.
/// Not inlined: the hot path needs the stack for itself.
#[inline(never)]
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
