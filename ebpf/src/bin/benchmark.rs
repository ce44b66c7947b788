//! The object for `scripts/bench datapath` only: weir's programs and maps, plus these programs.
//!
//! | program | runs | does |
//! |---|---|---|
//! | `baseline` | by test run | nothing: what a run costs without weir |
//! | `draw` | by test run | draws one of a million flows (Zipf 1.1), and nothing else |
//! | `two_flows` | by test run | the same as `weir`, with packets of two flows in turn |
//! | `all_miss` | by test run | the same as `weir`, with a new flow for every packet |
//! | `zipf` | by test run | the same as `weir`, with packets of a million flows (Zipf 1.1) |
//!
//! A test run repeats one packet. The hot path sees each repetition with another source address.

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

/// Passes the packet.
#[xdp(frags)]
#[inline(always)]
pub fn baseline(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

/// Draws a flow as [`zipf`] does, and passes the packet. This is the cost of the draw, which real packets do not have.
#[xdp(frags)]
#[inline(always)]
pub fn draw(_ctx: XdpContext) -> u32 {
    let mask = Vary::Zipf.mask(nth());
    // SAFETY: register arithmetic only, and the result is unused: it forces the compiler to compute the mask.
    unsafe { asm!("{0} += 0", inout(reg) mask => _, options(nomem, nostack)) };
    XDP_PASS
}

/// Measures packets as if they were of two flows in turn.
#[xdp(frags)]
#[inline(always)]
pub fn two_flows(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::InTurn));
    XDP_PASS
}

/// Measures every packet as if it had its own flow.
#[xdp(frags)]
#[inline(always)]
pub fn all_miss(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::Each));
    XDP_PASS
}

/// Measures packets as if they were of a million flows, some much larger than others.
#[xdp(frags)]
#[inline(always)]
pub fn zipf(ctx: XdpContext) -> u32 {
    let _ = measure(Varied(Whole::new(&ctx), Vary::Zipf));
    XDP_PASS
}

/// A packet whose flow depends on its number.
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
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T> {
        self.0.common(
            #[inline(always)]
            |mut parsed| {
                if let Ok(parsed) = &mut parsed {
                    parsed.key.src.0[1] ^= self.1.mask(nth());
                }
                found(parsed)
            },
        )
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        self.0.walk()
    }
}

/// The number of this packet among all that a program has seen.
#[inline(always)]
fn nth() -> u64 {
    static mut SHOWN: u64 = 0;
    // SAFETY: the benchmark runs one program at a time, on one CPU.
    unsafe {
        SHOWN = SHOWN.wrapping_add(1);
        SHOWN
    }
}

/// What to change a packet's source address by.
#[derive(Clone, Copy)]
enum Vary {
    /// Whether its number is odd: two flows take turns.
    InTurn,
    /// Its number: each packet starts a new flow.
    Each,
    /// A draw from a million flows, of which the nth largest has a share of packets proportional to n^-1.1 (Zipf).
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

/// A flow's rank below 2^20 by Zipf's law, from 64 random bits. Ranks come in octaves, each less likely than the one
/// before by 2^-0.1; within an octave all ranks are equally likely. There is no branch, because the CPU would
/// mispredict some. Not inlined, because the hot path needs the stack for itself.
#[inline(never)]
const fn rank(random: u64) -> u64 {
    const OCTAVES: usize = 20;
    /// The cumulative probabilities of the octaves, as 32-bit numbers: a draw below one of them is in that octave or an
    /// earlier one.
    const UP_TO: [u64; OCTAVES] = {
        /// 2^-0.1, and the reciprocal of the sum of its powers, in units of 2^-32.
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
        // 1 if the draw is beyond this octave.
        octave += (UP_TO[nth] - 1).wrapping_sub(draw) >> 63;
        nth += 1;
    }
    let first = 1 << octave;
    first | random & (first - 1)
}
