//! `weir detach` and `weir attach`: detaches from interfaces, and attaches to them again, at a user's request.

use std::collections::HashSet;

use crossbeam::channel::Sender;
use weir_config::{Interface, interface::Way};
use weir_system::text::{short, with_causes};

use super::{
    attachment::Attachment,
    attachments::Attachments,
    obtained::WAITS,
    plan::{covers, wanted},
    requests::{Reattached, Released, Releasing, Returning},
    shared_slot,
    tasks::Number,
};

impl Attachments<'_> {
    /// Detaches from these interfaces, or from all, and leaves them alone until they are attached again, or until a
    /// configuration wants other interfaces than the current one. Then replies with a description of what was detached.
    /// If an interface is not measured now, replies with an error that names it, and changes nothing.
    pub fn release(&mut self, names: &[String], reply: Sender<Result<Vec<String>, String>>) {
        let names: &[_] = &names.iter().map(|name| self.own_name(name)).collect::<Vec<_>>();
        let attached: Vec<_> =
            self.slots.iter().filter(|one| one.here().is_some()).map(|one| (one.name.clone(), one.way)).collect();
        if let Some(name) = names.iter().find(|name| attached.iter().all(|(one, _)| one != *name)) {
            let mut have: Vec<_> = attached.iter().map(|(name, _)| name.as_str()).collect();
            have.dedup();
            let _ = reply.send(Err(format!(
                "weir is not attached to {:?} (it is attached to: {})",
                short(name),
                or_none(&have.join(", "))
            )));
            return;
        }
        self.requests.release(names);
        let before: HashSet<_> = self.going.keys().copied().collect();
        self.let_go();
        self.send();
        let from = attached.into_iter().filter(|(name, _)| self.requests.is_released(name));
        let from = from.map(|(name, way)| direction(&name, way)).collect();
        let left = self.going.keys().filter(|number| !before.contains(number)).copied().collect();
        self.requests.await_detached(Releasing { from, left, reply });
    }

    /// Attaches again to these interfaces that `weir detach` has detached, or to all of them. Replies once the kernel
    /// has answered for each. If one of them was not detached, replies with an error that names it, and changes
    /// nothing.
    pub fn attach_again(&mut self, names: &[String], reply: Sender<Result<Reattached, String>>) {
        let detached = self.stays_released(&self.rules);
        let names: Vec<_> = names.iter().map(|name| self.own_name(name)).collect();
        if let Some(name) = names.iter().find(|name| !detached.contains(name)) {
            let have = detached.join(", ");
            let (name, have) = (short(name), or_none(&have));
            let _ = reply.send(Err(format!(
                "weir was not told to detach from {name:?} (`weir detach` has detached it from: {have})"
            )));
            return;
        }
        self.requests.take_back(&names);
        let names = if names.is_empty() { detached } else { names };
        let before = self.next;
        let devices = self.inventory.devices().clone();
        let wanted = self.wanted(&devices);
        let mut of = Vec::new();
        for one in wanted.iter().filter(|one| names.contains(&one.device.name)) {
            of.push((one.device.name.clone(), one.device.ifindex, one.way));
        }
        let absent = names.into_iter().filter(|name| of.iter().all(|(one, ..)| one != name)).collect();
        if let Err(error) = self.order_missing(&wanted) {
            let _ = reply.send(Err(with_causes(&error)));
            return;
        }
        let ordered = self.slots.iter().filter_map(|one| Some(one.here()?.number));
        let left = ordered.filter(|number| *number > before).collect();
        self.requests.await_attached(Returning { of, absent, left, reply });
        // A new list finds what has appeared meanwhile, and decides again what feeds totals.
        self.list();
        self.send();
        self.answer_returning(None);
    }

    /// Notes that the kernel has answered for this attachment, and replies to requests that are finished.
    pub(super) fn answer_returning(&mut self, answered: Option<Number>) {
        for Returning { of, absent, reply, .. } in self.requests.take_attached(answered) {
            // The client may be gone.
            let _ = reply.send(Ok(self.reattached(of, absent)));
        }
    }

    fn reattached(&self, of: Vec<(String, u32, Way)>, absent: Vec<String>) -> Reattached {
        let mut done = Reattached::default();
        for (name, ifindex, way) in of {
            let is_it =
                |one: &&Attachment| one.way == way && one.present.is_some_and(|present| present.ifindex == ifindex);
            let what = direction(&name, way);
            if let Some(one) = self.slots.iter().find(is_it) {
                done.to.push(format!("{what}: {}", one.obtained.name()));
            } else if self.shared.as_ref().is_some_and(|shared| shared.has(ifindex, way)) {
                done.to.push(format!("{what}: in the account {}", shared_slot::NAME));
            } else {
                done.missing.push(format!("{what}: {}", self.health.refusal(ifindex, way).unwrap_or(WAITS)));
            }
        }
        done.missing.extend(absent.into_iter().map(|name| format!("{name}: it is absent: weir waits for it")));
        done
    }

    /// The interfaces that stay detached with a configuration that wants these, because of `weir detach`. If it wants
    /// other interfaces than the current one, there are none.
    pub fn stays_released(&self, rules: &[Interface]) -> Vec<String> {
        if self.rules != rules {
            return Vec::new();
        }
        let devices = self.inventory.devices();
        let wanted = wanted(rules, devices, self.has_programs);
        let mut names: Vec<_> = wanted.iter().map(|one| one.device.name.clone()).collect();
        match self.requests.released() {
            Released::Only(known) => names.extend(known.iter().cloned()),
            // Also those that it waits for.
            Released::AllBut(_) => {
                let absent = |rule: &&Interface| !devices.iter().any(|device| covers(rule, device));
                names.extend(rules.iter().filter(|rule| rule.is_named()).filter(absent).map(|rule| rule.name.clone()));
            }
        }
        names.retain(|name| self.requests.is_released(name));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The kernel's name of an interface, given any of its names.
    fn own_name(&self, name: &str) -> String {
        if let Some(own) = self.slots.iter().find(|one| one.names().contains(&name)) {
            return own.name.clone();
        }
        let device = self.inventory.devices().iter().find(|device| device.names().any(|one| one == name));
        device.map_or(name, |device| &device.name).to_owned()
    }
}

fn direction(name: &str, way: Way) -> String {
    format!("{name} ({})", way.name())
}

const fn or_none(names: &str) -> &str {
    if names.is_empty() { "none" } else { names }
}
