//! Rows whose keys are masked.
//!
//! Rows whose keys have become equal are united. Counts and their bounds are added. Numbers of distinct values cannot
//! be added, because two addresses of a network may have values in common: the number of both is at least the larger
//! one, and at most their sum.
//!
//! A masked key stands for a network, and a list has only some of its addresses. So the upper bound of its row must
//! have room for the addresses without a row.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
};

use weir_config::Addresses;

use super::MaskedValue as _;
use crate::{Estimate, Evidence, HostNumbers, Row, Sums, TopPrefix, standard_lists};

/// A row of a list.
pub(super) trait MaskedRow {
    /// Masks the key. Returns whether it stands for more addresses than before.
    fn mask(&mut self, addresses: Addresses) -> bool;

    /// The key, as text.
    fn key(&self) -> String;

    /// Adds a row with the same key.
    fn unite(&mut self, other: &Self);

    /// States the rank, if the row has one.
    fn set_rank(&mut self, _: u32) {}

    /// Returns the row's packets and bytes, where it has them.
    fn sums(&mut self) -> [Option<&mut Estimate>; 2];

    /// The packets and bytes of which the addresses without a row have a part.
    fn shared(&mut self) -> [Option<&mut Estimate>; 2] {
        self.sums()
    }

    /// The packets and bytes of each direction, if the row is one of a host.
    fn each_direction(&mut self) -> [[Option<&mut Estimate>; 2]; 2] {
        [[None, None], [None, None]]
    }

    /// Counts of flows and of different values.
    fn counts(&mut self) -> [Option<&mut Estimate>; 3] {
        [None, None, None]
    }

    /// Returns true if a packet is in the rows of both of its addresses.
    fn is_of_both_sides(&self) -> bool {
        false
    }
}

/// The rows of a list after masking, and which of them have a masked key.
pub(super) struct MaskedRows<'r, R> {
    rows: &'r mut Vec<R>,
    is_masked: Vec<bool>,
}

impl<'r, R: MaskedRow> MaskedRows<'r, R> {
    /// Masks the keys of these rows, and unites rows whose keys have become equal. If `order` is given, the largest are
    /// the first, and ranks are stated anew.
    pub fn of(rows: &'r mut Vec<R>, addresses: Addresses, order: Option<fn(&R) -> u64>) -> Self {
        let count = rows.len();
        let mut places = HashMap::new();
        let mut united: Vec<(R, bool)> = Vec::with_capacity(count);
        for mut row in rows.drain(..) {
            let is_masked = row.mask(addresses);
            match places.entry(row.key()) {
                Entry::Vacant(place) => {
                    place.insert(united.len());
                    united.push((row, is_masked));
                }
                Entry::Occupied(place) => {
                    let (known, known_is_masked) = &mut united[*place.get()];
                    known.unite(&row);
                    *known_is_masked |= is_masked;
                }
            }
        }
        if let Some(order) = order.filter(|_| united.len() < count) {
            united.sort_by_key(|(row, _)| Reverse(order(row)));
            for (rank, (row, _)) in (1..).zip(&mut united) {
                row.set_rank(rank);
            }
        }
        let is_masked = united.iter().map(|(_, is_masked)| *is_masked).collect();
        rows.extend(united.into_iter().map(|(row, _)| row));
        Self { rows, is_masked }
    }

