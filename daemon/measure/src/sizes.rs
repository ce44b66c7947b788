//! Packets by size. A class of several sizes is reported by its upper edge, or by the largest packet that came.

use weir_common::size::{SIZE_CLASSES, class_bytes, class_end};
use weir_datapath::edge::Edge;

/// Packets by size class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    classes: Vec<u64>,
    largest: u64,
}

impl Sizes {
    /// The sizes of all workers' packets.
    pub fn of<'a>(edges: impl Iterator<Item = &'a Edge>) -> Self {
        let (mut classes, mut noted) = (vec![0_u64; SIZE_CLASSES], 0);
        for edge in edges {
            for (sum, packets) in classes.iter_mut().zip(&edge.sizes) {
                *sum = sum.saturating_add(*packets);
            }
            noted = noted.max(edge.largest);
        }
        // The noted size may be from an earlier window, or 0 if every class has only one size.
        let largest = classes
            .iter()
            .rposition(|packets| *packets > 0)
            .map_or(0, |class| if noted < class_bytes(class) { class_end(class) } else { noted.min(class_end(class)) });
        Self { classes, largest }
    }

    /// The number of packets.
    pub fn len(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Returns true if there are no packets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A lower bound of the smallest size; exact below 2,048 bytes.
    pub fn smallest(&self) -> u64 {
        self.classes.iter().position(|packets| *packets > 0).map_or(0, class_bytes)
    }

    /// The size of the largest packet.
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// An upper bound of the size of this share of the packets.
    pub fn at_quantile(&self, share: f64) -> u64 {
        let rank = ((self.len() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        for (class, packets) in self.classes.iter().enumerate() {
            below += packets;
            if below >= rank {
                return class_end(class).min(self.largest);
            }
        }
        self.largest
    }

    /// Packets of sizes from `low` to `high`, both of which are edges of classes.
    pub fn count_between(&self, low: u64, high: u64) -> u64 {
        let is_within = |class: usize| class_bytes(class) >= low && class_end(class).min(self.largest) <= high;
        self.classes.iter().enumerate().filter(|(class, _)| is_within(*class)).map(|(_, packets)| packets).sum()
    }
}

#[cfg(test)]
mod tests {
    use weir_common::size::size_class;

    use super::*;

    /// Packets of these sizes. For the large classes, the kernel notes the largest size.
    fn sizes(packets: &[u64]) -> Sizes {
        let mut edge = Edge::empty(1);
        for bytes in packets {
            edge.sizes[size_class(*bytes)] += 1;
            edge.largest = edge.largest.max(if *bytes >= 2048 { *bytes } else { 0 });
        }
        Sizes::of([&edge].into_iter())
    }

    #[test]
    fn the_largest_size_is_exact_and_no_quantile_is_beyond_it() {
        for packets in [&[60, 1_514][..], &[64, 9_014], &[9_014, 9_020], &[300_000], &[1_514, 4_000_000], &[0]] {
            let (sizes, most) = (sizes(packets), *packets.iter().max().unwrap());
            let quantiles = [0.5, 0.9, 0.99].map(|share| sizes.at_quantile(share));
            assert_eq!(sizes.largest(), most);
            assert!(quantiles.is_sorted() && quantiles[2] == most, "{quantiles:?} of {packets:?}");
            assert!(sizes.smallest() <= packets[0] && packets[0] - sizes.smallest() <= packets[0] / 4, "{packets:?}");
            assert!(quantiles[0] >= packets[0] && sizes.len() == packets.len() as u64);
        }
        assert!(sizes(&[]).is_empty());
        assert_eq!((sizes(&[]).largest(), sizes(&[]).smallest(), sizes(&[]).at_quantile(0.5)), (0, 0, 0));
    }

    #[test]
    fn a_largest_size_from_another_window_is_not_used() {
        let largest = |noted: u64| {
            let mut edge = Edge { largest: noted, ..Edge::empty(1) };
            edge.sizes[size_class(9_014)] = 1;
            Sizes::of([&edge].into_iter()).largest()
        };
        assert_eq!([9_014, 60_000, 0].map(largest), [9_014, 9_023, 9_023]);
    }
}
