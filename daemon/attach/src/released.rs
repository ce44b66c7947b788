//! The interfaces that a user has detached with `weir detach`. weir leaves them alone, until `weir attach` brings them
//! back.

use std::collections::HashSet;

use crossbeam::channel::Sender;
use weir_config::{Interface, interface::Way};
use weir_system::text::short;

use super::{attachments::Attachments, obtained::WAITS, plan::wanted, tasks::Number};

/// The interfaces that weir leaves alone.
pub enum Released {
    /// Interfaces with these names.
    Only(HashSet<String>),
    /// All interfaces, also those that appear later, except those with these names.
    AllBut(HashSet<String>),
}

impl Default for Released {
    fn default() -> Self {
        Self::Only(HashSet::new())
    }
}

impl Released {
    /// Whether an interface with this name is included.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(name),
            Self::AllBut(names) => !names.contains(name),
        }
    }

    /// Adds interfaces with these names, or all interfaces if there are no names.
    pub fn add(&mut self, names: &[String]) {
        match self {
            _ if names.is_empty() => *self = Self::AllBut(HashSet::new()),
            Self::Only(known) => known.extend(names.iter().cloned()),
            Self::AllBut(others) => others.retain(|name| !names.contains(name)),
        }
    }

    /// Removes interfaces with these names, or all interfaces if there are no names.
    pub fn remove(&mut self, names: &[String]) {
        match self {
            _ if names.is_empty() => *self = Self::default(),
            Self::Only(known) => known.retain(|name| !names.contains(name)),
            Self::AllBut(others) => others.extend(names.iter().cloned()),
        }
    }
}

/// A `weir detach` request that waits until weir has detached.
pub struct Releasing {
    /// Descriptions of the attachments to detach, for the reply.
    pub from: Vec<String>,
    /// What is still attached.
    pub left: HashSet<Number>,
    /// Where the answer goes.
    pub reply: Sender<Result<Vec<String>, String>>,
}

impl Releasing {
    /// Notes that this attachment was detached. Returns whether the request is finished; the client may be gone by
    /// then.
    pub fn is_answered(&mut self, detached: Number) -> bool {
        self.left.remove(&detached);
        self.answer()
    }

    /// Replies if everything is detached. Returns whether it is.
    pub fn answer(&mut self) -> bool {
        if self.left.is_empty() {
            let _ = self.reply.send(Ok(std::mem::take(&mut self.from)));
        }
        self.left.is_empty()
    }
}

/// The result of `weir attach`, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reattached {
    /// Each interface and direction that weir measures again.
    pub to: Vec<String>,
    /// Each one that it does not measure yet, with the reason.
    pub missing: Vec<String>,
}

