//! The second step: weir is on its interfaces, and continues what an earlier weir has left. From here on packets are
//! counted, but no thread reads them yet: the rings and the packet sockets hold them until then.

use std::mem::take;

use weir_attach::{
    AttachError, AttachResources, Attacher, Attachments, Channels, Programs,
    netlink::{Ender, Events},
};
use weir_config::HashKey;
use weir_datapath::{Kernel, Parts};

use super::{
    RunError, Start,
    loaded::{Loaded, Sinks},
    setup::{FirstWindow, Folders, Setup},
    takeover::Continued,
    threads::{self, Inputs},
};
use crate::{cpu_rings::CpuRings, handover::Handover, needs::Needs};

/// weir is attached. Dropping this detaches it again.
pub struct Attached<'k> {
    pub start: Start<'k>,
    pub setup: Setup,
    pub folders: Folders,
    pub sinks: Sinks,
    pub needs: Needs,
    pub interfaces: Interfaces<'k>,
    /// The CPUs; `None` if no program is loaded.
    pub cpu_rings: Option<CpuRings<'k>>,
    pub inputs: Inputs<'k>,
    pub first: FirstWindow,
    pub continued: Continued,
}

/// The measured interfaces: the sides of both threads.
pub struct Interfaces<'k> {
    /// The attachments, which the coordinator owns from then on.
    pub attachments: Attachments<'k>,
    /// The thread that attaches, which has not started yet.
    pub attacher: Attacher<'k>,
    pub channels: Channels,
    /// Yields the kernel's news about interfaces.
    pub events: Events,
    pub ender: Ender,
}

impl<'s> Loaded<'s> {
    /// Takes the second step.
    ///
    /// # Errors
    ///
    /// A named interface cannot be measured, or none can.
    pub fn attach<'k>(self, kernel: Option<&'k mut Kernel>) -> Result<Attached<'k>, RunError>
    where
        's: 'k,
    {
        let Self { start, setup, folders, sinks, mut inheritance, needs, hook_order, valves, taps, inboxes, mut first } =
            self;
        let config = &setup.config;
        let (programs, table, kernel_side) = match kernel.map(Kernel::parts).transpose()? {
            Some(Parts { xdp, tc, flush, rings, interfaces, .. }) => {
                rings.make_all()?;
                (Some(Programs { xdp, tc }), Some(interfaces), Some((rings, flush)))
            }
            None => (None, None, None),
        };
        let secret = matches!(config.hash_key, HashKey::Random).then_some(setup.secret.first());
        let mut handover = kernel_side
            .as_ref()
            .and_then(|(_, flush)| Handover::begin(&inheritance, *flush, secret, first.window.begin()));
        let (handles, workers) = threads::connect(valves)?;
        let live = kernel_side.as_ref().map(|(_, flush)| flush.blocks().live());
        let generation = handover.as_ref().map(Handover::generation);
        let mut cpu_rings =
            kernel_side.map(|side| CpuRings::new(side.0, side.1, setup.interfaces(), generation, handles));
        if let Some(cpu_rings) = &mut cpu_rings {
            setup.cpus.online.iter().try_for_each(|cpu| cpu_rings.add(*cpu))?;
        }

        // Listen before the interfaces are listed, so that no change is missed.
        let (events, ender) = Events::open(setup.memory.taps > 0).map_err(AttachError::List)?;
        let inherited = take(&mut inheritance.links);
        let resources = AttachResources { programs, taps, inherited, has_many: false, hook_order };
        let mut attacher = Attacher::new(resources).map_err(AttachError::List)?;
        let directory = setup.views.directory.clone();
        let (mut attachments, channels) =
            Attachments::attach(&mut attacher, table, live, &config.interfaces, directory, start.strict)?;
        if let Some(handover) = &mut handover {
            handover.note(attachments.slot_states());
        }
        let continued = Continued::new(inheritance, handover, &mut attacher, &mut attachments, &mut first, &setup);

        let interfaces = Interfaces { attachments, attacher, channels, events, ender };
        let inputs = Inputs { workers, readers: inboxes };
        Ok(Attached { start, setup, folders, sinks, needs, interfaces, cpu_rings, inputs, first, continued })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{ABSENT, Folder},
        *,
    };

    #[test]
    fn weir_waits_for_an_interface_that_is_absent() {
        let folder = Folder::new("attached");
        let (loaded, mut kernel) = Loaded::new(&folder.config(ABSENT), folder.start()).unwrap();
        let attached = loaded.attach(kernel.as_mut()).unwrap();
        let modes: Vec<_> =
            attached.interfaces.attachments.modes().map(|(name, _, mode)| (name, mode.name())).collect();
        assert_eq!(modes, [("weir-absent0", "absent")]);
        assert!(attached.cpu_rings.is_none() && attached.continued.handover.is_none());
    }

    #[test]
    fn a_strict_start_without_the_interface_closes_what_was_opened() {
        let folder = Folder::new("attached-strict");
        let config = folder.config(ABSENT);
        let (loaded, mut kernel) = Loaded::new(&config, Start { strict: true, ..folder.start() }).unwrap();
        let refused = loaded.attach(kernel.as_mut()).err().unwrap();
        assert!(refused.to_string().contains("weir-absent0"), "{refused}");
        folder.wait_until_free();
    }
}
