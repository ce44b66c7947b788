//! Makes a report from a summary: [`report`]. [`live`] makes the answers for clients before there is one.

mod live;
mod rates;
mod rows;
mod sizes;

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use weir_common::{flow::FlowKey, ledger};
use weir_config::{
    horizon_name,
    view::{Standard, ViewKey},
};
use weir_datapath::{interface::MeasuredInterface, rates::WindowSeconds};
use weir_measure::{
    answer::Answer, beyond::RankedPrefix, by::By, hosts, local, look_up::KeyAnswer, new_flows, prefixes::Prefix,
    protocols::Protocols, question::Views, ranking::Ranked, summary::Summary, tcp::TcpCounts, window::Span,
};
use weir_schema::{
    Beyond, Bounds, Distinct, Estimate, Histograms, Horizon, HostNumbers, Interface, Ledger, NewFlows, NewHost,
    NewHosts, Observer, Remembered, Report, SCHEMA, SelfMetrics, Sketches, Sums, TROUBLE_MAX, TcpBounds, TcpPackets,
    Top, TopPrefix, TopUnlisted, Totals, TotalsBounds, Unique, Window, protocol_name, standard_lists,
};
use weir_sketch::hyperloglog::CONFIDENCE;

pub use self::{
    live::{live, live_answers},
    rows::answers,
};

/// A report's observer and ids, including its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
    /// The weir that makes the report.
    pub observer: Observer,
    /// The id of the report.
    pub id: String,
    /// The id of the previous report, if it is known.
    pub previous: Option<String>,
}

/// The data that a report needs besides the summary.
pub struct Context<'a> {
    /// The fingerprint of the window's key.
    pub key_id: u64,
    /// The start and end of the window.
    pub span: Span,
    /// The observer and the report's ids.
    pub numbered: Numbered,
    /// The views that the report answers.
    pub views: Arc<Views>,
    /// The results for the requested keys.
    pub asked: &'a [KeyAnswer],
    /// The measured interfaces.
    pub interfaces: Vec<MeasuredInterface>,
    /// The cost of measuring and reporting.
    pub self_metrics: SelfMetrics,
}

/// The report of a window.
pub fn report(context: Context<'_>, summary: &Summary) -> Report {
    let Context { key_id, span, numbered, views, asked, interfaces, self_metrics } = context;
    let Numbered { observer, id, previous } = numbered;
    let Summary {
        ledgers,
        tcp,
        protocols,
        sources,
        destinations,
        flows,
        new_flows,
        views: answers,
        sizes,
        rates,
        records: _,
        ring_peak: _,
        sampling,
        confidence,
        uncertainty,
    } = summary;
    let own = rows::views(&views, answers, &interfaces);
    let seconds = whole_seconds(span);
    let rates = interfaces
        .iter()
        .filter_map(|of| {
            let seen = ledgers.get(of.slot?)?.counters.seen;
            rates::of_interface(of, rates.get(of.slot?)?, seen, seconds)
        })
        .collect();
    let spread = rows::spread(&views, answers, &interfaces);
    let asked = rows::answers(&views, asked, &interfaces);
    Report {
        schema: SCHEMA.to_owned(),
        id,
        previous,
        addresses: None,
        key_id: format!("{key_id:016x}"),
        window: window(span),
        observer,
        // Alerts are added later, because they are derived from everything else.
        alerts: Vec::new(),
        // The caller knows what earlier windows carried.
        usage: Vec::new(),
        interfaces: interfaces
            .into_iter()
            .filter_map(|measured| {
                let (ledger, counts) = match measured.slot {
                    Some(slot) => (*ledgers.get(slot)?, *tcp.get(slot)?),
                    None => Default::default(),
                };
                Some(interface(measured, &ledger, tcp_packets(&counts, *confidence), *sampling))
            })
            .collect(),
        totals: totals(summary.fed(), *protocols, uncertainty.is_some().then_some(*confidence)),
        unique: Unique { src_ip: distinct(*sources), dst_ip: distinct(*destinations), flows: distinct(*flows) },
        new_flows: self::new_flows(new_flows),
        // They are measured with a key of their own, and added later.
        horizons: Vec::new(),
        new_hosts: None,
        spread,
        top: list(&views, answers, "bytes", *sampling, *confidence),
        top_by_packets: list(&views, answers, "packets", *sampling, *confidence),
        views: own,
        answers: asked,
        rates,
        sketches: None,
        sample: None,
        histograms: Histograms { packet_size_bytes: sizes::histogram(sizes) },
        self_metrics,
    }
}

