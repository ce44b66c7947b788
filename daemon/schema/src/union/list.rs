//! A list over several windows.
//!
//! A key that is listed in one window may be unlisted in another one. Such a window tells only that the key has at most
//! as much as the list's bound for unlisted keys. So a row's lower bound adds up the windows that list the key, and its
//! upper bound also adds the bounds of all other windows. Rows are ordered by their lower bounds: a key whose true sum
//! is uncertain does not displace one that certainly has more.

use std::{cmp::Reverse, collections::HashMap, hash::Hash};

use crate::{
    Estimate, HostNumbers, Row, Sums, Tally,
    lists::{Key, ListRow},
    standard_lists,
};

/// A row of any list.
pub(super) trait Counted {
    /// Returns the row's counts, if it was counted.
    fn counts(&self) -> Option<Counts>;
}

/// A row that is added up over windows.
pub(super) trait Entry: Counted + Clone {
    /// True if a packet may be in two rows.
    const IS_OF_BOTH_SIDES: bool = false;
    /// The key that distinguishes rows of a list.
    type Key<'r>: Hash + Eq
    where
        Self: 'r;
    fn key(&self) -> Self::Key<'_>;
    /// A row of the same key with this rank and these counts.
    fn with(self, rank: u32, counts: Counts) -> Self;

    /// What the row has besides its counts, if it is one of a host.
    fn host(&self) -> Option<HostNumbers> {
        None
    }

    /// The row with these numbers of a host.
    fn with_host(self, _: HostNumbers) -> Self {
        self
    }
}

/// The counts of a row.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    packets: Estimate,
    bytes: Estimate,
}

impl Counts {
    /// Converts the counts to the form of a report.
    pub(super) const fn sums(self) -> Sums {
        Sums { packets: self.packets, bytes: self.bytes }
    }
}

macro_rules! entries {
    ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {$(
        impl Counted for crate::$row {
            fn counts(&self) -> Option<Counts> {
                Some(Counts { packets: self.packets, bytes: self.bytes })
            }
        }

        impl Entry for crate::$row {
            type Key<'r> = Key<'r>;

            fn key(&self) -> Key<'_> {
                self.in_list().key
            }

            fn with(self, rank: u32, Counts { packets, bytes }: Counts) -> Self {
                Self { rank, packets, bytes, ..self }
            }
            $(
                const IS_OF_BOTH_SIDES: bool = stringify!($more).len() > 0;

                fn host(&self) -> Option<HostNumbers> {
                    Some(self.$more)
                }

                fn with_host(self, numbers: HostNumbers) -> Self {
                    Self { $more: numbers, ..self }
                }
            )?
        }
    )*};
}
standard_lists!(entries);

impl Counted for ListRow<'_> {
    fn counts(&self) -> Option<Counts> {
        let Sums { packets, bytes } = self.sums;
        Some(Counts { packets, bytes })
    }
}

impl Counted for Row {
    fn counts(&self) -> Option<Counts> {
        Some(Counts { packets: self.packets?, bytes: self.bytes? })
    }
}

impl Entry for Row {
    type Key<'r> = String;

    fn key(&self) -> String {
        serde_json::to_string(&self.key).unwrap_or_default()
    }

    fn with(self, rank: u32, Counts { packets, bytes }: Counts) -> Self {
        Self { rank: Some(rank), packets: Some(packets), bytes: Some(bytes), ..self }
    }

    fn host(&self) -> Option<HostNumbers> {
        self.host()
    }

    fn with_host(self, numbers: HostNumbers) -> Self {
        self.with_host(Some(numbers))
    }
}

/// A list in one window.
#[derive(Clone, Copy)]
pub(super) struct Listed<'r, E> {
    pub(super) rows: &'r [E],
    /// The upper bound of a key that is not among the rows.
    pub(super) others: Tally,
}

impl<'r, E: Counted> Listed<'r, E> {
    /// A list of these rows out of a total. Each packet counts for one key.
    pub(super) fn of(rows: &'r [E], total: Tally) -> Self {
        let mut others = total;
        for Counts { packets, bytes } in rows.iter().filter_map(Counted::counts) {
            others.packets = others.packets.saturating_sub(packets.lower);
            others.bytes = others.bytes.saturating_sub(bytes.lower);
        }
        Self { rows, others }
    }

