//! The top lists, including the lists of prefixes.

use std::net::IpAddr;

use weir_config::{names::services::service_name, view::Standard};
use weir_system::numbers::{bit_rate, bytes, count, packet_rate, percent};

use super::super::{
    Estimate, HostNumbers, Length, Sums, Top, TopPrefix, Totals,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::Faint,
    },
    lists::{Key, ListRow},
};
use super::words::{address, endpoint, has_ports, in_column, measured, ratio, service, towards, with_name};

/// How many rows of each list are shown; the JSON has all.
pub(super) const ROWS_MAX: usize = 10;
/// The indent of a key's part that is in a separate line.
const BELOW: &str = "    ";

/// One line of a ranking.
pub(super) struct Entry {
    rank: u32,
    /// The key: one to three columns of text, the last of which may start with an arrow.
    pub(super) what: Vec<String>,
    pub(super) packets: Estimate,
    pub(super) bytes: Estimate,
    host: Option<HostNumbers>,
}

/// How many columns of numbers come up to the share of all, the last that is never left out.
const AFTER_SHARE: usize = 3;

/// The lists of addresses, flows and services in one order.
pub(super) fn lists(top: &Top) -> impl Iterator<Item = (Standard, Vec<Entry>)> {
    let lists = top.lists().into_iter().filter(|list| list.list.of_addresses().is_none());
    lists.map(|list| (list.list, list.rows.iter().map(entry).collect()))
}

/// The line of a row.
fn entry(row: &ListRow<'_>) -> Entry {
    let ListRow { rank, key, sums: Sums { packets, bytes }, beyond: _, host } = *row;
    Entry { rank, what: what(key), packets, bytes, host }
}

/// The texts of a key.
pub(super) fn what(key: Key<'_>) -> Vec<String> {
    match key {
        Key {
            src_ip: Some(src),
            dst_ip: Some(dst),
            src_port: Some(from),
            dst_port: Some(to),
            proto: Some(proto),
            ..
        } => flow(proto, (src, from), (dst, to)).into(),
        Key { src_ip: Some(src), dst_ip: Some(dst), .. } => vec![address(src), towards(&address(dst))],
        Key { proto: Some(proto), port: Some(port), .. } => vec![service(proto, port)],
        other => other.fields().map(|(_, value)| value).collect(),
    }
}

fn flow(proto: &str, (src, from): (IpAddr, u16), (dst, to): (IpAddr, u16)) -> [String; 3] {
    let (proto, src, dst) = match proto {
        proto if has_ports(proto) && (from, to) == (0, 0) => {
            (format!("{proto} without ports"), address(src), address(dst))
        }
        "icmp" | "icmpv6" => (format!("{proto} {from}/{to}"), address(src), address(dst)),
        proto if has_ports(proto) => {
            // The lower port belongs to the service. With the longest addresses there is no room for its name.
            let named = with_name(proto.to_owned(), service_name(Some(proto), from.min(to)));
            (named, endpoint(src, from), endpoint(dst, to))
        }
        proto => (proto.to_owned(), address(src), address(dst)),
    };
    [proto, src, towards(&dst)]
}

/// The caption of a share of all packets or bytes, whichever order the list.
const OF_ALL: &str = "of all";

/// The context of a list's entries.
#[derive(Clone, Copy)]
pub(super) struct Ranking<'a> {
    /// The order: `bytes` or `packets`.
    pub(super) by: &'a str,
    pub(super) totals: &'a Totals,
    /// The length of the window.
    pub(super) seconds: Length,
    /// True if the list is about several windows, for which only bounds are known.
    pub(super) together: bool,
}

