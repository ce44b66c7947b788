//! Which numbers of a report and of the sums are exported, and under which names.

use std::borrow::Cow;

use serde_json::Value;
use weir_report::{
    Distinct, Estimate, Interface, NewFlows, Observer, Report, Row, SelfMetrics, SinkMetrics, Sums as Both, Tally,
    Totals, Unique, View,
};

use super::{
    Latest,
    sums::{InterfaceSums, Sums},
    text::{Format, Kind, Labels, Page, label},
};

/// A part of a name, a part of its description, and a function that gets the number.
type Told<T, N = u64> = (&'static str, &'static str, fn(&T) -> N);

/// Value, lower and upper bound: the suffixes of an estimate's names.
const BOUNDS: [Told<Estimate>; 3] = [
    ("", "", |estimate| estimate.value),
    ("_lower", " Lower bound.", |estimate| estimate.lower),
    ("_upper", " Upper bound.", |estimate| estimate.upper),
];

/// The parts of a tally.
const UNITS: [Told<Tally>; 2] =
    [("packets", "Packets", |tally| tally.packets), ("bytes", "Bytes", |tally| tally.bytes)];

/// The text of a scrape; before the first window it has only a few numbers.
pub(super) fn write(latest: Option<&Latest>, format: Format) -> String {
    let mut page = Page::new(format);
    let version = [(vec![label("version", env!("CARGO_PKG_VERSION"))], 1_u64)];
    page.family("weir_build", Kind::Info, "", "The version of weir.", version);
    let windows = latest.map_or(0, |latest| latest.sums.windows);
    page.family("weir_windows", Kind::Counter, "", "Windows that have ended.", [(vec![], windows)]);
    if let Some(Latest { report, sums }) = latest {
        of_window(&mut page, report);
        of_totals(&mut page, sums);
        of_ledgers(&mut page, sums);
        of_interfaces(&mut page, &report.interfaces);
        of_estimates(&mut page, report);
        of_views(&mut page, &report.views);
        of_alerts(&mut page, report);
        of_self(&mut page, &report.self_metrics, sums);
    }
    page.finish()
}

fn of_window(page: &mut Page, report: &Report) {
    let Observer { name, id, boot_id, seq, version: _, site } = &report.observer;
    let mut labels = vec![label("name", name), label("id", id), label("boot_id", boot_id)];
    labels.extend(site.as_ref().map(|site| label("site", site)));
    page.family("weir_observer", Kind::Info, "", "Who measures.", [(labels, 1_u64)]);
    page.family("weir_report_number", Kind::Gauge, "", "The number of the last report.", [(vec![], *seq)]);
    let length = [(vec![], report.window.seconds)];
    page.family("weir_window_seconds", Kind::Gauge, "seconds", "The length of the last window.", length);
    let end = [(vec![], report.window.end.as_millisecond() as f64 / 1e3)];
    page.family("weir_window_end_timestamp_seconds", Kind::Gauge, "seconds", "When the last window ended.", end);
}

fn of_totals(page: &mut Page, sums: &Sums) {
    let Totals {
        packets,
        bytes,
        ipv4_packets,
        ipv6_packets,
        tcp_packets,
        udp_packets,
        icmp_packets,
        other_packets,
        bounds: _,
    } = sums.totals;
    page.family("weir_packets", Kind::Counter, "packets", "Packets, each once.", [(vec![], packets)]);
    page.family("weir_bytes", Kind::Counter, "bytes", "Bytes on the wire, each packet once.", [(vec![], bytes)]);
    let versions =
        [("4", ipv4_packets), ("6", ipv6_packets)].map(|(one, number)| (vec![label("version", one)], number));
    page.family("weir_ip_packets", Kind::Counter, "packets", "Packets of flows, by version of IP.", versions);
    let protocols = [("tcp", tcp_packets), ("udp", udp_packets), ("icmp", icmp_packets), ("other", other_packets)]
        .map(|(one, number)| (vec![label("proto", one)], number));
    page.family("weir_protocol_packets", Kind::Counter, "packets", "Packets of flows, by protocol.", protocols);
}