    /// The same if a key without a row has at most this, in bytes or packets as the rows are ordered.
    pub(super) fn at_most(mut self, unlisted: Option<u64>, Order { by_packets, is_masked }: Order) -> Self {
        // Several addresses may have become one.
        if let Some(unlisted) = unlisted.filter(|_| !is_masked) {
            let others = if by_packets { &mut self.others.packets } else { &mut self.others.bytes };
            *others = unlisted.min(*others);
        }
        self
    }
}

/// The order of a list.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// True if the rows are ordered by packets, not bytes.
    pub(super) by_packets: bool,
    /// True if parts of addresses are left out.
    pub(super) is_masked: bool,
}

/// The most that a key has over all windows that is listed in none, in bytes or packets as the rows are ordered.
pub(super) fn unlisted<E>(windows: &[Listed<'_, E>], order: Order) -> Option<u64> {
    let others = windows.iter().map(|of| if order.by_packets { of.others.packets } else { of.others.bytes });
    (!order.is_masked).then(|| others.fold(0, u64::saturating_add))
}

/// Keeps this many rows. The keys of the others count as unlisted.
pub(super) fn cut<E: Counted>(list: &mut Vec<E>, unlisted: &mut Option<u64>, rows: usize, by_packets: bool) {
    let others = list.get(rows..).unwrap_or_default().iter().filter_map(Counted::counts);
    let most = others.map(|of| if by_packets { of.packets.upper } else { of.bytes.upper }).max();
    *unlisted = unlisted.map(|unlisted| unlisted.max(most.unwrap_or(0)));
    list.truncate(rows);
}

/// A sum over some windows. It cannot overflow.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: u128,
    lower: u128,
    upper: u128,
    /// The sum of the upper bounds for unlisted keys in the same windows.
    others: u128,
}

impl Sum {
    fn add(&mut self, Estimate { value, lower, upper, sampled: _ }: Estimate, others: u64) {
        self.value += u128::from(value);
        self.lower += u128::from(lower);
        self.upper += u128::from(upper);
        self.others += u128::from(others);
    }

    /// The sum over all windows. `others` is the sum of the upper bounds for unlisted keys over all windows.
    fn over_all(self, others: u128) -> Estimate {
        let limited = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let upper = self.upper + others.saturating_sub(self.others);
        Estimate { value: limited(self.value), lower: limited(self.lower), upper: limited(upper), sampled: None }
    }
}

/// The sums of one key over all windows.
struct RowSums<'r, E> {
    row: &'r E,
    packets: Sum,
    bytes: Sum,
}

/// The rows of all windows, in descending order of their lower bounds. What rows of hosts have besides is that of one
/// window.
pub(super) fn together<E: Entry>(windows: &[Listed<'_, E>], by_packets: bool) -> Vec<E> {
    let mut places: HashMap<E::Key<'_>, usize> = HashMap::new();
    let mut all: Vec<RowSums<'_, E>> = Vec::new();
    let (mut packets_of_others, mut bytes_of_others) = (0, 0);
    for Listed { rows, others } in windows {
        packets_of_others += u128::from(others.packets);
        bytes_of_others += u128::from(others.bytes);
        for (row, counts) in rows.iter().filter_map(|row| Some((row, row.counts()?))) {
            let place = *places.entry(row.key()).or_insert(all.len());
            if place == all.len() {
                all.push(RowSums { row, packets: Sum::default(), bytes: Sum::default() });
            }
            all[place].packets.add(counts.packets, others.packets);
            all[place].bytes.add(counts.bytes, others.bytes);
        }
    }
    all.sort_by_key(|found| Reverse(if by_packets { found.packets.lower } else { found.bytes.lower }));
    let counts = |found: &RowSums<'_, E>| Counts {
        packets: found.packets.over_all(packets_of_others),
        bytes: found.bytes.over_all(bytes_of_others),
    };
    (1..).zip(&all).map(|(rank, found)| found.row.clone().with(rank, counts(found))).collect()
}
