//! What a union says of one key.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    Union,
    list::{Entry, Listed},
    listed, order,
};
use crate::{Row, Sums, Tally, Top, TopDestination, TopFlow, TopPair, TopService, TopSource, View};

/// A key of a list: the fields of its rows, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListKey {
    /// The view whose list is meant; `None` for the standard list with these fields.
    view: Option<String>,
    fields: Vec<(String, String)>,
}

/// What a list says of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeySums {
    /// What the list has of it; `None` if it does not name the key.
    pub sums: Option<Sums>,
    /// The key had no more than this, listed or not.
    pub at_most: Tally,
    /// The probability that the bounds of the list hold, 0 to 1.
    pub confidence: f64,
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
            fields.push((name.to_owned(), value.to_owned()));
        }
        let key = Self { view: view.map(str::to_owned), fields };
        let names: Vec<&str> = key.fields.iter().map(|(name, _)| name.as_str()).collect();
        let is_standard = LISTS.iter().any(|list| key.has(list));
        if view.is_none() && !is_standard {
            return Err(format!("no list has rows by {}", names.join(", ")));
        }
        Ok(key)
    }

    /// Whether these are all of its fields.
    fn has(&self, names: &[&str]) -> bool {
        self.fields.len() == names.len() && names.iter().all(|name| self.get(name).is_some())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    fn is_ip(&self, name: &str, address: IpAddr) -> bool {
        self.get(name).and_then(|text| text.parse().ok()) == Some(address)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    fn is_number(&self, name: &str, number: u16) -> bool {
        self.get(name).and_then(|text| text.parse().ok()) == Some(number)
    }

    fn is_row(&self, row: &Row) -> bool {
        let is_same = |(name, value): (&String, &Value)| match value {
            Value::String(text) => self.is(name, text),
            other => self.is(name, &other.to_string()),
        };
        row.key.len() == self.fields.len() && row.key.iter().all(is_same)
    }
}

/// The fields of the standard lists.
const LISTS: [&[&str]; 5] = [SOURCES, DESTINATIONS, PAIRS, SERVICES, FLOWS];
const SOURCES: &[&str] = &["src_ip"];
const DESTINATIONS: &[&str] = &["dst_ip"];
const PAIRS: &[&str] = &["src_ip", "dst_ip"];
const SERVICES: &[&str] = &["proto", "port"];
const FLOWS: &[&str] = &["src_ip", "dst_ip", "src_port", "dst_port", "proto"];

impl Union {
    /// What it says of a key; `None` if it has no such list.
    pub fn of_key(&self, key: &ListKey) -> Option<KeySums> {
        let Some(view) = &key.view else {
            let [by_bytes, by_packets] = [&self.top, &self.top_by_packets].map(|top| self.in_top(top, key));
            // The bounds of both hold.
            return [by_bytes?, by_packets?].into_iter().find(|of| of.sums.is_some()).or(by_bytes);
        };
        let view = self.views.iter().find(|of| of.name == *view)?;
        order(view)?;
        in_view(view, key)
    }

    fn in_top(&self, top: &Top, key: &ListKey) -> Option<KeySums> {
        let total = Tally { packets: self.totals.packets, bytes: self.totals.bytes };
        let Top { confidence, flows, sources, destinations, pairs, services, .. } = top;
        let confidence = *confidence;
        Some(if key.has(SOURCES) {
            of_list(&Listed::of(sources, total), confidence, |row: &TopSource| key.is_ip("src_ip", row.src_ip))
        } else if key.has(DESTINATIONS) {
            of_list(&Listed::of(destinations, total), confidence, |row: &TopDestination| {
                key.is_ip("dst_ip", row.dst_ip)
            })
        } else if key.has(PAIRS) {
            let is_same = |row: &TopPair| key.is_ip("src_ip", row.src_ip) && key.is_ip("dst_ip", row.dst_ip);
            of_list(&Listed::of(pairs, total), confidence, is_same)
        } else if key.has(SERVICES) {
            let is_same = |row: &TopService| key.is("proto", &row.proto) && key.is_number("port", row.port);
            of_list(&Listed::of(services, total), confidence, is_same)
        } else if key.has(FLOWS) {
            let is_same = |row: &TopFlow| {
                key.is_ip("src_ip", row.src_ip)
                    && key.is_ip("dst_ip", row.dst_ip)
                    && key.is_number("src_port", row.src_port)
                    && key.is_number("dst_port", row.dst_port)
                    && key.is("proto", &row.proto)
            };
            of_list(&Listed::of(flows, total), confidence, is_same)
        } else {
            return None;
        })
    }
}

fn in_view(view: &View, key: &ListKey) -> Option<KeySums> {
    let counts_twice = view.by.iter().any(|field| field == "host" || field.starts_with("host/"));
    let list = listed(view.rows.as_ref()?, view.total.as_ref()?, counts_twice);
    Some(of_list(&list, view.confidence, |row: &Row| key.is_row(row)))
}

fn of_list<E: Entry>(list: &Listed<'_, E>, confidence: f64, is_same: impl Fn(&E) -> bool) -> KeySums {
    let sums = list.rows.iter().find(|row| is_same(row)).and_then(|row| row.counts()).map(|counts| counts.sums());
    let at_most =
        sums.map_or(list.others, |Sums { packets, bytes }| Tally { packets: packets.upper, bytes: bytes.upper });
    KeySums { sums, at_most, confidence }
}
