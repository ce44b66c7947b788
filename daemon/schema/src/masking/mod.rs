//! How much of each address a reader may see. Addresses are masked in the types of a report, before it is encoded, so
//! that the compiler knows which values are addresses: a field that is added to a report has to be named here.
//!
//! Rows whose keys have become equal are united, and the bounds of masked keys are widened: see [`rows`].

mod rows;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, net::IpAddr};

use serde_json::Value;
use weir_config::{Addresses, view::Field};

use self::rows::MaskedRows;
use crate::{
    Alert, Bounds, Estimate, Interface, Live, NewHost, Report, Row, Sketches, Spread, Sums, Top, TopPrefix, Totals,
    View, ViewTable, standard_lists,
};

impl Report {
    /// The report with its addresses masked at least like this. A report that shows less stays as it is.
    #[must_use]
    pub fn masked(mut self, addresses: Addresses) -> Self {
        // A way to mask that this version does not know may leave more of them.
        let stated = self.addresses.as_deref().and_then(Addresses::from_name).unwrap_or(Addresses::Full);
        if addresses <= stated {
            return self;
        }
        let Self {
            addresses: stated,
            alerts,
            interfaces,
            totals,
            top,
            top_by_packets,
            spread,
            views,
            answers,
            sketches,
            sample,
            new_hosts,
            // None of these has an address of the traffic.
            schema: _,
            id: _,
            previous: _,
            key_id: _,
            window: _,
            observer: _,
            unique: _,
            new_flows: _,
            horizons: _,
            usage: _,
            rates: _,
            histograms: _,
            self_metrics: _,
        } = &mut self;
        *stated = Some(addresses.name().to_owned());
        let mask = Mask { addresses, most: most(totals, interfaces) };
        for Alert { evidence, .. } in alerts {
            MaskedRows::of(evidence, addresses, None);
        }
        for top in [top, top_by_packets] {
            mask.top(top);
        }
        mask.spread(spread);
        for view in views {
            mask.view(view);
        }
        MaskedRows::of(answers, addresses, None);
        if let Some(sketches) = sketches {
            mask_sketches(sketches);
        }
        if let Some(sample) = sample {
            sample.mask(addresses);
        }
        if let Some(new) = new_hosts {
            mask_hosts(&mut new.hosts, addresses);
        }
        self
    }
}

impl Live {
    /// The lists of the open window with their addresses masked at least like this.
    #[must_use]
    pub fn masked(mut self, addresses: Addresses) -> Self {
        let Self {
            addresses: stated,
            totals,
            top,
            top_by_packets,
            views,
            // None of these has an address of the traffic.
            schema: _,
            time: _,
            window: _,
            unique: _,
            new_flows: _,
            not_yet: _,
        } = &mut self;
        if addresses == Addresses::Full {
            return self;
        }
        *stated = Some(addresses.name().to_owned());
        let mask = Mask { addresses, most: most(totals, &[]) };
        for top in [top, top_by_packets] {
            mask.top(top);
        }
        for view in views {
            mask.view(view);
        }
        self
    }
}

/// The most packets and bytes that a report or an open window can have: its totals, and what may have passed unseen.
fn most(totals: &Totals, interfaces: &[Interface]) -> [u64; 2] {
    let unseen = interfaces.iter().filter_map(|interface| interface.ledger.uncertain);
    unseen.fold([totals.packets, totals.bytes], |[packets, bytes], unseen| {
        let room = |bounds: Bounds| bounds.upper.saturating_sub(bounds.lower);
        [packets.saturating_add(room(unseen.packets)), bytes.saturating_add(room(unseen.bytes))]
    })
}

/// Masks the lists of one report.
#[derive(Clone, Copy)]
struct Mask {
    addresses: Addresses,
    /// The most packets and bytes that anything in the report can have.
    most: [u64; 2],
}

impl Mask {
    fn top(self, top: &mut Top) {
        let Self { addresses, most } = self;
        let by_packets = top.by == "packets";
        macro_rules! mask_lists {
            ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {$(
                let order: fn(&_) -> u64 = if by_packets {
                    |row: &crate::$row| row.packets.value
                } else {
                    |row: &crate::$row| row.bytes.value
                };
                let is_complete = top.unlisted.$rows == Some(0);
                let mut masked = MaskedRows::of(&mut top.$rows, addresses, Some(order));
                masked.bound(most, is_complete);
                if !is_complete {
                    masked.bound_counts(most[0]);
                }
            )*};
        }
        standard_lists!(mask_lists);
        let order: fn(&TopPrefix) -> u64 =
            if by_packets { |row| row.beyond.packets.value } else { |row| row.beyond.bytes.value };
        for rows in [&mut top.source_prefixes, &mut top.destination_prefixes] {
            MaskedRows::of(rows, addresses, Some(order)).bound(most, false);
        }
    }

