//! Packets of many flows out of one packet, for the benchmark: test-run repeats the same.

/// What a packet's source address is changed by.
#[derive(Clone, Copy)]
pub enum Vary {
    /// Nothing: the program that measures.
    Nothing,
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
    pub const fn mask(self, nth: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::InTurn => (nth & 1) << 32,
            Self::Each => nth << 32,
            Self::Zipf => zipf(weir_common::hash::mix(nth)) << 32,
        }
    }
}

/// A rank below 2^20 out of 64 random bits. Ranks come in octaves, each less likely than the one before by 2^-0.1;
/// within an octave all are equally likely. Without a branch, of which the CPU would mispredict some.
#[inline(always)]
const fn zipf(random: u64) -> u64 {
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
