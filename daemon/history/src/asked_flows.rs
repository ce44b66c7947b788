//! Answers questions that no view asked, from [samples](crate::samples) of flow records. Where the rows of the kept
//! lists know a key or a part more closely, their bounds win.

use std::collections::BTreeMap;

use jiff::Timestamp;
use weir_config::{Addresses, FlowQuestion, view::ViewKey};
use weir_schema::{
    ASKED_FLOWS_SCHEMA, AskedFlows, AskedRecords, Estimate, Gap, KeyAnswer, ListKey, ListPart, Row, Sums, Tally, Union,
    flow_sample::{
        estimate::{Estimator, Share},
        question::Selection,
    },
};

use crate::{
    samples::Unusable,
    time::Time,
    windows::{Windows, gaps, is_repeated, known_times, length_of},
};

/// The most rows of an answer.
const ROWS_MAX: usize = 100;
/// The most groups in memory. If there are more, the smallest half is dropped, and the rows are counted once more.
const GROUPS_MAX: usize = 1 << 14;

/// What the samples of a time have of a question. `by` are the fields of its rows. `None` if there is no sample of this
/// time.
///
/// # Errors
///
/// The question cannot be answered.
pub fn asked_flows(windows: &Windows, time: &Time, text: &str, by: &[String]) -> Result<Option<AskedFlows>, String> {
    of_samples(windows, time, &FlowQuestion::parse(text, by)?, text.to_owned())
}

/// The same for a question that is read already.
pub fn of_samples(
    windows: &Windows,
    time: &Time,
    question: &FlowQuestion,
    text: String,
) -> Result<Option<AskedFlows>, String> {
    let question = question.clone().if_shown(windows.shown())?;
    let selection = Selection::new(&question).ok_or("these fields are too many for a row: leave one out")?;
    let asked = Asked { windows, time, question, selection };
    let mut tallied = asked.tally(None);
    if tallied.known.is_empty() {
        return Ok(None);
    }
    let has_rows = !asked.question.by.is_empty();
    if tallied.has_dropped {
        let listed = largest(&tallied.groups).into_iter().map(|(key, _)| (key, Share::default())).collect();
        tallied = Tallied { has_dropped: true, ..asked.tally(Some(listed)) };
    }
    let [packets, bytes] = match asked.question.conditions.is_empty() {
        true => tallied.estimator.all(),
        false => tallied.estimator.part(&tallied.part),
    };
    let mut answer = AskedFlows {
        schema: ASKED_FLOWS_SCHEMA.to_owned(),
        question: text,
        by: asked.question.by.iter().map(ToString::to_string).collect(),
        from: tallied.known.iter().map(|of| of.start).min().unwrap_or_default(),
        to: tallied.known.iter().map(|of| of.end).max().unwrap_or_default(),
        windows: tallied.windows,
        reaches_back_to: windows.samples().oldest(),
        missing: asked.missing(&tallied.known),
        records: tallied.records,
        confidence: tallied.estimator.confidence(),
        packets,
        bytes,
        rows: Vec::new(),
        at_most: None,
    };
    if has_rows {
        asked.add_rows(&tallied, &mut answer);
    }
    asked.narrow(&tallied.known, &mut answer);
    agree(&mut answer);
    Ok(Some(answer))
}

