//! Readings of the open window, on request: at most one each second, which answers all requests.
//!
//! A reading has the two steps of [`weir_measure::open`]. In each step every worker answers. The coordinator does not
//! wait for the workers: it continues, and composes the answer when the last part has arrived. Without requests nothing
//! is read. If the window ends during a reading, the reading begins again with the next window.

use std::{sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, Sender, bounded};
use weir_attach::InterfaceNow;
use weir_common::control::Feeds;
use weir_config::{Addresses, interface::Way};
use weir_datapath::interface::{Counts, MeasuredInterface, tell_apart};
use weir_measure::{
    new_flows::FilterState,
    open::{ASKED_MAX, Content, KeysByQuestion, Numbers, OpenPart, OpenRequest, OpenSummary, add_asked, count_asked},
    question::{KeyQuery, Views},
    window::Window,
};
use weir_report::compose;
use weir_schema::{Live, OpenWindow};
use weir_sketch::{Seen, hyperloglog::CONFIDENCE};
use weir_system::clock::Moment;

use crate::{
    control::live::{LiveQuery, LiveRequest, Unanswered},
    workers::Workers,
};

/// All requests within this time get the same answer. It is less than a second, so that a client that asks each second
/// always gets a new answer.
const SHARED: Duration = Duration::from_millis(900);
/// How long the workers may take. They answer between two batches, within a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon to ask again if a worker was not ready.
const RETRY: Duration = Duration::from_millis(20);
/// The most clients that may wait.
const WAITING_MAX: usize = 128;

/// Everything that a reading needs to know about the open window.
pub struct Now<'a, 'scope> {
    /// The time of this turn, on both clocks.
    pub now: Moment,
    /// The open window.
    pub window: Window,
    /// The views of the window.
    pub views: &'a Arc<Views>,
    /// The fingerprint of its hash key.
    pub key_id: u64,
    /// The filter of seen flows.
    pub seen: &'a Seen,
    /// Interface slots in use.
    pub interfaces: usize,
    /// The interfaces that have a slot.
    pub names: Vec<MeasuredInterface>,
    /// How addresses are masked.
    pub addresses: Addresses,
    /// The workers that measure.
    pub workers: &'a Workers<'scope>,
}

/// The readings of the open window, of which one is in progress at a time.
pub struct Readings {
    reply: Sender<OpenPart>,
    parts: Receiver<OpenPart>,
    /// The number of the latest step: answers to earlier ones are ignored.
    number: u64,
    step: Step,
    /// When the next reading may begin or, if one has begun, when it has taken too long (monotonic clock).
    due: Duration,
    waiting: Vec<LiveRequest>,
    last: Option<Last>,
}

/// The answer of the last reading.
struct Last {
    at: Duration,
    live: Live,
    encoded: Arc<[u8]>,
}

/// The answers that the reading waits for.
enum Step {
    /// No reading is in progress.
    Idle,
    /// The keys of this many workers.
    Keys(usize, KeysByQuestion),
    /// The numbers of this many workers.
    Numbers(usize, Vec<Numbers>, Vec<Asked>),
}

/// A client's query in a reading.
struct Asked {
    request: LiveRequest,
    asks: Vec<KeyQuery>,
}

impl Readings {
    /// No reading yet; there are at most this many workers.
    pub fn new(workers: usize) -> Self {
        // Room for the answers of two steps, because those of an abandoned step may still arrive.
        let (reply, parts) = bounded(2 * workers.max(1));
        Self { reply, parts, number: 0, step: Step::Idle, due: Duration::ZERO, waiting: Vec::new(), last: None }
    }

    /// The answers of the workers.
    pub const fn parts(&self) -> &Receiver<OpenPart> {
        &self.parts
    }

    /// How long until the next step is due.
    pub fn left(&self, now: Moment) -> Duration {
        if self.is_needed() { self.due.saturating_sub(now.monotonic) } else { Duration::MAX }
    }

    /// Takes a client's request. If the last answer is recent enough, the client gets it at once.
    pub fn ask(&mut self, now: Moment, request: LiveRequest) {
        if let (LiveQuery::Lists { only }, Some(last)) = (&request.query, &self.last)
            && now.monotonic.saturating_sub(last.at) < SHARED
        {
            let answer = last.of(only.as_deref());
            return request.answer(answer);
        }
        if self.waiting.len() >= WAITING_MAX {
            return request.answer(Err(Unanswered::Busy));
        }
        self.waiting.push(request);
    }

