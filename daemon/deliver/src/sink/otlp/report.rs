//! The metrics of a report: the same numbers as for Prometheus, but each for its window.

use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use weir_report::{
    Bounds, Distinct, Estimate, Histogram, Interface, Ledger, NewFlows, Observer, Report, SelfMetrics, SinkMetrics,
    Tally, TcpPackets, Totals, Unique,
};

use super::{
    NAME,
    metrics::{Attributes, Metrics, Name, Told, interface_attributes, text},
    of_resource, rows,
};

/// The parts of a tally, each with its unit.
const UNITS: [(&str, Told<Tally>); 2] = [
    ("{packet}", ("packets", "Packets", |tally| tally.packets)),
    ("By", ("bytes", "Bytes on the wire", |tally| tally.bytes)),
];

/// The report as one resource.
pub(super) fn mapped(report: &Report) -> ResourceMetrics {
    let mut metrics = Metrics::within(report.window.start, report.window.end);
    of_window(&mut metrics, report);
    of_totals(&mut metrics, &report.totals);
    of_ledgers(&mut metrics, &report.interfaces);
    of_interfaces(&mut metrics, &report.interfaces);
    of_rates(&mut metrics, report);
    of_estimates(&mut metrics, report);
    rows::of_views(&mut metrics, &report.views);
    of_alerts(&mut metrics, report);
    of_self(&mut metrics, &report.self_metrics);
    let Observer { name, id, boot_id: _, seq: _, version, site } = &report.observer;
    // Names from OpenTelemetry's semantic conventions for resources, where one exists.
    let mut resource = vec![
        text("service.name", NAME),
        text("service.version", version),
        text("service.instance.id", id),
        text("host.name", name),
    ];
    resource.extend(site.as_ref().map(|site| text("weir.site", site)));
    resource.extend(report.addresses.as_ref().map(|addresses| text("weir.addresses", addresses)));
    of_resource(resource, version, metrics.finish())
}

fn of_window(metrics: &mut Metrics, report: &Report) {
    let Observer { boot_id, seq, .. } = &report.observer;
    let name =
        Name("weir.report.seq", "1", "The number of the report; with the observer and its run, the report's id.");
    metrics.gauge(name, [(vec![text("run", boot_id)], *seq)]);
    metrics.real(Name("weir.window.length", "s", "The length of the window."), [(vec![], report.window.seconds)]);
    let step = report.window.clock_step_seconds.map(|seconds| (vec![], seconds));
    metrics.real(Name("weir.window.clock_step", "s", "By how much the wall clock was stepped."), step);
}

fn of_totals(metrics: &mut Metrics, totals: &Totals) {
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
    } = *totals;
    metrics.sum(Name("weir.packets", "{packet}", "Packets, each once."), [(vec![], packets)]);
    metrics.sum(Name("weir.bytes", "By", "Bytes on the wire, each packet once."), [(vec![], bytes)]);
    let versions = [("4", ipv4_packets), ("6", ipv6_packets)].map(|(one, number)| (vec![text("version", one)], number));
    metrics.sum(Name("weir.ip.packets", "{packet}", "Packets of flows, by version of IP."), versions);
    let protocols = [("tcp", tcp_packets), ("udp", udp_packets), ("icmp", icmp_packets), ("other", other_packets)]
        .map(|(one, number)| (vec![text("proto", one)], number));
    metrics.sum(Name("weir.protocol.packets", "{packet}", "Packets of flows, by protocol."), protocols);
}

/// The attributes of an interface, plus one.
fn with(interface: &Interface, key: &str, value: &str) -> Attributes {
    let mut attributes = interface_attributes(&interface.name, interface.direction.as_ref());
    attributes.push(text(key, value));
    attributes
}

fn of_ledgers(metrics: &mut Metrics, interfaces: &[Interface]) {
    let all = || interfaces.iter().map(|one| (interface_attributes(&one.name, one.direction.as_ref()), one));
    for (unit, (ending, words, of)) in UNITS {
        let seen = all().map(|(attributes, one)| (attributes, of(&one.ledger.seen)));
        let name = format!("weir.interface.seen.{ending}");
        metrics.sum(Name(&name, unit, &format!("{words} that weir saw.")), seen);
        let name = format!("weir.interface.accounted.{ending}");
        let description = format!("{words} by where they went. The sum of all kinds and reasons is what weir saw.");
        metrics.sum(Name(&name, unit, &description), interfaces.iter().flat_map(|one| parts(one, of)));
        let repeated = all().map(|(attributes, one)| (attributes, of(&one.repeated)));
        let name = format!("weir.interface.repeated.{ending}");
        let description = format!("{words} that count in totals and lists on another interface.");
        metrics.sum(Name(&name, unit, &description), repeated);
    }
    of_tcp(metrics, interfaces);
    let sizes = all().map(|(attributes, one)| (attributes, &*one.packet_sizes));
    metrics.histogram(Name("weir.interface.packet.size", "By", "Packets by their bytes on the wire."), sizes);
}