/// The labels of an interface.
fn interface_labels<'r>(name: &'r str, direction: Option<&'r String>) -> Labels<'r> {
    let mut labels = vec![label("interface", name)];
    labels.extend(direction.map(|direction| label("direction", direction)));
    labels
}

fn of_ledgers(page: &mut Page, sums: &Sums) {
    let all =
        || sums.interfaces.iter().map(|((name, direction), sums)| (interface_labels(name, direction.as_ref()), sums));
    for (unit, words, of) in UNITS {
        let seen = all().map(|(labels, sums)| (labels, of(&sums.seen)));
        page.family(
            &format!("weir_interface_seen_{unit}"),
            Kind::Counter,
            unit,
            &format!("{words} that weir saw."),
            seen,
        );
        let parts = all().flat_map(|(labels, InterfaceSums { parts, .. })| {
            parts.iter().map(move |((kind, reason), tally)| {
                let mut labels = labels.clone();
                labels.push(label("kind", *kind));
                labels.extend((!reason.is_empty()).then(|| label("reason", reason)));
                (labels, of(tally))
            })
        });
        let help = format!("{words} by where they went. The sum of all kinds and reasons is what weir saw.");
        page.family(&format!("weir_interface_accounted_{unit}"), Kind::Counter, unit, &help, parts);
        let repeated = all().map(|(labels, sums)| (labels, of(&sums.repeated)));
        let help = format!("{words} that count in totals and lists on another interface.");
        page.family(&format!("weir_interface_repeated_{unit}"), Kind::Counter, unit, &help, repeated);
    }
    let tcp = all().flat_map(|(labels, sums)| {
        ["syn", "syn_ack", "rst", "fin"].into_iter().zip(sums.tcp).map(move |(flags, number)| {
            let mut labels = labels.clone();
            labels.push(label("flags", flags));
            (labels, number)
        })
    });
    let help = "Packets that begin or end TCP connections.";
    page.family("weir_interface_tcp_packets", Kind::Counter, "packets", help, tcp);
}

fn of_interfaces(page: &mut Page, interfaces: &[Interface]) {
    let all = || interfaces.iter().map(|one| (interface_labels(&one.name, one.direction.as_ref()), one));
    let infos = all().map(|(mut labels, one)| {
        labels.extend([label("mode", &one.mode), label("counts", &one.counts), label("feeds", &one.feeds)]);
        labels.extend(one.alias.as_ref().map(|alias| label("alias", alias)));
        (labels, 1_u64)
    });
    page.family("weir_interface", Kind::Info, "", "How an interface is measured.", infos);
    let sampling = all().map(|(labels, one)| (labels, u64::from(one.sampling)));
    page.family("weir_interface_sampling", Kind::Gauge, "", "One packet in this many was measured.", sampling);
    let coverage = all().filter_map(|(labels, one)| Some((labels, one.coverage?)));
    let help = "Packets that weir saw, per packet that the interface counted.";
    page.family("weir_interface_coverage_ratio", Kind::Gauge, "ratio", help, coverage);
    let bytes = all().filter_map(|(labels, one)| Some((labels, one.coverage_bytes?)));
    let help = "Bytes that weir saw, per byte that the interface counted.";
    page.family("weir_interface_coverage_bytes_ratio", Kind::Gauge, "ratio", help, bytes);
    let upper = all().filter_map(|(labels, one)| Some((labels, one.coverage_upper?)));
    let help = "Upper bound of the packets that weir saw, per packet that the interface counted.";
    page.family("weir_interface_coverage_upper_ratio", Kind::Gauge, "ratio", help, upper);
    let blind = all().map(|(labels, one)| (labels, one.blind_seconds.unwrap_or_default()));
    let help = "For how long of the last window weir may not have seen the interface's packets.";
    page.family("weir_interface_blind_seconds", Kind::Gauge, "seconds", help, blind);
    let kept = all().map(|(labels, one)| (labels, one.kept));
    page.family("weir_interface_kept_ratio", Kind::Gauge, "ratio", "The share of packets that were not lost.", kept);
}