/// The longer lists of a window, which the history keeps, from answers with as many rows; and its small sketches.
pub fn remembered(
    views: &Views,
    answers: &[Answer],
    summary: &Summary,
    interfaces: &[MeasuredInterface],
    sketches: Sketches,
) -> Remembered {
    let of = |by| list(views, answers, by, summary.sampling, summary.confidence);
    // Views that cannot be added up have no such answer.
    let kept = views.in_views().filter_map(|(nth, question)| Some((question, answers.get(nth)?)));
    let kept = kept.filter(|(_, answer)| !answer.tables.is_empty());
    let kept = kept.map(|(question, answer)| rows::view(views, question, answer, interfaces)).collect();
    Remembered { top: of("bytes"), top_by_packets: of("packets"), views: kept, sketches, sample: None }
}

/// How many full seconds of the wall clock lie within a window.
fn whole_seconds(span: Span) -> u64 {
    let ns = |time: Timestamp| u64::try_from(time.as_nanosecond()).unwrap_or(0);
    WindowSeconds::whole_seconds(ns(span.start), ns(span.end))
}

fn window(span: Span) -> Window {
    let Span { start, end, length, clock_step, late_packets, untimed_packets } = span;
    let clock_step_seconds = clock_step.map(|step| step.as_secs_f64());
    Window { start, end, seconds: length.into(), clock_step_seconds, late_packets, untimed_packets, strays: None }
}

fn interface(measured: MeasuredInterface, account: &ledger::Ledger, tcp: TcpPackets, sampling: u32) -> Interface {
    let MeasuredInterface {
        slot: _,
        name,
        earlier_name,
        index,
        alias,
        vrf,
        mode,
        counts,
        direction,
        feeds,
        coverage,
        coverage_bytes,
        unseen,
        blind,
        trouble,
    } = measured;
    let ledger = Ledger::from(account);
    Interface {
        name,
        earlier_name,
        index,
        alias,
        vrf,
        mode: mode.to_owned(),
        counts: counts.name().to_owned(),
        direction: direction.map(str::to_owned),
        feeds: feeds.to_owned(),
        repeated: account.counters.repeated.into(),
        sampling,
        tcp,
        packet_sizes: sizes::buckets(account.counters.sizes),
        coverage: coverage.map(|share| digits(share.value, f64::round)),
        coverage_lower: coverage.map(|share| digits(share.lower, f64::floor)),
        coverage_upper: coverage.map(|share| digits(share.upper, f64::ceil)),
        coverage_bytes: coverage_bytes.map(|share| digits(share.value, f64::round)),
        coverage_bytes_lower: coverage_bytes.map(|share| digits(share.lower, f64::floor)),
        coverage_bytes_upper: coverage_bytes.map(|share| digits(share.upper, f64::ceil)),
        unseen: unseen.map(|[least, most]| (&ledger::Uncertain { least, most }).into()),
        blind_seconds: blind.map(|blind| digits(blind.as_secs_f64(), f64::ceil)),
        unmeasured_seconds: None,
        trouble: trouble.map(|trouble| trouble.chars().take(TROUBLE_MAX).collect()),
        unread_link_types: Vec::new(),
        kept: ledger.kept(),
        ledger,
    }
}

/// A number with six decimal places, rounded by `to_whole`.
fn digits(number: f64, to_whole: fn(f64) -> f64) -> f64 {
    to_whole(number * 1e6) / 1e6
}

