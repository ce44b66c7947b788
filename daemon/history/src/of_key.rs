//! Follows one key of a list over time.

use jiff::Timestamp;
use weir_schema::{KeyHistory, KeySteps, ListKey};

use crate::{time::Time, windows::Windows};

/// Steps of an answer where the client does not say how many.
pub const POINTS: usize = 60;
/// Maximum number of steps.
pub const POINTS_MAX: usize = 360;

/// A key that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfKey {
    /// The key as text: `src_ip=192.0.2.7`.
    pub key: String,
    /// The view that has the list; `None` for a standard list.
    pub view: Option<String>,
}

/// Reads the numbers of a key from the windows of this time, in about as many steps as `points`.
///
/// # Errors
///
/// It is no key of a list.
pub fn of_key(windows: &Windows, time: &Time, of: &OfKey, points: usize) -> Result<KeyHistory, String> {
    let key = ListKey::parse(&of.key, of.view.as_deref())?.if_shown(windows.shown())?;
    let to = time.to.or(windows.newest()).unwrap_or(Timestamp::UNIX_EPOCH);
    let from = time.from.max(windows.oldest()).unwrap_or(to).min(to);
    let mut steps = KeySteps::new(&of.key, of.view.as_deref(), (from, to), points);
    windows.each(time, |kept| steps.add(&kept.past, &kept.union, &key));
    Ok(steps.finish())
}

#[cfg(test)]
mod tests {
    use weir_config::Addresses;
    use weir_schema::{Estimate, Union};

    use super::*;
    use crate::testing::{add, at, report};

    /// Source 1 sent ten packets in the first window, and ten more in each that follows. In each fourth window it is
    /// not among the first 64 of the list, and windows 40 to 49 are not known.
    fn kept() -> (Windows, Vec<u64>) {
        let mut windows = Windows::new(1 << 20, Addresses::Full);
        let mut truth = Vec::new();
        for nth in 0..100_u64 {
            let others = if nth % 4 == 3 { 10_000 } else { 1 };
            let mut sources: Vec<_> = (2..70).map(|source| (source, others)).collect();
            sources.push((1, 10 * (nth + 1)));
            sources.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
            truth.push(10 * (nth + 1));
            if !(40..50).contains(&nth) {
                add(&mut windows, &report(nth as i64, &sources));
            }
        }
        (windows, truth)
    }

    fn of(key: &str) -> OfKey {
        OfKey { key: key.to_owned(), view: None }
    }

    #[test]
    fn each_window_has_what_its_report_says_and_a_bound_where_the_key_is_not_listed() {
        let (windows, truth) = kept();
        let told = of_key(&windows, &Time::default(), &of("src_ip=0.0.0.1"), 360).unwrap();
        assert_eq!((told.from, told.to, told.windows.len(), told.confidence), (at(0), at(1000), 90, 1.0));
        for window in &told.windows {
            let nth = (window.start.as_second() - crate::testing::START) / 10;
            let truth = truth[nth as usize];
            assert!(window.at_most.packets >= truth && window.windows == 1, "{window:?}");
            if nth % 4 == 3 {
                assert_eq!(
                    (window.listed, window.packets, window.bytes),
                    (0, None, None),
                    "not in the list is not zero"
                );
            } else {
                let exact = |value| Some(Estimate { value, lower: value, upper: value, sampled: None });
                assert_eq!((window.listed, window.packets, window.bytes), (1, exact(truth), exact(truth * 100)));
            }
        }
    }

    #[test]
    fn steps_of_several_windows_are_sums_whose_bounds_hold_and_gaps_stay_gaps() {
        let (windows, truth) = kept();
        let time = Time { from: Some(at(0)), to: Some(at(1000)) };
        let told = of_key(&windows, &time, &of("src_ip=0.0.0.1"), 10).unwrap();
        let starts: Vec<_> =
            told.windows.iter().map(|of| (of.start.as_second() - crate::testing::START) / 100).collect();
        assert_eq!(starts, [0, 1, 2, 3, 5, 6, 7, 8, 9], "nothing is known of the fifth step");
        for (window, nth) in told.windows.iter().zip(starts) {
            let range = nth as usize * 10..nth as usize * 10 + 10;
            let sum: u64 = truth[range.clone()].iter().sum();
            let listed: u64 = range.clone().filter(|nth| nth % 4 != 3).map(|nth| truth[nth]).sum();
            let packets = window.packets.unwrap();
            assert_eq!((window.windows, packets.value, packets.lower), (10, listed, listed));
            assert_eq!(window.listed, range.filter(|nth| nth % 4 != 3).count() as u64);
            assert!(packets.upper >= sum && packets.upper == window.at_most.packets, "{window:?}");
        }
        // The union of the same time says the same.
        let union: Union = windows.span(&time).unwrap();
        let [by_bytes, by_packets] = [&union.top, &union.top_by_packets]
            .map(|top| top.sources.iter().find(|row| row.src_ip.to_string() == "0.0.0.1").unwrap());
        let mut all = told.windows[0];
        for window in &told.windows[1..] {
            all.add(window);
        }
        assert_eq!((all.packets, all.bytes), (Some(by_packets.packets), Some(by_bytes.bytes)));
    }

    #[test]
    fn what_is_no_key_is_refused_and_a_view_that_is_not_there_has_no_windows() {
        let (windows, _) = kept();
        for (key, part) in [("192.0.2.1", "is not FIELD=VALUE"), ("ttl=7", "no list has rows by ttl")] {
            let why = of_key(&windows, &Time::default(), &of(key), 10).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let of = OfKey { view: Some("nothing".to_owned()), ..of("ttl=7") };
        assert_eq!(of_key(&windows, &Time::default(), &of, 10).unwrap().windows, []);
        let nothing = Windows::new(1 << 20, Addresses::Full);
        assert_eq!(of_key(&nothing, &Time::default(), &self::of("src_ip=0.0.0.1"), 10).unwrap().windows, []);
    }
}