fn of_estimates(page: &mut Page, report: &Report) {
    let Unique { src_ip, dst_ip, flows } = report.unique;
    let distinct = |Distinct { value, lower, upper, .. }| Estimate { value, lower, upper, sampled: None };
    let unique = [("src_ip", src_ip), ("dst_ip", dst_ip), ("flows", flows)].map(|(of, one)| (of, distinct(one)));
    for (suffix, which, number) in BOUNDS {
        let rows = unique.iter().map(|(of, estimate)| (vec![label("of", *of)], number(estimate)));
        let help = format!("Distinct addresses and flows of the last window.{which}");
        page.family(&format!("weir_unique{suffix}"), Kind::Gauge, "", &help, rows);
    }
    let NewFlows { value, lower, upper, .. } = report.new_flows;
    let new = Estimate { value, lower, upper, sampled: None };
    for (suffix, which, number) in BOUNDS {
        let help = format!("Flows of the last window that were not seen before.{which}");
        page.family(&format!("weir_new_flows{suffix}"), Kind::Gauge, "", &help, [(vec![], number(&new))]);
    }
}

/// The numbers of a row that a view may measure, with their units.
const MEASURES: [Told<Row, Option<Estimate>>; 5] = [
    ("packets", "packets", |row| row.packets),
    ("bytes", "bytes", |row| row.bytes),
    ("flows", "", |row| row.flows),
    ("new_flows", "", |row| row.new_flows),
    ("distinct", "", |row| row.distinct),
];

fn of_views(page: &mut Page, views: &[View]) {
    let mut rows = Vec::new();
    let mut totals = Vec::new();
    for view in views.iter().filter(|view| view.has_series()) {
        for (table, total, listed) in view.parts() {
            let mut labels = vec![label("view", &view.name)];
            let interface = table.map(|table| interface_labels(&table.interface, table.direction.as_ref()));
            labels.extend(interface.into_iter().flatten());
            totals.extend(total.map(|total| (labels.clone(), total)));
            rows.extend(listed.iter().map(|row| (with_key(labels.clone(), row), row)));
        }
    }
    for (measure, unit, of) in MEASURES {
        for (bound, which, number) in BOUNDS {
            let numbers = rows.iter().filter_map(|(labels, row)| Some((labels.clone(), number(&of(row)?))));
            let help = format!("Rows of views in the last window: {measure}.{which}");
            page.family(&format!("weir_view{bound}_{measure}"), Kind::Gauge, unit, &help, numbers);
        }
    }
    let sums: [Told<Both, Estimate>; 2] =
        [("packets", "Packets", |both| both.packets), ("bytes", "Bytes", |both| both.bytes)];
    for (unit, words, of) in sums {
        for (bound, which, number) in BOUNDS {
            let numbers = totals.iter().map(|(labels, total)| (labels.clone(), number(&of(total))));
            let help = format!("{words} that a view matched in the last window.{which}");
            page.family(&format!("weir_view_sum{bound}_{unit}"), Kind::Gauge, unit, &help, numbers);
        }
    }
}

/// The labels of a row: the fields of its key.
fn with_key<'r>(mut labels: Labels<'r>, row: &'r Row) -> Labels<'r> {
    labels.extend(row.key.iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => Cow::Borrowed(&**text),
            other => Cow::Owned(other.to_string()),
        };
        (Cow::Borrowed(&**name), value)
    }));
    labels
}

fn of_alerts(page: &mut Page, report: &Report) {
    let alerts = report.alerts.iter().map(|alert| {
        let is_firing = matches!(&*alert.state, "firing" | "clearing");
        (vec![label("rule", &alert.rule)], u64::from(is_firing))
    });
    let help = "1 while an alert fires; 0 while its condition holds, but not yet for long enough.";
    page.family("weir_alert_firing", Kind::Gauge, "", help, alerts);
}

