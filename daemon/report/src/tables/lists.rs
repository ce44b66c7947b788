//! Top lists, by source and destination, and of prefixes.

use weir_config::names::services::service_name;
use weir_system::numbers::{bytes, count, percent};

use super::super::{
    Estimate, TopFlow, TopPrefix, Totals,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::Faint,
    },
};
use super::words::{address, endpoint, has_ports, in_column, measured, ratio, towards, with_name};

/// Maximum width of a list of flows or pairs, in columns. If it is wider, source and destination share one column.
const WIDTH_MAX: usize = 100;
/// How many rows of each list are shown; the JSON has all.
pub(super) const ROWS_MAX: usize = 10;

/// One line of a ranking.
pub(super) struct Entry {
    rank: u32,
    /// The key: one to three columns of text, the last of which may start with an arrow.
    pub(super) what: Vec<String>,
    packets: Estimate,
    bytes: Estimate,
}

impl Entry {
    pub(super) fn new<const N: usize>(rank: u32, what: [String; N], packets: Estimate, bytes: Estimate) -> Self {
        Self { rank, what: what.into(), packets, bytes }
    }
}

pub(super) fn flow_entry(flow: &TopFlow) -> Entry {
    let TopFlow { rank, src_ip, dst_ip, src_port, dst_port, proto, packets, bytes } = flow;
    let (proto, src, dst) = match proto.as_ref() {
        proto if has_ports(proto) && (*src_port, *dst_port) == (0, 0) => {
            (format!("{proto} without ports"), address(*src_ip), address(*dst_ip))
        }
        "icmp" | "icmpv6" => (format!("{proto} {src_port}/{dst_port}"), address(*src_ip), address(*dst_ip)),
        proto if has_ports(proto) => {
            // The lower port is that of the service. With the longest addresses there is no room for its name.
            let named = with_name(proto.to_owned(), service_name(Some(proto), *src_port.min(dst_port)));
            (named, endpoint(*src_ip, *src_port), endpoint(*dst_ip, *dst_port))
        }
        proto => (proto.to_owned(), address(*src_ip), address(*dst_ip)),
    };
    Entry::new(*rank, [proto, src, towards(&dst)], *packets, *bytes)
}

/// A ranking with one line per entry or, if that is too wide, with the last text column below the one before it.
pub(super) fn ranking(by: &str, entries: &[Entry], totals: &Totals, together: bool) -> Grid {
    let flat = grid_of(by, entries, totals, (together, false));
    let foldable = entries.first().is_some_and(|entry| entry.what.len() > 1);
    if foldable && flat.width() > WIDTH_MAX { grid_of(by, entries, totals, (together, true)) } else { flat }
}

pub(super) fn grid_of(by: &str, entries: &[Entry], totals: &Totals, (together, folded): (bool, bool)) -> Grid {
    let texts = entries.first().map_or(0, |entry| entry.what.len() - usize::from(folded));
    let columns = [Right].into_iter().chain(vec![Left; texts]).chain([Right; 4]);
    let mut grid = Grid::new(columns);
    let by_packets = by == "packets";
    if !entries.is_empty() {
        let captions = match (together, by_packets) {
            (false, true) => ["packets", "±", "share", "bytes"],
            (false, false) => ["bytes", "±", "share", "packets"],
            (true, true) => ["packets at least", "at most", "share", "bytes at least"],
            (true, false) => ["bytes at least", "at most", "share", "packets at least"],
        };
        let captions =
            captions.map(|caption| if caption == "share" { caption.to_owned() } else { format!("{caption}  ") });
        let blanks = vec![String::new(); 1 + texts];
        grid.row(blanks.into_iter().chain(captions).map(|caption| Cell::new(caption, Faint)));
    }
    for Entry { rank, what, packets, bytes } in entries.iter().take(ROWS_MAX) {
        let numbers = if together {
            let of = |estimate: &Estimate, show: &dyn Fn(u64) -> String| [show(estimate.lower), show(estimate.upper)];
            let (amount, bytes_of) = (in_column(count, ""), in_column(self::bytes, "B"));
            let ([least, most], share, other) = if by_packets {
                (of(packets, &amount), ratio(packets.lower, totals.packets), bytes_of(bytes.lower))
            } else {
                (of(bytes, &bytes_of), ratio(bytes.lower, totals.bytes), amount(packets.lower))
            };
            [least, most, percent(share), other]
        } else if by_packets {
            let [value, error] = measured(packets, in_column(count, ""));
            [value, error, percent(ratio(packets.value, totals.packets)), in_column(self::bytes, "B")(bytes.value)]
        } else {
            let [value, error] = measured(bytes, in_column(self::bytes, "B"));
            [value, error, percent(ratio(bytes.value, totals.bytes)), in_column(count, "")(packets.value)]
        };
        let [value, error, share, other] = numbers;
        let (texts, below) = what.split_at(texts);
        let texts = texts.iter().map(Cell::from);
        let numbers = [Cell::from(value), Cell::new(error, Faint), share.into(), other.into()];
        grid.row([Cell::new(rank.to_string(), Faint)].into_iter().chain(texts).chain(numbers));
        if let Some(below) = below.first() {
            let blanks = vec![Cell::default(); what.len() - 1];
            grid.row(blanks.into_iter().chain([Cell::from(below)]));
        }
    }
    if entries.len() > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", entries.len() - ROWS_MAX), Faint)]);
    }
    grid
}

/// A line for each network: its traffic beyond the listed members, the share of that, all its traffic, and its members.
pub(super) fn prefixes_grid(by: &str, prefixes: &[TopPrefix], totals: &Totals) -> Grid {
    let mut grid = Grid::new([Right, Left].into_iter().chain([Right; 5]));
    let by_packets = by == "packets";
    if !prefixes.is_empty() {
        let captions = ["", "", "beyond  ", "±  ", "share", "in all  ", "members listed"];
        grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    }
    for TopPrefix { rank, prefix, packets, bytes, beyond, members } in prefixes.iter().take(ROWS_MAX) {
        let (amount, beyond, all, total) = if by_packets {
            (in_column(count, ""), beyond.packets, packets, totals.packets)
        } else {
            (in_column(self::bytes, "B"), beyond.bytes, bytes, totals.bytes)
        };
        let [value, error] = measured(&beyond, &amount);
        let share = percent(ratio(beyond.value, total));
        grid.row([
            Cell::new(rank.to_string(), Faint),
            prefix.into(),
            value.into(),
            Cell::new(error, Faint),
            share.into(),
            amount(all.value).into(),
            members.to_string().into(),
        ]);
    }
    if prefixes.len() > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", prefixes.len() - ROWS_MAX), Faint)]);
    }
    grid
}
