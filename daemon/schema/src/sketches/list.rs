//! Adds up lists of several windows and routers: the sums of keys, with bounds of every key, listed or not.
//!
//! A list bounds each key: a listed one by its row, and every other one by its cell. So the sum of a key over lists is
//! at most the sum of its cells, corrected by `row - cell` for each list that has a row of it. Both sums can be added
//! up in any order, by any program.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};

use weir_common::{ledger::Tally, sketch::Metric};
use weir_sketch::Weight as _;

use super::{ListSketch, SEED, WIDTH, cell};
use crate::limits::is_total;

/// Why a list cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Mismatch {
    /// It has other cells.
    #[error(
        "it has {width} cells, {depth} for each key, and the seed {seed}; weir adds up lists with {WIDTH}, 1 and {SEED}"
    )]
    Geometry {
        /// The number of cells in a row.
        width: u32,
        /// How many of them a key has.
        depth: u32,
        /// The seed of the hash.
        seed: u32,
    },
    /// weir writes no such list: its bounds would be wrong, also for keys of other routers.
    #[error("{0}")]
    Malformed(&'static str),
}

/// The sum of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySums {
    /// The values of its fields, separated by spaces.
    pub key: String,
    /// The least that it has.
    pub lower: Tally,
    /// The most that it has.
    pub upper: Tally,
}

/// Several lists, added up.
#[derive(Clone, Debug)]
pub struct ListUnion {
    by: Vec<String>,
    rows: HashMap<Box<str>, Row>,
    cells: Vec<Tally>,
    /// The length of the keys in bytes.
    key_bytes: usize,
    /// The most rows that are kept.
    capacity: usize,
    /// The sum of the probabilities that the bounds of a list fail.
    failure: f64,
}

/// A key for which at least one list has a row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    cell: usize,
    lower: Tally,
    /// The sum of the differences between the upper bounds of its rows and those of its cell, in packets and bytes.
    beyond: [i128; 2],
}

/// The longest key of a list, in bytes. Those of weir have at most a few hundred.
const KEY_BYTES_MAX: usize = 1_024;
/// An upper bound of a row's memory beside its key, in bytes.
const ROW_BYTES: usize = 128;

const METRICS: [Metric; 2] = [Metric::Packets, Metric::Bytes];

impl Row {
    fn upper(&self, cells: &[Tally]) -> Tally {
        let [packets, bytes] = METRICS.map(|metric| {
            let beyond = self.beyond[metric as usize];
            let sum = i128::from(metric.of(cells[self.cell])).saturating_add(beyond).max(0);
            u64::try_from(sum).unwrap_or(u64::MAX).max(metric.of(self.lower))
        });
        Tally::new(packets, bytes)
    }
}

impl ListUnion {
    /// An empty union for keys of these fields. It keeps at most `capacity` rows; the bounds of other keys stay right.
    pub fn new(by: &[String], capacity: usize) -> Self {
        let cells = vec![Tally::default(); WIDTH];
        Self { by: by.to_vec(), rows: HashMap::new(), cells, key_bytes: 0, capacity, failure: 0.0 }
    }

    /// The fields of a key.
    pub fn by(&self) -> &[String] {
        &self.by
    }

    /// Adds a list.
    ///
    /// # Errors
    ///
    /// It has other cells, or weir does not write such lists. Then nothing is added.
    pub fn add(&mut self, list: &ListSketch) -> Result<(), Mismatch> {
        check(list)?;
        let rest = |cell: usize| Tally::new(list.rest_packets[cell], list.rest_bytes[cell]);
        for (nth, key) in list.keys.iter().enumerate() {
            let cell = list.cells[nth] as usize;
            let lower = Tally::new(list.packets_lower[nth], list.bytes_lower[nth]);
            let upper = Tally::new(list.packets_upper[nth], list.bytes_upper[nth]);
            self.add_row(key, (cell, rest(cell)), lower, upper);
        }
        self.add_cells((0..WIDTH).map(rest), list.confidence);
        Ok(())
    }

    /// Adds a row of a list with the cell of its key. Call [`ListUnion::add_cells`] after all rows.
    pub fn add_row(&mut self, key: &str, (cell, rest): (usize, Tally), lower: Tally, upper: Tally) {
        let row = match self.rows.get_mut(key) {
            Some(row) => row,
            None => {
                self.key_bytes += key.len();
                self.rows.entry(key.into()).or_insert(Row { cell, ..Row::default() })
            }
        };
        row.lower = row.lower.saturating_add(lower);
        for metric in METRICS {
            row.beyond[metric as usize] += i128::from(metric.of(upper)) - i128::from(metric.of(rest));
        }
    }