fn of_self(page: &mut Page, of: &SelfMetrics, sums: &Sums) {
    let SelfMetrics {
        cpu_ns_per_packet,
        rss_bytes,
        memory_bytes,
        records: _,
        cache_hit_rate,
        kernel_ns_per_packet,
        rings,
        late_cpus,
        spool: _,
        sinks,
    } = of;
    let seconds = |nanoseconds: f64| [(vec![], nanoseconds / 1e9)];
    let help = "Daemon CPU per packet in the last window.";
    let daemon = cpu_ns_per_packet.iter().flat_map(|nanoseconds| seconds(*nanoseconds));
    page.family("weir_cpu_per_packet_seconds", Kind::Gauge, "seconds", help, daemon);
    let kernel = kernel_ns_per_packet.iter().flat_map(|nanoseconds| seconds(*nanoseconds));
    let help = "Run time of the kernel's program per packet in the last window.";
    page.family("weir_kernel_per_packet_seconds", Kind::Gauge, "seconds", help, kernel);
    let resident = rss_bytes.map(|bytes| (vec![], bytes));
    page.family("weir_resident_memory_bytes", Kind::Gauge, "bytes", "Memory that weir uses.", resident);
    let planned = [(vec![], *memory_bytes)];
    page.family("weir_planned_memory_bytes", Kind::Gauge, "bytes", "Memory that the configuration plans.", planned);
    page.family("weir_records", Kind::Counter, "", "Records that the kernel sent.", [(vec![], sums.records)]);
    let help = "The share of packets whose flow was in the flow cache.";
    page.family("weir_cache_hit_ratio", Kind::Gauge, "ratio", help, cache_hit_rate.map(|rate| (vec![], rate)));
    let help = "How full the fullest ring was in the last window.";
    page.family("weir_ring_peak_fill_ratio", Kind::Gauge, "ratio", help, rings.peak_fill.map(|fill| (vec![], fill)));
    page.family("weir_late_cpus", Kind::Gauge, "", "CPUs that were late.", [(vec![], late_cpus.len() as u64)]);
    of_sinks(page, sinks);
}

