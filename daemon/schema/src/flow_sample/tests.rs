use std::{collections::BTreeMap, net::Ipv4Addr};

use weir_common::sketch::Metric;
use weir_config::FlowQuestion;

use super::{
    estimate::{Estimator, Share},
    question::Selection,
    *,
};
use crate::Estimate;

/// Random numbers that follow each other.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A few large numbers and many small ones: about the first over the n-th.
    fn zipf(&mut self, most: f64) -> u64 {
        (most.powf(fraction(self.next())) - 1.0) as u64
    }
}

fn record(src: u32, dst: u32, dst_port: u16, proto: u8, tally: Tally) -> SampledRecord {
    let [src, dst] = [src, dst].map(|bits| Ipv4Addr::from_bits(0x0a00_0000 | bits).into());
    let src_port = 1024 + (u16::try_from(tally.bytes % 50_000).unwrap());
    let key = RecordKey { src, dst, src_port, dst_port, vlan: 0, proto, tos: 0, tcp_flags: 0, is_fragment: false };
    SampledRecord { key, tally }
}

/// The records of a window: a heavy tail of flows, some of which come several times. A flood has many small ones.
fn window(random: &mut Random, records: usize, is_flood: bool) -> Vec<SampledRecord> {
    let ports = [443, 53, 80, 22, 8080];
    let one = |random: &mut Random| {
        let (src, dst) = (random.zipf(60_000.0) as u32, random.zipf(3_000.0) as u32);
        let port = ports[random.zipf(5.9) as usize % ports.len()];
        if is_flood && !random.below(4).is_multiple_of(4) {
            return record(random.next() as u32 & 0xff_ffff, 7, 80, 17, Tally::new(1, 60));
        }
        let packets = 1 + random.zipf(20_000.0);
        let size = 60 + random.below(1_440);
        record(src, dst, port, if port == 53 { 17 } else { 6 }, Tally::new(packets, packets * size))
    };
    (0..records).map(|_| one(random)).collect()
}

fn whole(records: &[SampledRecord], coins: u64) -> FlowSample {
    let total = records.iter().fold(Tally::default(), |total, record| sum(total, record.tally));
    let error = SampleError { most: total, ..SampleError::default() };
    FlowSample { threshold: 0.0, coins, total, error, records: records.to_vec() }
}

/// Minutes of windows, each with a sample, and all of their records.
fn minutes(random: &mut Random, minutes: usize, size: usize) -> (Vec<FlowSample>, Vec<SampledRecord>) {
    let (mut samples, mut all) = (Vec::new(), Vec::new());
    for minute in 0..minutes {
        let windows = (0..6).map(|_| {
            let count = 100 + random.below(900) as usize;
            let records = window(random, count, minute % 5 == 3);
            all.extend(records.clone());
            FlowSample::union([whole(&records, random.next())], size)
        });
        let windows: Vec<_> = windows.collect();
        let samples_of_minute = FlowSample::union(windows, size);
        assert!(samples_of_minute.records.len() <= size);
        samples.push(FlowSample::from_text(samples_of_minute.to_text().as_bytes()).unwrap());
    }
    (samples, all)
}

fn truth<'r>(records: impl Iterator<Item = &'r SampledRecord>) -> [u64; 2] {
    let all = records.fold(Tally::default(), |all, record| sum(all, record.tally));
    [all.packets, all.bytes]
}

/// The bounds of a question, and those of all of its groups.
type Asked = ([Estimate; 2], BTreeMap<weir_config::view::ViewKey, [Estimate; 2]>, [Estimate; 2]);

fn ask(samples: &[FlowSample], selection: &Selection) -> Asked {
    let (mut estimator, mut part) = (Estimator::default(), Share::default());
    let mut groups: BTreeMap<_, Share> = BTreeMap::new();
    for sample in samples {
        let class = estimator.add(sample);
        for record in sample.records.iter().filter(|record| selection.has(&record.key)) {
            part.add(sample, class, record);
            groups.entry(selection.row(&record.key)).or_default().add(sample, class, record);
        }
    }
    let groups = groups.into_iter().map(|(key, share)| (key, estimator.group(&share))).collect();
    (estimator.part(&part), groups, estimator.group(&Share::default()))
}