/// Why there is no answer to a question about this time.
pub fn why_none(windows: &Windows, time: &Time, text: &str, by: &[String]) -> String {
    let samples = windows.samples();
    let Some((oldest, newest)) = samples.oldest().zip(samples.newest()) else {
        return "the history has no sample of flow records: set `history: {sample: 1000}`, and ask about a later time; \
                the first one comes with the first report"
            .to_owned();
    };
    let question = FlowQuestion::parse(text, by).and_then(|question| question.if_shown(windows.shown()));
    let may_be_used = |addresses: Addresses| {
        addresses >= windows.shown() && question.as_ref().is_ok_and(|question| question.can_be_answered_with(addresses))
    };
    let Unusable { damaged, masked } = samples.unusable(time, may_be_used);
    let of_time = |times: &[Gap]| {
        let (start, end) = (times.iter().map(|of| of.start).min()?, times.iter().map(|of| of.end).max()?);
        Some(format!("from {start:.0} to {end:.0}"))
    };
    let mut reasons = Vec::new();
    reasons.extend(of_time(&damaged).map(|of| match damaged.len() {
        1 => format!("the one {of} is damaged, and the log names it"),
        count => format!("{count} of them, {of}, are damaged, and the log names each"),
    }));
    reasons.extend(of_time(&masked).map(|of| match masked.len() {
        1 => format!("the one {of} has masked addresses, so it cannot tell"),
        count => format!("{count} of them, {of}, have masked addresses, so they cannot tell"),
    }));
    if reasons.is_empty() {
        return format!(
            "there is no sample of flow records of this time: the history has samples from {oldest:.0} to {newest:.0}"
        );
    }
    format!("no sample of flow records of this time can be used: {}", reasons.join("; "))
}

/// A question about a time.
struct Asked<'w> {
    windows: &'w Windows,
    time: &'w Time,
    question: FlowQuestion,
    selection: Selection,
}

/// What the samples have of it.
#[derive(Default)]
struct Tallied {
    estimator: Estimator,
    part: Share,
    groups: BTreeMap<ViewKey, Share>,
    has_dropped: bool,
    records: AskedRecords,
    windows: u64,
    known: Vec<Gap>,
}

