//! Views over several windows.
//!
//! Only views that asked the same question in every window are added up; all others are named, so that a reader knows
//! why they are missing. A window in which an interface has no table counts, too: it may have had packets that were
//! lost, left out by sampling or uncertain, and their number bounds what it adds.

use serde_json::Value;
use weir_common::ledger::Loss;

use super::{
    Union, add, addresses, all_hold, hosts,
    list::{Listed, Order, together, unlisted},
};
use crate::{Estimate, Interface, Ledger, Row, Sums, Tally, View, ViewTable, asked};

/// The views of several windows.
pub(super) struct Views {
    /// Those that every window has, and that asked the same in each.
    pub(super) together: Vec<View>,
    /// The names of all others.
    pub(super) left_out: Vec<String>,
    /// Of these, those that did not ask the same in each window.
    pub(super) changed: Vec<String>,
}

impl Views {
    pub(super) fn of(parts: &[Union]) -> Self {
        let last = parts.last().map(|part| &part.views[..]).unwrap_or_default();
        let together: Vec<View> = last.iter().filter_map(|view| self::view(view, parts)).collect();
        let mut left_out: Vec<String> = Vec::new();
        for part in parts.iter().rev() {
            for name in part.views.iter().map(|view| &view.name).chain(&part.left_out) {
                if together.iter().all(|view| view.name != *name) && !left_out.contains(name) {
                    left_out.push(name.clone());
                }
            }
        }
        let has_changed = |name: &&String| {
            let mut views = parts.iter().flat_map(|part| &part.views).filter(|view| view.name == **name);
            let first = views.next().map(Asked::of);
            views.any(|view| Some(Asked::of(view)) != first) || parts.iter().any(|part| part.changed.contains(name))
        };
        let changed = left_out.iter().filter(has_changed).cloned().collect();
        Self { together, left_out, changed }
    }
}

/// The parts of a view that its question consists of.
#[derive(PartialEq)]
pub(super) struct Asked<'v> {
    by: &'v [String],
    measure: &'v Value,
    question: Option<&'v str>,
}

impl<'v> Asked<'v> {
    pub(super) fn of(View { name, by, measure, question, .. }: &'v View) -> Self {
        Self { by, measure, question: asked(name, by, question.as_deref()) }
    }
}

/// Returns true if the rows of a view are ordered by packets; `None` if its counts cannot be summed.
pub(super) fn order(view: &View) -> Option<bool> {
    match view.measure.as_str()? {
        "bytes" | "hosts" => Some(false),
        "packets" => Some(true),
        _ => None,
    }
}

/// Both addresses of a packet are hosts, so a packet counts for two keys.
fn counts_twice(view: &View) -> bool {
    view.by.iter().any(|field| field == "host" || field.starts_with("host/"))
}

/// A view over all windows; `None` if not every window has the same one, or if it cannot be summed.
fn view(last: &View, parts: &[Union]) -> Option<View> {
    let by_packets = order(last)?;
    let asked = Asked::of(last);
    let same = |view: &&View| view.name == last.name && Asked::of(view) == asked;
    let views: Vec<&View> = parts.iter().map(|part| part.views.iter().find(same)).collect::<Option<_>>()?;
    let of_order = Order { by_packets, is_masked: addresses(parts).is_some() };
    let (rows, unlisted) = match last.rows {
        Some(_) => {
            let windows = views.iter().map(|view| {
                let list = listed(view.rows.as_ref()?, view.total.as_ref()?, view);
                Some(list.at_most(view.unlisted, of_order))
            });
            let windows: Vec<_> = windows.collect::<Option<_>>()?;
            (Some(hosts::added_up(together(&windows, by_packets), &windows)), unlisted(&windows, of_order))
        }
        None => (None, None),
    };
    let tables = match last.tables {
        Some(_) => Some(tables(&views, parts, by_packets)?),
        None => None,
    };
    let totals = || views.iter().map(|view| view.total);
    Some(View {
        confidence: all_hold(views.iter().map(|view| view.confidence)),
        total: totals().try_fold(None, |sum, total| Some(Some(sums(sum, total?)))).flatten(),
        entropy: None,
        rows,
        unlisted,
        tables,
        ..last.clone()
    })
}

/// The rows of a view in a window, out of this total.
pub(super) fn listed<'r>(rows: &'r [Row], total: &Sums, view: &View) -> Listed<'r, Row> {
    let total = Tally { packets: total.packets.upper, bytes: total.bytes.upper };
    if counts_twice(view) { Listed { rows, others: total } } else { Listed::of(rows, total) }
}

fn sums(sum: Option<Sums>, more: Sums) -> Sums {
    let Some(sum) = sum else { return more };
    let add = |a: Estimate, b: Estimate| Estimate {
        value: a.value.saturating_add(b.value),
        lower: a.lower.saturating_add(b.lower),
        upper: a.upper.saturating_add(b.upper),
        sampled: None,
    };
    Sums { packets: add(sum.packets, more.packets), bytes: add(sum.bytes, more.bytes) }
}

/// The tables of each interface and direction.
fn tables(views: &[&View], parts: &[Union], by_packets: bool) -> Option<Vec<ViewTable>> {
    let mut all: Vec<ViewTable> = Vec::new();
    for table in views.iter().flat_map(|view| view.tables.iter().flatten()) {
        if !all.iter().any(|known| known.interface == table.interface && known.direction == table.direction) {
            all.push(ViewTable { rows: Vec::new(), total: None, ..table.clone() });
        }
    }
    for one in &mut all {
        let mut windows = Vec::new();
        let mut total = None;
        for (view, part) in views.iter().zip(parts) {
            let same = |table: &&ViewTable| table.interface == one.interface && table.direction == one.direction;
            match view.tables.iter().flatten().find(same) {
                Some(table) => {
                    windows.push(listed(&table.rows, table.total.as_ref()?, view));
                    total = Some(sums(total, table.total?));
                }
                // The window has no table, because no measured packet matched.
                None => {
                    let others = unmeasured(part, one);
                    total = Some(sums(total, at_most(others)));
                    windows.push(Listed { rows: &[], others });
                }
            }
        }
        one.rows = hosts::added_up(together(&windows, by_packets), &windows);
        one.total = total;
    }
    Some(all)
}

/// The most packets that were sampled out, lost or uncertain on a table's interface in a window. How many of them would
/// have matched is unknown.
pub(super) fn unmeasured(part: &Union, table: &ViewTable) -> Tally {
    let mut all = Tally::default();
    let is_same = |interface: &&Interface| interface.name == table.interface && interface.direction == table.direction;
    for ledger in part.interfaces.iter().filter(is_same).map(|of| &of.ledger) {
        let Ledger { sampled_out, lost, .. } = ledger;
        add(&mut all, ledger.beyond());
        for tally in std::iter::once(sampled_out).chain(lost.values()) {
            add(&mut all, *tally);
        }
        // The sizes of these packets are unknown. Assume that none exceeded the largest packet.
        let mut dropped = Tally::default();
        for reason in Loss::UNREAD {
            add(&mut dropped, lost.get(reason.name()).copied().unwrap_or_default());
        }
        let largest = dropped.packets.saturating_mul(part.largest_packet_bytes);
        all.bytes = all.bytes.saturating_add(largest.saturating_sub(dropped.bytes));
    }
    all
}

/// An unknown amount up to this bound.
fn at_most(most: Tally) -> Sums {
    let up_to = |upper| Estimate { value: 0, lower: 0, upper, sampled: None };
    Sums { packets: up_to(most.packets), bytes: up_to(most.bytes) }
}
