//! The third step: all threads run, each with only the rights that it needs, and queues connect them.

use std::{sync::Arc, thread::Scope};

use crossbeam::channel::{Receiver, Sender, bounded};
use rustix::thread::CapabilitySet;
use weir_config::Started;
use weir_report::{SketchExporter, closing::Closing, observer::Last};
use weir_system::{
    clock,
    privileges::{NeededCapability, PrivilegedThread},
    sandbox,
};
use weir_web::Web;

use super::{
    RunError, Start,
    attached::{Attached, Interfaces},
    loaded::Sinks,
    services::Services,
    setup::{FirstWindow, Folders, Setup},
    takeover::Continued,
    threads::{FirstShards, Threads},
};
use crate::{
    coordinator::{Coordinator, Measuring, Publisher},
    needs::{Needs, still_needed},
    reload::{InForce, Reloader, reloader},
};

/// All threads run. Dropping this ends them: fields are dropped in this order.
pub struct Wired<'k, 'scope> {
    /// Threads that talk to others wait until this is dropped.
    pub opening: sandbox::Opening,
    pub coordinator: Coordinator<'k, 'scope>,
    /// The page is served until the coordinator has ended.
    pub page: Option<Web>,
    pub setup: Setup,
    pub needs: Needs,
    /// The capabilities that are still needed.
    pub kept: Vec<NeededCapability>,
    /// Tells the thread that asks for other programs whether weir is restricted.
    pub restrict_chains: Sender<bool>,
}

impl<'k> Attached<'k> {
    /// Takes the third step. Each message in `hangups` reloads the configuration.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or no file descriptor is left.
    pub fn wire<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        hangups: Receiver<()>,
    ) -> Result<Wired<'k, 'scope>, RunError>
    where
        'k: 'scope,
    {
        let Self { start, setup, folders, sinks, needs, interfaces, cpu_rings, inputs, first, continued } = self;
        let FirstWindow { window, mut keys, seen, rotation, batch, local, local_file, spares } = first;
        let Folders { state, known, spools } = folders;
        let config = &setup.config;
        let threads = Threads { scope, needs };
        let shards = FirstShards { batch, spares, keys: &mut keys, seen: &seen };
        let workers = threads.start_workers(&setup, inputs, shards).map_err(RunError::Thread)?;
        let Interfaces { attachments, attacher, channels, events, ender } = interfaces;
        let news = threads.watch_interfaces(events).map_err(RunError::Thread)?;
        let kept = still_needed(&config.interfaces, needs);
        let restrict_chains = threads.attach(attacher, channels, &kept).map_err(RunError::Thread)?;

        let (reload, requests) = bounded(1);
        let Start { directory, strict: _, has_tables, reread, places } = start;
        let kept_at = directory.filter(|_| state.is_some());
        let services = Services::open(scope, &setup, kept_at, local_file, reload).map_err(RunError::Thread)?;
        let started = Started {
            has_programs: cpu_rings.is_some(),
            can_sample: config.sampling.packets.leaves_out(),
            has_readers: setup.memory.readers > 0,
            can_filter: PrivilegedThread::Attacher.keeps(&kept).contains(CapabilitySet::NET_ADMIN),
            has_tables,
            places,
        };
        let start = reloader::Start {
            reread,
            started,
            spools,
            cpus: setup.cpus.clone(),
            threads: setup.memory.workers + setup.memory.readers,
        };
        let (reloader, reloads) =
            Reloader::new(start, hangups, requests, InForce::new(config.clone(), setup.interfaces()));
        threads.reload(reloader).map_err(RunError::Thread)?;

        let Services { opening, control, page, history, usage, local: local_writer, names, exporter, board } = services;
        let Continued { last, alerts, edge, handover } = continued;
        let closing = Closing {
            key_id: keys.id(),
            keys,
            seen,
            rotation,
            interfaces: setup.interfaces(),
            views: setup.views.clone(),
            asks: Vec::new(),
            observer: setup.observer.clone().after(latest(known, last)),
            memory_bytes: setup.memory.resident(),
            cpu_time: clock::cpu_time(),
            last: None,
            local,
            alerts,
            exporter: SketchExporter::new(config.export.clone()),
            remembered: None,
            networks: Arc::default(),
        };
        let Sinks { outboxes, webhook } = sinks;
        let coordinator = Coordinator {
            config: config.clone(),
            measuring: Measuring {
                attachments,
                cpu_rings,
                workers,
                closing,
                handover,
                inherited: edge,
                last: None,
                usage,
                local_writer,
            },
            publisher: Publisher::new(outboxes, webhook, state, board, exporter, history),
            window,
            news,
            ender,
            control,
            names,
            reloads,
            pending: None,
        };
        Ok(Wired { opening, coordinator, page, setup, needs, kept, restrict_chains })
    }
}

/// The later of two candidates for the last report.
fn latest(one: Option<Last>, other: Option<Last>) -> Option<Last> {
    one.into_iter().chain(other).max_by_key(|last| last.seq)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam::channel::never;

    use super::{
        super::{
            loaded::Loaded,
            testing::{ABSENT, Folder, threads, wait_until},
        },
        *,
    };

    #[test]
    fn all_threads_run_until_the_step_is_dropped() {
        let folder = Folder::new("wired");
        let (loaded, mut kernel) = Loaded::new(&folder.config(ABSENT), folder.start()).unwrap();
        let attached = loaded.attach(kernel.as_mut()).unwrap();
        let names = ["weir-tap0", "weir-links", "weir-attach", "weir-reload", "weir-control"];
        // The scope waits for the threads to end.
        thread::scope(|scope| {
            let wired = attached.wire(scope, never()).unwrap();
            assert!(wired.coordinator.measuring.cpu_rings.is_none());
            // A thread has its name once it runs.
            wait_until("all threads run", || names.iter().all(|name| threads().contains(*name)));
        });
        folder.wait_until_free();
    }

    #[test]
    fn the_later_report_is_the_last_one() {
        let last = |seq| Some(Last { seq, id: String::new() });
        let seq = |last: Option<Last>| last.map(|last| last.seq);
        assert_eq!(seq(latest(last(3), last(5))), Some(5));
        assert_eq!([seq(latest(last(3), None)), seq(latest(None, last(3)))], [Some(3); 2]);
        assert_eq!(seq(latest(None, None)), None);
    }
}
