//! Gives orders to the coordinator, and takes them back if it has no time for them.

use std::{process, time::Duration};

use crossbeam::channel::{Receiver, Sender, bounded};
use weir_attach::Reattached;

use super::{
    Order,
    keys::answered,
    protocol::{Attached, Detached, Response},
    server::Orders,
};

/// Gives orders to the coordinator.
pub struct OrderDesk {
    /// To the coordinator. Only this thread sends, so at most its own order is queued.
    pub orders: Sender<Order>,
    /// The other end of the same channel, to take an order back.
    pub waiting: Receiver<Order>,
    /// How long the coordinator may take.
    pub patience: Duration,
}

impl Orders for OrderDesk {
    fn detach(&self, interfaces: Vec<String>) -> Response {
        match self.give("detach", |reply| Order::Detach(interfaces, reply)) {
            Ok(from) => answered(&Detached { pid: process::id(), from }),
            Err(response) => response,
        }
    }

    fn attach(&self, interfaces: Vec<String>) -> Response {
        match self.give("attach", |reply| Order::Attach(interfaces, reply)) {
            Ok(Reattached { to, missing }) => answered(&Attached { pid: process::id(), to, missing }),
            Err(response) => response,
        }
    }
}

impl OrderDesk {
    /// Gives an order, and waits for its result. If the coordinator has not begun with it in time, the order is taken
    /// back: a user who reads that nothing happened must be able to rely on it.
    fn give<T>(&self, verb: &str, order: impl FnOnce(Sender<Result<T, String>>) -> Order) -> Result<T, Response> {
        let (reply, answer) = bounded(1);
        let withdrawn =
            || Response::Unavailable(format!("weir is busy closing a window and did not {verb}: ask again"));
        self.orders.send_timeout(order(reply), self.patience).map_err(|_| withdrawn())?;
        match answer.recv_timeout(self.patience) {
            Ok(result) => result.map_err(Response::Refused),
            Err(_) if self.waiting.try_recv().is_ok() => Err(withdrawn()),
            // It may have finished just now.
            Err(_) => {
                answer.try_recv().map_or_else(|_| Err(unfinished(verb)), |result| result.map_err(Response::Refused))
            }
        }
    }
}

fn unfinished(verb: &str) -> Response {
    Response::Unavailable(format!(
        "weir has begun to {verb}, and will finish as soon as the kernel lets it: `weir status` shows when, and its log \
         says what it waits for (`journalctl -u weir`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> (OrderDesk, Receiver<Order>) {
        let (orders, waiting) = bounded(1);
        (OrderDesk { orders, waiting: waiting.clone(), patience: Duration::from_millis(20) }, waiting)
    }

    #[test]
    fn an_order_that_nobody_has_begun_is_taken_back() {
        let (desk, coordinator) = desk();
        for response in [desk.detach(vec!["eth0".to_owned()]), desk.attach(vec![])] {
            let Response::Unavailable(why) = response else { panic!("{response:?}") };
            assert!(why.contains("did not") && why.contains("ask again"), "{why}");
            assert!(coordinator.try_recv().is_err(), "it would be executed later");
        }
    }

    #[test]
    fn an_order_that_has_begun_is_said_to_go_on() {
        let (desk, coordinator) = desk();
        let (begun, begins) = bounded(1);
        let thread = std::thread::spawn(move || {
            let order = coordinator.recv().unwrap();
            begun.send(()).unwrap();
            // Keep it until the answer is there.
            begun.send(()).unwrap();
            drop(order);
        });
        let response = desk.detach(vec![]);
        begins.recv().unwrap();
        begins.recv().unwrap();
        thread.join().unwrap();
        let Response::Unavailable(why) = response else { panic!("{response:?}") };
        assert!(why.contains("has begun to detach") && why.contains("weir status"), "{why}");
    }
}
