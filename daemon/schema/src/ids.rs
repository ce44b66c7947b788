//! Ranges of reports: ids of one run with consecutive numbers.

use std::fmt;

/// Reports of one run of one observer, from the first number to the last. Written as `7f3c9a52/b41d0c11/40-42`, or as
/// the report's id if there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    observer: u32,
    run: u32,
    first: u64,
    last: u64,
}

impl Ids {
    /// The range with only this id; `None` if it is not the id of one of weir's reports.
    pub fn of(id: &str) -> Option<Self> {
        let mut parts = id.split('/');
        let (observer, run, seq) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next().is_none().then_some(())?;
        Self::read(observer, run, seq, seq)
    }

    /// Parses the parts of a file name.
    pub fn read(observer: &str, run: &str, first: &str, last: &str) -> Option<Self> {
        let (first, last) = (number(first)?, number(last)?);
        let ids = Self { observer: word(observer)?, run: word(run)?, first, last };
        (first <= last).then_some(ids)
    }

    /// Returns the id of the observer.
    pub fn observer(&self) -> String {
        format!("{:08x}", self.observer)
    }

    /// The id of the observer's run (`boot_id`).
    pub fn run(&self) -> String {
        format!("{:08x}", self.run)
    }

    /// Returns the first sequence number.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last sequence number.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The number of reports.
    pub const fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns true if this range contains all of `other`.
    pub const fn cover(&self, other: &Self) -> bool {
        self.observer == other.observer && self.run == other.run && self.first <= other.first && other.last <= self.last
    }

    /// This range extended by `next`, if `next` is of the same run and follows immediately.
    pub fn and(&self, next: &Self) -> Option<Self> {
        let follow = self.observer == next.observer && self.run == next.run && self.last.checked_add(1)? == next.first;
        follow.then_some(Self { last: next.last, ..*self })
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}/{:08x}/{}", self.observer, self.run, self.first)?;
        if self.first == self.last { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

/// Parses eight hexadecimal digits, as weir writes them.
fn word(text: &str) -> Option<u32> {
    let is_written_so = text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_written_so.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// Parses a number without a sign or leading zeros.
pub fn number(text: &str) -> Option<u64> {
    let is_written_so = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_written_so.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_written_id_is_parsed_and_gives_the_same_range() {
        let one = Ids::of("7f3c9a52/0000b41d/42").unwrap();
        assert_eq!((one.to_string().as_str(), one.count()), ("7f3c9a52/0000b41d/42", 1));
        assert_eq!((one.observer().as_str(), one.run().as_str()), ("7f3c9a52", "0000b41d"));
        for wrong in [
            "",
            "a/b/1",
            "7f3c9a52/0000b41d",
            "7f3c9a52/0000b41d/",
            "7f3c9a52/0000b41d/042",
            "7f3c9a52/0000b41d/+4",
            "7F3C9A52/0000b41d/42",
            "7f3c9a52/0000b41d/42/flood",
            "7f3c9a52/0000b41d/99999999999999999999",
        ] {
            assert_eq!(Ids::of(wrong), None, "{wrong}");
        }
        assert_eq!(Ids::read("7f3c9a52", "0000b41d", "3", "2"), None);
    }

    #[test]
    fn only_the_next_reports_of_the_same_run_are_joined() {
        let of = |text: &str| Ids::of(text).unwrap();
        let both = of("00000001/00000002/9").and(&of("00000001/00000002/10")).unwrap();
        assert_eq!((both.to_string().as_str(), both.count()), ("00000001/00000002/9-10", 2));
        for other in ["00000001/00000002/9", "00000001/00000002/11", "00000001/00000003/10", "00000002/00000002/10"] {
            assert_eq!(of("00000001/00000002/9").and(&of(other)), None, "{other}");
        }
        assert!(both.cover(&of("00000001/00000002/9")) && both.cover(&of("00000001/00000002/10")) && both.cover(&both));
        assert!(!both.cover(&of("00000001/00000002/8")) && !both.cover(&of("00000001/00000002/11")));
        assert!(!both.cover(&of("00000001/00000003/9")) && !both.cover(&of("00000002/00000002/9")));
    }
}