impl Asked<'_> {
    /// Goes through the samples. If the groups are `listed` already, only these are counted.
    fn tally(&self, listed: Option<BTreeMap<ViewKey, Share>>) -> Tallied {
        let is_listed = listed.is_some();
        let mut all = Tallied { groups: listed.unwrap_or_default(), ..Tallied::default() };
        let shown = self.windows.shown();
        let may_be_used = |addresses: Addresses| addresses >= shown && self.question.can_be_answered_with(addresses);
        self.windows.samples().each(self.time, may_be_used, |past, sample| {
            all.windows += past.windows;
            all.known.push(Gap { start: past.start, end: past.end });
            all.records.sampled += sample.records.len() as u64;
            let class = all.estimator.add(&sample);
            for record in sample.records.iter().filter(|record| self.selection.has(&record.key)) {
                all.records.selected += 1;
                all.part.add(&sample, class, record);
                if self.question.by.is_empty() {
                    continue;
                }
                let row = self.selection.row(&record.key);
                if is_listed {
                    all.groups.entry(row).and_modify(|share| share.add(&sample, class, record));
                } else {
                    all.groups.entry(row).or_default().add(&sample, class, record);
                }
            }
            if all.groups.len() > GROUPS_MAX {
                all.has_dropped = true;
                drop_smallest(&mut all.groups);
            }
        });
        all
    }

    /// Adds the largest groups as rows, and the most that any other key may have.
    fn add_rows(&self, tallied: &Tallied, answer: &mut AskedFlows) {
        let Tallied { estimator, groups, has_dropped, .. } = tallied;
        let groups = largest(groups);
        let (listed, others) = groups.split_at(groups.len().min(ROWS_MAX));
        for (rank, (key, share)) in (1..).zip(listed) {
            let [packets, bytes] = estimator.group(share);
            let (packets, bytes) = (Some(packets), Some(bytes));
            answer.rows.push(Row { rank: Some(rank), key: self.selection.show(key), packets, bytes, ..Row::default() });
        }
        let mut at_most = tally(estimator.group(&Share::default()));
        for (_, share) in others {
            let most = tally(estimator.group(share));
            at_most = Tally { packets: at_most.packets.max(most.packets), bytes: at_most.bytes.max(most.bytes) };
        }
        if *has_dropped {
            // What is not listed has no more than all rows leave.
            let listed = |of: fn(&Row) -> Option<Estimate>| {
                answer.rows.iter().filter_map(of).map(|estimate| estimate.lower).fold(0, u64::saturating_add)
            };
            let packets = answer.packets.upper.saturating_sub(listed(|row| row.packets));
            let bytes = answer.bytes.upper.saturating_sub(listed(|row| row.bytes));
            at_most = Tally { packets, bytes };
        }
        let Tally { packets, bytes } = at_most;
        let (packets, bytes) = (packets.min(answer.packets.upper), bytes.min(answer.bytes.upper));
        answer.at_most = Some(Tally { packets, bytes });
    }

    /// Requested times without a sample.
    fn missing(&self, known: &[Gap]) -> Vec<Gap> {
        let oldest = self.windows.samples().oldest();
        let end = self.windows.newest().into_iter().chain(self.time.to).min().unwrap_or(Timestamp::MAX);
        gaps(known.to_vec(), self.time.from.or(oldest), end)
    }

    /// Takes the bounds of the lists where these are closer.
    fn narrow(&self, known: &[Gap], answer: &mut AskedFlows) {
        let mut keys: Vec<(Option<usize>, Closer)> = Vec::new();
        let of_all = match self.key(&[]) {
            Some(key) => Some(InLists::Key(key)),
            None => ListPart::of(&self.question).map(InLists::Part),
        };
        keys.extend(of_all.map(|of| (None, Closer::new(of))));
        for (nth, row) in answer.rows.iter().enumerate() {
            let values = row
                .key
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            let key = self.key(&values.collect::<Vec<_>>());
            keys.extend(key.map(|key| (Some(nth), Closer::new(InLists::Key(key)))));
        }
        let time = Time { from: Some(answer.from), to: Some(answer.to) };
        if keys.is_empty() || !gaps(known.to_vec(), time.from, answer.to).is_empty() {
            return;
        }
        let (mut times, mut windows, mut seconds) = (Vec::new(), 0, 0.0);
        self.windows.each(&time, |kept| {
            windows += kept.past.windows;
            seconds += length_of(&kept.past);
            times.extend(known_times(&kept.past, &kept.union));
            let is_within = time.covers(kept.past.start, kept.past.end);
            for (_, closer) in &mut keys {
                closer.add(&closer.of.look_up(&kept.union), is_within);
            }
        });
        let begun = times.iter().map(|of| of.start).min().unwrap_or(answer.from);
        let ended = times.iter().map(|of| of.end).max().unwrap_or(answer.to);
        // The lists must have the windows of the samples, and no others within the time.
        let are_others = windows < answer.windows || is_repeated(seconds, begun, ended);
        if are_others || !gaps(times, time.from, answer.to).is_empty() {
            return;
        }
        let mut confidence = answer.confidence;
        for (row, closer) in keys {
            let estimates = match row.and_then(|nth| answer.rows.get_mut(nth)) {
                Some(row) => row.packets.as_mut().zip(row.bytes.as_mut()),
                None => Some((&mut answer.packets, &mut answer.bytes)),
            };
            if let Some((packets, bytes)) = estimates
                && closer.is_usable()
            {
                take_closer(packets, closer.packets);
                take_closer(bytes, closer.bytes);
                confidence = confidence.min(answer.confidence - (1.0 - closer.confidence));
            }
        }
        answer.confidence = confidence;
    }

    /// The key of a row of a standard list that these conditions and values are.
    fn key(&self, values: &[(String, String)]) -> Option<ListKey> {
        let key = self.question.key_with(values)?;
        ListKey::parse(&key, None).ok()?.if_shown(self.windows.shown()).ok()
    }
}

/// What is looked up in the lists.
enum InLists {
    /// A row of a list.
    Key(ListKey),
    /// A network, a port, or another part of the traffic.
    Part(ListPart),
}

