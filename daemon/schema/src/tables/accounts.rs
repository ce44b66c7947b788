//! The parts of a report about interfaces, all packets together, and weir itself.

use weir_system::numbers::{bytes, grouped, percent, short_time};

use super::super::{
    Bounds, Distinct, Fact, Histogram, Interface, NOT_MEASURED, NewFlows, SelfMetrics, SinkMetrics, Tally, TcpBounds,
    TcpPackets, Totals, TotalsBounds, Uncertain, Unique, Verdict, Window,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::{Alarm, Faint, Plain, Strong},
    },
    is_measured, trust,
};
use super::words::{ALIAS_MAX, in_percent, off, ratio, shortened};

/// The maximum length of a bar in a chart, in columns.
pub(super) const BAR: usize = 32;
/// The maximum length of a sink's error, in characters.
const ERROR_MAX: usize = 90;

/// The lower and the upper bounds.
const fn ends(Uncertain { packets, bytes }: Uncertain) -> [Tally; 2] {
    [Tally { packets: packets.lower, bytes: bytes.lower }, Tally { packets: packets.upper, bytes: bytes.upper }]
}

pub(super) fn ledgers(interfaces: &[Interface]) -> Grid {
    let mut grid = Grid::new([Left, Right, Right, Right]);
    for (i, interface) in interfaces.iter().enumerate() {
        let Interface {
            name,
            earlier_name,
            index: _,
            alias,
            vrf,
            mode,
            counts,
            direction,
            feeds: _,
            repeated: _,
            sampling,
            ledger,
            tcp,
            packet_sizes: _,
            coverage: _,
            coverage_lower: _,
            coverage_upper: _,
            coverage_bytes: _,
            coverage_bytes_lower: _,
            coverage_bytes_upper: _,
            unseen: _,
            blind_seconds,
            unmeasured_seconds,
            trouble,
            // `trouble` names these link types.
            unread_link_types: _,
            kept,
        } = interface;
        if i > 0 {
            grid.across([]);
        }
        let lost = ledger.lost.values().any(|tally| tally.packets > 0);
        let kept = match is_measured(mode) || ledger.seen.packets > 0 {
            true => Cell::new(format!("kept {}", percent(*kept)), if lost { Alarm } else { Plain }),
            false => Cell::new(NOT_MEASURED, Alarm),
        };
        let mut line = vec![Cell::new(name, Strong)];
        line.extend(alias.as_ref().map(|alias| Cell::from(format!("({})", shortened(alias, ALIAS_MAX)))));
        line.extend(vrf.as_ref().map(|vrf| Cell::from(format!("VRF {}", shortened(vrf, ALIAS_MAX)))));
        line.push(Cell::new(mode, if is_measured(mode) { Plain } else { Alarm }));
        line.extend((counts != "packets").then(|| Cell::new(format!("counts {counts}"), Alarm)));
        line.extend(direction.as_ref().map(Cell::from));
        line.extend([trust::sampled(*sampling), trust::balanced(ledger.balances())].map(judged));
        line.push(kept);
        let coverage = trust::Coverage::new(&interface.into());
        line.extend(coverage.map(|of| Cell::new(of.text, if of.is_low { Alarm } else { Plain })));
        line.extend(unmeasured_seconds.map(|seconds| Cell::new(format!("{NOT_MEASURED} for {seconds:.0} s"), Alarm)));
        line.extend(blind_seconds.map(|seconds| Cell::new(format!("BLIND for up to {seconds:.1} s"), Alarm)));
        grid.across(line);
        if let Some(earlier) = earlier_name {
            grid.across([Cell::from(format!("earlier name: {earlier}"))]);
        }
        if let Some(trouble) = trouble {
            grid.across([Cell::new(format!("TROUBLE: {trouble}"), Alarm)]);
        }
        tallies(&mut grid, interface);
        if let Some(text) = connections(tcp) {
            grid.across([text.into()]);
        }
    }
    grid
}

/// The packets and bytes of an interface's ledger, a line for each number.
fn tallies(grid: &mut Grid, Interface { ledger, unseen, repeated, feeds, .. }: &Interface) {
    grid.row(["", "packets", "bytes", "of packets"].map(|caption| Cell::new(caption, Faint)));
    let mut line = |what: String, tally: &Tally, tone| {
        let share = percent(ratio(tally.packets, ledger.seen.packets));
        grid.row([what, grouped(tally.packets), grouped(tally.bytes), share].map(|text| Cell::new(text, tone)));
    };
    line("seen".to_owned(), &ledger.seen, Plain);
    if let Some(uncertain) = ledger.uncertain {
        let [least, most] = ends(uncertain);
        line("of these uncertain, at least".to_owned(), &least, Faint);
        line("at most".to_owned(), &most, Faint);
    }
    if let Some(unseen) = *unseen {
        let [least, most] = ends(unseen);
        line("NOT SEEN, at least".to_owned(), &least, Alarm);
        line("at most".to_owned(), &most, Alarm);
    }
    if *repeated != Tally::default() {
        line(format!("in totals by another interface (feeds: {feeds})"), repeated, Faint);
    }
    line("attributed".to_owned(), &ledger.attributed, Plain);
    line("sampled out".to_owned(), &ledger.sampled_out, Plain);
    for (reason, tally) in &ledger.skipped {
        line(format!("skipped: {reason}"), tally, Plain);
    }
    let lost = ledger.lost.iter().filter(|(_, tally)| **tally != Tally::default());
    for (reason, tally) in lost {
        line(format!("lost: {reason}"), tally, Alarm);
    }
}