    /// Adds the cells of a list whose bounds hold with this probability.
    pub fn add_cells(&mut self, rest: impl Iterator<Item = Tally>, confidence: f64) {
        for (cell, rest) in self.cells.iter_mut().zip(rest) {
            *cell = cell.saturating_add(rest);
        }
        self.failure += 1.0 - confidence;
        if self.rows.len() > self.capacity {
            self.keep(self.capacity / 2);
        }
    }

    /// Keeps the rows of the `keys` largest keys by bytes, and of as many by packets. From then on the other keys are
    /// bounded by their cells.
    pub fn keep(&mut self, keys: usize) {
        let rows: Vec<(Box<str>, Row)> = self.rows.drain().collect();
        let mut is_kept = vec![false; rows.len()];
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for metric in METRICS {
            let row = |nth: &usize| (&*rows[*nth].0, &rows[*nth].1);
            for nth in first(&mut order, keys, |one, other| by_lower(metric, row(one), row(other))) {
                is_kept[*nth] = true;
            }
        }
        let before = self.cells.clone();
        for ((_, row), _) in rows.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
            let cell = &mut self.cells[row.cell];
            *cell = cell.most(row.upper(&before));
        }
        for ((key, mut row), _) in rows.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept) {
            let raised = self.cells[row.cell].saturating_sub(before[row.cell]);
            for metric in METRICS {
                row.beyond[metric as usize] -= i128::from(metric.of(raised));
            }
            self.rows.insert(key, row);
        }
        self.rows.shrink_to(2 * keys);
        self.key_bytes = self.rows.keys().map(|key| key.len()).sum();
    }

    /// The `count` keys with the highest lower bounds of bytes or packets, the largest first.
    pub fn top(&self, count: usize, metric: Metric) -> Vec<KeySums> {
        let mut rows: Vec<(&str, &Row)> = self.rows.iter().map(|(key, row)| (&**key, row)).collect();
        let rows = first(&mut rows, count, |one, other| by_lower(metric, *one, *other));
        rows.sort_unstable_by(|one, other| by_lower(metric, *one, *other));
        let sums = |(key, row): &(&str, &Row)| KeySums {
            key: (*key).to_owned(),
            lower: row.lower,
            upper: row.upper(&self.cells),
        };
        rows.iter().map(sums).collect()
    }

    /// The bounds of any key, listed or not.
    pub fn look_up(&self, key: &str) -> KeySums {
        let (lower, upper) = match self.rows.get(key) {
            Some(row) => (row.lower, row.upper(&self.cells)),
            None => (Tally::default(), self.cells[cell(key) as usize]),
        };
        KeySums { key: key.to_owned(), lower, upper }
    }

    /// How many keys have a row.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns an upper bound of the memory in bytes, without the name.
    pub fn memory_bytes(&self) -> usize {
        self.cells.len() * size_of::<Tally>() + self.rows.len() * ROW_BYTES + self.key_bytes
    }

    /// Returns true if no key has a row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The most that a key without a row can have.
    pub fn others(&self) -> Tally {
        self.cells.iter().copied().fold(Tally::default(), Tally::most)
    }

    /// The probability that all bounds hold.
    pub fn confidence(&self) -> f64 {
        (1.0 - self.failure).max(0.0)
    }

    /// The union as a list.
    pub fn to_list(&self, name: &str) -> ListSketch {
        let mut rows = self.top(self.rows.len(), Metric::Bytes);
        let numbers = |number: fn(&KeySums) -> u64| rows.iter().map(number).collect::<Vec<_>>();
        let (packets_lower, packets_upper) = (numbers(|row| row.lower.packets), numbers(|row| row.upper.packets));
        let (bytes_lower, bytes_upper) = (numbers(|row| row.lower.bytes), numbers(|row| row.upper.bytes));
        let keys: Vec<String> = rows.iter_mut().map(|row| std::mem::take(&mut row.key)).collect();
        ListSketch {
            name: name.to_owned(),
            question: None,
            by: self.by.clone(),
            confidence: self.confidence(),
            width: WIDTH as u32,
            depth: 1,
            seed: SEED,
            cells: keys.iter().map(|key| cell(key)).collect(),
            keys,
            packets_lower,
            packets_upper,
            bytes_lower,
            bytes_upper,
            rest_packets: self.cells.iter().map(|cell| cell.packets).collect(),
            rest_bytes: self.cells.iter().map(|cell| cell.bytes).collect(),
        }
    }
}

/// Orders rows by the lower bound, the largest first, because an upper bound may be that of a cell.
fn by_lower(metric: Metric, (key, row): (&str, &Row), (other_key, other): (&str, &Row)) -> Ordering {
    metric.of(other.lower).cmp(&metric.of(row.lower)).then_with(|| key.cmp(other_key))
}

