//! Links: programs on interfaces, which may outlive their weir.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use tracing::debug;

use super::{name::Name, network, store};
use crate::datapath::syscall::{self, Hook};

/// A program on an interface. Dropping it detaches the program, whoever else has the link.
pub struct Link {
    name: Name,
    descriptor: OwnedFd,
    stays: bool,
}

impl Link {
    /// Attaches a program to an interface.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn attach(program: impl AsFd, ifindex: u32, hook: Hook) -> io::Result<Self> {
        let descriptor = syscall::attach(program.as_fd(), ifindex, hook)?;
        let name = Name::Link { hook, ifindex, network: network() };
        store::keep(name, &descriptor);
        Ok(Self { name, descriptor, stays: false })
    }

    /// Puts another program in the place of this link's. Each packet meets one of the two.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn replace(&self, program: impl AsFd) -> io::Result<()> {
        syscall::replace(self.descriptor.as_fd(), program.as_fd())
    }

    /// Leaves the program on the interface, for the next weir.
    pub fn leave_behind(mut self) {
        self.stays = true;
    }

    /// From now on the program goes with this link. Before, one that was taken over stays: should this weir not come so
    /// far as to measure, the next one takes it over.
    pub const fn settle(&mut self) {
        self.stays = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Not only closed: systemd may have it too, and closes it some time later.
        if let Err(error) = syscall::detach(self.descriptor.as_fd()) {
            debug!("cannot detach {}: {error}", self.name);
        }
        store::forget(self.name);
    }
}

/// The links of an earlier weir that nobody has taken over yet. They stay if this weir does not get that far.
#[derive(Default)]
pub struct Links(HashMap<(Hook, u32), Link>);

impl Links {
    /// Adds one; not if its interface is gone, or is another one by now.
    pub(super) fn add(&mut self, name: Name, descriptor: OwnedFd) {
        let Name::Link { hook, ifindex, network: home } = name else { return };
        let is_there = home == network()
            && syscall::interface_of(descriptor.as_fd()).is_ok_and(|index| index == ifindex && index != 0);
        let link = Link { name, descriptor, stays: is_there };
        if is_there {
            self.0.insert((hook, ifindex), link);
        }
    }

    /// Takes the link of this hook of an interface, if there is one. It stays until [`Link::settle`].
    pub fn take(&mut self, hook: Hook, ifindex: u32) -> Option<Link> {
        self.0.remove(&(hook, ifindex))
    }

    /// Detaches what is at these hooks of an interface; returns whether there was something.
    pub fn detach(&mut self, hooks: &[Hook], ifindex: u32) -> bool {
        let links = hooks.iter().filter_map(|hook| self.0.remove(&(*hook, ifindex)));
        links.map(|mut link| link.settle()).count() > 0
    }

    /// Detaches all that nobody has taken over.
    pub fn clear(&mut self) {
        self.0.values_mut().for_each(|link| link.stays = false);
        self.0.clear();
    }
}