/// What became of the packets of an interface.
fn parts(interface: &Interface, of: fn(&Tally) -> u64) -> Vec<(Attributes, u64)> {
    let Ledger { seen: _, attributed, sampled_out, skipped, lost, uncertain: _ } = &interface.ledger;
    let whole = [("attributed", attributed), ("sampled_out", sampled_out)];
    let mut points: Vec<_> = whole.map(|(kind, tally)| (with(interface, "kind", kind), of(tally))).into();
    for (kind, reasons) in [("skipped", skipped), ("lost", lost)] {
        points.extend(reasons.iter().map(|(reason, tally)| {
            let mut attributes = with(interface, "kind", kind);
            attributes.push(text("reason", reason));
            (attributes, of(tally))
        }));
    }
    points
}

fn of_tcp(metrics: &mut Metrics, interfaces: &[Interface]) {
    const NAME: &str = "weir.interface.tcp.packets";
    const DESCRIPTION: &str = "Packets that begin or end TCP connections.";
    let numbers = interfaces.iter().flat_map(|one| {
        let TcpPackets { syn, syn_ack, rst, fin, bounds: _ } = one.tcp;
        [("syn", syn), ("syn_ack", syn_ack), ("rst", rst), ("fin", fin)]
            .map(|(flags, number)| (with(one, "flags", flags), number))
    });
    metrics.sum(Name(NAME, "{packet}", DESCRIPTION), numbers);
    let sides: [Told<Bounds>; 2] =
        [("lower", "Lower", |bounds| bounds.lower), ("upper", "Upper", |bounds| bounds.upper)];
    for (ending, word, side) in sides {
        let numbers = interfaces.iter().filter_map(|one| Some((one, one.tcp.bounds?))).flat_map(|(one, bounds)| {
            [("syn", bounds.syn), ("syn_ack", bounds.syn_ack), ("rst", bounds.rst), ("fin", bounds.fin)]
                .map(|(flags, bounds)| (with(one, "flags", flags), side(&bounds)))
        });
        let name = format!("{NAME}.{ending}");
        metrics.gauge(Name(&name, "{packet}", &format!("{DESCRIPTION} {word} bound.")), numbers);
    }
}

fn of_interfaces(metrics: &mut Metrics, interfaces: &[Interface]) {
    let all = || interfaces.iter().map(|one| (interface_attributes(&one.name, one.direction.as_ref()), one));
    let infos = all().map(|(mut attributes, one)| {
        attributes.extend([text("mode", &one.mode), text("counts", &one.counts), text("feeds", &one.feeds)]);
        attributes.extend(one.alias.as_ref().map(|alias| text("alias", alias)));
        (attributes, 1)
    });
    metrics.gauge(Name("weir.interface.info", "1", "How an interface is measured. Always 1."), infos);
    let sampling = all().map(|(attributes, one)| (attributes, u64::from(one.sampling)));
    metrics.gauge(Name("weir.interface.sampling", "1", "One packet in this many was measured."), sampling);
    let coverage = all().filter_map(|(attributes, one)| Some((attributes, one.coverage?)));
    let description = "Packets that weir saw, per packet that the interface counted.";
    metrics.real(Name("weir.interface.coverage", "1", description), coverage);
    let bytes = all().filter_map(|(attributes, one)| Some((attributes, one.coverage_bytes?)));
    let description = "Bytes that weir saw, per byte that the interface counted.";
    metrics.real(Name("weir.interface.coverage_bytes", "1", description), bytes);
    let upper = all().filter_map(|(attributes, one)| Some((attributes, one.coverage_upper?)));
    let description = "Upper bound of the packets that weir saw, per packet that the interface counted.";
    metrics.real(Name("weir.interface.coverage_upper", "1", description), upper);
    let blind = all().map(|(attributes, one)| (attributes, one.blind_seconds.unwrap_or_default()));
    let description = "For how long of the window weir may not have seen the interface's packets.";
    metrics.real(Name("weir.interface.blind", "s", description), blind);
    let kept = all().map(|(attributes, one)| (attributes, one.kept));
    metrics.real(Name("weir.interface.kept", "1", "The share of packets that were not lost."), kept);
}

/// A distribution as points, one for each quantile. Empty if nothing was counted.
fn quantiles(attributes: &Attributes, of: &Histogram) -> Vec<(Attributes, u64)> {
    let Histogram { count, min, p50, p90, p99, max, buckets: _ } = *of;
    if count == 0 {
        return Vec::new();
    }
    let point = |(quantile, number)| {
        let mut attributes = attributes.clone();
        attributes.push(text("quantile", quantile));
        (attributes, number)
    };
    [("0", min), ("0.5", p50), ("0.9", p90), ("0.99", p99), ("1", max)].map(point).into()
}

