//! Answers for one key from a union of reports.

use std::net::IpAddr;

use serde_json::Value;
use weir_config::{Addresses, view::field::FieldRow};

use super::{
    Union,
    list::{Counted, Listed, Order},
    views::{listed, order},
};
use crate::{
    Row, Sums, Tally, Top, View, asked,
    lists::{FIELDS, List, ListRow},
    masking::MaskedValue as _,
};

/// A key of a list: the fields of its rows, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListKey {
    /// The view that has the list; `None` for the standard list with these fields.
    view: Option<String>,
    fields: Vec<(String, String)>,
}

/// The numbers of a key in a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeySums {
    /// The sums of the key; `None` if the list does not name it.
    pub sums: Option<Sums>,
    /// The most that the key can have had, listed or not.
    pub at_most: Tally,
    /// The probability that the bounds of the list hold, 0 to 1.
    pub confidence: f64,
}

/// The answer of a union for one list.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyAnswer {
    /// The numbers of a key, and the fingerprint of the question, if it is known.
    Asked(KeySums, Option<String>),
    /// The list is left out of this union, because its windows did not all ask the same.
    LeftOut,
    /// There is no such list.
    NoList,
}

impl ListKey {
    /// Reads a key such as `src_ip=192.0.2.7` or `proto=udp,port=53`, of the standard list with these fields or of a
    /// view.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(key: &str, view: Option<&str>) -> Result<Self, String> {
        let mut fields = Vec::new();
        for part in key.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not FIELD=VALUE"))?;
            // Names such as `src_ip/24` are not in the table: their values are written as in the rows.
            let shown = FieldRow::named(name).map_or_else(|| Ok(value.to_owned()), |row| row.as_shown(value));
            fields.push((name.to_owned(), shown.map_err(|why| format!("{name}: {value:?} {why}"))?));
        }
        let key = Self { view: view.map(str::to_owned), fields };
        let names: Vec<&str> = key.fields.iter().map(|(name, _)| name.as_str()).collect();
        let is_standard = FIELDS.iter().any(|(_, fields)| key.has(fields));
        if view.is_none() && !is_standard {
            return Err(format!("no list has rows by {}", names.join(", ")));
        }
        Ok(key)
    }

    /// Returns true if the standard lists may have this: an address, or the fields of a row.
    pub fn is_in_lists(key: &str) -> bool {
        key.parse::<IpAddr>().is_ok() || Self::parse(key, None).is_ok()
    }

    /// The key, unless it has more of an address than may be shown.
    ///
    /// # Errors
    ///
    /// It has more.
    pub fn if_shown(self, addresses: Addresses) -> Result<Self, String> {
        if self.masked(addresses) == self { Ok(self) } else { Err(addresses.refusal()) }
    }

    /// The key of the row that this key has in a masked list.
    fn masked(&self, addresses: Addresses) -> Self {
        let mut masked = self.clone();
        for (_, value) in &mut masked.fields {
            value.mask(addresses);
        }
        masked
    }

    /// Returns true if these are all of its fields.
    fn has(&self, names: &[&str]) -> bool {
        self.fields.len() == names.len() && names.iter().all(|name| self.get(name).is_some())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    fn is_list_row(&self, row: &ListRow<'_>) -> bool {
        row.key.fields().all(|(name, value)| self.is(name, &value))
    }

    fn is_row(&self, row: &Row) -> bool {
        let is_same = |(name, value): (&String, &Value)| match value {
            Value::String(text) => self.is(name, text),
            other => self.is(name, &other.to_string()),
        };
        row.key.len() == self.fields.len() && row.key.iter().all(is_same)
    }
}

impl Union {
    /// Looks a key up in the union. If its rows are masked, a key has at most what the row of its network has.
    pub fn of_key(&self, key: &ListKey) -> KeyAnswer {
        let masked = key.masked(self.shown_addresses());
        match self.of_row(&masked) {
            KeyAnswer::Asked(sums, question) if masked != *key => {
                KeyAnswer::Asked(KeySums { sums: None, ..sums }, question)
            }
            answer => answer,
        }
    }

    fn of_row(&self, key: &ListKey) -> KeyAnswer {
        let Some(name) = &key.view else {
            return self.in_tops(key).map_or(KeyAnswer::NoList, |sums| KeyAnswer::Asked(sums, None));
        };
        let view = self.views.iter().find(|of| of.name == *name);
        let sums = view.and_then(|view| {
            let order = Order { by_packets: order(view)?, is_masked: self.addresses.is_some() };
            Some((in_view(view, key, order)?, view))
        });
        match sums {
            Some((sums, view)) => {
                KeyAnswer::Asked(sums, asked(name, &view.by, view.question.as_deref()).map(str::to_owned))
            }
            None if self.changed.contains(name) => KeyAnswer::LeftOut,
            None => KeyAnswer::NoList,
        }
    }

