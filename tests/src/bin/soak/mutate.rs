//! Invalid frames: valid ones, mutated.

use anyhow::Result;
use weir_tests::{
    object::FRAME_MIN,
    traffic::{Mix, Plan, Traffic, random::Random, tunnel::Tunnel},
};

/// Frames that are mutated in turn.
const POOL: u64 = 1024;
/// Most frames are cut to this: the payload is of no interest, and copying it takes time.
const SHORT: usize = 200;
/// Values that often break parsers of lengths and types.
const EXTREMES: [u8; 12] = [0, 1, 4, 6, 0x0f, 0x45, 0x60, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// An endless sequence of frames, which depends only on its seed.
pub struct Frames {
    random: Random,
    pool: Vec<Vec<u8>>,
    frame: Vec<u8>,
}

impl Frames {
    /// The sequence of this seed.
    ///
    /// # Errors
    ///
    /// This cannot fail with the plans of this module.
    pub fn new(seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let plan = Plan { seed, packets: POOL, flows: 2_000, zipf: 0.3, mix: Mix::odd(), ..Plan::default() };
        let pool = Traffic::new(plan)?.map(|packet| {
            let mut frame = packet.frame;
            let tunnels = if random.chance(0.5) { random.between(1, 4) } else { 0 };
            for _ in 0..tunnels {
                frame = random.pick(&Tunnel::ALL).wrap(&mut random, &frame).0;
            }
            if random.chance(0.98) {
                // Each outer tunnel adds its headers.
                frame.truncate(SHORT + 60 * tunnels);
            }
            frame
        });
        let pool = pool.collect();
        Ok(Self { random, pool, frame: Vec::new() })
    }

    /// Returns the next frame.
    pub fn next(&mut self) -> &[u8] {
        let Self { random, pool, frame } = self;
        frame.clear();
        frame.extend_from_slice(&pool[random.between(0, pool.len() - 1)]);
        // One in eight stays as it is.
        for _ in 0..random.pick(&[0, 1, 1, 1, 2, 2, 3, 5]) {
            mutate(random, frame);
        }
        frame
    }
}

fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    // Mutations are after the Ethernet addresses, and mostly in the first headers.
    let last = frame.len() - 1;
    let end = if random.chance(0.7) { last.min(80) } else { last };
    let at = random.between(12, end);
    match random.between(0, 9) {
        0..4 => frame[at] ^= 1 << random.between(0, 7),
        4 | 5 => frame[at] = random.pick(&EXTREMES),
        6 => frame[at] = random.bits() as u8,
        // Repeats a header or a tag once or more.
        7 => {
            let unit = random.pick(&[4, 4, 8, 8, 20, 40]);
            let piece = frame[at..(at + unit).min(frame.len())].to_vec();
            for _ in 0..random.between(1, 9) {
                frame.splice(at..at, piece.iter().copied());
            }
        }
        8 => {
            let end = (at + random.pick(&[1, 2, 4, 8, 20])).min(frame.len());
            frame.drain(at..end);
        }
        _ => frame.truncate(at),
    }
    if frame.len() < FRAME_MIN {
        frame.resize(FRAME_MIN, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use weir_common::packet::{Link, Tunnels, parse};

    use super::*;

    #[test]
    fn a_seed_repeats_its_frames_and_they_are_of_many_kinds() {
        let (mut one, mut same, mut other) =
            (Frames::new(1).unwrap(), Frames::new(1).unwrap(), Frames::new(2).unwrap());
        let (mut kinds, mut differ) = (HashSet::new(), false);
        for _ in 0..100_000 {
            let frame = one.next();
            assert_eq!(frame, same.next());
            differ |= frame != other.next();
            assert!(frame.len() >= FRAME_MIN);
            for tunnels in [Tunnels::Outer, Tunnels::Inner] {
                let parsed = parse(frame, Link::Ethernet, tunnels);
                kinds.insert(parsed.map(|parsed| parsed.key.class()).map_err(|skip| skip.name()));
            }
        }
        assert!(differ);
        // There are six classes, and every reason except for that of captures.
        assert_eq!(kinds.len(), 6 + weir_common::ledger::Skip::COUNT - 1, "{kinds:?}");
    }
}
