//! The table of all numbers.

use super::{
    Kind, Series, Target, Unit,
    read::{
        self, BYTES,
        Get::{Classes, Each, EachLabelled, Labelled, Once, Sink},
        PACKETS, known,
    },
};

const NO_TRAFFIC: &str = "rules are about traffic and how it is measured, not about reports";
const ADDRESSES: &str = "its rows are addresses and flows, and each becomes a series for ever: make a view of few keys";
const DISTRIBUTION: &str = "a limit is of one number, not of a distribution";
const NOT_YET: &str = "it was not needed there until now";
const IN_ENTROPY: &str = "view.entropy has the bits, from which it follows";
const OF_SINKS: &str = "a sink that fails cannot report that: the log and `weir status` do";

/// A row: its kind, name, unit and help; how to read it; the targets in which its bounds are series; the targets that
/// do not have it, and why.
macro_rules! table {
    ($(
        $kind:ident $name:literal $unit:ident: $help:literal,
        $get:expr $(, bounds $($exported:ident)+)? $(, not $($target:ident)+: $why:expr)*;
    )*) => {
        /// All numbers that are exported or that rules can use, in the order of the export.
        pub static TABLE: &[Series] = &[$(
            Series::new($name, Unit::$unit, Kind::$kind, $help, $get)
                $(.bounds(&[$(Target::$exported),+]))?
                $(.not(&[$(Target::$target),+], $why))*,
        )*];
    };
}

