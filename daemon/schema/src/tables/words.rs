//! Formats numbers, addresses and names for tables.

use std::{collections::BTreeMap, net::IpAddr};

use weir_config::names::services::service_name;
use weir_system::{
    numbers::{grouped, percent},
    text::escaped,
};

use super::super::{Bits, Entropy, Estimate, Interface};

/// The maximum length of an interface's alias, in characters.
pub(super) const ALIAS_MAX: usize = 30;

/// How evenly a view's measure is distributed over its keys.
pub(super) fn entropy_text(entropy: &Entropy) -> String {
    let Entropy { bits: Bits { value, lower, upper }, normalized, keys, confidence } = *entropy;
    let sure = if confidence < 1.0 { format!(" at {}", confidence_text(confidence)) } else { String::new() };
    let keys = in_words(&keys);
    format!(
        "entropy {value:.3} bits ({lower:.3} – {upper:.3}{sure}), {} of the maximum for {keys}",
        percent(normalized)
    )
}

pub(super) fn in_words(keys: &Estimate) -> String {
    format!("{} {}", grouped(keys.value), if keys.value == 1 { "key" } else { "keys" })
}

/// A confidence with only the digits it needs, down to a hundredth of a percent.
pub(super) fn confidence_text(confidence: f64) -> String {
    format!("{} confidence", in_percent(confidence))
}

/// A share with only the digits it needs, down to a hundredth of a percent.
pub(super) fn in_percent(share: f64) -> String {
    format!("{} %", (share * 10_000.0).round() / 100.0)
}

/// An estimate and its maximum error, both for a column.
pub(super) fn measured(estimate: &Estimate, text: impl Fn(u64) -> String) -> [String; 2] {
    let Estimate { value, lower, upper, sampled: _ } = *estimate;
    let error = match off(value, lower, upper) {
        0 => "exact  ".to_owned(),
        off => text(off),
    };
    [text(value), error]
}

/// Aligns the numbers of a flush-right column: a space replaces a missing prefix.
pub(super) fn in_column(text: fn(u64) -> String, unit: &str) -> impl Fn(u64) -> String + use<> {
    let blanks = if unit.is_empty() { "  " } else { " " };
    move |value| if value < 1000 { text(value) + blanks } else { text(value) }
}

pub(super) fn address(ip: IpAddr) -> String {
    ip.to_string()
}

pub(super) fn endpoint(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

pub(super) fn towards(destination: &str) -> String {
    format!("→ {destination}")
}

pub(super) fn service(proto: &str, port: u16) -> String {
    match proto {
        proto if has_ports(proto) => with_name(format!("{proto}/{port}"), service_name(Some(proto), port)),
        proto => proto.to_owned(),
    }
}

/// A number with its common name.
pub(super) fn with_name(number: String, name: Option<impl AsRef<str>>) -> String {
    match name {
        Some(name) => format!("{number} ({})", name.as_ref()),
        None => number,
    }
}

/// The operator's alias of each interface.
#[derive(Default)]
pub(super) struct Aliases<'r>(BTreeMap<&'r str, &'r str>);

pub(super) fn aliases(interfaces: &[Interface]) -> Aliases<'_> {
    Aliases(interfaces.iter().filter_map(|one| Some((one.name.as_str(), one.alias.as_deref()?))).collect())
}

impl Aliases<'_> {
    /// An interface's name, with its alias if it has one.
    pub(super) fn show(&self, name: &str) -> String {
        with_name(name.to_owned(), self.0.get(name).map(|alias| shortened(alias, ALIAS_MAX)))
    }
}

pub(super) fn has_ports(proto: &str) -> bool {
    matches!(proto, "tcp" | "udp" | "sctp" | "dccp" | "udplite")
}

/// The beginning of a text as it is shown: escaped, with at most `max` characters.
pub(super) fn shortened(text: &str, max: usize) -> String {
    let text = escaped(text);
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The maximum error of an estimate, on the side where it is larger.
pub(super) const fn off(value: u64, lower: u64, upper: u64) -> u64 {
    let (below, above) = (value.saturating_sub(lower), upper.saturating_sub(value));
    if below > above { below } else { above }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