    /// Limits each row to the most packets and bytes that all rows can have together. Unless the list is complete, it
    /// widens the upper bounds of rows with a masked key: the rest of the most, beyond the lower bounds of the rows,
    /// may belong to addresses of that network without a row.
    pub fn bound(&mut self, most: [u64; 2], is_complete: bool) {
        for row in &mut *self.rows {
            for (estimate, most) in row.sums().into_iter().zip(most) {
                let Some(Estimate { value, lower, upper, sampled: _ }) = estimate else { continue };
                (*value, *lower, *upper) = ((*value).min(most), (*lower).min(most), (*upper).min(most));
            }
        }
        if is_complete {
            return;
        }
        let rest = self.rows.iter_mut().fold(most, |[packets, bytes], row| {
            let [of_packets, of_bytes] = row.shared().map(|shared| shared.map_or(0, |shared| shared.lower));
            [packets.saturating_sub(of_packets), bytes.saturating_sub(of_bytes)]
        });
        for row in self.masked() {
            let is_of_both_sides = row.is_of_both_sides();
            for direction in row.each_direction() {
                for (part, most) in direction.into_iter().zip(most) {
                    let Some(part) = part else { continue };
                    part.upper = part.upper.max(most);
                }
            }
            for (shared, (most, rest)) in row.shared().into_iter().zip(most.into_iter().zip(rest)) {
                let Some(shared) = shared else { continue };
                let room = if is_of_both_sides { most } else { shared.lower.saturating_add(rest) };
                shared.upper = shared.upper.max(room);
            }
        }
    }

    /// Raises the upper bounds of counts in rows with a masked key to `most`.
    pub fn bound_counts(&mut self, most: u64) {
        for count in self.masked().flat_map(MaskedRow::counts).flatten() {
            count.upper = count.upper.max(most);
        }
    }

    /// The rows with a masked key.
    fn masked(&mut self) -> impl Iterator<Item = &mut R> {
        let of_masked = self.rows.iter_mut().zip(&self.is_masked).filter(|(_, is_masked)| **is_masked);
        of_masked.map(|(row, _)| row)
    }
}

impl Estimate {
    /// Adds the count of other things.
    const fn add(&mut self, other: &Self) {
        self.value = self.value.saturating_add(other.value);
        self.lower = self.lower.saturating_add(other.lower);
        self.upper = self.upper.saturating_add(other.upper);
        if let (Some(one), Some(other)) = (self.sampled, other.sampled) {
            self.sampled = Some(one.saturating_add(other));
        }
    }

    /// Makes it the size of a union with a set that may overlap.
    fn unite(&mut self, other: &Self) {
        self.value = self.value.max(other.value);
        self.lower = self.lower.max(other.lower);
        self.upper = self.upper.saturating_add(other.upper);
    }
}

/// Changes a number by that of another row, if both rows have it.
fn both(one: &mut Option<Estimate>, other: Option<Estimate>, change: fn(&mut Estimate, &Estimate)) {
    if let (Some(one), Some(other)) = (one, other) {
        change(one, &other);
    }
}

macro_rules! masked_rows {
    ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {$(
        impl MaskedRow for crate::$row {
            fn mask(&mut self, addresses: Addresses) -> bool {
                [$(self.$field.mask(addresses)),*].contains(&true)
            }

            fn key(&self) -> String {
                self.in_list().key.fields().map(|(_, value)| value).collect::<Vec<_>>().join(" ")
            }

            fn unite(&mut self, other: &Self) {
                self.packets.add(&other.packets);
                self.bytes.add(&other.bytes);
                $(self.$more.unite(&other.$more);)?
            }

            fn set_rank(&mut self, rank: u32) {
                self.rank = rank;
            }

            fn sums(&mut self) -> [Option<&mut Estimate>; 2] {
                [Some(&mut self.packets), Some(&mut self.bytes)]
            }
            $(
                fn each_direction(&mut self) -> [[Option<&mut Estimate>; 2]; 2] {
                    let HostNumbers { down, up, flows: _, peers: _ } = &mut self.$more;
                    [down, up].map(|sums| [Some(&mut sums.packets), Some(&mut sums.bytes)])
                }

                fn counts(&mut self) -> [Option<&mut Estimate>; 3] {
                    [Some(&mut self.$more.flows), Some(&mut self.$more.peers), None]
                }

                fn is_of_both_sides(&self) -> bool {
                    true
                }
            )?
        }
    )*};
}
standard_lists!(masked_rows);