fn of_rates(metrics: &mut Metrics, report: &Report) {
    let all = || report.rates.iter().map(|one| (interface_attributes(&one.interface, one.direction.as_ref()), one));
    let packets = all().flat_map(|(attributes, one)| quantiles(&attributes, &one.packets));
    let description = "Packets in each second of the window: a distribution.";
    metrics.gauge(Name("weir.interface.rate.packets", "{packet}/s", description), packets);
    let bytes = all().flat_map(|(attributes, one)| quantiles(&attributes, &one.bytes));
    let description = "Bytes in each second of the window: a distribution.";
    metrics.gauge(Name("weir.interface.rate.bytes", "By/s", description), bytes);
    let sizes = quantiles(&vec![], &report.histograms.packet_size_bytes);
    metrics.gauge(Name("weir.packet.size", "By", "Bytes on the wire of a packet: a distribution."), sizes);
}

fn of_estimates(metrics: &mut Metrics, report: &Report) {
    let Unique { src_ip, dst_ip, flows } = report.unique;
    let distinct = |Distinct { value, lower, upper, .. }| Estimate { value, lower, upper, sampled: None };
    let unique = [("src_ip", src_ip), ("dst_ip", dst_ip), ("flows", flows)]
        .map(|(of, one)| (vec![text("of", of)], distinct(one)));
    metrics.estimate(Name("weir.unique", "1", "Distinct addresses and flows."), &unique.into_iter());
    let NewFlows { value, lower, upper, .. } = report.new_flows;
    let new = [(vec![], Estimate { value, lower, upper, sampled: None })];
    metrics.estimate(Name("weir.new_flows", "{flow}", "Flows that were not seen before."), &new.into_iter());
}

fn of_alerts(metrics: &mut Metrics, report: &Report) {
    let alerts = report.alerts.iter().map(|alert| {
        let is_firing = matches!(&*alert.state, "firing" | "clearing");
        (vec![text("rule", &alert.rule)], u64::from(is_firing))
    });
    let description = "1 while an alert fires; 0 while its condition holds, but not yet for long enough.";
    metrics.gauge(Name("weir.alert.firing", "1", description), alerts);
}

fn of_self(metrics: &mut Metrics, of: &SelfMetrics) {
    let SelfMetrics {
        cpu_ns_per_packet,
        rss_bytes,
        memory_bytes,
        records,
        cache_hit_rate,
        kernel_ns_per_packet,
        rings,
        late_cpus,
        spool: _,
        sinks,
    } = of;
    let one = |number: f64| [(vec![], number)];
    let daemon = cpu_ns_per_packet.iter().flat_map(|number| one(*number));
    metrics.real(Name("weir.cpu.per_packet", "ns", "Daemon CPU per packet."), daemon);
    let kernel = kernel_ns_per_packet.iter().flat_map(|number| one(*number));
    metrics.real(Name("weir.kernel.per_packet", "ns", "Run time of the kernel's program per packet."), kernel);
    let resident = rss_bytes.map(|bytes| (vec![], bytes));
    metrics.gauge(Name("weir.memory.resident", "By", "Memory that weir uses."), resident);
    let planned = Name("weir.memory.planned", "By", "Memory that the configuration plans.");
    metrics.gauge(planned, [(vec![], *memory_bytes)]);
    metrics.sum(Name("weir.records", "{record}", "Records that the kernel sent."), [(vec![], *records)]);
    let description = "The share of packets whose flow was in the flow cache.";
    metrics.real(Name("weir.cache.hit_ratio", "1", description), cache_hit_rate.iter().flat_map(|rate| one(*rate)));
    metrics.real(
        Name("weir.ring.peak_fill", "1", "How full the fullest ring was."),
        rings.peak_fill.iter().flat_map(|fill| one(*fill)),
    );
    metrics.gauge(Name("weir.late_cpus", "{cpu}", "CPUs that were late."), [(vec![], late_cpus.len() as u64)]);
    of_sinks(metrics, sinks);
}

/// These count since the start of the daemon, which a report does not contain, so they cannot be sums.
fn of_sinks(metrics: &mut Metrics, sinks: &[SinkMetrics]) {
    let all =
        |number: fn(&SinkMetrics) -> u64| sinks.iter().map(move |sink| (vec![text("sink", &sink.name)], number(sink)));
    let queued = Name("weir.sink.queued", "{report}", "Reports that wait, or are being delivered.");
    metrics.gauge(queued, all(|sink| sink.queued));
    let delivered = Name("weir.sink.delivered", "{report}", "Reports delivered since the daemon's start.");
    metrics.gauge(delivered, all(|sink| sink.delivered));
    let failed = Name("weir.sink.failed_attempts", "{attempt}", "Attempts that failed since the daemon's start.");
    metrics.gauge(failed, all(|sink| sink.failed_attempts));
    let dropped = Name("weir.sink.dropped", "{report}", "Reports lost since the daemon's start.");
    metrics.gauge(dropped, all(|sink| sink.dropped));
    let reports = Name("weir.sink.spool.reports", "{report}", "Reports that wait on disk.");
    metrics.gauge(reports, all(|sink| sink.spool.unwrap_or_default().reports));
    let bytes = Name("weir.sink.spool.bytes", "By", "Size of all files on disk, those of refused reports included.");
    metrics.gauge(bytes, all(|sink| sink.spool.unwrap_or_default().bytes));
}
