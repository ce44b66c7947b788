//! Each sink gets reports with as much of addresses as it may see. [`Report::masked`] masks them.

use std::borrow::Cow;

use serde::Deserialize;
use tracing::error;
use weir_config::Addresses;
use weir_schema::{Encoded, FromJson as _, Report};

/// The copies of a report for sinks: one for each way to mask its addresses, encoded once, when a sink first needs it.
#[derive(Debug)]
pub struct Copies<'r> {
    report: &'r Report,
    /// The copies so far. The first one is the report as it is.
    encoded: Vec<(Addresses, Encoded)>,
}

impl<'r> Copies<'r> {
    /// The copies of this report, which has been encoded as it is.
    pub fn new(report: &'r Report, encoded: Encoded) -> Self {
        Self { report, encoded: vec![(report.shown_addresses(), encoded)] }
    }

    /// The copy that has at most this much of addresses.
    pub(super) fn of(&mut self, addresses: Addresses) -> Encoded {
        let addresses = addresses.max(self.report.shown_addresses());
        if let Some((_, known)) = self.encoded.iter().find(|(shown, _)| *shown == addresses) {
            return known.clone();
        }
        let masked = Encoded::new(&self.report.clone().masked(addresses));
        self.encoded.push((addresses, masked.clone()));
        masked
    }
}

/// The fields of a report that tell how its addresses are masked. Everything else is skipped.
#[derive(Deserialize)]
struct Stated<'t> {
    #[serde(borrow, default)]
    addresses: Option<Cow<'t, str>>,
}

/// A report from the spool, masked for this sink: when it was kept, the sink may have been allowed to see more.
pub(super) fn ensured(addresses: Addresses, report: Encoded) -> Encoded {
    if addresses == Addresses::Full {
        return report;
    }
    let stated = serde_json::from_slice::<Stated<'_>>(&report.line).ok().and_then(|stated| stated.addresses);
    if stated.and_then(|name| Addresses::from_name(&name)).is_some_and(|shown| shown >= addresses) {
        return report;
    }
    // Fields that this version does not know may have addresses: reading the report leaves them out.
    match Report::from_json(&report.line) {
        Ok(read) => Encoded { id: report.id, ..Encoded::new(&read.masked(addresses)) },
        Err(error) => {
            error!(
                report = report.id,
                "a waiting report goes out empty, because its addresses cannot be masked: it is not one that this \
                 version of weir can read: {error}"
            );
            Encoded { line: b"{}\n".as_slice().into(), ..report }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::encoded, *};

    /// The golden report, with whole addresses.
    fn whole() -> Report {
        let mut report = Report::from_json(&encoded("a/b/1").line).unwrap();
        report.addresses = None;
        report
    }

    #[test]
    fn each_way_to_mask_a_report_is_encoded_once() {
        let report = whole();
        let full = Encoded::new(&report);
        let mut copies = Copies::new(&report, full.clone());
        for _ in 0..2 {
            assert_eq!(copies.of(Addresses::Full), full);
            for addresses in [Addresses::Prefix, Addresses::None] {
                assert_eq!(copies.of(addresses), Encoded::new(&report.clone().masked(addresses)));
            }
        }
        assert_eq!(copies.encoded.len(), 3);
        let line = |copies: &mut Copies<'_>| copies.of(Addresses::Prefix).line.as_ptr();
        assert_eq!(line(&mut copies), line(&mut copies), "sinks share a copy");
        // A report that is masked for all sinks has one copy less.
        let masked = report.masked(Addresses::Prefix);
        let mut copies = Copies::new(&masked, Encoded::new(&masked));
        assert_eq!(copies.of(Addresses::Full), copies.of(Addresses::Prefix));
        assert_ne!(copies.of(Addresses::None), copies.of(Addresses::Prefix));
        assert_eq!(copies.encoded.len(), 2);
    }

    #[test]
    fn waiting_reports_are_masked_too_if_the_sink_may_see_less_now() {
        let kept = |addresses| Encoded::new(&whole().masked(addresses));
        for (kept_as, sent_as, expected) in [
            (Addresses::Full, Addresses::Full, Addresses::Full),
            (Addresses::Full, Addresses::Prefix, Addresses::Prefix),
            (Addresses::Full, Addresses::None, Addresses::None),
            (Addresses::Prefix, Addresses::Prefix, Addresses::Prefix),
            (Addresses::None, Addresses::Prefix, Addresses::None),
            (Addresses::Prefix, Addresses::Full, Addresses::Prefix),
        ] {
            assert_eq!(ensured(sent_as, kept(kept_as)), kept(expected), "{kept_as:?}, {sent_as:?}");
        }
        let sent = ensured(Addresses::None, kept(Addresses::Prefix));
        let text = String::from_utf8(sent.line.to_vec()).unwrap();
        assert!(text.contains("\"addresses\":\"none\"") && !text.contains("192.0.2"), "{text}");
    }

    /// A report of another version may have fields that this one does not know.
    #[test]
    fn nothing_goes_out_that_cannot_be_masked() {
        let text = String::from_utf8(Encoded::new(&whole()).line.to_vec()).unwrap();
        let with = |more: &str| text.replacen('{', &format!("{{{more},"), 1);
        let without = |name: &str| text.replacen(&format!("\"{name}\":"), "\"renamed\":", 1);
        for (line, is_read) in [
            (with("\"guests\":[{\"ip\":\"192.0.2.1\"}]"), true),
            (with("\"guests\":{\"addresses\":\"none\",\"ip\":\"192.0.2.1\"}"), true),
            (with("\"addresses\":\"some of them\""), true),
            (without("window"), false),
            (without("totals"), false),
            (format!("[{text}]"), false),
            ("\"192.0.2.1\"\n".to_owned(), false),
            ("192.0.2.1\n".to_owned(), false),
        ] {
            let waiting = Encoded { id: "a/b/1".to_owned(), line: line.clone().into_bytes().into() };
            let sent = ensured(Addresses::None, waiting);
            let text = String::from_utf8(sent.line.to_vec()).unwrap();
            assert!(!text.contains("192.0.2.1"), "an address is left of {line:.60}");
            assert_eq!(text != "{}\n", is_read, "{line:.60}");
        }
    }
}