fn tcp_packets(counts: &TcpCounts, confidence: f64) -> TcpPackets {
    let &TcpCounts { syn, syn_ack, rst, fin } = counts;
    let bounds = (!counts.is_exact()).then(|| TcpBounds {
        confidence,
        syn: bounds(syn),
        syn_ack: bounds(syn_ack),
        rst: bounds(rst),
        fin: bounds(fin),
    });
    TcpPackets { syn: syn.value, syn_ack: syn_ack.value, rst: rst.value, fin: fin.value, bounds }
}

fn bounds(estimate: weir_sketch::Estimate) -> Bounds {
    let weir_sketch::Estimate { value: _, lower, upper } = estimate;
    Bounds { lower, upper }
}

/// The totals, with bounds at a confidence if packets are missing.
fn totals(seen: ledger::Tally, protocols: Protocols<weir_sketch::Estimate>, missing: Option<f64>) -> Totals {
    let Protocols { ipv4, ipv6, tcp, udp, icmp, other } = protocols;
    Totals {
        packets: seen.packets,
        bytes: seen.bytes,
        ipv4_packets: ipv4.value,
        ipv6_packets: ipv6.value,
        tcp_packets: tcp.value,
        udp_packets: udp.value,
        icmp_packets: icmp.value,
        other_packets: other.value,
        bounds: missing.map(|confidence| TotalsBounds {
            confidence,
            ipv4_packets: bounds(ipv4),
            ipv6_packets: bounds(ipv6),
            tcp_packets: bounds(tcp),
            udp_packets: bounds(udp),
            icmp_packets: bounds(icmp),
            other_packets: bounds(other),
        }),
    }
}

fn new_flows(new: &new_flows::NewFlows) -> NewFlows {
    let new_flows::NewFlows { count, false_positive_rate, fill } = *new;
    let weir_sketch::Estimate { value, lower, upper } = count;
    NewFlows { value, lower, upper, confidence: CONFIDENCE, false_positive_rate, fill }
}

/// What a report says of horizons and new hosts.
pub fn with_local_key(answers: local::Answers) -> (Vec<Horizon>, Option<NewHosts>) {
    let local::Answers { horizons, new_hosts } = answers;
    let horizon = |horizon: local::horizon::Answer| {
        let local::horizon::Answer { length, start, covered, counts } = horizon;
        let [src_ip, dst_ip, flows] = counts.map(distinct);
        Horizon {
            name: horizon_name(length.as_secs()),
            seconds: length.as_secs(),
            start,
            covered_seconds: covered.as_secs_f64(),
            unique: Unique { src_ip, dst_ip, flows },
        }
    };
    let new = |new: local::NewHostsAnswer| {
        let local::NewHostsAnswer { count, false_positive_rate, fill, since, known, is_learning, hosts } = new;
        let weir_sketch::Estimate { value, lower, upper } = count;
        NewHosts {
            value,
            lower,
            upper,
            confidence: CONFIDENCE,
            false_positive_rate,
            fill,
            since,
            known_seconds: known.as_secs_f64(),
            learning: is_learning,
            hosts: hosts.into_iter().map(|src_ip| NewHost { src_ip }).collect(),
        }
    };
    (horizons.into_iter().map(horizon).collect(), new_hosts.map(new))
}

fn distinct(estimate: weir_sketch::Estimate) -> Distinct {
    let weir_sketch::Estimate { value, lower, upper } = estimate;
    Distinct { value, lower, upper, confidence: CONFIDENCE }
}

