//! Replaces identifying information by stand-ins, so that a file can be shared: addresses, prefixes, MAC addresses,
//! URLs, and given names. The same item has the same stand-in everywhere.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
};

use serde_json::{Map, Value};

/// The longest text of an address: an IPv6 address that ends with an IPv4 address.
const ADDRESS_MAX: usize = 45;
/// The length of the shortest address: `::`.
const ADDRESS_MIN: usize = 2;
/// systemd forms interface names from these and the MAC address, without colons.
const NAMED_BY_MAC: [&str; 3] = ["enx", "wlx", "wwx"];
const MAC_BYTES: usize = 6;

/// Items and their stand-ins.
#[derive(Debug, Default)]
pub struct StandIns {
    /// Names, their ASCII letters in lower case, each with its stand-in; the longest first.
    names: Vec<(String, String)>,
    /// The number of each item, by kind and item.
    known: HashMap<(&'static str, String), usize>,
    /// How many items each kind has.
    counts: HashMap<&'static str, usize>,
}

impl StandIns {
    /// Replaces a name wherever it appears as a word. The first call for a name decides its kind.
    pub fn add(&mut self, kind: &'static str, name: &str) {
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || self.names.iter().any(|(known, _)| *known == name) {
            return;
        }
        let stand_in = self.of(kind, name.clone());
        self.names.push((name, stand_in));
        self.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    fn of(&mut self, kind: &'static str, thing: String) -> String {
        let Self { known, counts, .. } = self;
        let number = *known.entry((kind, thing)).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            *count
        });
        format!("{kind}-{number}")
    }

    /// Replaces identifying information in a text.
    pub fn text(&mut self, text: &str) -> String {
        let text = self.replace_names(text);
        let text = self.replace_urls(&text);
        self.replace_addresses(&text)
    }

    /// Replaces identifying information in JSON, including names of fields.
    pub fn json(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(all) => Value::Array(all.iter().map(|one| self.json(one)).collect()),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| match (name.as_str(), value) {
                    ("alias", Value::String(alias)) => (name.clone(), self.of("alias", alias.clone()).into()),
                    ("vrf", Value::String(vrf)) => (name.clone(), self.of("vrf", vrf.clone()).into()),
                    _ => (self.text(name), self.json(value)),
                };
                Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn replace_names(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, stand_in) in &self.names {
            let mut rest = std::mem::take(&mut out);
            // Only ASCII letters are lower-cased, here and in the names. Other letters may change their length, and
            // then positions would not match. So a name whose other letters differ in case is not found.
            while let Some(at) = rest.to_ascii_lowercase().find(name.as_str()) {
                let end = at + name.len();
                if is_part_of_word(rest[..at].chars().next_back()) || is_part_of_word(rest[end..].chars().next()) {
                    let next = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                    out += &rest[..next];
                    rest.drain(..next);
                } else {
                    out += &rest[..at];
                    out += stand_in;
                    rest.drain(..end);
                }
            }
            out += &rest;
        }
        out
    }

    /// Only the scheme of a URL is kept: its path may be a secret.
    fn replace_urls(&mut self, text: &str) -> String {
        const BETWEEN: &str = "://";
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(BETWEEN) {
            let end = after.find(|c: char| c.is_whitespace() || "\"'".contains(c)).unwrap_or(after.len());
            let _ = write!(out, "{before}{BETWEEN}{}", self.of("url", after[..end].to_owned()));
            rest = &after[end..];
        }
        out + rest
    }

