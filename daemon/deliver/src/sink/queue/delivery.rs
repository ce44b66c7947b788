//! Delivers the reports in a queue to its sink, in order.
//!
//! A report that fails is tried again, after pauses that grow. [`Refusals`] decides whether a refusal is final.

use std::{
    any::Any,
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    mem::{replace, take},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{error, info, warn};
use weir_config::Addresses;

use super::{
    super::{DeliveryError, Sink, now, privacy},
    Queue, Woken,
    refusals::Refusals,
};
use crate::spool::{Batch, Item, Spool};

/// The longest first pause: a collector that restarts needs a few of these.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause: a collector that was down all night gets its reports within half a minute.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The delivery of a queue.
pub(in crate::sink) struct Delivery {
    sink: Box<dyn Sink>,
    queue: Arc<Queue>,
    spool: Arc<Spool>,
    /// When to give up; `None` while reports may still come.
    deadline: Option<Instant>,
    is_failing: bool,
    refusals: Refusals,
    /// The answer to the last refused report.
    answer: String,
    /// How many reports still go one by one, because one of them was refused in a batch.
    alone: usize,
    /// The longest next pause after a failed attempt.
    pause: Duration,
    /// The longest next pause when everything is refused.
    pause_refused: Duration,
}

/// How the delivery of a batch ended.
enum Outcome {
    /// No report waits.
    Empty,
    /// It was delivered or given up, or the sink is closed: go on to the next.
    Settled,
    /// The queue is ending, and another attempt is pointless.
    Over,
    /// The sink accepts nothing at this time.
    Refused,
}

impl Delivery {
    /// The delivery of this queue, whose reports wait in `spool`, to `sink`.
    pub fn new(sink: Box<dyn Sink>, queue: Arc<Queue>, spool: Arc<Spool>) -> Self {
        Self {
            sink,
            queue,
            spool,
            deadline: None,
            is_failing: false,
            refusals: Refusals::default(),
            answer: String::new(),
            alone: 0,
            pause: PAUSE_MIN,
            pause_refused: PAUSE_MIN,
        }
    }

    /// Delivers until the queue has ended, and everything is delivered or the deadline has passed.
    pub fn run(mut self) {
        let spool = self.spool.clone();
        // The previous sink with the same spool may still be running.
        let _turn = spool.turn();
        while self.step() {}
    }

    /// Delivers the next batch, or waits for one. Returns whether to go on.
    fn step(&mut self) -> bool {
        if self.queue.is_closed() {
            self.spool.clear();
            self.queue.note(&self.spool, |_| {});
            return self.wait_for_news();
        }
        if self.check_deadline() {
            return false;
        }
        let most = if self.alone > 0 { 1 } else { self.sink.batch() };
        let batch = match self.spool.batch(most, self.sink.batch_bytes(), self.refusals.held_back()) {
            Ok(batch) => self.masked(batch),
            Err(error) => {
                self.failed(&DeliveryError::unavailable(format!("cannot read the spool: {error}")));
                self.rest(None);
                return true;
            }
        };
        self.pause = PAUSE_MIN;
        // Unwinding is safe: a sink keeps no half-changed state from one delivery to the next.
        match panic::catch_unwind(AssertUnwindSafe(|| self.deliver(&batch))) {
            Ok(Outcome::Empty) => {
                // The batch is also empty if all of its files were damaged.
                self.queue.note(&self.spool, |_| {});
                return self.wait_for_news();
            }
            Ok(Outcome::Settled) => self.pause_refused = PAUSE_MIN,
            Ok(Outcome::Refused) if self.check_over() => return false,
            Ok(Outcome::Refused) => self.rest_or_news(batch.parcels.is_empty()),
            Ok(Outcome::Over) => return false,
            Err(cause) => self.panicked(&batch, cause.as_ref()),
        }
        true
    }

    /// The batch with addresses masked as the sink requires.
    fn masked(&self, mut batch: Batch) -> Batch {
        let addresses = self.queue.addresses;
        if addresses != Addresses::Full {
            for parcel in batch.parcels.iter_mut().filter(|parcel| parcel.is_report) {
                parcel.encoded = privacy::ensured(addresses, parcel.encoded.clone());
            }
        }
        batch
    }

    fn deliver(&mut self, batch: &Batch) -> Outcome {
        if batch.parcels.is_empty() {
            return if self.refusals.held_back().is_empty() { Outcome::Empty } else { self.all_are_refused() };
        }
        loop {
            let error = match self.sink.deliver(&batch.parcels) {
                Ok(()) => {
                    self.delivered(batch);
                    return Outcome::Settled;
                }
                Err(DeliveryError::Refused(answer)) => return self.refused(batch, &answer),
                Err(error) => error,
            };
            self.failed(&error);
            let DeliveryError::Unavailable { after, .. } = error else { return Outcome::Settled };
            if self.check_over() {
                return Outcome::Over;
            }
            self.rest(after);
            if self.check_deadline() {
                return Outcome::Over;
            }
        }
    }

    /// If a batch is refused, the answer does not tell which report was meant, so each is sent alone. A report that is
    /// refused alone is refused for good only if another was accepted since it was refused before. A sink with the
    /// wrong address, or one that accepts nothing at the moment, gives the same answers, and must not cost a report.
    fn refused(&mut self, batch: &Batch, answer: &str) -> Outcome {
        self.spool.put_back();
        let [one] = &batch.parcels[..] else {
            self.count_refusal(answer);
            self.alone = batch.parcels.len();
            return Outcome::Settled;
        };
        self.alone = self.alone.saturating_sub(1);
        if self.refused_alone(one, answer) || self.refusals.may_go_on() || self.newest_is_settled() {
            Outcome::Settled
        } else {
            self.all_are_refused()
        }
    }

    /// Judges a report or tombstone that was refused alone. Returns whether it is given up.
    fn refused_alone(&mut self, parcel: &Item, answer: &str) -> bool {
        let is_final = self.refusals.refused(parcel.number());
        if is_final {
            self.set_aside(parcel, answer);
        } else {
            answer.clone_into(&mut self.answer);
            self.count_refusal(answer);
        }
        is_final
    }

    /// Tries the newest report: a sink may accept it although it refuses all older ones. Returns whether the sink did.
    fn newest_is_settled(&mut self) -> bool {
        let Ok(newest) = self.spool.newest(self.refusals.held_back()) else { return false };
        let batch = self.masked(newest);
        let [one] = &batch.parcels[..] else { return false };
        // If the sink panics over it, that is handled when its turn comes.
        match panic::catch_unwind(AssertUnwindSafe(|| self.sink.deliver(&batch.parcels))) {
            Ok(Ok(())) => {
                self.delivered(&batch);
                return true;
            }
            Ok(Err(DeliveryError::Refused(answer))) => {
                self.spool.put_back();
                self.refused_alone(one, &answer);
            }
            _ => self.spool.put_back(),
        }
        false
    }

    fn count_refusal(&self, answer: &str) {
        self.queue.counters(|counters| counters.failed(&DeliveryError::Refused(answer.to_owned())));
    }

    /// The sink accepts nothing at this time: logs it once.
    fn all_are_refused(&mut self) -> Outcome {
        self.alone = self.alone.max(1);
        let [_, several] = self.queue.carries;
        let answer = &self.answer;
        let error = DeliveryError::Refused(format!("{answer} (the sink has taken nothing since: all {several} wait)"));
        self.queue.counters(|counters| counters.last_error = Some(error.to_string()));
        self.log(&error);
        Outcome::Refused
    }

    /// Keeps a refused report aside, with a tombstone in its place; drops a refused tombstone.
    fn set_aside(&mut self, parcel: &Item, answer: &str) {
        let (sink, id) = (&self.queue.name, &parcel.encoded.id);
        let [one, _] = self.queue.carries;
        self.count_refusal(answer);
        match (parcel.is_report, self.queue.has_disk()) {
            (false, _) => {
                warn!(
                    sink,
                    lost = id,
                    answer,
                    "the sink accepts reports but refuses a tombstone: weir drops it, and the sink does not learn of \
                     these lost reports"
                );
            }
            (true, true) => {
                warn!(
                    sink,
                    id,
                    answer,
                    "the sink refuses {one}, and takes others: weir keeps it aside, see `weir spool ls` and \
                     `weir spool retry`"
                );
            }
            (true, false) => warn!(sink, id, answer, "the sink refuses {one}, and takes others: weir drops it"),
        }
        self.spool.refused(parcel, answer);
        self.queue.note(&self.spool, |_| {});
    }

    /// Asks the queue for its deadline. Returns whether it is ending and another attempt is pointless, because
    /// everything that waits is on disk.
    fn check_over(&mut self) -> bool {
        self.check_deadline() || self.deadline.is_some() && self.queue.has_disk() && self.spool.holding().in_memory == 0
    }

    /// Asks the queue for its deadline. Returns whether that has passed.
    fn check_deadline(&mut self) -> bool {
        self.deadline = self.queue.deadline();
        self.deadline.is_some_and(|deadline| now() >= deadline)
    }

    /// Waits for something to deliver. Returns whether anything may still come.
    fn wait_for_news(&mut self) -> bool {
        self.queue.wait(&mut self.deadline, None, true) != Woken::Nothing
    }

    /// Pauses before the next attempt, at least for as long as the sink asks. If the queue is to end, the pause ends at
    /// once, and the next one is short again.
    fn rest(&mut self, after: Option<Duration>) {
        let pause = jittered(self.pause).max(after.unwrap_or_default());
        self.pause = match self.queue.wait(&mut self.deadline, Some(now() + pause), false) {
            Woken::Ending => PAUSE_MIN,
            _ => doubled(self.pause),
        };
    }

    /// Pauses after a refusal. A new report ends the pause, because the sink may accept it. If none comes and all
    /// waiting reports were tried, weir tries all of them again.
    fn rest_or_news(&mut self, were_all_tried: bool) {
        let is_ending = self.deadline.is_some();
        let until = now() + jittered(self.pause_refused);
        let woken = self.queue.wait(&mut self.deadline, Some(until), !is_ending);
        if is_ending || woken == Woken::Ending || woken == Woken::Nothing && were_all_tried {
            self.refusals.try_all();
        }
        self.pause_refused = match woken {
            Woken::News => self.pause_refused,
            Woken::Ending => PAUSE_MIN,
            Woken::Nothing => doubled(self.pause_refused),
        };
    }

    /// Gives up a report that the sink panicked over: it would panic again.
    fn panicked(&mut self, batch: &Batch, cause: &(dyn Any + Send)) {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let answer = format!("the sink panicked: {text}");
        self.alone = batch.parcels.len();
        match &batch.parcels[..] {
            [one] => self.set_aside(one, &answer),
            _ => {
                self.count_refusal(&answer);
                self.spool.put_back();
            }
        }
        self.is_failing = true;
        error!(
            sink = self.queue.name,
            "the sink panicked, and begins anew with the next report: this is a bug in weir, please report it: {text}"
        );
    }

    fn delivered(&mut self, batch: &Batch) {
        self.spool.delivered(batch);
        let reports = batch.parcels.iter().filter(|parcel| parcel.is_report).count() as u64;
        self.alone = self.alone.saturating_sub(batch.parcels.len());
        for parcel in &batch.parcels {
            self.refusals.accepted(parcel.number(), parcel.is_report);
        }
        self.queue.note(&self.spool, |counters| {
            counters.delivered += reports;
            counters.last_error = None;
        });
        if take(&mut self.is_failing) {
            let [_, several] = self.queue.carries;
            info!(sink = self.queue.name, "the sink accepts {several} again");
        }
    }

    fn failed(&mut self, error: &DeliveryError) {
        self.queue.counters(|counters| counters.failed(error));
        self.log(error);
    }

    /// Logs what an error means, if it is the first of a series.
    fn log(&mut self, error: &DeliveryError) {
        if replace(&mut self.is_failing, true) {
            return;
        }
        let [one, several] = self.queue.carries;
        let consequence = match error {
            DeliveryError::Unavailable { .. } => {
                format!("cannot deliver {one}: weir tries again, and newer {several} wait")
            }
            DeliveryError::Refused(_) => format!(
                "the sink refuses {one}: if it takes another one, weir gives this one up. As long as it takes none, all \
                 wait: look at its settings"
            ),
            DeliveryError::Closed(_) => format!("the sink accepts no more {several}: weir drops them"),
        };
        warn!(sink = self.queue.name, %error, "{consequence}");
    }
}

/// A random part of a pause. The windows of all routers end at the same time, but their retries should not.
fn jittered(longest: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    longest.mul_f64(random as f64 / u64::MAX as f64)
}

fn doubled(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use std::{io, os::fd::OwnedFd};

    use super::{
        super::{
            super::{Stdout, http::tests::LONG},
            Storage,
        },
        *,
    };
    use crate::spool::Limits;

    fn delivery() -> Delivery {
        let (_reader, writer) = io::pipe().unwrap();
        let sink = Box::new(Stdout::from(OwnedFd::from(writer)));
        let spool = Arc::new(Spool::in_memory(Limits::in_memory(1)));
        let queue = Queue::new(&*sink, Addresses::Full, Storage::Memory(spool.clone()));
        Delivery::new(sink, Arc::new(queue), spool)
    }

    #[test]
    fn the_end_interrupts_a_pause() {
        let mut delivery = delivery();
        delivery.pause = Duration::ZERO;
        delivery.rest(None);
        assert_eq!(delivery.pause, Duration::ZERO, "an uninterrupted pause doubles");
        let deadline = now() + LONG;
        delivery.queue.end(deadline);
        delivery.pause = PAUSE_MAX;
        delivery.rest(Some(LONG));
        assert_eq!(delivery.pause, PAUSE_MIN, "an interrupted one starts over");
        assert_eq!(delivery.deadline, Some(deadline));
    }

    #[test]
    fn a_pause_is_anything_up_to_its_longest() {
        let pauses: Vec<_> = (0..200).map(|_| jittered(PAUSE_MAX)).collect();
        assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
        // Each of these fails with a probability of 1 in 2^200.
        assert!(pauses.iter().any(|pause| *pause < PAUSE_MAX / 2), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause > PAUSE_MAX / 2), "{pauses:?}");
    }
}