impl InLists {
    fn look_up(&self, union: &Union) -> KeyAnswer {
        match self {
            Self::Key(key) => union.of_key(key),
            Self::Part(part) => KeyAnswer::Asked(union.of_part(part), None),
        }
    }
}

/// What the lists have of a key.
struct Closer {
    of: InLists,
    packets: (u64, u64),
    bytes: (u64, u64),
    confidence: f64,
    is_known: bool,
}

impl Closer {
    const fn new(of: InLists) -> Self {
        Self { of, packets: (0, 0), bytes: (0, 0), confidence: 1.0, is_known: true }
    }

    /// Adds a window. If only a part of it is meant, that may have had nothing of the key.
    fn add(&mut self, answer: &KeyAnswer, is_within: bool) {
        let KeyAnswer::Asked(of, _) = answer else {
            self.is_known = false;
            return;
        };
        self.confidence -= 1.0 - of.confidence;
        let [packets, bytes] = match of.sums.filter(|_| is_within) {
            Some(Sums { packets, bytes }) => [packets.lower, bytes.lower],
            None => [0, 0],
        };
        self.packets = (self.packets.0.saturating_add(packets), self.packets.1.saturating_add(of.at_most.packets));
        self.bytes = (self.bytes.0.saturating_add(bytes), self.bytes.1.saturating_add(of.at_most.bytes));
    }

    /// With sampling, very many windows have no confidence left.
    fn is_usable(&self) -> bool {
        const LEAST: f64 = 0.99;
        self.is_known && self.confidence >= LEAST
    }
}

/// Takes the closer of two bounds. If both exclude each other, one of them has failed, and the estimate stays.
fn take_closer(estimate: &mut Estimate, (least, most): (u64, u64)) {
    let (lower, upper) = (estimate.lower.max(least), estimate.upper.min(most));
    if lower <= upper {
        *estimate = Estimate { value: estimate.value.clamp(lower, upper), lower, upper, ..*estimate };
    }
}

/// One of the two numbers of a row.
type OfRow = fn(&mut Row) -> Option<&mut Estimate>;

/// All rows together are a part of what the question selects, and no row is more than it.
fn agree(answer: &mut AskedFlows) {
    let AskedFlows { rows, packets, bytes, .. } = answer;
    let parts: [(&mut Estimate, OfRow); 2] = [(packets, |row| row.packets.as_mut()), (bytes, |row| row.bytes.as_mut())];
    for (whole, of) in parts {
        let least = rows.iter_mut().filter_map(of).fold(0_u64, |sum, estimate| sum.saturating_add(estimate.lower));
        whole.lower = whole.lower.max(least.min(whole.upper));
        whole.value = whole.value.clamp(whole.lower, whole.upper);
        for estimate in rows.iter_mut().filter_map(of) {
            estimate.upper = estimate.upper.min(whole.upper);
            estimate.lower = estimate.lower.min(estimate.upper);
            estimate.value = estimate.value.clamp(estimate.lower, estimate.upper).min(whole.value);
        }
    }
}

const fn tally([packets, bytes]: [Estimate; 2]) -> Tally {
    Tally { packets: packets.upper, bytes: bytes.upper }
}

/// The groups by their estimated bytes, the largest first.
fn largest(groups: &BTreeMap<ViewKey, Share>) -> Vec<(ViewKey, Share)> {
    let mut all: Vec<_> = groups.iter().map(|(key, share)| (*key, share.clone())).collect();
    all.sort_by(|(_, a), (_, b)| b.estimate()[1].total_cmp(&a.estimate()[1]));
    all
}

/// Drops the smaller half of the groups.
fn drop_smallest(groups: &mut BTreeMap<ViewKey, Share>) {
    let mut sizes: Vec<f64> = groups.values().map(|share| share.estimate()[1]).collect();
    let middle = sizes.len() / 2;
    let (_, middle, _) = sizes.select_nth_unstable_by(middle, f64::total_cmp);
    let middle = *middle;
    groups.retain(|_, share| share.estimate()[1] > middle);
}
