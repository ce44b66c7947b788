//! Names of the files in a spool. A name has all the metadata of its file:
//!
//! ```text
//! 17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz           a report: place in line, end of its window, observer,
//!                                                                    run, number, bytes, CRC-32 of these bytes
//! 17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz.refused   the same, refused by the collector
//! 17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz.retry     the same, to be tried again
//! 17.1763800000.7f3c9a52.b41d0c11.40-42.spool_full.tombstone         an empty file: reports 40 to 42 are lost, and why
//! ```

use std::fmt;

use weir_schema::{Ids, Reason, ids::number};

const REPORT: &str = ".json.gz";
const REFUSED: &str = ".refused";
const RETRY: &str = ".retry";
const TOMBSTONE: &str = ".tombstone";

/// The content of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The place in line: files are delivered in this order.
    pub number: u64,
    /// When the window of the first report ended, in seconds since 1970.
    pub time: u64,
    /// The reports in the file.
    pub ids: Ids,
    /// The kind of the file's content.
    pub content: Content,
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A report that waits.
    Report(Stored),
    /// A report that the collector has refused.
    Refused(Stored),
    /// A report that was refused and will be tried again, at the request of `weir spool retry`.
    Retry(Stored),
    /// A tombstone: the reports are lost.
    Tombstone(Reason),
}

/// The bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The length of the content in bytes.
    pub bytes: u64,
    /// The CRC-32 of the content (IEEE 802.3).
    pub crc: u32,
}

impl Stored {
    /// The size and checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc: crc32fast::hash(bytes) }
    }
}

impl Name {
    /// Parses a name; `None` if weir gives no file such a name.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, kind) = [[REPORT, REFUSED].concat().as_str(), [REPORT, RETRY].concat().as_str(), REPORT, TOMBSTONE]
            .iter()
            .enumerate()
            .find_map(|(kind, suffix)| Some((text.strip_suffix(suffix)?, kind)))?;
        let parts: Vec<&str> = rest.split('.').collect();
        let &[place, time, observer, run, numbers, ref others @ ..] = parts.as_slice() else { return None };
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let ids = Ids::read(observer, run, first, last)?;
        let content = match (kind, others) {
            (3, [reason]) => Content::Tombstone(Reason::named(reason)?),
            (0..=2, [bytes, crc]) if ids.count() == 1 && crc.len() == 8 => {
                let stored = Stored { bytes: number(bytes)?, crc: u32::from_str_radix(crc, 16).ok()? };
                [Content::Refused, Content::Retry, Content::Report][kind](stored)
            }
            _ => return None,
        };
        let name = Self { number: number(place)?, time: number(time)?, ids, content };
        // Each name has only one spelling. Numbers stay far below the maximum, so there is always a next one.
        (name.to_string() == text && name.number < u64::MAX / 2).then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, time, ids, content } = self;
        write!(f, "{number}.{time}.{}.{}.{}", ids.observer(), ids.run(), ids.first())?;
        match content {
            Content::Report(Stored { bytes, crc }) => write!(f, ".{bytes}.{crc:08x}{REPORT}"),
            Content::Refused(Stored { bytes, crc }) => write!(f, ".{bytes}.{crc:08x}{REPORT}{REFUSED}"),
            Content::Retry(Stored { bytes, crc }) => write!(f, ".{bytes}.{crc:08x}{REPORT}{RETRY}"),
            Content::Tombstone(reason) => write!(f, "-{}.{}{TOMBSTONE}", ids.last(), reason.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is() {
        for text in [
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz",
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz.refused",
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz.retry",
            "17.1763800000.7f3c9a52.b41d0c11.40-42.spool_full.tombstone",
            "0.0.00000000.00000000.0-0.too_old.tombstone",
        ] {
            assert_eq!(Name::read(text).map(|name| name.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "unfinished",
            "17.json.gz",
            "17.1763800000.7f3c9a52.b41d0c11.40-42.5233.89abcdef.json.gz",
            "17.1763800000.7f3c9a52.b41d0c11.42.spool_full.tombstone",
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89ABCDEF.json.gz",
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json",
            "017.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz",
            "17.1763800000.7f3c9a52.b41d0c11.40-42.whatever.tombstone",
            "17.1763800000.7f3c9a52.b41d0c11.42-40.spool_full.tombstone",
            "17.1763800000.7f3c9a52.b41d0c11.42.5233.89abcdef.json.gz.refused.refused",
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
    }
}