    /// Returns true if a reading should begin, or has taken too long.
    pub fn is_due(&self, now: Moment) -> bool {
        self.is_needed() && now.monotonic >= self.due
    }

    /// Returns true if a reading is in progress, or if a client waits for one.
    const fn is_needed(&self) -> bool {
        !matches!(self.step, Step::Idle) || !self.waiting.is_empty()
    }

    /// Begins a reading. Abandons one that has taken too long.
    pub fn begin(&mut self, now: &Now<'_, '_>) {
        if !matches!(self.step, Step::Idle) {
            self.give_up();
            for request in self.waiting.drain(..) {
                request.answer(Err(Unanswered::Busy));
            }
            return;
        }
        self.number += 1;
        let Some(workers) = now.workers.read(self.number, &OpenRequest::Keys, &self.reply) else {
            self.due = now.now.monotonic + RETRY;
            return;
        };
        self.due = now.now.monotonic + PATIENCE;
        self.step = Step::Keys(workers, vec![Vec::new(); now.views.questions.len()]);
        self.go_on(now);
    }

    /// Abandons the reading, because the window has ended and its report has the results.
    pub fn end_window(&mut self) {
        self.last = None;
        self.give_up();
        self.due = Duration::ZERO;
    }

    /// Abandons the reading. Its clients wait for the next one.
    fn give_up(&mut self) {
        self.number += 1;
        if let Step::Numbers(_, _, asked) = std::mem::replace(&mut self.step, Step::Idle) {
            self.waiting.extend(asked.into_iter().map(|asked| asked.request));
        }
    }

    /// Takes a worker's answer.
    pub fn take(&mut self, OpenPart { of: (number, _), content }: OpenPart, now: &Now<'_, '_>) {
        if number != self.number {
            return;
        }
        match (&mut self.step, content) {
            (Step::Keys(awaited, keys), Content::Keys(named)) => {
                *awaited -= 1;
                for (keys, named) in keys.iter_mut().zip(named) {
                    keys.extend(named);
                }
            }
            (Step::Numbers(awaited, all, _), Content::Numbers(numbers)) => {
                *awaited -= 1;
                all.push(*numbers);
            }
            _ => return,
        }
        self.go_on(now);
    }

    /// Takes the next step if all answers have arrived.
    fn go_on(&mut self, now: &Now<'_, '_>) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Keys(0, keys) => self.ask_numbers(keys, now),
            Step::Numbers(0, all, asked) => self.compose(all, asked, now),
            step => self.step = step,
        }
    }

    fn ask_numbers(&mut self, mut keys: KeysByQuestion, now: &Now<'_, '_>) {
        for keys in &mut keys {
            keys.sort_unstable();
            keys.dedup();
        }
        let asked = self.take_questions(&mut keys, now);
        self.number += 1;
        match now.workers.read(self.number, &OpenRequest::Numbers(Arc::new(keys)), &self.reply) {
            Some(workers) => {
                self.step = Step::Numbers(workers, Vec::with_capacity(workers), asked);
                self.go_on(now);
            }
            None => {
                self.waiting.extend(asked.into_iter().map(|asked| asked.request));
                self.due = now.now.monotonic + RETRY;
            }
        }
    }

    /// Takes as many of the waiting queries as fit into this reading, and adds their keys.
    fn take_questions(&mut self, keys: &mut KeysByQuestion, now: &Now<'_, '_>) -> Vec<Asked> {
        let (mut asked, mut room) = (Vec::new(), ASKED_MAX);
        for request in std::mem::take(&mut self.waiting) {
            let asks = match request.asks(now.views, &now.names, now.addresses) {
                Ok(asks) => asks,
                Err(why) => {
                    request.answer(Err(Unanswered::Refused(why)));
                    continue;
                }
            };
            let count = count_asked(now.views, &asks, &now.names);
            match room.checked_sub(count) {
                Some(left) => {
                    room = left;
                    add_asked(keys, now.views, &asks, &now.names);
                    asked.push(Asked { request, asks });
                }
                None if count <= ASKED_MAX => self.waiting.push(request),
                None => request.answer(Err(Unanswered::Refused(format!(
                    "these are {count} keys in all views of all interfaces, and the open window is read for \
                     {ASKED_MAX} at a time: ask for fewer"
                )))),
            }
        }
        asked
    }

    fn compose(&mut self, all: Vec<Numbers>, asked: Vec<Asked>, now: &Now<'_, '_>) {
        self.due = now.now.monotonic + SHARED;
        // A worker that was late may still have the views or the key of another window.
        let is_of_window = |of: &Numbers| of.key_id == now.key_id && Arc::ptr_eq(&of.plan, now.views);
        let filter = FilterState::steadily(now.seen);
        let is_whole = all.iter().all(is_of_window);
        let open = is_whole.then(|| OpenSummary::new(all, now.views, now.interfaces, filter, CONFIDENCE));
        let Some(Ok(open)) = open else {
            for asked in asked {
                asked.request.answer(Err(Unanswered::Busy));
            }
            return;
        };
        let at = (now.now.wall, OpenWindow { start: now.window.start(), seconds: now.seconds() });
        let live = compose::live(at, now.views, &open, &now.names).masked(now.addresses);
        let encoded = serde_json::to_vec(&live).unwrap_or_default().into();
        let last = Last { at: now.now.monotonic, live, encoded };
        for Asked { request, asks } in asked {
            let answer = match &request.query {
                LiveQuery::Lists { only } => last.of(only.as_deref()),
                LiveQuery::Keys { .. } => {
                    let answers = compose::live_answers(at, now.views, &open, &asks, &now.names);
                    Ok(serde_json::to_vec(&answers).unwrap_or_default().into())
                }
            };
            request.answer(answer);
        }
        self.last = Some(last);
    }
}

