//! BPF links: programs on interfaces, which can stay there when weir ends.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use tracing::debug;

use super::{name::Name, network, store};
use crate::{
    Chains,
    syscall::{self, Hook},
};

/// A program on an interface. Dropping it detaches the program, even if another process holds the link, too.
pub struct Link {
    name: Name,
    descriptor: OwnedFd,
    /// The id of the program that it should run; `None` until this weir has set one.
    program: Option<u32>,
    stays: bool,
}

/// The position of a link's program at a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkPosition {
    /// The program sees each packet of the hook before all others.
    First,
    /// The programs with these ids see the packets before it, and may end the chain.
    Behind(Vec<u32>),
    /// Another process has detached it.
    Removed,
    /// Another process has replaced weir's program by the one with this id.
    Replaced(u32),
}

/// Two programs that pass every packet on. They hold a position while links change theirs. There are two, because the
/// kernel allows a program only once per hook.
pub struct Passing([OwnedFd; 2]);

impl Passing {
    /// Loads both programs.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn load() -> io::Result<Self> {
        Ok(Self([syscall::load_passing()?, syscall::load_passing()?]))
    }
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
        let program = syscall::program_of(program.as_fd()).ok().map(|(id, _)| id);
        Ok(Self { name, descriptor, program, stays: false })
    }

    /// Replaces the program of this link. Each packet is seen by exactly one of the two programs.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn replace(&mut self, program: impl AsFd) -> io::Result<()> {
        syscall::replace(self.descriptor.as_fd(), program.as_fd())?;
        self.program = syscall::program_of(program.as_fd()).ok().map(|(id, _)| id);
        Ok(())
    }

    /// The id of its program, if this weir has set it.
    pub const fn program(&self) -> Option<u32> {
        self.program
    }

    /// Finds the position of its program, from the link itself and, if permitted, from the chain of its hook.
    ///
    /// # Errors
    ///
    /// The kernel does not report it, for example because the interface is just vanishing.
    pub fn place(&self, chains: &Chains) -> io::Result<LinkPosition> {
        let state = syscall::state_of(self.descriptor.as_fd())?;
        if state.ifindex == 0 {
            return Ok(LinkPosition::Removed);
        }
        if self.program.is_some_and(|program| program != state.program) {
            return Ok(LinkPosition::Replaced(state.program));
        }
        let Name::Link { hook, ifindex, .. } = self.name else { return Ok(LinkPosition::First) };
        if !hook.is_chain() {
            return Ok(LinkPosition::First);
        }
        let chain = match chains.of(ifindex, hook) {
            // Without permission to read the chain, only the link itself can be checked.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(LinkPosition::First),
            chain => chain?,
        };
        let before: Vec<_> = chain.iter().take_while(|one| one.link != state.id).map(|one| one.program).collect();
        Ok(match before.len() {
            0 => LinkPosition::First,
            all if all == chain.len() => LinkPosition::Removed,
            _ => LinkPosition::Behind(before),
        })
    }

    /// Attaches this program again with a new link, first at its hook, after another process has detached the old one.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn attach_again(&mut self, program: impl AsFd) -> io::Result<()> {
        let Name::Link { hook, ifindex, .. } = self.name else { return Ok(()) };
        let another = Self::attach(program, ifindex, hook)?;
        self.give_way_to(another);
        Ok(())
    }

    /// Moves the program before all others at its hook. No packet is counted twice. Packets that arrive between two of
    /// the system calls, some microseconds apart, are not counted.
    ///
    /// # Errors
    ///
    /// The kernel refused. Then the program stays where it was.
    pub fn move_first(&mut self, program: impl AsFd, Passing([first, aside]): &Passing) -> io::Result<()> {
        let Name::Link { hook, ifindex, .. } = self.name else { return Ok(()) };
        let mut another = Self::attach(first, ifindex, hook)?;
        let moved = syscall::replace(self.descriptor.as_fd(), aside.as_fd()).and_then(|()| {
            let moved = another.replace(program.as_fd());
            if moved.is_err() {
                syscall::replace(self.descriptor.as_fd(), program.as_fd())?;
            }
            moved
        });
        match moved {
            Ok(()) => self.give_way_to(another),
            Err(error) => {
                // Undo only what was attached here.
                syscall::detach(another.descriptor.as_fd())?;
                another.stays = true;
                store::forget(self.name);
                store::keep(self.name, &self.descriptor);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Replaces this link by the other one, and detaches this one.
    fn give_way_to(&mut self, another: Self) {
        let mut before = std::mem::replace(self, another);
        if let Err(error) = syscall::detach(before.descriptor.as_fd()) {
            debug!("cannot detach {}: {error}", before.name);
        }
        before.stays = true;
        // Both links have the same name.
        store::forget(self.name);
        store::keep(self.name, &self.descriptor);
    }

    /// Leaves the program on the interface for the next weir.
    pub fn leave_behind(mut self) {
        self.stays = true;
    }

    /// From now on, dropping this link detaches the program. Until then, an inherited program stays: if this weir ends
    /// before it measures, the next one takes the program over.
    pub const fn settle(&mut self) {
        self.stays = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Closing the descriptor is not enough: systemd may hold it, too, and closes it only later.
        if let Err(error) = syscall::detach(self.descriptor.as_fd()) {
            debug!("cannot detach {}: {error}", self.name);
        }
        store::forget(self.name);
    }
}

/// The links of an earlier weir that are not taken over yet. They stay if this weir ends before it takes them over.
#[derive(Default)]
pub struct Links {
    left: HashMap<(Hook, u32), Link>,
    broken: Vec<(Hook, u32)>,
}

impl Links {
    /// Adds a link. It is broken if its interface is gone or is now a different one, or if another process has detached
    /// the link.
    pub fn add(&mut self, name: Name, descriptor: OwnedFd) {
        let Name::Link { hook, ifindex, network: home } = name else { return };
        let is_here = home == network();
        let is_there =
            is_here && syscall::state_of(descriptor.as_fd()).is_ok_and(|link| link.ifindex == ifindex && ifindex != 0);
        let link = Link { name, descriptor, program: None, stays: is_there };
        if is_there {
            self.left.insert((hook, ifindex), link);
        } else if is_here {
            self.broken.push((hook, ifindex));
        }
    }

    /// Takes the link at this hook of an interface, if there is one. The program stays until [`Link::settle`].
    pub fn take(&mut self, hook: Hook, ifindex: u32) -> Option<Link> {
        self.left.remove(&(hook, ifindex))
    }

    /// Notes that the link at this hook of an interface could not be taken over.
    pub fn note_broken(&mut self, hook: Hook, ifindex: u32) {
        self.broken.push((hook, ifindex));
    }

    /// Detaches the programs at these hooks of an interface; returns whether there were any.
    pub fn detach(&mut self, hooks: &[Hook], ifindex: u32) -> bool {
        let links = hooks.iter().filter_map(|hook| self.left.remove(&(*hook, ifindex)));
        links.map(|mut link| link.settle()).count() > 0
    }

    /// Detaches all links that were not taken over. Returns the broken ones, by hook and index.
    pub fn clear(&mut self) -> Vec<(Hook, u32)> {
        for link in self.left.values_mut() {
            link.stays = false;
        }
        self.left.clear();
        std::mem::take(&mut self.broken)
    }
}
