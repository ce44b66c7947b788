//! A queue and its delivery, one call after the other: no thread is started.

use std::{collections::VecDeque, sync::mpsc};

use super::{
    super::{
        DeliveryError,
        http::tests::LONG,
        tests::{encoded, id},
    },
    *,
};
use crate::spool::{Item, Limits};

/// Answers by a script, then accepts everything.
struct Scripted {
    answers: VecDeque<Result<(), DeliveryError>>,
    accepted: mpsc::Sender<String>,
}

impl Sink for Scripted {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        self.answers.pop_front().unwrap_or(Ok(()))?;
        for parcel in batch {
            self.accepted.send(parcel.encoded.id.clone()).unwrap();
        }
        Ok(())
    }
}

/// A queue, its spool, a sink that gives these answers, and what it has accepted.
struct Bench {
    queue: Arc<Queue>,
    spool: Arc<Spool>,
    sink: Box<Scripted>,
    accepted: mpsc::Receiver<String>,
}

fn bench(answers: &[Result<(), DeliveryError>], storage: impl FnOnce(&Arc<Spool>) -> Storage) -> Bench {
    let (sender, accepted) = mpsc::channel();
    let sink = Box::new(Scripted { answers: answers.to_vec().into(), accepted: sender });
    let spool = Arc::new(Spool::in_memory(Limits::in_memory(2)));
    let queue = Arc::new(Queue::new(&*sink, Addresses::Full, storage(&spool)));
    Bench { queue, spool, sink, accepted }
}

impl Bench {
    /// Ends the queue, and delivers what is waiting; returns the ids of what was accepted.
    fn delivered(self) -> Vec<String> {
        self.queue.end(now() + LONG);
        Delivery::new(self.sink, self.queue, self.spool).run();
        self.accepted.try_iter().collect()
    }
}

#[test]
fn a_queue_in_memory_keeps_the_newest_and_a_tombstone_names_the_others() {
    let bench = bench(&[], |spool| Storage::Memory(spool.clone()));
    for seq in 1..=5 {
        bench.queue.offer(encoded(&id(seq)));
    }
    let queue = bench.queue.clone();
    assert_eq!((queue.metrics().queued, queue.metrics().dropped), (3, 2));
    assert_eq!(bench.delivered(), [format!("{}-2", id(1)), id(3), id(4), id(5)]);
    assert_eq!((queue.metrics().queued, queue.metrics().dropped, queue.metrics().delivered), (0, 2, 3));
}

#[test]
fn reports_that_the_disk_does_not_accept_in_time_have_a_tombstone() {
    let bench = bench(&[], |_| Storage::Disk { incoming_max: 2 });
    let (queue, spool) = (bench.queue.clone(), bench.spool.clone());
    for seq in 1..=5 {
        queue.offer(encoded(&id(seq)));
        let metrics = queue.metrics();
        assert_eq!(metrics.queued + metrics.dropped, seq, "every report is waiting or lost: {metrics:?}");
    }
    assert_eq!(queue.metrics().lost, [("queue_full".to_owned(), 3)].into());
    queue.end(now() + LONG);
    queue.write_to(&spool);
    let metrics = queue.metrics();
    assert_eq!((metrics.queued, &metrics.lost), (2, &[("queue_full".to_owned(), 3)].into()), "counted once");
    assert_eq!(bench.delivered(), [format!("{}-3", id(1)), id(4), id(5)]);
}

#[test]
fn a_failed_report_is_tried_again_and_a_single_refusal_costs_nothing() {
    let refused = || Err(DeliveryError::Refused("400 Bad Request".to_owned()));
    let answers = [Err(DeliveryError::unavailable("down".to_owned())), Ok(()), refused(), Ok(()), Ok(())];
    let bench = bench(&answers, |spool| Storage::Memory(spool.clone()));
    for seq in 1..=3 {
        bench.queue.offer(encoded(&id(seq)));
    }
    let queue = bench.queue.clone();
    assert_eq!(bench.delivered(), [id(1), id(3), id(2)], "the second, once another one was accepted");
    let metrics = queue.metrics();
    assert_eq!((metrics.failed_attempts, metrics.delivered, metrics.dropped), (2, 3, 0), "{metrics:?}");
}

#[test]
fn news_come_before_the_end_and_the_end_is_announced_once() {
    let queue = bench(&[], |spool| Storage::Memory(spool.clone())).queue;
    let mut deadline = None;
    assert_eq!(queue.wait(&mut deadline, Some(now()), true), Woken::Nothing);
    queue.offer(encoded(&id(1)));
    let end = now() + LONG;
    queue.end(end);
    queue.end(now());
    assert_eq!(queue.wait(&mut deadline, None, true), Woken::News);
    assert_eq!((queue.wait(&mut deadline, None, true), deadline), (Woken::Ending, Some(end)), "the first end counts");
    assert_eq!(queue.wait(&mut deadline, None, true), Woken::Nothing, "nothing can come any more");
    let worker = Worker::new(queue.clone());
    assert!(!queue.wait_for_threads(now()));
    drop(worker);
    assert!(queue.wait_for_threads(end));
}