fn list(views: &Views, answers: &[Answer], by: &str, sampling: u32, confidence: f64) -> Top {
    let rows = |standard: Standard| {
        let ranking =
            views.standard(standard).and_then(|nth| Some((&views.questions[nth].by, answers.get(nth)?.ranking()?)));
        let row = |(rank, ranked): (u32, &Ranked<ViewKey>), of: &By| {
            let [packets, bytes] = estimates(ranked);
            let hosts = views.standard(standard).and_then(|nth| answers.get(nth)?.hosts.get(&ranked.key));
            let more = RowNumbers(hosts.map(|numbers| host_numbers(numbers, ranked)).unwrap_or_default());
            (rank, RowKey(of.flow(&ranked.key)), packets, bytes, more)
        };
        let rows = ranking.map(|(of, ranking)| {
            let rows = if by == "bytes" { &ranking.by_bytes } else { &ranking.by_packets };
            (1..).zip(rows).map(|ranked| row(ranked, of)).collect::<Vec<_>>()
        });
        rows.unwrap_or_default().into_iter()
    };
    let unlisted = |standard: Standard| {
        let unlisted = answers.get(views.standard(standard)?)?.ranking()?.unlisted?;
        Some(if by == "bytes" { unlisted.bytes } else { unlisted.packets })
    };
    macro_rules! filled {
        ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
            Top {
                by: by.to_owned(),
                unlisted: TopUnlisted { $($rows: unlisted(Standard::$list)),* },
                sampling,
                confidence,
                $($rows: rows(Standard::$list)
                    .map(|(rank, key, packets, bytes, _more)| {
                        weir_schema::$row { rank, $($field: key.$field(),)* packets, bytes, $($more: _more.$more(),)? }
                    })
                    .collect(),)*
                source_prefixes: prefixes(views, answers, Standard::SourcePrefixes, by),
                destination_prefixes: prefixes(views, answers, Standard::DestinationPrefixes, by),
            }
        };
    }
    standard_lists!(filled)
}

/// The numbers of a row besides its packets and bytes.
struct RowNumbers(HostNumbers);

impl RowNumbers {
    const fn numbers(&self) -> HostNumbers {
        self.0
    }
}

/// The numbers of the host of this row.
fn host_numbers(numbers: &hosts::HostNumbers, row: &Ranked<ViewKey>) -> HostNumbers {
    let [down, up] = numbers.directions(row).map(|hosts::OneDirection { packets, bytes }| Sums {
        packets: Estimate::new(packets, None),
        bytes: Estimate::new(bytes, None),
    });
    HostNumbers { down, up, flows: Estimate::new(numbers.flows, None), peers: Estimate::new(numbers.peers, None) }
}

/// The fields of a key as the rows of lists have them.
struct RowKey(FlowKey);

impl RowKey {
    /// The address, which is that of the source in a key of one address.
    fn host(&self) -> IpAddr {
        self.0.src_ip()
    }

    fn src_ip(&self) -> IpAddr {
        self.0.src_ip()
    }

    fn dst_ip(&self) -> IpAddr {
        self.0.dst_ip()
    }

    fn src_port(&self) -> u16 {
        self.0.src_port()
    }

    fn dst_port(&self) -> u16 {
        self.0.dst_port()
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    fn proto(&self) -> Cow<'static, str> {
        protocol_name(self.0.proto())
    }
}

fn prefixes(views: &Views, answers: &[Answer], standard: Standard, by: &str) -> Vec<TopPrefix> {
    let Some(ranking) = views.standard(standard).and_then(|nth| answers.get(nth)?.prefixes()) else {
        return Vec::new();
    };
    let rows = if by == "bytes" { &ranking.by_bytes } else { &ranking.by_packets };
    let row = |(rank, row): (u32, &RankedPrefix)| {
        let RankedPrefix { all, beyond, members } = row;
        let ([packets, bytes], [beyond_packets, beyond_bytes]) = (estimates(all), estimates(beyond));
        TopPrefix {
            rank,
            prefix: Prefix::of(&all.key).to_string(),
            packets,
            bytes,
            beyond: Beyond { packets: beyond_packets, bytes: beyond_bytes },
            members: *members,
        }
    };
    (1..).zip(rows).map(row).collect()
}