/// A fact as a cell.
pub(super) fn judged(Fact { text, verdict }: Fact) -> Cell {
    Cell::new(text, if verdict == Verdict::Bad { Alarm } else { Plain })
}

/// Packets that begin or end TCP connections; `None` if there were none.
pub(super) fn connections(tcp: &TcpPackets) -> Option<String> {
    let TcpPackets { syn, syn_ack, rst, fin, bounds } = *tcp;
    let bounds = bounds.map(|TcpBounds { confidence: _, syn, syn_ack, rst, fin }| [syn, syn_ack, rst, fin]);
    let counts = [("SYN", syn), ("SYN-ACK", syn_ack), ("RST", rst), ("FIN", fin)];
    let parts: Vec<_> = (0..)
        .zip(counts)
        .map(|(nth, (name, value))| match bounds.map(|bounds: [Bounds; 4]| bounds[nth]) {
            Some(Bounds { lower, upper }) => {
                format!("{name} {} ± {}", grouped(value), grouped(off(value, lower, upper)))
            }
            None => format!("{name} {}", grouped(value)),
        })
        .collect();
    counts.iter().any(|(_, value)| *value > 0).then(|| format!("TCP: {}", parts.join(", ")))
}

pub(super) fn shares(totals: &Totals) -> Grid {
    let Totals {
        packets,
        bytes: _,
        ipv4_packets,
        ipv6_packets,
        tcp_packets,
        udp_packets,
        icmp_packets,
        other_packets,
        bounds,
    } = *totals;
    let mut grid = match bounds {
        Some(_) => Grid::new([Left, Right, Right, Right, Left]),
        None => Grid::new([Left, Right, Right, Left]),
    };
    type BoundsOf = fn(&TotalsBounds) -> Bounds;
    let parts: [(&str, u64, BoundsOf); 6] = [
        ("IPv4", ipv4_packets, |bounds| bounds.ipv4_packets),
        ("IPv6", ipv6_packets, |bounds| bounds.ipv6_packets),
        ("TCP", tcp_packets, |bounds| bounds.tcp_packets),
        ("UDP", udp_packets, |bounds| bounds.udp_packets),
        ("ICMP", icmp_packets, |bounds| bounds.icmp_packets),
        ("other IP", other_packets, |bounds| bounds.other_packets),
    ];
    let mut captions = vec!["", "packets", "of all", ""];
    if bounds.is_some() {
        captions.insert(2, "±");
    }
    grid.row(captions.into_iter().map(|caption| Cell::new(caption, Faint)));
    for (what, part, bounds_of) in parts {
        let share = ratio(part, packets);
        let error = bounds
            .as_ref()
            .map(bounds_of)
            .map_or(String::new(), |Bounds { lower, upper }| format!("± {}", grouped(off(part, lower, upper))));
        let mut cells = vec![what.to_owned(), grouped(part), percent(share), bar(share)];
        if bounds.is_some() {
            cells.insert(2, error);
        }
        grid.row(cells.into_iter().map(Cell::from));
    }
    grid
}

/// Returns true if the value says little, as that of several windows whose sketches are not known: it is that of the
/// largest window.
pub(super) fn is_range([value, lower, upper]: [u64; 3]) -> bool {
    off(value, lower, upper).saturating_mul(4) > value
}

/// An estimate: the value, how far off it may be, its bounds, and their confidence.
pub(super) fn counted([value, lower, upper]: [u64; 3], confidence: f64) -> [Cell; 4] {
    let error =
        if value == 0 { String::new() } else { format!("± {}", percent(ratio(off(value, lower, upper), value))) };
    let bounds = format!("{} – {}", grouped(lower), grouped(upper));
    [grouped(value).into(), error.into(), bounds.into(), Cell::new(in_percent(confidence), Faint)]
}

pub(super) fn distinct(unique: &Unique, new_flows: &NewFlows, together: bool) -> Grid {
    let Unique { src_ip, dst_ip, flows } = unique;
    let mut grid = Grid::new([Left, Right, Right, Left, Right]);
    grid.row(["", "", "", "between", "confidence"].map(|caption| Cell::new(caption, Faint)));
    let mut line = |what: &str, estimate: [u64; 3], confidence| {
        let [mut value, mut error, bounds, sure] = counted(estimate, confidence);
        if together && is_range(estimate) {
            (value, error) = ("".into(), "".into());
        }
        grid.row([what.into(), value, error, bounds, sure]);
    };
    for (what, Distinct { value, lower, upper, confidence }) in
        [("source addresses", src_ip), ("destination addresses", dst_ip), ("flows", flows)]
    {
        line(what, [*value, *lower, *upper], *confidence);
    }
    let NewFlows { value, lower, upper, confidence, false_positive_rate, fill } = *new_flows;
    line("flows never seen before", [value, lower, upper], confidence);
    let filter = format!(
        "the filter of seen flows is {} full and misses {} of new ones",
        percent(fill),
        percent(false_positive_rate)
    );
    grid.across([Cell::new(filter, Faint)]);
    grid
}

