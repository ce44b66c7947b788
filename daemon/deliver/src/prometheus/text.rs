//! The text of a scrape.
//!
//! No crate: `prometheus-client` writes only `OpenMetrics`, and the older text format names counters differently.
//! Prometheus asks for `OpenMetrics`; `promtool check metrics`, curl and older agents get the older format.

use std::{collections::HashSet, fmt::Write as _};

use weir_schema::series::{
    Kind,
    point::{Label, Scalar},
};
use weir_system::text::escape_lines;

/// The format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Plain,
}

impl Format {
    /// The format for a client, according to its header `Accept`.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.split(',').any(is_openmetrics) { Self::OpenMetrics } else { Self::Plain }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

fn is_openmetrics(part: &str) -> bool {
    part.split(';').next().unwrap_or_default().trim() == "application/openmetrics-text"
}

/// A text that is being built.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    format: Format,
}

impl Page {
    pub(super) const fn new(format: Format) -> Self {
        Self { text: String::new(), format }
    }

    /// Writes a family, unless it has no numbers. Its name ends with its unit, where it has one; the suffix of a
    /// counter (`_total`) or of an info (`_info`) is added. Each number comes with its [`written`] labels. If several
    /// numbers have the same labels, only the first is written.
    pub(super) fn family<N: Into<Scalar>>(
        &mut self,
        name: &str,
        kind: Kind,
        unit: &str,
        help: &str,
        numbers: impl IntoIterator<Item = (String, N)>,
    ) {
        debug_assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name} does not end with {unit}");
        let (suffix, open_type, plain_type) = match kind {
            Kind::Sum | Kind::SinceStart => ("_total", "counter", "counter"),
            Kind::Gauge => ("", "gauge", "gauge"),
            Kind::Info => ("_info", "info", "gauge"),
        };
        let mut known = HashSet::new();
        for (labels, number) in numbers {
            if known.contains(&labels) {
                continue;
            }
            if known.is_empty() {
                let is_open = self.format == Format::OpenMetrics;
                self.head(name, suffix, if is_open { open_type } else { plain_type }, unit, help);
            }
            self.text.push_str(name);
            self.text.push_str(suffix);
            if !labels.is_empty() {
                let _ = write!(self.text, "{{{labels}}}");
            }
            // Writing to memory cannot fail.
            let _ = match number.into() {
                Scalar::Whole(number) => writeln!(self.text, " {number}"),
                Scalar::Real(number) if number == f64::INFINITY => writeln!(self.text, " +Inf"),
                Scalar::Real(number) if number == f64::NEG_INFINITY => writeln!(self.text, " -Inf"),
                Scalar::Real(number) => writeln!(self.text, " {number}"),
            };
            known.insert(labels);
        }
    }

    fn head(&mut self, name: &str, suffix: &str, kind: &str, unit: &str, help: &str) {
        let _ = match self.format {
            Format::OpenMetrics if unit.is_empty() => {
                write!(self.text, "# TYPE {name} {kind}\n# HELP {name} {help}\n")
            }
            Format::OpenMetrics => {
                write!(self.text, "# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}\n")
            }
            Format::Plain => write!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"),
        };
    }

    /// Ends the page and returns its text.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Formats labels, without braces. If two have the same name, only the first is written.
pub(super) fn written(labels: &[(&str, Label<'_>)]) -> String {
    let mut names = HashSet::new();
    let mut text = String::new();
    for (name, value) in labels {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if names.contains(&name) {
            continue;
        }
        text.push_str(if names.is_empty() { "" } else { "," });
        text.push_str(&name);
        text.push_str("=\"");
        // The name of an interface may have control characters.
        for character in escape_lines(&value.text()).chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
        names.insert(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use weir_system::text::is_obeyed;

    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        let odd = written(&[("name", "a\\b\"c\nd".into()), ("dst-ip", "192.0.2.1".into()), ("name", "again".into())]);
        page.family("weir_seen_packets", Kind::Sum, "packets", "Packets.", [(odd, 7_u64)]);
        page.family("weir", Kind::Info, "", "Who.", [(written(&[("version", "1".into())]), 1_u64)]);
        let twice = [(String::new(), 0.25), (String::new(), 9.0), (written(&[("x", "".into())]), f64::INFINITY)];
        page.family("weir_hit_ratio", Kind::Gauge, "ratio", "A share.", twice);
        page.family::<u64>("weir_nothing", Kind::Gauge, "", "Nothing.", []);
        page.finish()
    }

    #[test]
    fn open_metrics_names_families_without_what_ends_their_numbers() {
        assert_eq!(
            page(Format::OpenMetrics),
            r#"# TYPE weir_seen_packets counter
# UNIT weir_seen_packets packets
# HELP weir_seen_packets Packets.
weir_seen_packets_total{name="a\\b\"c\nd",dst_ip="192.0.2.1"} 7
# TYPE weir info
# HELP weir Who.
weir_info{version="1"} 1
# TYPE weir_hit_ratio gauge
# UNIT weir_hit_ratio ratio
# HELP weir_hit_ratio A share.
weir_hit_ratio 0.25
weir_hit_ratio{x=""} +Inf
# EOF
"#
        );
    }

    #[test]
    fn a_terminal_obeys_no_name() {
        let mut page = Page::new(Format::Plain);
        let name = written(&[("interface", "eth0\u{1b}]0;owned\u{7}\u{202e}\r".into())]);
        page.family("weir_seen_packets", Kind::Sum, "packets", "Packets.", [(name, 7_u64)]);
        let text = page.finish();
        assert!(text.contains("{interface=\"eth0\\\\u{1b}]0;owned\\\\u{7}\\\\u{202e}\\\\r\"} 7"), "{text}");
        assert!(!text.contains(|c| is_obeyed(c) && c != '\n'), "{text:?}");
    }

    #[test]
    fn the_older_format_names_families_as_their_numbers() {
        assert_eq!(
            page(Format::Plain),
            r#"# HELP weir_seen_packets_total Packets.
# TYPE weir_seen_packets_total counter
weir_seen_packets_total{name="a\\b\"c\nd",dst_ip="192.0.2.1"} 7
# HELP weir_info Who.
# TYPE weir_info gauge
weir_info{version="1"} 1
# HELP weir_hit_ratio A share.
# TYPE weir_hit_ratio gauge
weir_hit_ratio 0.25
weir_hit_ratio{x=""} +Inf
"#
        );
    }

    #[test]
    fn a_client_gets_what_it_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for plain in ["", "*/*", "text/plain", "application/openmetrics-textual"] {
            assert_eq!(Format::accepted(plain), Format::Plain, "{plain}");
        }
    }
}