table! {
    Info "observer" One: "Who measures.",
        Labelled(read::observer), not Rules: "it is not a number", not Otlp: "these are attributes of the resource";
    Gauge "report_number" One: "The number of the last report.",
        Once(|report| known(report.observer.seq)), not Otlp: "it is report.seq there, with the run",
        not Rules: NO_TRAFFIC;
    Gauge "report.seq" One: "The number of the report; with the observer and its run, the report's id.",
        Labelled(read::number_in_run),
        not Prometheus: "it is report_number there, without the run, and goes on after a restart",
        not Rules: NO_TRAFFIC;
    Gauge "window.length" Seconds: "The length of the window.",
        Once(|report| report.window.seconds.seconds().map(Into::into)), not Rules: NO_TRAFFIC;
    Gauge "window.end_timestamp" Seconds: "When the window ended.",
        Once(|report| known(report.window.end.as_millisecond() as f64 / 1e3)), not Otlp: "it is the time of each point",
        not Rules: NO_TRAFFIC;
    Gauge "window.clock_step" Seconds: "By how much the wall clock was stepped.",
        Once(|report| report.window.clock_step_seconds.map(Into::into)),
        not Prometheus: "a scrape has a time of its own, which does not come from weir", not Rules: NO_TRAFFIC;
    Sum "packets" Packets: "Packets, each once.", Once(read::total_packets);
    Sum "bytes" Bytes: "Bytes on the wire, each packet once.", Once(read::total_bytes);
    Sum "ip.packets" Packets: "Packets of flows, by version of IP.", Labelled(read::by_version);
    Sum "protocol.packets" Packets: "Packets of flows, by protocol.", Labelled(read::by_protocol);
    Sum "interface.seen.packets" Packets: "Packets that weir saw.", Each(read::seen_packets);
    Sum "interface.accounted.packets" Packets:
        "Packets by what happened to them. The sum of all kinds and reasons is what weir saw.",
        EachLabelled(|one, points| read::accounted(PACKETS, one, points));
    Sum "interface.repeated.packets" Packets: "Packets that count in totals and lists on another interface.",
        Each(|one| known(one.repeated.packets));
    Sum "interface.seen.bytes" Bytes: "Bytes that weir saw.", Each(read::seen_bytes);
    Sum "interface.accounted.bytes" Bytes:
        "Bytes by what happened to them. The sum of all kinds and reasons is what weir saw.",
        EachLabelled(|one, points| read::accounted(BYTES, one, points));
    Sum "interface.repeated.bytes" Bytes: "Bytes that count in totals and lists on another interface.",
        Each(|one| known(one.repeated.bytes));
    Sum "interface.tcp.packets" Packets: "Packets that begin or end TCP connections.",
        EachLabelled(read::by_flags), bounds Otlp;
    Gauge "interface.packet.size" Bytes: "Packets by their bytes on the wire.",
        Classes(|one| &one.packet_sizes), not Prometheus: NOT_YET, not Rules: DISTRIBUTION;
    Info "interface.info" One: "How an interface is measured. Always 1.",
        EachLabelled(read::how_measured), not Rules: "it is not a number";
    Gauge "interface.sampling" One: "One packet in this many was measured.", Each(|one| known(u64::from(one.sampling)));
    Gauge "interface.coverage" Ratio: "Packets that weir saw, per packet that the interface counted.",
        Each(read::coverage);
    Gauge "interface.coverage_bytes" Ratio: "Bytes that weir saw, per byte that the interface counted.",
        Each(|one| one.coverage_bytes.map(Into::into)),
        not Rules: "some interfaces count other bytes than weir: it is not 1 when weir sees all";
    Gauge "interface.coverage_upper" Ratio:
        "Upper bound of the packets that weir saw, per packet that the interface counted.",
        Each(|one| one.coverage_upper.map(Into::into)), not Rules: "a rule on interface.coverage uses its bounds";
    Gauge "interface.blind" Seconds: "For how long of the window weir may not have seen the interface's packets.",
        Each(|one| known(one.blind_seconds.unwrap_or_default()));
    Gauge "interface.kept" Ratio: "The share of packets that were not lost.", Each(|one| known(one.kept));
    Gauge "interface.rate.packets" PacketsPerSecond: "Packets in each second of the window: a distribution.",
        Labelled(|report, points| read::rates(report, |rates| &rates.packets, PACKETS, points)),
        not Prometheus: NOT_YET;
    Gauge "interface.rate.bytes" BytesPerSecond: "Bytes in each second of the window: a distribution.",
        Labelled(|report, points| read::rates(report, |rates| &rates.bytes, BYTES, points)), not Prometheus: NOT_YET;
    Gauge "usage.bytes" Bytes: "What an interface has carried in the month so far, both directions together.",
        Labelled(read::usage),
        not Prometheus Otlp: "it is interface.seen.bytes since the month began, which these databases add up themselves";
    Gauge "packet.size" Bytes: "Bytes on the wire of a packet: a distribution.",
        Labelled(read::packet_sizes), not Prometheus: NOT_YET, not Rules: DISTRIBUTION;
    Gauge "unique" One: "Distinct addresses and flows of the window.", Labelled(read::unique), bounds Prometheus Otlp;
    Gauge "new_flows" Flows: "Flows of the window that were not seen before.",
        Once(|report| known(report.new_flows)), bounds Prometheus Otlp;
    Gauge "new_flows.fill" Ratio: "How full the filter of seen flows is.",
        Once(|report| known(report.new_flows.fill)),
        not Prometheus Otlp: "the bounds of new_flows include its effect";
    Gauge "new_hosts" One: "Hosts of the window that were not seen for a long time.",
        Once(|report| report.new_hosts.as_ref().filter(|new| !new.learning).map(Into::into)), bounds Prometheus Otlp;
    Gauge "horizon.unique" One: "Distinct addresses and flows over a horizon that ends with the window.",
        Labelled(read::horizons), bounds Prometheus Otlp;
    Gauge "horizon.covered" Seconds: "For how long of a horizon weir has measured.",
        Labelled(read::covered), not Rules: "a rule is about what was measured";
    Gauge "view.packets" Packets: "Rows of views in the window: packets.",
        Labelled(|report, points| read::rows(report, |row| row.packets, points)), bounds Prometheus Otlp;
    Gauge "view.bytes" Bytes: "Rows of views in the window: bytes.",
        Labelled(|report, points| read::rows(report, |row| row.bytes, points)), bounds Prometheus Otlp;
    Gauge "view.flows" Flows: "Rows of views in the window: flows.",
        Labelled(|report, points| read::rows(report, |row| row.flows, points)), bounds Prometheus Otlp;
    Gauge "view.new_flows" Flows: "Rows of views in the window: new_flows.",
        Labelled(|report, points| read::rows(report, |row| row.new_flows, points)), bounds Prometheus Otlp;
    Gauge "view.distinct" One: "Rows of views in the window: distinct.",
        Labelled(|report, points| read::rows(report, |row| row.distinct, points)), bounds Prometheus Otlp;
    Gauge "view.sum.packets" Packets: "Packets that a view matched in the window.",
        Labelled(|report, points| read::sums(report, |sums| sums.packets, points)), bounds Prometheus Otlp;
    Gauge "view.sum.bytes" Bytes: "Bytes that a view matched in the window.",
        Labelled(|report, points| read::sums(report, |sums| sums.bytes, points)), bounds Prometheus Otlp;
    Gauge "view.entropy" Bits: "How evenly packets or bytes are spread over all keys of a view.",
        Labelled(|report, points| read::entropy(report, |entropy| entropy.bits.into(), points)), bounds Otlp,
        not Prometheus: NOT_YET;
    Gauge "view.entropy.normalized" Ratio: "The entropy of a view as a part of the most that it can be.",
        Labelled(|report, points| read::entropy(report, read::normalized, points)), not Prometheus Otlp: IN_ENTROPY;
    Gauge "view.entropy.keys" One: "Distinct keys of a view.",
        Labelled(|report, points| read::entropy(report, |entropy| entropy.keys.into(), points)),
        not Prometheus Otlp: NOT_YET;
    Gauge "top.packets" Packets: "Rows of the lists by packets.",
        Labelled(|report, points| read::top(&report.top_by_packets, |sums| sums.packets, points)),
        not Prometheus Otlp: ADDRESSES;
    Gauge "top.bytes" Bytes: "Rows of the lists by bytes.",
        Labelled(|report, points| read::top(&report.top, |sums| sums.bytes, points)), not Prometheus Otlp: ADDRESSES;
    Gauge "top.beyond.packets" Packets: "Networks without listed addresses, by packets.",
        Labelled(|report, points| read::beyond(&report.top_by_packets, |sums| sums.packets, points)),
        not Prometheus Otlp: ADDRESSES;
    Gauge "top.beyond.bytes" Bytes: "Networks without listed addresses, by bytes.",
        Labelled(|report, points| read::beyond(&report.top, |sums| sums.bytes, points)), not Prometheus Otlp: ADDRESSES;
    Gauge "spread" One: "Rows of the lists of floods and scans.",
        Labelled(read::spread), not Prometheus Otlp: ADDRESSES;
    Gauge "alert.firing" One: "1 while an alert fires; 0 while its condition holds, but not yet for long enough.",
        Labelled(read::alerts), not Rules: "it is what rules say";
    Gauge "cpu.per_packet" Nanoseconds: "Daemon CPU per packet in the window.",
        Once(|report| report.self_metrics.cpu_ns_per_packet.map(Into::into));
    Gauge "kernel.per_packet" Nanoseconds: "Run time of the kernel's program per packet in the window.",
        Once(|report| report.self_metrics.kernel_ns_per_packet.map(Into::into)),
        not Rules: "kernels measure it only if it is switched on";
    Gauge "memory.resident" Bytes: "Memory that weir uses.",
        Once(|report| report.self_metrics.rss_bytes.map(Into::into));
    Gauge "memory.planned" Bytes: "Memory that the configuration plans.",
        Once(|report| known(report.self_metrics.memory_bytes)), not Rules: "it changes only with the configuration";
    Sum "records" Records: "Records that the kernel sent.",
        Once(|report| known(report.self_metrics.records)), not Rules: NOT_YET;
    Gauge "cache.hit_ratio" Ratio: "The share of packets whose flow was in the flow cache.",
        Once(|report| report.self_metrics.cache_hit_rate.map(Into::into));
    Gauge "ring.peak_fill" Ratio: "How full the fullest ring was in the window.",
        Once(|report| report.self_metrics.rings.peak_fill.map(Into::into));
    Gauge "late_cpus" Cpus: "CPUs that were late.",
        Once(|report| known(report.self_metrics.late_cpus.len() as u64)),
        not Rules: "rules that could be wrong because of them wait for them";
    Gauge "sink.queued" Reports: "Reports that wait, or are being delivered.",
        Sink(|sink| sink.queued), not Rules: OF_SINKS;
    SinceStart "sink.delivered" Reports: "Reports delivered since the daemon's start.",
        Sink(|sink| sink.delivered), not Rules: OF_SINKS;
    SinceStart "sink.failed_attempts" Attempts:
        "Attempts that failed since the daemon's start; one report may take several.",
        Sink(|sink| sink.failed_attempts), not Rules: OF_SINKS;
    SinceStart "sink.dropped" Reports: "Reports lost since the daemon's start.",
        Sink(|sink| sink.dropped), not Rules: OF_SINKS;
    SinceStart "sink.untold" Reports: "Lost reports that the sink has no tombstone of.",
        Sink(|sink| sink.untold), not Rules: OF_SINKS, not Otlp: NOT_YET;
    Gauge "sink.spool.reports" Reports: "Reports that wait on disk.",
        Sink(|sink| sink.spool.unwrap_or_default().reports), not Rules: OF_SINKS;
    Gauge "sink.spool.bytes" Bytes: "Size of all files on disk, those of refused reports included.",
        Sink(|sink| sink.spool.unwrap_or_default().bytes), not Rules: OF_SINKS;
}