impl Ranking<'_> {
    /// A line for each entry in this width. If that does not fit, the parts of a key get separate lines.
    pub(super) fn grid(&self, entries: &[Entry], width: usize) -> Grid {
        let parts = entries.first().map_or(1, |entry| entry.what.len());
        let shapes = (0..parts).map(|below| self.grid_with(entries, below));
        let mut widest = None;
        for grid in shapes {
            let fits = grid.least_width() <= width;
            widest = Some(grid);
            if fits {
                break;
            }
        }
        widest.unwrap_or_else(|| Grid::new([]))
    }

    /// The same, with the last `below` parts of each key in separate lines.
    fn grid_with(&self, entries: &[Entry], below: usize) -> Grid {
        let texts = entries.first().map_or(0, |entry| entry.what.len() - below);
        let mut captions = self.captions();
        if entries.iter().any(|entry| entry.host.is_some()) {
            let of_hosts = ["down  ", "up  ", "peers  "].map(str::to_owned);
            captions.splice(AFTER_SHARE..AFTER_SHARE, of_hosts);
        }
        let columns = [Right].into_iter().chain(vec![Left; texts]).chain(vec![Right; captions.len()]);
        let mut grid = Grid::new(columns).with_optional(captions.len() - 3);
        if !entries.is_empty() {
            let blanks = vec![String::new(); 1 + texts];
            grid.row(blanks.into_iter().chain(captions).map(|caption| Cell::new(caption, Faint)));
        }
        for entry in entries.iter().take(ROWS_MAX) {
            let (texts, below) = entry.what.split_at(texts);
            let texts = texts.iter().map(Cell::from);
            let rank = Cell::new(entry.rank.to_string(), Faint);
            let mut numbers = self.numbers(entry);
            numbers.splice(AFTER_SHARE..AFTER_SHARE, entry.host.iter().flat_map(|host| self.of_host(host)));
            grid.row([rank].into_iter().chain(texts).chain(numbers));
            match below {
                [only] => grid.row(vec![Cell::default(); entry.what.len() - 1].into_iter().chain([Cell::from(only)])),
                several => several.iter().for_each(|part| grid.across([Cell::from(format!("{BELOW}{part}"))])),
            }
        }
        more(&mut grid, entries.len());
        grid
    }

    /// Both directions of a host, and its peers. Of several windows, the least that it may be.
    fn of_host(&self, HostNumbers { down, up, flows: _, peers }: &HostNumbers) -> [Cell; 3] {
        let amount = |of: &Estimate| if self.together { of.lower } else { of.value };
        let direction = |of: &Sums| match self.by_packets() {
            true => in_column(count, "")(amount(&of.packets)),
            false => in_column(bytes, "B")(amount(&of.bytes)),
        };
        [direction(down).into(), direction(up).into(), in_column(count, "")(amount(peers)).into()]
    }

    fn by_packets(&self) -> bool {
        self.by == "packets"
    }

    fn captions(&self) -> Vec<String> {
        let captions: &[&str] = match (self.together, self.by_packets()) {
            (false, true) => &["packets", "±", OF_ALL, "pkt/s", "bytes"],
            (false, false) => &["bytes", "±", OF_ALL, "bit/s", "packets"],
            (true, true) => &["packets at least", "at most", OF_ALL, "bytes at least"],
            (true, false) => &["bytes at least", "at most", OF_ALL, "packets at least"],
        };
        let has_prefix = |caption: &str| !matches!(caption, OF_ALL | "bit/s" | "pkt/s");
        let padded = |caption: &&str| format!("{caption}{}", if has_prefix(caption) { "  " } else { "" });
        captions.iter().map(padded).collect()
    }

    fn numbers(&self, Entry { packets, bytes, .. }: &Entry) -> Vec<Cell> {
        let (amount, bytes_of) = (in_column(count, ""), in_column(self::bytes, "B"));
        let Totals { packets: all_packets, bytes: all_bytes, .. } = *self.totals;
        if self.together {
            let of = |estimate: &Estimate, show: &dyn Fn(u64) -> String| [show(estimate.lower), show(estimate.upper)];
            let ([least, most], share, other) = match self.by_packets() {
                true => (of(packets, &amount), ratio(packets.lower, all_packets), bytes_of(bytes.lower)),
                false => (of(bytes, &bytes_of), ratio(bytes.lower, all_bytes), amount(packets.lower)),
            };
            return vec![least.into(), Cell::new(most, Faint), percent(share).into(), other.into()];
        }
        let ([value, error], share, rate, other) = match self.by_packets() {
            true => {
                let (share, rate) = (ratio(packets.value, all_packets), self.rate(packets.value, packet_rate));
                (measured(packets, amount), share, rate, bytes_of(bytes.value))
            }
            false => {
                let (share, rate) = (ratio(bytes.value, all_bytes), self.rate(bytes.value, bit_rate));
                (measured(bytes, bytes_of), share, rate, amount(packets.value))
            }
        };
        vec![value.into(), Cell::new(error, Faint), percent(share).into(), rate.into(), other.into()]
    }

    fn rate(&self, value: u64, rate: fn(u64, f64) -> String) -> String {
        self.seconds.rate_text(value, rate).unwrap_or_default()
    }

    /// A line for each network: its traffic beyond the listed hosts, the share of that, all its traffic, and how many
    /// of its hosts are listed.
    pub(super) fn prefixes(&self, prefixes: &[TopPrefix]) -> Grid {
        let mut grid = Grid::new([Right, Left].into_iter().chain([Right; 5]));
        if !prefixes.is_empty() {
            let captions = ["", "", "unlisted hosts  ", "±  ", OF_ALL, "all hosts  ", "listed hosts"];
            grid.row(captions.map(|caption| Cell::new(caption, Faint)));
        }
        for TopPrefix { rank, prefix, packets, bytes, beyond, members } in prefixes.iter().take(ROWS_MAX) {
            let (amount, beyond, all, total) = match self.by_packets() {
                true => (in_column(count, ""), beyond.packets, packets, self.totals.packets),
                false => (in_column(self::bytes, "B"), beyond.bytes, bytes, self.totals.bytes),
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
        more(&mut grid, prefixes.len());
        grid
    }
}

/// Says how many of these rows are not shown.
fn more(grid: &mut Grid, rows: usize) {
    if rows > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", rows - ROWS_MAX), Faint)]);
    }
}
