//! Numbers with decimal prefixes and units, for people.

/// Decimal prefixes, each a thousand times the previous one.
const PREFIXES: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

/// A count with a decimal prefix: `999`, `12.3 k`.
pub fn count(value: u64) -> String {
    scaled(value as f64, "")
}

/// Bytes with a decimal prefix: `999 B`, `12.3 MB`.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, "B")
}

/// A value with a decimal prefix and a unit: `999 b/s`, `12.3 Mb/s`. Whole below a thousand.
pub fn scaled(value: f64, unit: &str) -> String {
    let (mut scaled, mut prefixes) = (value, PREFIXES.iter());
    let mut prefix = "";
    // A value that would be rounded to a thousand takes the next prefix.
    while scaled >= if prefix.is_empty() { 999.5 } else { 999.95 } {
        let Some(next) = prefixes.next() else { break };
        (scaled, prefix) = (scaled / 1000.0, next);
    }
    let number = if prefix.is_empty() { format!("{scaled:.0}") } else { format!("{scaled:.1}") };
    format!("{number} {prefix}{unit}").trim_end().to_owned()
}

/// A share of 1 in percent: `12.3 %`. A share close to nothing or to all is not rounded to 0 % or 100 %.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        "<0.1 %".to_owned()
    } else if (99.95..100.0).contains(&percent) {
        ">99.9 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_prefix_that_keeps_them_below_a_thousand() {
        let cases = [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")];
        for (value, text) in cases {
            assert_eq!(bytes(value), text);
        }
        assert_eq!((bytes(u64::MAX), count(12_345), count(7)), ("18.4 EB".into(), "12.3 k".into(), "7".into()));
        assert_eq!((scaled(999.6, "b/s"), scaled(0.4, "b/s")), ("1.0 kb/s".into(), "0 b/s".into()));
        assert_eq!((scaled(f64::NAN, "B"), scaled(f64::INFINITY, "B")), ("NaN B".into(), "inf EB".into()));
    }

    #[test]
    fn almost_nothing_and_almost_all_look_like_neither() {
        let cases = [(0.0, "0.0 %"), (1e-9, "<0.1 %"), (0.1234, "12.3 %"), (0.9999, ">99.9 %"), (1.0, "100.0 %")];
        assert!(cases.into_iter().all(|(share, text)| percent(share) == text));
    }
}