fn estimates<K>(ranked: &Ranked<K>) -> [Estimate; 2] {
    let Ranked { key: _, packets, bytes, sampled } = ranked;
    [
        Estimate::new(*packets, sampled.map(|sampled| sampled.packets)),
        Estimate::new(*bytes, sampled.map(|sampled| sampled.bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use weir_common::{
        flow::{Address, class},
        record::Record,
    };
    use weir_config::Estimates;
    use weir_datapath::edge::Edge;
    use weir_measure::{new_flows::FilterState, order::Closed, shard::Shard};
    use weir_sketch::{Seen, hash::Key};

    use super::*;

    /// A summary with lists of this many rows: few large packets of 10.0.0.1, many small fragments of 10.0.1.1, and, if
    /// `more` is given, a source with more packets and bytes than both.
    fn summary(top: usize, more: Option<[u8; 4]>) -> (Arc<Views>, Summary) {
        let mut records =
            vec![record([10, 0, 0, 1], 0, (3, 4_000)), record([10, 0, 1, 1], class::FRAGMENT, (20, 2_000))];
        records.extend(more.map(|source| record(source, 0, (100, 90_000))));
        summary_of(top, &records)
    }

    fn record(src: [u8; 4], class: u8, (packets, bytes): (u32, u64)) -> Record {
        let [src, dst] = [src, [192, 0, 2, 9]].map(|ip| Address::from_v4_word(u32::from_ne_bytes(ip)));
        let key = FlowKey::new(src, dst, 6, class).with_ports(50_000, 443);
        Record { key, packets, bytes, sampling: 1, ..Record::default() }
    }

    /// A summary of these records with lists of this many rows.
    fn summary_of(top: usize, records: &[Record]) -> (Arc<Views>, Summary) {
        let (views, key) = (Views::built_in(&Estimates::default(), top), Key([1, 2]));
        let seen = Seen::with_capacity(100, 0.01, key.id()).unwrap();
        let mut shard = Box::new(Shard::new(&Estimates::default(), &views, key));
        shard.absorb(records, &seen);
        shard.settle(&seen);
        let mut window = [Closed::new(shard, Edge::empty(1))];
        let summary = Summary::merge(&mut window, &views, 1, FilterState::steadily(&seen), 0.999).unwrap();
        (views, summary)
    }

    #[test]
    fn lists_are_ordered_by_their_measure() {
        let (views, summary) = summary(10, None);
        let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
        let [large, small] = [("10.0.0", [exact(3), exact(4_000)]), ("10.0.1", [exact(20), exact(2_000)])];
        for (by, expected) in [("bytes", [large, small]), ("packets", [small, large])] {
            let top = list(&views, &summary.views, by, 1, 1.0);
            assert_eq!((&*top.by, top.sampling, top.confidence), (by, 1, 1.0));
            let ranks: Vec<u32> = top.flows.iter().map(|flow| flow.rank).collect();
            assert_eq!(ranks, [1, 2]);
            for (nth, (network, tallies)) in expected.into_iter().enumerate() {
                let (ip, flow) = (format!("{network}.1"), &top.flows[nth]);
                assert_eq!(flow.src_ip.to_string(), ip);
                assert_eq!([&flow.packets, &flow.bytes], tallies.each_ref());
                assert_eq!(top.sources[nth].src_ip.to_string(), ip);
            }
        }
    }

    #[test]
    fn a_key_without_a_row_has_at_most_what_the_list_says() {
        // Bytes and packets have different orders. Of the most keys, not all can be candidates.
        let counts = |nth: u32| (1 + nth % 61, 64 * u64::from(1 + nth % 97));
        for keys in [2, 40, 60_000] {
            let all: Vec<_> =
                (0..keys).map(|nth: u32| record((nth + (10 << 24)).to_be_bytes(), 0, counts(nth))).collect();
            let (views, summary) = summary_of(10, &all);
            for by in ["bytes", "packets"] {
                let of = |record: &Record| if by == "bytes" { record.bytes } else { record.packets.into() };
                let top = list(&views, &summary.views, by, 1, 1.0);
                let is_listed = |record: &&Record| top.sources.iter().any(|row| row.src_ip == record.key.src_ip());
                let most = all.iter().filter(|record| !is_listed(record)).map(of).max().unwrap_or(0);
                let total: u64 = all.iter().map(of).sum();
                for unlisted in [top.unlisted.sources.unwrap(), top.unlisted.flows.unwrap()] {
                    match keys {
                        60_000 => {
                            assert!((most..=most + total / 500).contains(&unlisted), "{by}: {unlisted} of {most}");
                        }
                        _ => assert_eq!(unlisted, most, "{by}: all keys are candidates"),
                    }
                }
            }
        }
        let (views, summary) = summary_of(10, &[]);
        let off = TopUnlisted::default();
        assert_eq!(list(&views, &[], "bytes", 1, 1.0).unlisted, off, "there are no lists");
        assert_eq!(list(&views, &summary.views, "bytes", 1, 1.0).unlisted.pairs, Some(0));
    }

    #[test]
    fn prefixes_are_ordered_by_their_measure() {
        let (views, summary) = summary(1, Some([10, 0, 2, 1]));
        for (by, expected) in [("bytes", ("10.0.0.0/24", 3, 4_000)), ("packets", ("10.0.1.0/24", 20, 2_000))] {
            let top = list(&views, &summary.views, by, 1, 1.0);
            let [prefix] = &top.source_prefixes[..] else { panic!("{:?}", top.source_prefixes) };
            assert_eq!((&*prefix.prefix, prefix.packets.value, prefix.bytes.value), expected);
            assert_eq!((prefix.rank, prefix.members, prefix.beyond.bytes.value), (1, 0, expected.2));
        }
    }

    #[test]
    fn totals_equal_the_sums_of_their_protocols() {
        let open = |value| weir_sketch::Estimate { value, lower: value - 1, upper: value + 1 };
        let [ipv4, ipv6, tcp, udp, icmp, other] = [1, 2, 3, 4, 5, 6].map(open);
        let protocols = Protocols { ipv4, ipv6, tcp, udp, icmp, other };
        let expected = Totals {
            packets: 7,
            bytes: 8,
            ipv4_packets: 1,
            ipv6_packets: 2,
            tcp_packets: 3,
            udp_packets: 4,
            icmp_packets: 5,
            other_packets: 6,
            bounds: None,
        };
        assert_eq!(totals(ledger::Tally::new(7, 8), protocols, None), expected);
        let bounds = totals(ledger::Tally::new(7, 8), protocols, Some(0.9)).bounds.unwrap();
        let parts = [bounds.ipv4_packets, bounds.ipv6_packets, bounds.tcp_packets, bounds.udp_packets];
        assert_eq!(parts, [(0, 2), (1, 3), (2, 4), (3, 5)].map(|(lower, upper)| bounds_of(lower, upper)));
        let parts = [bounds.icmp_packets, bounds.other_packets];
        assert_eq!((parts, bounds.confidence), ([bounds_of(4, 6), bounds_of(5, 7)], 0.9));
    }

    #[test]
    fn estimated_tcp_counts_have_bounds() {
        let exact = |value| weir_sketch::Estimate { value, lower: value, upper: value };
        let counts = TcpCounts { syn: exact(4), syn_ack: exact(3), rst: exact(2), fin: exact(1) };
        let told = tcp_packets(&counts, 0.9);
        assert_eq!((told.syn, told.syn_ack, told.rst, told.fin, told.bounds), (4, 3, 2, 1, None));
        let open = TcpCounts { rst: weir_sketch::Estimate { value: 2, lower: 1, upper: 9 }, ..counts };
        let bounds = tcp_packets(&open, 0.9).bounds.unwrap();
        assert_eq!((bounds.confidence, bounds.syn, bounds.rst), (0.9, bounds_of(4, 4), bounds_of(1, 9)));
    }

    const fn bounds_of(lower: u64, upper: u64) -> Bounds {
        Bounds { lower, upper }
    }
}