fn is_within(bounds: [Estimate; 2], truth: [u64; 2]) -> bool {
    bounds.iter().zip(truth).all(|(bounds, truth)| bounds.lower <= truth && truth <= bounds.upper)
}

const QUESTIONS: [(&str, &str); 8] = [
    ("dst_port=443", "dst_ip"),
    ("proto=udp", "src_ip"),
    ("src_ip=10.0.0.0/28,dst_port!=443", "dst_ip"),
    ("dst_ip=10.0.0.7", "src_ip/16"),
    ("host=10.0.0.1", "dst_port"),
    ("dst_port=22,dst_port=8000-9000", "src_ip,dst_ip"),
    ("ip_version=4", "src_ip,dst_ip,src_port,dst_port,proto"),
    ("src_ip=10.0.16.0/20", "proto"),
];

fn question(nth: usize) -> Selection {
    let (text, by) = QUESTIONS[nth % QUESTIONS.len()];
    Selection::new(&FlowQuestion::parse(text, &[by.to_owned()]).unwrap()).unwrap()
}

/// Every group that there is counts as listed, and one bound that fails in any of them is a failure of the answer.
#[test]
#[expect(clippy::print_stdout, reason = "how often bounds failed, and how wide they are")]
fn bounds_hold_for_parts_and_for_all_of_their_groups_together() {
    let (mut answers, mut failed, mut widths) = (0, 0, Vec::new());
    for seed in 0..60 {
        let mut random = Random(seed);
        let (samples, all) = minutes(&mut random, 1 + seed as usize % 9, 100 + 50 * (seed as usize % 5));
        for nth in 0..QUESTIONS.len() {
            let selection = question(nth);
            let selected: Vec<_> = all.iter().filter(|record| selection.has(&record.key)).collect();
            let (part, groups, others) = ask(&samples, &selection);
            let mut of_groups: BTreeMap<_, Vec<&SampledRecord>> = BTreeMap::new();
            for record in &selected {
                of_groups.entry(selection.row(&record.key)).or_default().push(record);
            }
            let holds = is_within(part, truth(selected.iter().copied()))
                && of_groups.iter().all(|(key, records)| {
                    is_within(groups.get(key).copied().unwrap_or(others), truth(records.iter().copied()))
                })
                && groups.keys().all(|key| of_groups.contains_key(key));
            (answers, failed) = (answers + 1, failed + u32::from(!holds));
            let [_, Estimate { value, lower, upper, .. }] = part;
            widths.push((upper - lower) as f64 / value.max(1) as f64);
        }
    }
    widths.sort_by(f64::total_cmp);
    println!("{failed} of {answers} failed; half of the widths are at most {:.2}", widths[widths.len() / 2]);
    assert!(failed <= 1, "{failed} of {answers} answers had a bound that failed");
    assert!(widths[widths.len() / 2] < 1.5, "the bounds say something: {:?}", widths[widths.len() / 2]);
}

#[test]
fn sums_of_parts_are_right_on_average() {
    let mut random = Random(1);
    let windows: Vec<_> = (0..6).map(|_| window(&mut random, 1_000, false)).collect();
    let selection = question(4);
    let is_selected = |record: &&SampledRecord| selection.has(&record.key);
    let [packets, bytes] = truth(windows.iter().flatten().filter(is_selected));
    let (mut sums, runs) = ([0.0; 2], 2_000);
    for run in 0..runs {
        let samples = windows
            .iter()
            .enumerate()
            .map(|(nth, records)| FlowSample::union([whole(records, mix(run << 8 | nth as u64))], 150));
        let sample = FlowSample::union(samples, 150);
        let (mut estimator, mut part) = (Estimator::default(), Share::default());
        let class = estimator.add(&sample);
        for record in sample.records.iter().filter(is_selected) {
            part.add(&sample, class, record);
        }
        for (sum, of) in sums.iter_mut().zip(part.estimate()) {
            *sum += of / f64::from(u32::try_from(runs).unwrap());
        }
    }
    for (mean, truth) in sums.into_iter().zip([packets, bytes]) {
        let off = mean / truth as f64 - 1.0;
        assert!(off.abs() < 0.02, "{mean} of {truth}");
    }
}