fn of_sinks(page: &mut Page, sinks: &[SinkMetrics]) {
    let all =
        |number: fn(&SinkMetrics) -> u64| sinks.iter().map(move |sink| (vec![label("sink", &sink.name)], number(sink)));
    let help = "Reports that wait, or are being delivered.";
    page.family("weir_sink_queued_reports", Kind::Gauge, "reports", help, all(|sink| sink.queued));
    let help = "Reports delivered.";
    page.family("weir_sink_delivered_reports", Kind::Counter, "reports", help, all(|sink| sink.delivered));
    let help = "Attempts that failed; one report may take several.";
    page.family("weir_sink_failed_attempts", Kind::Counter, "attempts", help, all(|sink| sink.failed_attempts));
    let help = "Reports dropped.";
    page.family("weir_sink_dropped_reports", Kind::Counter, "reports", help, all(|sink| sink.dropped));
    let help = "Lost reports that the sink has no tombstone of.";
    page.family("weir_sink_untold_reports", Kind::Counter, "reports", help, all(|sink| sink.untold));
    let help = "Reports that wait on disk.";
    let reports = all(|sink| sink.spool.unwrap_or_default().reports);
    page.family("weir_sink_spool_reports", Kind::Gauge, "reports", help, reports);
    let help = "Size of all files on disk, those of refused reports included.";
    let bytes = all(|sink| sink.spool.unwrap_or_default().bytes);
    page.family("weir_sink_spool_bytes", Kind::Gauge, "bytes", help, bytes);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn latest() -> Latest {
        let report: Report = serde_json::from_str(include_str!("../../../report/tests/golden/report.json")).unwrap();
        let mut sums = Sums::default();
        sums.add(&report);
        sums.add(&report);
        Latest { report, sums }
    }

    #[test]
    fn numbers_are_those_of_the_report_and_of_the_sums() {
        let latest = latest();
        let text = write(Some(&latest), Format::OpenMetrics);
        let line = |line: &str| assert!(text.lines().any(|known| known == line), "no line {line}\n{text}");
        line("weir_windows_total 2");
        line("weir_interface_seen_packets_total{interface=\"eth0\",direction=\"ingress\"} 2200690");
        line(
            "weir_interface_accounted_bytes_total{interface=\"eth0\",direction=\"ingress\",kind=\"skipped\",reason=\"arp\"} \
             691356",
        );
        line(
            "weir_interface_accounted_packets_total{interface=\"eth0\",direction=\"ingress\",kind=\"attributed\"} 2197400",
        );
        let Distinct { value, lower, upper, .. } = latest.report.unique.src_ip;
        line(&format!("weir_unique{{of=\"src_ip\"}} {value}"));
        line(&format!("weir_unique_lower{{of=\"src_ip\"}} {lower}"));
        line(&format!("weir_unique_upper{{of=\"src_ip\"}} {upper}"));
        line("weir_alert_firing{rule=\"flood\"} 1");
        line("weir_alert_firing{rule=\"loss\"} 0");
        line("# UNIT weir_interface_seen_bytes bytes");
        let rows = latest.report.views.iter().flat_map(|view| view.rows.iter().flatten()).count();
        let tables = latest.report.views.iter().flat_map(|view| view.tables.iter().flatten());
        let rows = rows + tables.map(|table| table.rows.len()).sum::<usize>();
        let written = ["packets", "flows", "new_flows", "distinct"]
            .map(|measure| text.lines().filter(|line| line.starts_with(&format!("weir_view_{measure}{{"))).count());
        assert_eq!(written.into_iter().sum::<usize>(), rows, "each row once");
        assert!(rows > 0);
    }

    #[test]
    fn what_is_not_known_has_no_series() {
        let mut latest = latest();
        let families = ["weir_resident_memory_bytes", "weir_cache_hit_ratio", "weir_cpu_per_packet_seconds"];
        let has = |latest: &Latest, family: &str| {
            write(Some(latest), Format::Plain).lines().any(|line| line.starts_with(&format!("{family} ")))
        };
        assert!(families.iter().all(|family| has(&latest, family)));
        let own = &mut latest.report.self_metrics;
        (own.rss_bytes, own.cache_hit_rate, own.cpu_ns_per_packet) = (None, None, None);
        assert!(families.iter().all(|family| !has(&latest, family)));
    }

    #[test]
    fn talkers_that_nobody_asked_for_make_no_series() {
        let mut latest = latest();
        let told = |latest: &Latest| write(Some(latest), Format::Plain).contains("weir_view_");
        assert!(told(&latest));
        for view in &mut latest.report.views {
            view.name = "talkers".to_owned();
        }
        assert!(!told(&latest));
    }

    /// Checks the rules of `OpenMetrics` that make a scraper reject a text.
    #[test]
    fn each_family_is_declared_once_and_each_number_is_there_once() {
        let text = write(Some(&latest()), Format::OpenMetrics);
        let (mut families, mut numbers) = (HashSet::new(), HashSet::new());
        let mut family = ("", "");
        for line in text.strip_suffix("# EOF\n").expect("it has an end").lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split_once(' ').unwrap();
                assert!(families.insert(family.0), "{} twice", family.0);
            } else if let Some(unit) = line.strip_prefix("# UNIT ") {
                let (name, unit) = unit.split_once(' ').unwrap();
                assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (series, number) = line.rsplit_once(' ').unwrap();
                let suffix = match family.1 {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                assert_eq!(series.split('{').next(), Some(&*format!("{}{suffix}", family.0)), "{line}");
                assert!(numbers.insert(series), "{series} twice");
                assert!(number.parse::<f64>().is_ok_and(|number| number >= 0.0), "{line}");
            }
        }
        assert!(families.len() > 40, "{}", families.len());
    }

    #[test]
    fn there_is_something_to_tell_before_the_first_window() {
        let text = write(None, Format::Plain);
        assert!(text.contains("weir_build_info{version=\"") && text.contains("weir_windows_total 0\n"), "{text}");
    }
}