    fn spread(self, spread: &mut Spread) {
        let Spread { confidence: _, sources_per_destination, destinations_per_source, ports_per_source } = spread;
        for rows in [sources_per_destination, destinations_per_source, ports_per_source] {
            self.rows(rows, |row| value(row.distinct), None);
        }
    }

    fn view(self, view: &mut View) {
        let order: fn(&Row) -> u64 = match view.measure.as_str() {
            Some("bytes" | "hosts") => |row| value(row.bytes),
            Some("packets") => |row| value(row.packets),
            Some("flows") => |row| value(row.flows),
            Some("new_flows") => |row| value(row.new_flows),
            _ => |row| value(row.distinct),
        };
        if let Some(rows) = &mut view.rows {
            self.rows(rows, order, view.total.as_ref().map(|total| (total, view.unlisted == Some(0))));
        }
        for ViewTable { total, rows, .. } in view.tables.iter_mut().flatten() {
            self.rows(rows, order, total.as_ref().map(|total| (total, false)));
        }
    }

    /// Masks rows of a table with this total, if it has one, and says whether the rows are all that it has.
    fn rows(self, rows: &mut Vec<Row>, order: fn(&Row) -> u64, total: Option<(&Sums, bool)>) {
        let Self { addresses, most: [packets, _] } = self;
        let mut masked = MaskedRows::of(rows, addresses, Some(order));
        if let Some((Sums { packets, bytes }, is_complete)) = total {
            masked.bound([packets.upper, bytes.upper], is_complete);
        }
        // Each distinct value and each flow has a packet.
        masked.bound_counts(packets);
    }
}

fn value(estimate: Option<Estimate>) -> u64 {
    estimate.map_or(0, |estimate| estimate.value)
}

/// Masks addresses of hosts. Those that have become equal are listed once.
fn mask_hosts(hosts: &mut Vec<NewHost>, addresses: Addresses) {
    let mut masked: Vec<NewHost> = Vec::with_capacity(hosts.len());
    for NewHost { src_ip } in hosts.drain(..) {
        let host = NewHost { src_ip: addresses.masked(src_ip) };
        if !masked.contains(&host) {
            masked.push(host);
        }
    }
    *hosts = masked;
}

/// Removes the sketches that contain addresses. The registers of distinct counts contain none.
fn mask_sketches(sketches: &mut Sketches) {
    let Sketches { start: _, end: _, windows: _, distinct: _, lists, spread } = sketches;
    spread.clear();
    // A field that this version does not know may be an address.
    let is_address = |name: &String| !matches!(Field::parse(name), Ok(field) if !matches!(field, Field::Ip(..)));
    lists.retain(|list| !list.by.iter().any(is_address));
}

/// A value that may be an address.
pub trait MaskedValue {
    /// Masks it. Returns whether it stands for more addresses than before.
    fn mask(&mut self, addresses: Addresses) -> bool;
}

impl MaskedValue for IpAddr {
    fn mask(&mut self, addresses: Addresses) -> bool {
        *self = addresses.masked(*self);
        true
    }
}

/// The number of a port.
impl MaskedValue for u16 {
    fn mask(&mut self, _: Addresses) -> bool {
        false
    }
}

/// The name of a protocol.
impl MaskedValue for Cow<'static, str> {
    fn mask(&mut self, _: Addresses) -> bool {
        false
    }
}

/// An address or a network as text. The keys of views are open: every text that reads as an address is masked, also in
/// a field that this version does not know.
impl MaskedValue for String {
    fn mask(&mut self, addresses: Addresses) -> bool {
        let Some((address, length)) = address_in(self) else { return false };
        let bits = addresses.bits(address);
        let shown = addresses.masked(address);
        *self = length.map_or_else(|| shown.to_string(), |length| format!("{shown}/{}", length.min(bits)));
        length.is_none_or(|length| bits < length)
    }
}

impl MaskedValue for Value {
    fn mask(&mut self, addresses: Addresses) -> bool {
        // All values are masked: `any` would stop at the first one that is.
        match self {
            Self::String(text) => text.mask(addresses),
            Self::Array(values) => values.iter_mut().fold(false, |is_cut, value| value.mask(addresses) | is_cut),
            Self::Object(fields) => fields.values_mut().fold(false, |is_cut, value| value.mask(addresses) | is_cut),
            Self::Null | Self::Bool(_) | Self::Number(_) => false,
        }
    }
}

/// The address in a text, and the length of its prefix if it is one.
fn address_in(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let length = length.map(str::parse).transpose().ok()?;
    Some((address.parse().ok()?, length))
}