/// Many groups of one small record each: chance makes some of them look large.
#[test]
fn rows_that_chance_has_favoured_have_no_bound_above_the_truth() {
    let mut random = Random(5);
    let records: Vec<_> =
        (0..50_000).map(|nth| record(nth, nth & 7, 80, 6, Tally::new(1, 60 + random.below(1_400)))).collect();
    let sample = FlowSample::union([whole(&records, 9)], 300);
    let selection = Selection::new(&FlowQuestion::parse("", &["src_ip".to_owned()]).unwrap()).unwrap();
    let (part, groups, _) = ask(std::slice::from_ref(&sample), &selection);
    assert!(is_within(part, truth(records.iter())));
    assert_eq!(groups.len(), 300);
    for record in &sample.records {
        assert!(is_within(groups[&selection.row(&record.key)], truth([record].into_iter())));
    }
}

/// Very many groups of two small records. In a few of them, both are in the sample, and these are the rows of a list:
/// bounds of groups that were chosen beforehand would be above what these have.
#[test]
fn bounds_of_rows_allow_for_very_many_groups() {
    let selection = Selection::new(&FlowQuestion::parse("", &["src_ip".to_owned()]).unwrap()).unwrap();
    let mut pairs = 0;
    for seed in 0..12 {
        let records: Vec<_> = (0..100_000).map(|nth| record(nth / 2, nth & 1, 80, 6, Tally::new(1, 600))).collect();
        let sample = FlowSample::union([whole(&records, mix(seed))], 300);
        let (_, groups, _) = ask(std::slice::from_ref(&sample), &selection);
        pairs += sample.records.len() - groups.len();
        for bounds in groups.values() {
            assert!(is_within(*bounds, [2, 1_200]), "{bounds:?}");
        }
    }
    assert!(pairs > 2, "{pairs}");
}

/// Packets that sampling left out, and packets that were lost.
#[test]
#[expect(clippy::print_stdout, reason = "how often bounds failed, and how wide they are")]
fn packets_that_no_record_has_widen_the_bounds() {
    let (mut failed, mut answers) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(seed ^ 77);
        let rate = 2 + random.below(9);
        let mut samples = Vec::new();
        let (mut all, mut total) = (Vec::new(), Tally::default());
        for _ in 0..4 {
            let truth = window(&mut random, 800, false);
            let (mut taken, mut lost) = (Vec::new(), Tally::default());
            for one in &truth {
                let size = one.tally.bytes / one.tally.packets;
                if random.below(20) == 0 {
                    lost = sum(lost, one.tally);
                    continue;
                }
                let packets = (0..one.tally.packets).filter(|_| random.below(rate) == 0).count() as u64;
                if packets > 0 {
                    let scaled = packets * rate;
                    taken.push(SampledRecord { tally: Tally::new(scaled, scaled * size), ..*one });
                }
            }
            let most = self::truth(truth.iter());
            let most = Tally::new(most[0], most[1]);
            total = sum(total, most);
            let rate = u32::try_from(rate).unwrap();
            let error = SampleError { lost, most, rate, largest: Tally::new(1, 1_500), ..SampleError::default() };
            let sample = FlowSample { error, ..whole(&taken, random.next()) };
            samples.push(FlowSample::union([sample], 200));
            all.extend(truth);
        }
        for nth in 0..QUESTIONS.len() {
            let selection = question(nth);
            let (part, groups, others) = ask(&samples, &selection);
            let mut of_groups: BTreeMap<_, Vec<&SampledRecord>> = BTreeMap::new();
            for record in all.iter().filter(|record| selection.has(&record.key)) {
                of_groups.entry(selection.row(&record.key)).or_default().push(record);
            }
            let holds = is_within(part, truth(of_groups.values().flatten().copied()))
                && of_groups.iter().all(|(key, records)| {
                    is_within(groups.get(key).copied().unwrap_or(others), truth(records.iter().copied()))
                });
            (answers, failed) = (answers + 1, failed + u32::from(!holds));
            assert!(part[1].upper <= total.bytes);
        }
    }
    println!("{failed} of {answers} failed");
    assert!(failed <= 1, "{failed} of {answers}");
}