impl Last {
    /// The whole answer, or one list or view of it.
    fn of(&self, only: Option<&str>) -> Result<Arc<[u8]>, Unanswered> {
        let Some(name) = only else { return Ok(self.encoded.clone()) };
        let live = self.live.clone().only(name).map_err(Unanswered::Refused)?;
        Ok(serde_json::to_vec(&live).unwrap_or_default().into())
    }
}

impl Now<'_, '_> {
    /// How long the window has been open.
    fn seconds(&self) -> f64 {
        self.now.monotonic.saturating_sub(self.window.begin().monotonic).as_secs_f64()
    }
}

/// The interfaces that have a slot, with the names that rows use.
pub fn names(interfaces: &[InterfaceNow<'_>]) -> Vec<MeasuredInterface> {
    let named = |now: &InterfaceNow<'_>| MeasuredInterface {
        slot: now.slot,
        name: now.name.to_owned(),
        earlier_name: None,
        index: None,
        alias: None,
        vrf: None,
        mode: now.obtained.name(),
        counts: Counts::Packets,
        direction: now.way.map(Way::name),
        feeds: Feeds::All.name(),
        coverage: None,
        coverage_bytes: None,
        unseen: None,
        blind: None,
        trouble: None,
    };
    let mut all: Vec<MeasuredInterface> = interfaces.iter().map(named).collect();
    tell_apart(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use rustix::thread::CapabilitySet;
    use serde_json::Value;
    use weir_common::{
        flow::{Address, FlowKey},
        record::Record,
    };
    use weir_config::{Estimates, Packets, Sampling};
    use weir_datapath::edge::Edge;
    use weir_measure::{
        open::candidates,
        order::{CloseOrder, Closed, Order},
        sampling_control::SamplingControl,
        shard::Shard,
    };
    use weir_sketch::hash::Key;
    use weir_system::{clock, waker::Waker};

    use super::*;
    use crate::control::live::{LiveAnswer, LiveAsker};

    const KEY: Key = Key([3, 4]);
    const SETTINGS: Estimates = Estimates { unique_error: 0.05, top_error: 0.01, top_candidates: 64 };
    const LONG: Duration = Duration::from_secs(60);

    /// A coordinator with two workers, each of which has seen ten packets from one source. Time is an argument.
    struct Room<'scope> {
        readings: Readings,
        workers: Workers<'scope>,
        views: Arc<Views>,
        seen: Seen,
        asker: LiveAsker,
        requests: Receiver<LiveRequest>,
        window: Window,
        /// How many orders to read the workers got.
        orders: &'scope AtomicUsize,
    }

    fn worker(views: &Arc<Views>, source: u32) -> Box<Shard> {
        let mut shard = Box::new(Shard::new(&SETTINGS, views, KEY));
        let key = FlowKey::new(Address::from_v4_word(source), Address::from_v4_word(9), 17, 0);
        let seen = Seen::with_capacity(1_000, 0.01, KEY.id()).unwrap();
        shard.absorb(&[Record { key, packets: 10, bytes: 1_000, sampling: 1, ..Record::default() }], &seen);
        shard.settle(&seen);
        shard
    }

    fn work(mut shard: Box<Shard>, orders: &Receiver<Order>, closed: &Sender<Closed>, count: &AtomicUsize) {
        let control = SamplingControl::new(&Sampling { packets: Packets::OneIn(1), cpu: 0.5 });
        for order in orders {
            match order {
                Order::Close(CloseOrder { spare, .. }) => {
                    let spare = spare.expect("it is not the last window");
                    closed.send(Closed::new(std::mem::replace(&mut shard, spare), Edge::empty(1))).unwrap();
                }
                Order::Answer(reply) => reply.send(()).unwrap(),
                Order::Read(order) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    let mut edge = Edge::empty(1);
                    edge.counters[0].seen = shard.attributed[0];
                    order.answer(match &order.wanted {
                        OpenRequest::Keys => Content::Keys(candidates(&shard)),
                        OpenRequest::Numbers(keys) => {
                            Content::Numbers(Box::new(Numbers::new(&shard, keys, (edge, false), &control)))
                        }
                    });
                }
            }
        }
    }

    fn with_room(test: impl FnOnce(Room<'_>)) {
        let views = Views::built_in(&SETTINGS, 10);
        let orders = AtomicUsize::new(0);
        thread::scope(|scope| {
            let spares = (0..2).map(|_| Box::new(Shard::new(&SETTINGS, &views, KEY))).collect();
            let mut workers = Workers::new(spares);
            for source in [1, 2] {
                let (shard, count) = (worker(&views, source), &orders);
                workers
                    .spawn(
                        scope,
                        "worker".to_owned(),
                        CapabilitySet::empty(),
                        Waker::new().unwrap(),
                        move |orders, closed| {
                            work(shard, orders, closed, count);
                            Ok(())
                        },
                    )
                    .unwrap();
            }
            let (asker, requests) = LiveAsker::new(8);
            test(Room {
                readings: Readings::new(2),
                workers,
                seen: Seen::with_capacity(1_000, 0.01, KEY.id()).unwrap(),
                views: views.clone(),
                asker,
                requests,
                window: Window::open(clock::now(), LONG),
                orders: &orders,
            });
        });
    }

    impl Room<'_> {
        fn ask(&mut self, query: LiveQuery, now: Moment) -> Receiver<LiveAnswer> {
            let answer = self.asker.ask(query, None).unwrap();
            self.readings.ask(now, self.requests.recv().unwrap());
            answer
        }

        fn lists(&mut self, now: Moment) -> Receiver<LiveAnswer> {
            self.ask(LiveQuery::Lists { only: None }, now)
        }

        /// Runs the coordinator's steps until none is due.
        fn turn(&mut self, now: Moment) {
            let Self { readings, workers, views, seen, window, .. } = self;
            let now = Now {
                now,
                window: *window,
                views,
                key_id: KEY.id(),
                seen,
                interfaces: 1,
                names: Vec::new(),
                addresses: Addresses::Full,
                workers,
            };
            if readings.is_due(now.now) {
                readings.begin(&now);
            }
            while !matches!(readings.step, Step::Idle) {
                let part = readings.parts.recv_timeout(LONG).unwrap();
                readings.take(part, &now);
            }
        }
    }

    fn later(now: Moment, ms: u64) -> Moment {
        Moment { monotonic: now.monotonic + Duration::from_millis(ms), ..now }
    }

    fn json(answer: &Receiver<LiveAnswer>) -> Value {
        serde_json::from_slice(&answer.try_recv().unwrap().unwrap()).unwrap()
    }

    #[test]
    fn one_reading_answers_all_requests_of_its_second_and_without_requests_nothing_is_read() {
        with_room(|mut room| {
            let now = clock::now();
            room.turn(now);
            assert_eq!((room.readings.left(now), room.orders.load(Ordering::Relaxed)), (Duration::MAX, 0));
            let both = [room.lists(now), room.lists(now)];
            room.turn(now);
            let first = both.map(|answer| answer.try_recv().unwrap().unwrap());
            assert!(Arc::ptr_eq(&first[0], &first[1]), "they share its memory");
            let shared = room.lists(later(now, 800)).try_recv().unwrap().unwrap();
            assert!(Arc::ptr_eq(&first[0], &shared));
            assert_eq!(room.orders.load(Ordering::Relaxed), 4, "two steps of two workers");
            let next = room.lists(later(now, 1_000));
            room.turn(later(now, 1_000));
            assert!(!Arc::ptr_eq(&first[0], &next.try_recv().unwrap().unwrap()));
            room.turn(later(now, 10_000));
            assert_eq!(room.orders.load(Ordering::Relaxed), 8);
            drop(room.workers);
        });
    }

    #[test]
    fn the_parts_of_workers_add_up_and_keys_are_read_at_most_once_a_second() {
        with_room(|mut room| {
            let now = clock::now();
            let (lists, one) = (room.lists(now), room.ask(LiveQuery::Lists { only: Some("sources".to_owned()) }, now));
            let keys = room.ask(LiveQuery::Keys(vec!["src_ip=1.0.0.0".to_owned()]), now);
            let wrong = room.ask(LiveQuery::Keys(vec!["src_ip=x".to_owned()]), now);
            room.turn(now);
            let lists = json(&lists);
            assert_eq!(lists["totals"]["packets"], 20);
            assert_eq!(lists["top"]["sources"].as_array().unwrap().len(), 2);
            assert_eq!(lists["top"]["destinations"][0]["bytes"]["lower"], 2_000, "both workers have this one");
            let one = json(&one);
            assert_eq!(
                (&one["top"]["sources"], one["top"]["flows"].as_array().unwrap().len()),
                (&lists["top"]["sources"], 0)
            );
            assert_eq!(json(&keys)["answers"][0]["packets"]["lower"], 10);
            let wrong = wrong.try_recv().unwrap();
            assert!(matches!(wrong, Err(Unanswered::Refused(why)) if why.contains("not an address")));
            let early = room.ask(LiveQuery::Keys(vec!["dst_ip=9.0.0.0".to_owned()]), later(now, 500));
            room.turn(later(now, 500));
            assert!(early.try_recv().is_err());
            assert_eq!(room.readings.left(later(now, 500)), Duration::from_millis(400));
            room.turn(later(now, 900));
            assert_eq!(json(&early)["answers"][0]["packets"]["upper"], 20);
            drop(room.workers);
        });
    }

    #[test]
    fn a_reading_begins_again_when_the_window_ends() {
        with_room(|mut room| {
            let now = clock::now();
            let lists = room.lists(now);
            room.turn(now);
            assert_eq!(json(&lists)["totals"]["packets"], 20);
            // The order is there before the window ends, and its answer after that.
            let waits = room.lists(later(now, 1_000));
            room.readings.number += 1;
            assert_eq!(room.workers.read(room.readings.number, &OpenRequest::Keys, &room.readings.reply), Some(2));
            room.readings.step = Step::Keys(2, vec![Vec::new(); room.views.questions.len()]);
            room.workers.close(LONG, None, |_| ()).unwrap();
            room.readings.end_window();
            room.turn(later(now, 1_001));
            assert_eq!(json(&waits)["totals"]["packets"], 0, "it is about the new window");
            drop(room.workers);
        });
    }

    #[test]
    fn a_busy_worker_is_asked_again_but_not_for_ever() {
        let now = clock::now();
        let mut readings = Readings::new(1);
        let (asker, requests) = LiveAsker::new(8);
        let answer = asker.ask(LiveQuery::Lists { only: None }, None).unwrap();
        readings.ask(now, requests.recv().unwrap());
        readings.step = Step::Keys(1, Vec::new());
        readings.due = now.monotonic + PATIENCE;
        assert!(!readings.is_due(later(now, 1_900)) && readings.is_due(later(now, 2_000)));
        with_room(|room| {
            let now = Now {
                now,
                window: room.window,
                views: &room.views,
                key_id: KEY.id(),
                seen: &room.seen,
                interfaces: 1,
                names: Vec::new(),
                addresses: Addresses::Full,
                workers: &room.workers,
            };
            readings.begin(&now);
            drop(room.workers);
        });
        assert_eq!(answer.try_recv().unwrap(), Err(Unanswered::Busy));
        assert_eq!(readings.left(now), Duration::MAX);
    }
}