impl HostNumbers {
    /// Adds the numbers of another host. Both may have flows and peers in common.
    fn unite(&mut self, other: &Self) {
        let Self { down, up, flows, peers } = other;
        for (one, other) in [(&mut self.down, down), (&mut self.up, up)] {
            one.packets.add(&other.packets);
            one.bytes.add(&other.bytes);
        }
        self.flows.unite(flows);
        self.peers.unite(peers);
    }
}

impl MaskedRow for TopPrefix {
    fn mask(&mut self, addresses: Addresses) -> bool {
        self.prefix.mask(addresses)
    }

    fn key(&self) -> String {
        self.prefix.clone()
    }

    fn unite(&mut self, other: &Self) {
        let Self { rank: _, prefix: _, packets, bytes, beyond, members } = other;
        self.packets.add(packets);
        self.bytes.add(bytes);
        self.beyond.packets.add(&beyond.packets);
        self.beyond.bytes.add(&beyond.bytes);
        self.members = self.members.saturating_add(*members);
    }

    fn set_rank(&mut self, rank: u32) {
        self.rank = rank;
    }

    fn sums(&mut self) -> [Option<&mut Estimate>; 2] {
        [Some(&mut self.packets), Some(&mut self.bytes)]
    }

    fn shared(&mut self) -> [Option<&mut Estimate>; 2] {
        [Some(&mut self.beyond.packets), Some(&mut self.beyond.bytes)]
    }
}

impl MaskedRow for Row {
    fn mask(&mut self, addresses: Addresses) -> bool {
        self.key.values_mut().fold(false, |is_masked, value| value.mask(addresses) | is_masked)
    }

    fn key(&self) -> String {
        let fields = self.key.iter().map(|(name, value)| format!("{name}={value}"));
        self.view.iter().cloned().chain(fields).collect::<Vec<_>>().join(" ")
    }

    fn unite(&mut self, other: &Self) {
        let Self { rank: _, view: _, key: _, packets, bytes, flows, new_flows, distinct, down: _, up: _, peers: _ } =
            other;
        both(&mut self.packets, *packets, Estimate::add);
        both(&mut self.bytes, *bytes, Estimate::add);
        match (self.host(), other.host()) {
            (Some(mut one), Some(other)) => {
                one.unite(&other);
                let united = std::mem::take(self).with_host(Some(one));
                *self = united;
            }
            _ => both(&mut self.flows, *flows, Estimate::add),
        }
        both(&mut self.new_flows, *new_flows, Estimate::add);
        both(&mut self.distinct, *distinct, Estimate::unite);
    }

    fn set_rank(&mut self, rank: u32) {
        self.rank = Some(rank);
    }

    fn sums(&mut self) -> [Option<&mut Estimate>; 2] {
        [self.packets.as_mut(), self.bytes.as_mut()]
    }

    fn each_direction(&mut self) -> [[Option<&mut Estimate>; 2]; 2] {
        [&mut self.down, &mut self.up].map(|sums| match sums {
            Some(Sums { packets, bytes }) => [Some(packets), Some(bytes)],
            None => [None, None],
        })
    }

    fn counts(&mut self) -> [Option<&mut Estimate>; 3] {
        // A row of a host has peers, and none of the others but flows.
        [self.flows.as_mut(), self.new_flows.as_mut().or(self.peers.as_mut()), self.distinct.as_mut()]
    }

    fn is_of_both_sides(&self) -> bool {
        self.key.contains_key("host")
    }
}

impl MaskedRow for Evidence {
    fn mask(&mut self, addresses: Addresses) -> bool {
        self.key.values_mut().fold(false, |is_masked, value| value.mask(addresses) | is_masked)
    }

    fn key(&self) -> String {
        self.key.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// A number is not added, because it may not be a count.
    fn unite(&mut self, other: &Self) {
        self.value = self.value.max(other.value);
        self.lower = self.lower.max(other.lower);
        self.upper = self.upper.zip(other.upper).map(|(one, other)| one + other);
    }

    fn sums(&mut self) -> [Option<&mut Estimate>; 2] {
        [None, None]
    }
}