#[test]
fn a_sample_with_room_for_all_records_is_exact() {
    let records = window(&mut Random(3), 500, true);
    let sample = FlowSample::union([whole(&records[..200], 1), whole(&records[200..], 2)], 1_000);
    let selection = question(0);
    let (part, _, others) = ask(std::slice::from_ref(&sample), &selection);
    let [packets, bytes] = truth(records.iter().filter(|record| selection.has(&record.key)));
    let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
    assert_eq!((part, others), ([exact(packets), exact(bytes)], [exact(0); 2]));
    assert_eq!(Metric::Bytes.of(sample.total), truth(records.iter())[1]);
}

#[test]
fn records_of_a_large_flow_take_the_room_of_one() {
    let elephant = record(1, 2, 443, 6, Tally::new(1_000, 1_500_000));
    let windows = (0..6).map(|nth| {
        let mut records = window(&mut Random(nth), 50, false);
        records.retain(|record| record.tally.bytes < 100_000);
        records.extend([elephant; 20]);
        FlowSample::union([whole(&records, nth)], 60)
    });
    let minute = FlowSample::union(windows, 40);
    let of_elephant: Vec<_> = minute.records.iter().filter(|record| record.key == elephant.key).collect();
    assert_eq!(of_elephant.len(), 1);
    assert_eq!(of_elephant[0].tally, Tally::new(120_000, 180_000_000));
}

#[test]
fn a_text_has_the_whole_sample_and_a_damaged_one_is_refused() {
    let mut random = Random(11);
    let mut records = window(&mut random, 300, true);
    for nth in 0..20_u64 {
        let mut six = records[nth as usize];
        six.key.src = std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(nth % 3) << 64 | 7).into();
        six.key.dst = std::net::Ipv6Addr::from_bits(u128::MAX - u128::from(nth)).into();
        (six.key.vlan, six.key.tos, six.key.tcp_flags, six.key.is_fragment) = (4095, 255, 255, nth % 2 == 0);
        records.push(six);
    }
    let sample = FlowSample::union([whole(&records, 4)], 100);
    assert!(sample.threshold > 0.0);
    let text = sample.to_text();
    assert_eq!(FlowSample::from_text(text.as_bytes()).unwrap(), sample);
    assert_eq!(FlowSample::from_text(FlowSample::default().to_text().as_bytes()).unwrap(), FlowSample::default());
    for damaged in
        [text.replacen("\"proto\":[", "\"proto\":[],\"x\":[", 1), text.replacen("threshold\":", "threshold\":-", 1)]
    {
        assert_eq!(FlowSample::from_text(damaged.as_bytes()), None);
    }
}

#[test]
fn addresses_are_masked() {
    let mut sample = whole(&[record(0x0001_0203, 0x0004_0506, 443, 6, Tally::new(1, 60))], 0);
    sample.mask(Addresses::Prefix);
    let key = sample.records[0].key;
    assert_eq!((key.src.to_string(), key.dst.to_string()), ("10.1.2.0".to_owned(), "10.4.5.0".to_owned()));
    sample.mask(Addresses::None);
    assert_eq!(sample.records[0].key.src.to_string(), "0.0.0.0");
}

/// The small records of a quiet window are thinned when it is united with a busy one, even if there is room for all:
/// otherwise each would stand for as much as the busy window's threshold.
#[test]
fn records_of_a_quiet_window_are_thinned_by_the_threshold_of_a_busy_one() {
    let mut random = Random(11);
    let busy: Vec<_> = (0..4_000).map(|nth| record(nth, 1, 80, 6, Tally::new(700, 400_000 + u64::from(nth)))).collect();
    let quiet: Vec<_> = (0..1_000).map(|nth| record(nth, 2, 53, 17, Tally::new(1, 100))).collect();
    let busy_sample = FlowSample::union([whole(&busy, random.next())], 50);
    let union = FlowSample::union([busy_sample, whole(&quiet, random.next())], 5_000);
    let selection = Selection::new(&FlowQuestion::parse("proto=udp", &[]).unwrap()).unwrap();
    let (part, _, _) = ask(&[union], &selection);
    assert!(is_within(part, truth(quiet.iter())), "{part:?}");
}