pub(super) fn quantiles(sizes: &Histogram) -> String {
    let Histogram { count, min, p50, p90, p99, max, buckets: _ } = sizes;
    if *count == 0 {
        return "none".to_owned();
    }
    let [min, p50, p90, p99, max] = [min, p50, p90, p99, max].map(|bytes| grouped(*bytes));
    format!("smallest {min}, median {p50}, p90 {p90}, p99 {p99}, largest {max} bytes")
}

pub(super) fn chart(sizes: &Histogram) -> Grid {
    let mut grid = Grid::new([Right, Right, Right, Left]);
    let most = sizes.buckets.iter().map(|(_, packets)| *packets).max().unwrap_or_default();
    if !sizes.buckets.is_empty() {
        grid.row(["bytes", "packets", "of all", ""].map(|caption| Cell::new(caption, Faint)));
    }
    let mut least = 0;
    for (edge, packets) in &sizes.buckets {
        let range = format!("{least} – {edge:>4}");
        let share = percent(ratio(*packets, sizes.count));
        grid.row([range.into(), grouped(*packets).into(), share.into(), bar(ratio(*packets, most)).into()]);
        least = edge.saturating_add(1);
    }
    grid
}

/// weir's own CPU and memory in a window in which it saw `seen` packets.
pub(super) fn costs(metrics: &SelfMetrics, window: &Window, seen: u64) -> Grid {
    let SelfMetrics {
        cpu_ns_per_packet,
        rss_bytes,
        late_cpus,
        memory_bytes,
        records,
        cache_hit_rate,
        kernel_ns_per_packet,
        rings,
        spool,
        sinks,
    } = metrics;
    let mut grid = Grid::new([Left, Left]);
    let mut line = |what: &str, text: String, tone| grid.row([Cell::from(what), Cell::new(text, tone)]);
    line("CPU, daemon", cpu(*cpu_ns_per_packet, window, seen), Plain);
    if kernel_ns_per_packet.is_some() {
        line("CPU, kernel", cpu(*kernel_ns_per_packet, window, seen), Plain);
    }
    if !late_cpus.is_empty() {
        let cpus: Vec<_> = late_cpus.iter().map(u32::to_string).collect();
        line("late CPUs", format!("{}: the rest comes in a later report", cpus.join(", ")), Plain);
    }
    let resident = rss_bytes.map_or("resident: unknown".to_owned(), |rss| format!("{} resident", bytes(rss)));
    line("memory", format!("{resident}, {} planned", bytes(*memory_bytes)), Plain);
    let hits = cache_hit_rate.map_or("no packet of a flow".to_owned(), |rate| format!("{} hits", percent(rate)));
    line("flow cache", format!("{hits}, {} records evicted", grouped(*records)), Plain);
    let fill = rings.peak_fill.map_or("none".to_owned(), |fill| format!("at most {} full", percent(fill)));
    line("rings", fill, Plain);
    let waiting = format!("{} reports, {}", grouped(spool.reports), bytes(spool.bytes));
    line("spool", with_dropped(waiting, spool.dropped), if spool.dropped > 0 { Alarm } else { Plain });
    for SinkMetrics { name, queued, delivered, failed_attempts, dropped, lost: _, untold: _, spool: _, last_error } in
        sinks
    {
        let mut text = format!("{name}: {} delivered, {} queued", grouped(*delivered), grouped(*queued));
        if *failed_attempts > 0 {
            text += &format!(", {} failed attempts", grouped(*failed_attempts));
        }
        line("sink", with_dropped(text, *dropped), if *dropped > 0 { Alarm } else { Plain });
        if let Some(error) = last_error {
            line("", shortened(error, ERROR_MAX), Alarm);
        }
    }
    grid
}

/// The CPU for processing packets: the share of a core, and the time per packet.
fn cpu(ns_per_packet: Option<f64>, window: &Window, seen: u64) -> String {
    let Some(ns) = ns_per_packet else { return "no packet was seen".to_owned() };
    let each = format!("{} per packet", short_time(ns));
    // A capture is read as fast as possible, so its time says nothing about the share of a CPU.
    match window.seconds.rate(ns * seen as f64 / 1e9).filter(|_| window.late_packets.is_none()) {
        Some(share) => format!("{} of a core, {each}", percent(share)),
        None => each,
    }
}

pub(super) fn with_dropped(text: String, dropped: u64) -> String {
    if dropped > 0 { format!("{text}, {} dropped", grouped(dropped)) } else { text }
}

/// A bar for a share of 1, in eighths of a column; the smallest non-zero share is visible.
pub(super) fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}
