//! The thread of a sink that delivers the reports in the spool, in order.

use std::{
    any::Any,
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::{BuildHasher, Hasher},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam::{
    channel::{Receiver, RecvTimeoutError, Sender, TryRecvError},
    select,
};
use tracing::{error, info, warn};
use weir_config::Addresses;

use super::{DeliveryError, Sink, account::Account, doubts::Doubts, privacy};
use crate::spool::{Batch, Parcel, Spool};

/// The longest first pause: a collector that restarts needs a few of these.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// The longest pause: a collector that was down all night gets its reports within half a minute.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The thread.
pub(super) struct Delivery {
    pub sink: Box<dyn Sink>,
    /// How much of each address the sink may see.
    pub addresses: Addresses,
    pub account: Arc<Account>,
    pub spool: Arc<Spool>,
    /// Rings when something is waiting; disconnected when nothing more will come.
    pub bell: Receiver<()>,
    pub ends: Receiver<Instant>,
    /// When to give up; `None` while reports may still come.
    pub deadline: Option<Instant>,
    pub failing: bool,
    /// What the sink has refused, and may take yet.
    pub doubts: Doubts,
    /// What it said to the last of these.
    pub answer: String,
    /// How many reports still go one by one, because one of them was refused in a batch.
    pub alone: usize,
    pub _here: Sender<Infallible>,
}

/// How the delivery of a batch ended.
enum Carried {
    /// Nothing waits.
    Nothing,
    /// It was delivered or given up: go on to the next.
    Settled,
    /// The deadline has passed.
    TooLate,
    /// The sink accepts nothing any more.
    Closed,
    /// The sink takes nothing at this time.
    Refused,
}

impl Delivery {
    pub fn run(mut self) {
        let spool = self.spool.clone();
        // The previous sink with the same spool may still be running.
        let _turn = spool.turn();
        let (mut pause, mut refused_pause) = (BACKOFF_MIN, BACKOFF_MIN);
        while !self.too_late() {
            let most = if self.alone > 0 { 1 } else { self.sink.batch() };
            let batch = match self.spool.batch(most, self.sink.batch_bytes(), self.doubts.since()) {
                Ok(batch) => self.masked(batch),
                Err(error) => {
                    self.failed(&DeliveryError::unavailable(format!("cannot read the spool: {error}")));
                    pause = self.rest(pause, None);
                    continue;
                }
            };
            pause = BACKOFF_MIN;
            // The state inside the sink concerns one delivery at a time: the next one starts afresh.
            match panic::catch_unwind(AssertUnwindSafe(|| self.carry(&batch))) {
                Ok(Carried::Nothing) => {
                    // Perhaps all of them were damaged.
                    self.account.note(&self.spool, |_| {});
                    if !self.wait() {
                        return;
                    }
                }
                Ok(Carried::Settled) => refused_pause = BACKOFF_MIN,
                Ok(Carried::Refused) => {
                    if self.is_over() {
                        return;
                    }
                    refused_pause = self.rest_or_news(refused_pause, batch.parcels.is_empty());
                }
                Ok(Carried::TooLate) => return,
                Ok(Carried::Closed) => return self.discard(),
                Err(cause) => self.panicked(&batch, cause.as_ref()),
            }
        }
    }

    /// The batch with addresses masked as the sink requires.
    fn masked(&self, mut batch: Batch) -> Batch {
        if self.addresses == Addresses::Full {
            return batch;
        }
        for parcel in batch.parcels.iter_mut().filter(|parcel| parcel.is_report) {
            parcel.encoded = privacy::ensured(self.addresses, parcel.encoded.clone());
        }
        batch
    }

    /// Drops everything from now on: nobody will take it.
    fn discard(mut self) {
        loop {
            self.spool.clear();
            self.account.note(&self.spool, |_| {});
            if !self.wait() {
                return;
            }
        }
    }

    /// Waits for something to deliver. Returns whether anything may still come.
    fn wait(&mut self) -> bool {
        match self.deadline {
            Some(deadline) => self.bell.recv_deadline(deadline).is_ok(),
            None => {
                select! {
                    recv(self.bell) -> rung => rung.is_ok(),
                    recv(self.ends) -> deadline => {
                        self.deadline = Some(deadline.unwrap_or_else(|_| now()));
                        true
                    }
                }
            }
        }
    }

    fn carry(&mut self, batch: &Batch) -> Carried {
        if batch.parcels.is_empty() {
            return if self.doubts.since().is_empty() { Carried::Nothing } else { self.all_are_refused() };
        }
        let mut pause = BACKOFF_MIN;
        loop {
            let error = match self.sink.deliver(&batch.parcels) {
                Ok(()) => {
                    self.spool.delivered(batch);
                    self.delivered(batch);
                    return Carried::Settled;
                }
                Err(error) => error,
            };
            if !matches!(error, DeliveryError::Refused(_)) {
                self.failed(&error);
            }
            match error {
                DeliveryError::Unavailable { after, .. } => {
                    if self.is_over() {
                        return Carried::TooLate;
                    }
                    pause = self.rest(pause, after);
                    if self.too_late() {
                        return Carried::TooLate;
                    }
                }
                DeliveryError::Refused(answer) => return self.refused(batch, &answer),
                DeliveryError::Closed(_) => return Carried::Closed,
            }
        }
    }

    /// If a batch is refused, it is not known which report was meant, so each is sent alone. A report that is refused
    /// alone is refused for good only if another has passed since it was refused before. A sink with the wrong address,
    /// or one that accepts nothing at the moment, gives the same answers, and must not cost a report.
    fn refused(&mut self, batch: &Batch, answer: &str) -> Carried {
        self.spool.put_back();
        let [one] = &batch.parcels[..] else {
            self.account.failed(&DeliveryError::Refused(answer.to_owned()));
            self.alone = batch.parcels.len();
            return Carried::Settled;
        };
        self.alone = self.alone.saturating_sub(1);
        if self.doubts.refused(one.number()) {
            self.set_aside(one, answer);
            return Carried::Settled;
        }
        self.refused_once(answer);
        if self.doubts.has_patience() || self.newest_passes() { Carried::Settled } else { self.all_are_refused() }
    }

    /// Tries the newest report, which a sink may take that refuses all older ones. Returns whether it was settled.
    fn newest_passes(&mut self) -> bool {
        let Ok(newest) = self.spool.newest(self.doubts.since()) else { return false };
        let batch = self.masked(newest);
        let [one] = &batch.parcels[..] else { return false };
        // If the sink panics over it, that is handled when its turn comes.
        let delivered = panic::catch_unwind(AssertUnwindSafe(|| self.sink.deliver(&batch.parcels)));
        match delivered {
            Ok(Ok(())) => {
                self.spool.delivered(&batch);
                self.delivered(&batch);
                return true;
            }
            Ok(Err(DeliveryError::Refused(answer))) => {
                self.spool.put_back();
                if self.doubts.refused(one.number()) {
                    self.set_aside(one, &answer);
                } else {
                    self.refused_once(&answer);
                }
            }
            _ => self.spool.put_back(),
        }
        false
    }

    fn refused_once(&mut self, answer: &str) {
        answer.clone_into(&mut self.answer);
        self.account.failed(&DeliveryError::Refused(answer.to_owned()));
    }

    /// The sink takes nothing at this time: says so, once.
    fn all_are_refused(&mut self) -> Carried {
        self.alone = self.alone.max(1);
        let [_, several] = self.account.carries;
        let answer = &self.answer;
        let error = DeliveryError::Refused(format!("{answer} (the sink has taken nothing since: all {several} wait)"));
        self.account.tally().last_error = Some(error.to_string());
        self.say(&error);
        Carried::Refused
    }

    /// Keeps a refused report aside, with a tombstone in its place; drops a refused tombstone.
    fn set_aside(&mut self, parcel: &Parcel, answer: &str) {
        let (sink, id) = (&self.account.name, &parcel.encoded.id);
        let [one, _] = self.account.carries;
        self.account.failed(&DeliveryError::Refused(answer.to_owned()));
        match (parcel.is_report, self.account.has_spool) {
            (false, _) => {
                warn!(
                    sink,
                    lost = id,
                    answer,
                    "the sink refuses a tombstone, and takes reports: weir tells it no more of what is lost there"
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
        self.account.note(&self.spool, |_| {});
    }

    /// Whether the sink is ending and another attempt is pointless, because everything that waits is on disk.
    fn is_over(&mut self) -> bool {
        self.too_late() || self.deadline.is_some() && self.account.has_spool && self.spool.holding().in_memory == 0
    }

    fn too_late(&mut self) -> bool {
        if self.deadline.is_none() {
            self.deadline = match self.ends.try_recv() {
                Ok(deadline) => Some(deadline),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(now()),
            };
        }
        self.deadline.is_some_and(|deadline| now() >= deadline)
    }

    /// Pauses before the next attempt, at least for as long as the sink asks, and returns the next maximum pause. The
    /// end of the sink interrupts the pause and resets the maximum to the shortest.
    fn rest(&mut self, longest: Duration, after: Option<Duration>) -> Duration {
        let pause = jittered(longest).max(after.unwrap_or_default());
        let longer = (longest * 2).min(BACKOFF_MAX);
        if let Some(deadline) = self.deadline {
            thread::sleep(pause.min(deadline.saturating_duration_since(now())));
            return longer;
        }
        self.deadline = match self.ends.recv_timeout(pause) {
            Ok(deadline) => Some(deadline),
            Err(RecvTimeoutError::Timeout) => return longer,
            Err(RecvTimeoutError::Disconnected) => Some(now()),
        };
        BACKOFF_MIN
    }

    /// Pauses as [`rest`](Self::rest) does, but no longer than until something comes that may pass. Without that all
    /// that waits is tried once more, if all of it was.
    fn rest_or_news(&mut self, longest: Duration, were_all_tried: bool) -> Duration {
        if self.deadline.is_some() {
            self.doubts.begin_anew();
            return self.rest(longest, None);
        }
        select! {
            recv(self.bell) -> rung => if rung.is_err() { self.rest(longest, None) } else { longest },
            recv(self.ends) -> deadline => {
                self.deadline = Some(deadline.unwrap_or_else(|_| now()));
                self.doubts.begin_anew();
                BACKOFF_MIN
            }
            default(jittered(longest)) => {
                if were_all_tried {
                    self.doubts.begin_anew();
                }
                (longest * 2).min(BACKOFF_MAX)
            }
        }
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
                self.account.failed(&DeliveryError::Refused(answer));
                self.spool.put_back();
            }
        }
        self.failing = true;
        error!(
            sink = self.account.name,
            "the sink panicked, and begins anew with the next report: this is a bug in weir, please report it: {text}"
        );
    }

    fn delivered(&mut self, batch: &Batch) {
        let reports = batch.parcels.iter().filter(|parcel| parcel.is_report).count() as u64;
        self.alone = self.alone.saturating_sub(batch.parcels.len());
        for parcel in &batch.parcels {
            self.doubts.delivered(parcel.number(), parcel.is_report);
        }
        self.account.note(&self.spool, |tally| {
            tally.delivered += reports;
            tally.last_error = None;
        });
        if std::mem::take(&mut self.failing) {
            let [_, several] = self.account.carries;
            info!(sink = self.account.name, "the sink accepts {several} again");
        }
    }

    fn failed(&mut self, error: &DeliveryError) {
        self.account.failed(error);
        self.say(error);
    }

    /// Says what an error means, when it is the first of several.
    fn say(&mut self, error: &DeliveryError) {
        if std::mem::replace(&mut self.failing, true) {
            return;
        }
        let [one, several] = self.account.carries;
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
        warn!(sink = self.account.name, %error, "{consequence}");
    }
}

/// A random part of a pause. The windows of all routers end at the same time, but their retries should not.
fn jittered(longest: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    longest.mul_f64(random as f64 / u64::MAX as f64)
}

#[expect(clippy::disallowed_methods, reason = "deadlines of I/O, which the measurement never sees")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{io, os::fd::OwnedFd};

    use crossbeam::channel;

    use super::{
        super::{Stdout, http::tests::LONG},
        *,
    };
    use crate::spool::Limits;

    #[test]
    fn the_end_interrupts_a_pause() {
        let (ending, ends) = channel::bounded(1);
        let (_ringer, bell) = channel::bounded(1);
        let (_reader, writer) = io::pipe().unwrap();
        let limits = Limits { bytes: 0, age: None, memory: 1, sync: false };
        let mut delivery = Delivery {
            sink: Box::new(Stdout::from(OwnedFd::from(writer))),
            addresses: Addresses::Full,
            account: Arc::new(Account::new("stdout".to_owned(), ["a report", "reports"], false)),
            spool: Arc::new(Spool::in_memory(limits)),
            bell,
            ends,
            deadline: None,
            failing: true,
            doubts: Doubts::default(),
            answer: String::new(),
            alone: 0,
            _here: channel::bounded(0).0,
        };
        assert_eq!(delivery.rest(Duration::ZERO, None), Duration::ZERO, "an uninterrupted pause doubles");
        let deadline = now() + LONG;
        ending.send(deadline).unwrap();
        assert_eq!(delivery.rest(BACKOFF_MAX, Some(LONG)), BACKOFF_MIN, "an interrupted one starts over");
        assert_eq!(delivery.deadline, Some(deadline));
    }

    #[test]
    fn a_pause_is_anything_up_to_its_longest() {
        let pauses: Vec<_> = (0..200).map(|_| jittered(BACKOFF_MAX)).collect();
        assert!(pauses.iter().all(|pause| *pause <= BACKOFF_MAX), "{pauses:?}");
        // Each of these fails with a probability of 1 in 2^200.
        assert!(pauses.iter().any(|pause| *pause < BACKOFF_MAX / 2), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause > BACKOFF_MAX / 2), "{pauses:?}");
    }
}