    fn replace_addresses(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let named = NAMED_BY_MAC.iter().find_map(|prefix| {
                let digits = rest.strip_prefix(prefix)?.get(..2 * MAC_BYTES)?;
                Some((prefix, mac_of(digits)?))
            });
            if let Some((prefix, mac)) = named {
                let _ = write!(out, "{prefix}{}", self.of("mac", mac));
                rest = &rest[prefix.len() + 2 * MAC_BYTES..];
            } else if let Some((length, kind, thing)) = address(rest) {
                out += &self.of(kind, thing);
                rest = &rest[length..];
            } else {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        out
    }
}

fn is_part_of_word(neighbour: Option<char>) -> bool {
    neighbour.is_some_and(char::is_alphanumeric)
}

/// The address at the beginning of a text, if any: its length, its kind, and the address.
fn address(text: &str) -> Option<(usize, &'static str, String)> {
    let may_be = |byte: &u8| byte.is_ascii_hexdigit() || b":.-".contains(byte);
    let length = text.bytes().take(ADDRESS_MAX).take_while(|byte| may_be(byte)).count();
    // The longest match wins, because a prefix of an address can be an address, too.
    (ADDRESS_MIN..=length).rev().find_map(|length| {
        let candidate = &text[..length];
        if let Ok(v4) = candidate.parse::<Ipv4Addr>() {
            return Some((length, "v4", v4.to_string()));
        }
        if let Ok(v6) = candidate.parse::<Ipv6Addr>() {
            return Some((length, "v6", v6.to_string()));
        }
        let separator = candidate.chars().nth(2).filter(|separator| ":-".contains(*separator))?;
        let parts: Vec<_> = candidate.split(separator).collect();
        let is_mac = parts.len() == MAC_BYTES && parts.iter().all(|part| part.len() == 2);
        Some((length, "mac", mac_of(&parts.concat()).filter(|_| is_mac)?))
    })
}

/// Twelve digits, as one text for each MAC address.
fn mac_of(digits: &str) -> Option<String> {
    let is_mac = digits.len() == 2 * MAC_BYTES && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_mac.then(|| digits.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_address_has_its_stand_in() {
        let mut stand_ins = StandIns::default();
        for (text, expected) in [
            ("from 192.0.2.7 to 192.0.2.8.", "from v4-1 to v4-2."),
            ("192.0.2.7:443", "v4-1:443"),
            ("192.0.2.0/24 and 2001:db8::/32", "v4-3/24 and v6-1/32"),
            ("[2001:db8::7]:443 via 2001:db8::7", "[v6-2]:443 via v6-2"),
            ("2001:0DB8:0:0:0:0:0:7", "v6-2"),
            ("::ffff:192.0.2.7", "v6-3"),
            ("net_10.1.2.3", "net_v4-4"),
            ("52:54:00:12:34:56 52-54-00-12-34-56 enx525400123456", "mac-1 mac-1 enxmac-1"),
            ("2026-11-23T05:28:20.123456Z 6.18.44-1 weir 0.1.0", "2026-11-23T05:28:20.123456Z 6.18.44-1 weir 0.1.0"),
            ("Zürich eth0 fd00-beef 00:11:22", "Zürich eth0 fd00-beef 00:11:22"),
        ] {
            assert_eq!(stand_ins.text(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_replaced_where_they_are_words() {
        let mut stand_ins = StandIns::default();
        stand_ins.add("host", "Edge");
        stand_ins.add("host", "edge.fra.example.net");
        stand_ins.add("site", "fra1");
        stand_ins.add("network", "");
        stand_ins.add("site", "edge");
        stand_ins.add("site", "ÉVRY");
        assert_eq!(
            stand_ins.text("EDGE knows edge.fra.example.net at fra1, not acknowledged-edged"),
            "host-1 knows host-2 at site-1, not acknowledged-edged"
        );
        assert_eq!(stand_ins.text("from ÉVRY to Évry"), "from site-2 to site-2");
    }

    #[test]
    fn only_the_scheme_of_a_url_is_kept() {
        let mut stand_ins = StandIns::default();
        let text = "url: https://hooks.example/T0/secret?x=1,2 or 'http://[2001:db8::1]:80/'.";
        assert_eq!(stand_ins.text(text), "url: https://url-1 or 'http://url-2'.");
    }

    #[test]
    fn values_and_field_names_of_json_are_replaced() {
        let mut stand_ins = StandIns::default();
        let value = json!({"192.0.2.7": [1, "2001:db8::7"], "alias": "customer 7", "more": {"alias": "customer 7"}});
        let expected = json!({"v4-1": [1, "v6-1"], "alias": "alias-1", "more": {"alias": "alias-1"}});
        assert_eq!(stand_ins.json(&value), expected);
    }
}
