//! Formats numbers for people: digits in groups, decimal prefixes and units, shares, memory and time.

use jiff::{SignedDuration, Span, SpanRound, Unit};

/// Decimal prefixes, each a thousand times the previous one.
const PREFIXES: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

/// Formats a number with its digits in groups of three: `1,200,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with a decimal prefix: `999`, `12.3 k`.
pub fn count(value: u64) -> String {
    scaled(value as f64, "")
}

/// Formats bytes with a decimal prefix: `999 B`, `12.3 MB`.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, "B")
}

/// Formats a value with a decimal prefix and a unit: `999 b/s`, `12.3 Mb/s`. There are no decimals below a thousand.
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

/// Formats a share of 1 in percent: `12.3 %`. A share close to 0 or 1 is not rounded to 0 % or 100 %.
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

/// Formats the bit rate of this many bytes in this many seconds: `60.4 Mbit/s`.
pub fn bit_rate(bytes: u64, seconds: f64) -> String {
    scaled(bytes as f64 * 8.0 / seconds, "bit/s")
}

/// Formats the packet rate of this many packets in this many seconds: `12.3 kpkt/s`.
pub fn packet_rate(packets: u64, seconds: f64) -> String {
    scaled(packets as f64 / seconds, "pkt/s")
}

/// Formats a short time, given in nanoseconds: `9.1 ns`, `7.6 µs`, `12.0 ms`.
pub fn short_time(nanoseconds: f64) -> String {
    match nanoseconds {
        ..999.95 => format!("{nanoseconds:.1} ns"),
        ..999_950.0 => format!("{:.1} µs", nanoseconds / 1e3),
        _ => format!("{:.1} ms", nanoseconds / 1e6),
    }
}

/// Formats a size of memory in MiB, with this many decimals: `12.3 MiB`.
pub fn mebibytes(bytes: u64, decimals: usize) -> String {
    format!("{:.decimals$} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Formats a time in whole seconds, with days of 24 hours: `1d 2h 3s`.
pub fn time(time: SignedDuration) -> String {
    let whole = SignedDuration::from_secs(time.as_secs().max(0));
    let round = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = Span::try_from(whole).and_then(|span| span.round(round));
    span.map_or_else(|_| whole.to_string(), |span| format!("{span:#}"))
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
    fn shares_near_0_and_1_are_not_rounded_to_them() {
        let cases = [(0.0, "0.0 %"), (1e-9, "<0.1 %"), (0.1234, "12.3 %"), (0.9999, ">99.9 %"), (1.0, "100.0 %")];
        assert!(cases.into_iter().all(|(share, text)| percent(share) == text));
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_200_345, "1,200,345")];
        assert!(cases.into_iter().all(|(number, text)| grouped(number) == text));
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn memory_and_time_have_units() {
        assert_eq!((mebibytes(1 << 20, 1), mebibytes(1_600_000, 2)), ("1.0 MiB".into(), "1.53 MiB".into()));
        assert_eq!([9.1, 999.94, 999.96, 7_551.8].map(short_time), ["9.1 ns", "999.9 ns", "1.0 µs", "7.6 µs"]);
        assert_eq!((bit_rate(1_250_000, 10.0), packet_rate(52_000, 10.0)), ("1.0 Mbit/s".into(), "5.2 kpkt/s".into()));
        assert_eq!(time(SignedDuration::from_millis(93_784_999)), "1d 2h 3m 4s");
        assert_eq!(time(SignedDuration::from_secs(-5)), time(SignedDuration::ZERO));
    }
}
