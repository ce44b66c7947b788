//! `weir detach` and `weir attach`: take the running weir off interfaces and bring it back, and remove what a killed
//! one left.

use std::io;

use rustix::{io::Errno, thread::CapabilitySet};
use weir::{
    cli::{AttachArgs, DetachArgs, SocketArgs},
    control::{
        client::{self, AskError},
        protocol::{self, Attached, Detached},
    },
    pipeline::RunError,
    show,
};
use weir_attach::{AttachError, FoundFilters, leftovers, netlink::Devices};
use weir_system::{exit::Exit, log::say, privileges::way_out};

use super::{
    failure::Failure,
    output::{print, print_line},
    query::socket,
};

/// Tells the running weir to detach, if there is one. Then removes leftovers at the tc hooks, but no filter that
/// another weir still uses.
pub(super) fn detach(args: &DetachArgs) -> Result<Exit, Failure> {
    let DetachArgs { interfaces, all, leftovers: only_leftovers, socket: args } = args;
    if interfaces.is_empty() && !all && !only_leftovers {
        return Err(unnamed(
            "`weir detach eth0` detaches from eth0, `weir detach --all` from all interfaces, and `weir detach \
             --leftovers` only removes what a killed weir left at tc hooks",
        ));
    }
    if !only_leftovers && tell_to_detach(interfaces, args)? && !interfaces.is_empty() {
        return Ok(Exit::Done);
    }
    let there = Devices::open().and_then(|mut devices| devices.list()).map_err(|error| cannot_list(&error))?;
    let mut named = Vec::new();
    for name in interfaces {
        let Some(device) = there.iter().find(|device| device.names().any(|one| one == name)) else {
            return Err(RunError::from(AttachError::not_found(name, &there)).into());
        };
        named.push(device.name.as_str());
    }
    let FoundFilters { filters: mut leftovers, unread } = leftovers().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let way_out = way_out(CapabilitySet::SYS_ADMIN);
            Failure::impossible(anyhow::anyhow!(
                "there are filters at the tc hooks, but weir may not see whose they are: {way_out}"
            ))
        }
        _ => cannot_list(&error),
    })?;
    leftovers.retain(|one| named.is_empty() || named.contains(&one.interface.as_str()));
    if leftovers.is_empty() && unread.is_none() {
        return print("weir has left nothing at the tc hooks");
    }
    for leftover in leftovers {
        let (name, direction) = (&leftover.interface, leftover.way.name());
        leftover.remove_if_left().map_err(|error| {
            Failure::impossible(anyhow::anyhow!("cannot remove weir's filter from {name} ({direction}): {error}"))
        })?;
        print_line(match (leftover.is_used, leftover.owner) {
            (false, _) => format!("{name} ({direction}): removed"),
            (true, Some(pid)) => {
                format!("{name} ({direction}): stays, because the weir with process id {pid} still uses it")
            }
            (true, None) => format!("{name} ({direction}): stays, because another weir, in a container, still uses it"),
        })?;
    }
    match unread {
        Some((name, error)) => {
            let is_forbidden = matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ACCESS));
            let way_out = if is_forbidden { format!("; {}", way_out(CapabilitySet::NET_ADMIN)) } else { String::new() };
            Err(Failure::impossible(anyhow::anyhow!(
                "cannot list the filters of the tc hooks of {name}: {error}{way_out}. weir may have left some there"
            )))
        }
        None => Ok(Exit::Done),
    }
}

fn cannot_list(error: &io::Error) -> Failure {
    Failure::impossible(anyhow::anyhow!("cannot list the filters of the tc hooks: {error}"))
}

/// The refusal of a command that changes interfaces and names none.
fn unnamed(what_to_write: &str) -> Failure {
    Failure::usage(anyhow::anyhow!("name the interfaces (`weir status` lists them), or write `--all`: {what_to_write}"))
}

/// Tells the running weir to attach again.
pub(super) fn attach(AttachArgs { interfaces, all, socket: args }: &AttachArgs) -> Result<Exit, Failure> {
    if interfaces.is_empty() && !all {
        return Err(unnamed(
            "`weir attach eth0` attaches to eth0 again, `weir attach --all` to all interfaces that weir was told to \
             detach from",
        ));
    }
    let told = client::ask(&socket(args)?, protocol::Command::Attach { interfaces: interfaces.clone() })?;
    let Attached { pid, to, missing } = show::understood(&told)?;
    if to.is_empty() && missing.is_empty() {
        return print(format!("the weir with process id {pid} was not told to detach from any interface"));
    }
    for one in to {
        print_line(format!("{one}: the weir with process id {pid} measures it again"))?;
    }
    for one in &missing {
        say(format_args!("weir: {one}"));
    }
    Ok(if missing.is_empty() { Exit::Done } else { Exit::Broken })
}

/// Tells the running weir to detach. Returns whether there was one.
fn tell_to_detach(interfaces: &[String], args: &SocketArgs) -> Result<bool, Failure> {
    let path = match socket(args) {
        Ok(path) => path,
        // A weir without a socket cannot be asked.
        Err(_) if args.socket.is_none() => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let told = match client::ask(&path, protocol::Command::Detach { interfaces: interfaces.to_vec() }) {
        Err(gone @ (AskError::NotThere(_) | AskError::Gone(_))) if args.socket.is_none() => {
            say(format_args!("weir: {gone}. So this only removes what a killed weir left at tc hooks (`--leftovers`)"));
            return Ok(false);
        }
        Err(gone @ (AskError::NotThere(_) | AskError::Gone(_))) => {
            return Err(Failure {
                exit: Exit::Impossible,
                error: anyhow::anyhow!(
                    "{gone}. If it was killed, its filters may still be at tc hooks: `weir detach --leftovers` removes \
                     them"
                ),
            });
        }
        told => told?,
    };
    let Detached { pid, from } = show::understood(&told)?;
    for one in from {
        print_line(format!(
            "{one}: detached; the weir with process id {pid} leaves it alone until `weir attach`, a restart, or a \
             reload with other `interfaces`"
        ))?;
    }
    Ok(true)
}