    fn in_tops(&self, key: &ListKey) -> Option<KeySums> {
        let [by_bytes, by_packets] = [&self.top, &self.top_by_packets].map(|top| self.in_top(top, key));
        let (by_bytes, by_packets) = (by_bytes?, by_packets?);
        // The bounds of both hold. The rest of a list is known best in the unit that orders it.
        let at_most = Tally {
            packets: by_bytes.at_most.packets.min(by_packets.at_most.packets),
            bytes: by_bytes.at_most.bytes.min(by_packets.at_most.bytes),
        };
        let confidence = by_bytes.confidence.min(by_packets.confidence);
        Some(KeySums { sums: by_bytes.sums.or(by_packets.sums), at_most, confidence })
    }

    fn in_top(&self, top: &Top, key: &ListKey) -> Option<KeySums> {
        let (standard, _) = FIELDS.iter().find(|(_, fields)| key.has(fields))?;
        let List { unlisted, rows, .. } = top.list(*standard)?;
        let order = Order { by_packets: top.by == "packets", is_masked: self.addresses.is_some() };
        let list = Listed::of(&rows, self.most()).at_most(unlisted, order);
        Some(of_list(&list, top.confidence, |row| key.is_list_row(row)))
    }
}

fn in_view(view: &View, key: &ListKey, order: Order) -> Option<KeySums> {
    let list = listed(view.rows.as_ref()?, view.total.as_ref()?, view).at_most(view.unlisted, order);
    Some(of_list(&list, view.confidence, |row: &Row| key.is_row(row)))
}

fn of_list<E: Counted>(list: &Listed<'_, E>, confidence: f64, is_same: impl Fn(&E) -> bool) -> KeySums {
    let sums = list.rows.iter().find(|row| is_same(row)).and_then(|row| row.counts()).map(|counts| counts.sums());
    let at_most =
        sums.map_or(list.others, |Sums { packets, bytes }| Tally { packets: packets.upper, bytes: bytes.upper });
    KeySums { sums, at_most, confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_refused_with_the_wrong_part() {
        for (key, part) in [
            ("192.0.2.1", "\"192.0.2.1\" is not FIELD=VALUE"),
            ("src_ip=192.0.2.300", "src_ip: \"192.0.2.300\" is not an address"),
            ("src_ip=192.0.2.0/24", "src_ip: \"192.0.2.0/24\" is not an address"),
            ("src_ip=192.0.2.1,dst_ip=", "dst_ip: \"\" is not an address"),
            ("proto=udp,port=65536", "port: \"65536\" is not a valid port"),
            ("proto=udp,port=-1", "port: \"-1\" is not a valid port"),
            ("proto=udp,port=dns", "port: \"dns\" is not a valid port"),
            ("proto=tpc,port=53", "proto: \"tpc\" is not a valid protocol such as"),
            ("proto=256,port=0", "proto: \"256\" is not a valid protocol such as"),
            ("port=53", "no list has rows by port"),
            ("src_ip=192.0.2.1,src_ip=192.0.2.2", "no list has rows by src_ip, src_ip"),
        ] {
            let why = ListKey::parse(key, None).unwrap_err();
            assert!(why.contains(part), "{key}: {why}");
        }
        let of_view = |key: &str| ListKey::parse(key, Some("mine"));
        assert!(of_view("host=192.0.2.1/24").is_err() && of_view("dst_port=x").is_err());
        assert!(of_view("src_ip/24=192.0.2.0/24,dscp=46").is_ok(), "the view may have such rows");
    }

    #[test]
    fn a_key_may_be_written_in_any_of_the_usual_ways() {
        let parse = |key: &str| ListKey::parse(key, None).unwrap();
        for (one, other) in [
            ("src_ip=2001:DB8:0::7", "src_ip=2001:db8::7"),
            ("proto=UDP,port=053", "proto=17,port=53"),
            ("proto=253,port=0", "proto=0253,port=0"),
        ] {
            assert_eq!(parse(one), parse(other), "{one}");
        }
        let of_view = |key: &str| ListKey::parse(key, Some("mine")).unwrap();
        assert_eq!(of_view("dscp=EF"), of_view("dscp=46"));
    }
}
