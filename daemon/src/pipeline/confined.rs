//! The last step before measuring: weir gives up all rights and system calls that it does not need any more.

use crossbeam::channel::Receiver;
use weir_system::{privileges, sandbox};
use weir_web::Web;

use super::{RunError, setup::Setup, wired::Wired};
use crate::coordinator::{Coordinator, Greeting};

/// weir is restricted, and can measure.
pub struct Confined<'k, 'scope> {
    coordinator: Coordinator<'k, 'scope>,
    page: Option<Web>,
    setup: Setup,
}

impl<'k, 'scope> Wired<'k, 'scope> {
    /// Takes the last step: restricts this thread's capabilities, and the system calls of all threads. Then the threads
    /// that talk to others may begin.
    pub fn confine(self) -> Confined<'k, 'scope> {
        let Self { opening, coordinator, page, setup, needs, kept, restrict_chains } = self;
        privileges::give_up_all_but(&kept);
        // The attacher thread keeps its own capabilities.
        privileges::give_up_silently(needs.of_workers());
        if setup.config.sandbox {
            sandbox::close_calls(&kept);
        }
        drop(opening);
        // This fails if no thread waits for it, which does no harm.
        let _ = restrict_chains.send(setup.config.sandbox);
        Confined { coordinator, page, setup }
    }
}

impl Confined<'_, '_> {
    /// Measures and reports until `stop` receives a message or is disconnected.
    ///
    /// # Errors
    ///
    /// Why measuring cannot continue.
    pub fn run(self, stop: &Receiver<()>) -> Result<(), RunError> {
        let Self { coordinator, page, setup } = self;
        let greeting = Greeting { cpus: setup.cpus.online.len(), memory: &setup.memory };
        let ended = coordinator.run(greeting, stop);
        // Browsers are served until the last report is out.
        drop(page);
        Ok(ended?)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam::channel::{bounded, never};
    use rustix::thread::{CapabilitySet, capabilities};

    use super::super::{
        loaded::Loaded,
        testing::{ABSENT, Folder},
    };

    #[test]
    fn a_confined_weir_keeps_only_what_it_needs_and_reports_when_it_is_stopped() {
        let folder = Folder::new("confined");
        let (loaded, mut kernel) = Loaded::new(&folder.config(ABSENT), folder.start()).unwrap();
        let attached = loaded.attach(kernel.as_mut()).unwrap();
        let needs = attached.needs;
        // Capabilities are those of a thread, and that of the test may need its own again.
        let confined = || {
            thread::scope(|scope| {
                let confined = attached.wire(scope, never()).unwrap().confine();
                let kept = capabilities(None).unwrap().effective;
                // A disconnected channel means stop.
                let (_, stop) = bounded(0);
                confined.run(&stop).unwrap();
                kept
            })
        };
        let kept = thread::scope(|scope| scope.spawn(confined).join().unwrap());
        assert!(needs.of_workers().contains(kept), "{kept:?}");
        let reports = folder.reports();
        let [report] = &reports[..] else { panic!("{} reports", reports.len()) };
        assert_eq!(report["interfaces"][0]["name"], "weir-absent0", "{report}");
        assert!(!kept.contains(CapabilitySet::NET_RAW));
    }
}