/// Moves the first `count` to the front, and returns these.
fn first<T>(all: &mut [T], count: usize, order: impl FnMut(&T, &T) -> Ordering) -> &mut [T] {
    let count = count.min(all.len());
    if (1..all.len()).contains(&count) {
        all.select_nth_unstable_by(count - 1, order);
    }
    &mut all[..count]
}

/// Checks that a list is one which weir may have written. A forged one could otherwise lower the bounds of keys of
/// other routers, or claim more confidence than there is.
fn check(list: &ListSketch) -> Result<(), Mismatch> {
    let ListSketch { width, depth, seed, keys, cells, confidence, .. } = list;
    if (*width as usize, *depth, *seed) != (WIDTH, 1, SEED) {
        return Err(Mismatch::Geometry { width: *width, depth: *depth, seed: *seed });
    }
    let of_keys = [&list.packets_lower, &list.packets_upper, &list.bytes_lower, &list.bytes_upper];
    let of_cells = [&list.rest_packets, &list.rest_bytes];
    let are_whole = cells.len() == keys.len() && of_keys.iter().all(|numbers| numbers.len() == keys.len());
    let is_above = |lower: &[u64], upper: &[u64]| lower.iter().zip(upper).any(|(lower, upper)| lower > upper);
    let wrong = [
        (!are_whole || of_cells.iter().any(|numbers| numbers.len() != WIDTH), "its arrays do not belong together"),
        (!(0.0..=1.0).contains(confidence), "its confidence is not a probability"),
        (keys.iter().any(|key| key.len() > KEY_BYTES_MAX), "a key is longer than 1,024 bytes"),
        (keys.iter().zip(cells).any(|(key, own)| *own != cell(key)), "a key is in a cell of other keys"),
        (keys.iter().collect::<HashSet<_>>().len() < keys.len(), "a key has two rows"),
        (is_above(&list.packets_lower, &list.packets_upper), "a lower bound of packets is above the upper one"),
        (is_above(&list.bytes_lower, &list.bytes_upper), "a lower bound of bytes is above the upper one"),
        (
            [&list.packets_upper, &list.bytes_upper]
                .into_iter()
                .chain(of_cells)
                .flatten()
                .any(|bound| !is_total(*bound)),
            "a bound is larger than any window has",
        ),
    ];
    wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err(Mismatch::Malformed(why)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weir_sketch::hash::mix;

    use super::*;

    type Truth = BTreeMap<String, Tally>;

    /// The true sums of one router, and its list of the largest `keys` keys.
    fn router(seed: u64, keys: usize) -> (Truth, ListSketch) {
        let mut truth = Truth::new();
        for nth in 0..3_000 {
            let key = format!("10.0.{}.{}", mix(seed ^ nth) % 8, (mix(seed ^ nth << 20) % 256 * (nth % 7)) % 256);
            truth.entry(key).or_default().add(Tally::new(1 + nth % 3, 60 + mix(nth ^ seed) % 1_400));
        }
        let mut exact = ListUnion::new(&["src_ip".to_owned()], usize::MAX);
        for (key, tally) in &truth {
            exact.add_row(key, (cell(key) as usize, Tally::default()), *tally, *tally);
        }
        exact.keep(keys);
        (truth, exact.to_list("sources"))
    }

    fn assert_holds(union: &ListUnion, truths: &[Truth]) {
        let keys = truths.iter().flat_map(Truth::keys).map(String::as_str).chain(["192.0.2.1"]);
        for key in keys {
            let truth: Tally = truths.iter().filter_map(|truth| truth.get(key)).copied().sum();
            let KeySums { lower, upper, .. } = union.look_up(key);
            for metric in METRICS {
                let bounds = metric.of(lower)..=metric.of(upper);
                assert!(bounds.contains(&metric.of(truth)), "{key}: {truth:?} is not within {lower:?} and {upper:?}");
            }
        }
    }

    #[test]
    fn bounds_hold_for_every_key_of_every_router() {
        let routers: Vec<(Truth, ListSketch)> = (0..12).map(|seed| router(seed % 5, 20)).collect();
        let truths: Vec<Truth> = routers.iter().map(|(truth, _)| truth.clone()).collect();
        for capacity in [usize::MAX, 60] {
            let mut union = ListUnion::new(&["src_ip".to_owned()], capacity);
            for (_, list) in &routers {
                union.add(list).unwrap();
            }
            assert!(union.len() <= capacity && !union.is_empty());
            assert_holds(&union, &truths);
            // A union of unions, as a router makes of its windows.
            union.keep(10);
            let mut twice = ListUnion::new(union.by(), usize::MAX);
            twice.add(&union.to_list("sources")).unwrap();
            twice.add(&routers[0].1).unwrap();
            let more: Vec<Truth> = truths.iter().chain(&truths[..1]).cloned().collect();
            assert_holds(&twice, &more);
        }
    }

    #[test]
    fn the_order_does_not_matter_while_there_is_room() {
        let lists: Vec<ListSketch> = (0..6).map(|seed| router(seed, 20).1).collect();
        let union = |order: [usize; 6]| {
            let mut union = ListUnion::new(&["src_ip".to_owned()], usize::MAX);
            for nth in order {
                union.add(&lists[nth]).unwrap();
            }
            union.to_list("sources")
        };
        assert_eq!(union([0, 1, 2, 3, 4, 5]), union([5, 2, 0, 4, 3, 1]));
    }

    #[test]
    fn the_largest_keys_are_those_with_the_most_that_is_certain() {
        let (truth, list) = router(3, 2_000);
        let mut union = ListUnion::new(&list.by, usize::MAX);
        union.add(&list).unwrap();
        let mut expected: Vec<(u64, &String)> = truth.iter().map(|(key, tally)| (tally.bytes, key)).collect();
        expected.sort_by_key(|(bytes, key)| (std::cmp::Reverse(*bytes), *key));
        let top = union.top(5, Metric::Bytes);
        let found: Vec<(u64, &String)> = top.iter().map(|sums| (sums.lower.bytes, &sums.key)).collect();
        assert_eq!(found, expected[..5]);
        assert_eq!((union.top(0, Metric::Bytes).len(), union.others()), (0, Tally::default()), "everything is listed");
    }

    #[test]
    fn lists_of_other_cells_are_refused() {
        let (_, list) = router(1, 20);
        let mut union = ListUnion::new(&list.by, usize::MAX);
        let wide = ListSketch { width: 512, ..list.clone() };
        let error = union.add(&wide).unwrap_err();
        assert!(error.to_string().contains("512 cells"), "{error}");
        let mut broken = vec![ListSketch { rest_bytes: vec![0; 3], ..list.clone() }];
        broken.push(ListSketch { bytes_upper: vec![0; 3], ..list.clone() });
        broken.push(ListSketch { cells: vec![1_000; list.cells.len()], ..list });
        for list in broken {
            assert!(matches!(union.add(&list), Err(Mismatch::Malformed(_))), "{list:?}");
        }
        assert!(union.is_empty());
    }

    #[test]
    fn a_forged_list_changes_no_bound_of_another_router() {
        let (truth, honest) = router(1, 20);
        let key = honest.keys[0].clone();
        let other = honest.keys.iter().find(|other| cell(other) != cell(&key)).unwrap().clone();
        let mut forged: Vec<(ListSketch, &str)> = Vec::new();
        let mut forge = |why, change: &dyn Fn(&mut ListSketch)| {
            let mut list = honest.clone();
            change(&mut list);
            forged.push((list, why));
        };
        forge("cell of other keys", &|list| list.cells[0] = cell(&other));
        forge("not a probability", &|list| list.confidence = 1e308);
        forge("not a probability", &|list| list.confidence = -1.0);
        forge("not a probability", &|list| list.confidence = f64::NAN);
        forge("packets is above", &|list| list.packets_lower[0] = list.packets_upper[0] + 1);
        forge("bytes is above", &|list| list.bytes_upper[0] = 0);
        for forged in [(1 << 53), (1 << 63), u64::MAX] {
            forge("larger than any window", &|list| list.rest_bytes[7] = forged);
            forge("larger than any window", &|list| list.rest_packets[7] = forged);
            forge("larger than any window", &|list| list.packets_upper[0] = forged);
            forge("larger than any window", &|list| list.bytes_upper[0] = forged);
        }
        forge("two rows", &|list| {
            list.keys[1] = list.keys[0].clone();
            list.cells[1] = list.cells[0];
        });
        forge("longer than", &|list| {
            list.keys[0] = "x".repeat(2_000);
            list.cells[0] = cell(&list.keys[0]);
        });
        for (list, why) in forged {
            for forged_first in [true, false] {
                let mut union = ListUnion::new(&honest.by, usize::MAX);
                if !forged_first {
                    union.add(&honest).unwrap();
                }
                let error = union.add(&list).unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
                if forged_first {
                    union.add(&honest).unwrap();
                }
                assert_holds(&union, std::slice::from_ref(&truth));
                assert!(union.confidence() <= 1.0);
            }
        }
    }
}