/// A `weir attach` request that waits until the kernel has answered.
pub struct Returning {
    /// The interfaces and directions to attach to.
    of: Vec<(String, u32, Way)>,
    /// Interfaces that are absent.
    absent: Vec<String>,
    /// What the kernel has not answered yet.
    left: HashSet<Number>,
    /// Where the answer goes.
    reply: Sender<Result<Reattached, String>>,
}

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
        self.released.add(names);
        let before: HashSet<_> = self.going.keys().copied().collect();
        self.let_go();
        self.send();
        let from = attached.into_iter().filter(|(name, _)| self.released.has(name));
        let from = from.map(|(name, way)| direction(&name, way)).collect();
        let left = self.going.keys().filter(|number| !before.contains(number)).copied().collect();
        let mut releasing = Releasing { from, left, reply };
        if !releasing.answer() {
            self.releasing.push(releasing);
        }
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
        self.released.remove(&names);
        let names = if names.is_empty() { detached } else { names };
        let before = self.next;
        let devices = self.devices.clone();
        let wanted = self.wanted(&devices);
        let mut of = Vec::new();
        for one in wanted.iter().filter(|one| names.contains(&one.device.name)) {
            of.push((one.device.name.clone(), one.device.ifindex, one.way));
        }
        let absent = names.into_iter().filter(|name| of.iter().all(|(one, ..)| one != name)).collect();
        if let Err(error) = self.order_missing(&wanted) {
            let _ = reply.send(Err(weir_system::text::with_causes(&error)));
            return;
        }
        let ordered = self.slots.iter().filter_map(|one| Some(one.here()?.number));
        let left = ordered.filter(|number| *number > before).collect();
        self.returning.push(Returning { of, absent, left, reply });
        // A new list finds what has appeared meanwhile, and decides again what feeds totals.
        self.list();
        self.send();
        self.answer_returning(None);
    }

    /// Notes that the kernel has answered for this attachment, and replies to requests that are finished.
    pub(super) fn answer_returning(&mut self, answered: Option<Number>) {
        for mut one in std::mem::take(&mut self.returning) {
            if let Some(number) = answered {
                one.left.remove(&number);
            }
            if one.left.is_empty() {
                // The client may be gone.
                let _ = one.reply.send(Ok(self.reattached(one.of, one.absent)));
            } else {
                self.returning.push(one);
            }
        }
    }

    fn reattached(&self, of: Vec<(String, u32, Way)>, absent: Vec<String>) -> Reattached {
        let mut done = Reattached::default();
        for (name, ifindex, way) in of {
            let is_it = |one: &&super::attachment::Attachment| {
                one.way == way && one.present.is_some_and(|present| present.ifindex == ifindex)
            };
            let what = direction(&name, way);
            if let Some(one) = self.slots.iter().find(is_it) {
                done.to.push(format!("{what}: {}", one.obtained.name()));
            } else if self.shared.as_ref().is_some_and(|shared| shared.has(ifindex, way)) {
                done.to.push(format!("{what}: in the account {}", super::shared_slot::NAME));
            } else {
                done.missing
                    .push(format!("{what}: {}", self.refused.get(&(ifindex, way)).map_or(WAITS, String::as_str)));
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
        let wanted = wanted(rules, &self.devices, self.has_programs);
        let mut names: Vec<_> = wanted.iter().map(|one| one.device.name.clone()).collect();
        match &self.released {
            Released::Only(known) => names.extend(known.iter().cloned()),
            // Also those that it waits for.
            Released::AllBut(_) => {
                let absent = |rule: &&Interface| !self.devices.iter().any(|device| super::covers(rule, device));
                names.extend(rules.iter().filter(|rule| rule.is_named()).filter(absent).map(|rule| rule.name.clone()));
            }
        }
        names.retain(|name| self.released.has(name));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The kernel's name of an interface, given any of its names.
    fn own_name(&self, name: &str) -> String {
        if let Some(own) = self.slots.iter().find(|one| one.names().contains(&name)) {
            return own.name.clone();
        }
        let device = self.devices.iter().find(|device| device.names().any(|one| one == name));
        device.map_or(name, |device| &device.name).to_owned()
    }
}

fn direction(name: &str, way: Way) -> String {
    format!("{name} ({})", way.name())
}

const fn or_none(names: &str) -> &str {
    if names.is_empty() { "none" } else { names }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn what_was_released_one_by_one_or_together_returns_one_by_one_or_together() {
        let state = |released: &Released| ["eth0", "eth1", "later0"].map(|name| released.has(name));
        let mut released = Released::default();
        assert_eq!(state(&released), [false; 3]);
        released.add(&names(&["eth0", "eth1"]));
        released.remove(&names(&["eth1"]));
        assert_eq!(state(&released), [true, false, false]);
        released.add(&[]);
        assert_eq!(state(&released), [true; 3], "all, also what appears later");
        released.remove(&names(&["eth0"]));
        assert_eq!(state(&released), [false, true, true]);
        released.add(&names(&["eth0"]));
        assert_eq!(state(&released), [true; 3]);
        released.remove(&[]);
        assert_eq!(state(&released), [false; 3]);
    }
}
