//! Remembers the flows that came moments ago in the same window.
//!
//! Distinct counts, the filter of seen flows and the spread of addresses depend only on whether something came, not on
//! how often. The second record of a flow changes none of them. In most traffic a few flows have most records, so a
//! small cache of the latest flows saves most of that work. If it forgets a flow, the work is done again and changes
//! nothing.
//!
//! A place stores 32 bits of the hash of its flow, besides the bits that chose the place. So a flow is mistaken for
//! another one in one of four thousand million cases, and may then be missing from these counts. Their stated bounds
//! allow for errors more than a thousand times as large.

use weir_sketch::simd;

/// The number of places: 128 KiB. With a million flows by Zipf's law with exponent 1.1, four of five records belong to
/// a remembered flow.
const PLACES: usize = 1 << 15;

/// The latest flows of a window.
pub struct Recent {
    /// The high half of the hash of the latest flow at each place; 0 if there was none.
    flows: Box<[u32]>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { flows: vec![0; PLACES].into_boxed_slice() }
    }
}

impl Recent {
    /// Prefetches the place of the flow with this hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        simd::prefetch(&self.flows[place(hash)]);
    }

    /// Remembers the flow with this hash. Returns whether it was remembered already.
    #[inline(always)]
    pub fn meet(&mut self, hash: u64) -> bool {
        let last = &mut self.flows[place(hash)];
        let flow = (hash >> 32) as u32;
        // One flow in four thousand million is never remembered, because 0 means none.
        let is_known = *last == flow && flow != 0;
        *last = flow;
        is_known
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.flows.fill(0);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.flows)
    }
}

#[inline(always)]
const fn place(hash: u64) -> usize {
    hash as usize % PLACES
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    #[test]
    fn a_flow_is_known_from_its_second_record_on() {
        let mut recent = Recent::default();
        for flow in (1..1_000).map(mix) {
            assert!(!recent.meet(flow), "{flow} is new");
            assert!(recent.meet(flow), "{flow} is known");
        }
        recent.clear();
        assert!(!recent.meet(mix(999)), "another window");
        assert!(!recent.meet(1) && !recent.meet(1), "its hash looks like an empty place, so it is never known");
    }

    #[test]
    fn another_flow_at_the_same_place_is_another_flow() {
        let mut recent = Recent::default();
        let [one, other] = [(1 << 40) | 7, (2 << 40) | 7];
        assert!(!recent.meet(one) && !recent.meet(other) && !recent.meet(one));
        assert!(recent.meet(one));
    }
}
