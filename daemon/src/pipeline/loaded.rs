//! The first step: everything that needs neither an interface nor a thread. It locks the folders, loads the kernel
//! programs, and makes the sketches of the first window.

use weir_attach::HookOrder;
use weir_config::Config;
use weir_datapath::{
    Kernel, KernelError,
    maps::Valves,
    probe_tcx,
    tap::{ReaderCommands, Taps},
};
use weir_deliver::sink::{self, Outbox};

use super::{
    RunError, Start,
    setup::{FirstWindow, Folders, Setup},
};
use crate::{handover::Inheritance, needs::Needs};

/// weir has everything that it decides or loads before it touches an interface.
pub struct Loaded<'s> {
    pub start: Start<'s>,
    pub setup: Setup,
    pub folders: Folders,
    pub sinks: Sinks,
    pub inheritance: Inheritance,
    /// The rights that the kernel demands later.
    pub needs: Needs,
    pub hook_order: HookOrder,
    /// One for each worker: they set how many packets the worker's CPUs take.
    pub valves: Vec<Valves>,
    pub taps: Taps,
    /// The ends of the readers of packet sockets, one for each.
    pub inboxes: Vec<ReaderCommands>,
    pub first: FirstWindow,
}

/// The targets of reports and alerts.
pub struct Sinks {
    pub outboxes: Vec<Outbox>,
    pub webhook: Option<Outbox>,
}

impl<'s> Loaded<'s> {
    /// Takes the first step. The kernel side is separate, because the threads borrow it.
    ///
    /// # Errors
    ///
    /// weir cannot start with this configuration on this machine.
    pub fn new(config: &Config, start: Start<'s>) -> Result<(Self, Option<Kernel>), RunError> {
        let mut inheritance = Inheritance::receive();
        let (setup, folders, mut kernel) = Setup::new(config, start.directory, &inheritance)?;
        let valves = setup.valves(kernel.as_ref())?;
        let needs = Needs { has_programs: kernel.is_some(), has_tcx: matches!(probe_tcx(), Ok(true)) };
        let hook_order = load_programs(kernel.as_mut(), needs)?;
        let state_directory = start.directory.filter(|_| folders.state.is_some());
        let first = FirstWindow::new(&setup, &mut inheritance, state_directory)?;
        let config = &setup.config;
        let sinks = Sinks {
            outboxes: sink::open(&config.sinks, folders.spools.as_ref(), start.has_tables)?,
            webhook: config.alerts.webhook.as_ref().map(sink::open_webhook).transpose()?,
        };
        let (taps, inboxes) =
            Taps::new(setup.memory.readers as usize, config.datapath.packet_ring as usize).map_err(RunError::Taps)?;
        let loaded =
            Self { start, setup, folders, sinks, inheritance, needs, hook_order, valves, taps, inboxes, first };
        Ok((loaded, kernel))
    }
}

/// Loads every program that an interface may need later, while weir still has the right to. It does so before the first
/// window begins, because on a busy machine the kernel takes a second to verify them.
fn load_programs(kernel: Option<&mut Kernel>, needs: Needs) -> Result<HookOrder, KernelError> {
    let mut hook_order = HookOrder::default();
    if let Some(kernel) = kernel {
        let mut parts = kernel.parts()?;
        parts.xdp.load_all();
        parts.tc.load_all();
        hook_order.show(&parts.attached());
    }
    if needs.has_programs && needs.has_tcx {
        hook_order.load();
    }
    Ok(hook_order)
}

#[cfg(test)]
mod tests {
    use weir_system::lock::LockError;

    use super::{
        super::testing::{ABSENT, Folder},
        *,
    };

    #[test]
    fn packet_sockets_need_no_kernel_side_and_no_workers() {
        let folder = Folder::new("loaded");
        let (loaded, kernel) = Loaded::new(&folder.config(ABSENT), folder.start()).unwrap();
        assert!(kernel.is_none() && loaded.valves.is_empty() && !loaded.needs.has_programs);
        assert_eq!(loaded.inboxes.len() as u64, loaded.setup.memory.readers);
        assert_eq!(loaded.sinks.outboxes.len(), 1);
    }

    #[test]
    fn the_folders_are_locked_until_the_step_is_dropped() {
        let folder = Folder::new("loaded-twice");
        let config = folder.config(ABSENT);
        let first = Loaded::new(&config, folder.start()).unwrap();
        let second = Loaded::new(&config, folder.start());
        assert!(matches!(second, Err(RunError::Taken(LockError::Taken { .. }))));
        drop(first);
        folder.wait_until_free();
    }

    #[test]
    fn a_start_that_fails_leaves_no_lock() {
        let folder = Folder::new("loaded-in-vain");
        let too_small = folder.config(&format!("{ABSENT}\nmemory: 16MiB"));
        assert!(matches!(Loaded::new(&too_small, folder.start()), Err(RunError::Budget(_))));
        folder.wait_until_free();
    }
}
