//! Continues the measurement of earlier weirs.

use tracing::{info, warn};
use weir_attach::{Attacher, Attachments};
use weir_datapath::{Edge, syscall};
use weir_measure::batch::RecordBatch;
use weir_report::{observer::Last, questions};
use weir_schema::alerting::Alerts;
use weir_sketch::Seen;
use weir_system::text::with_causes;

use super::setup::{FirstWindow, Setup};
use crate::handover::{Handover, Inheritance, previous_run::Inherited};

/// The state that continues from earlier weirs, and goes on to the next one.
pub struct Continued {
    /// The last report of the earlier weir.
    pub last: Option<Last>,
    /// The states of their alerts.
    pub alerts: Alerts,
    /// The packets that they counted and did not report.
    pub edge: Option<Edge>,
    /// The state for the next weir, if systemd keeps it.
    pub handover: Option<Handover>,
}

impl Continued {
    /// Everything is attached, so what earlier weirs have left is read into the first window.
    pub fn new(
        inheritance: Inheritance,
        mut handover: Option<Handover>,
        attacher: &mut Attacher<'_>,
        attachments: &mut Attachments<'_>,
        first: &mut FirstWindow,
        setup: &Setup,
    ) -> Self {
        let last = inheritance.state().and_then(|state| state.last.clone());
        let config = &setup.config;
        let mut alerts = Alerts::new(&config.rules(), &questions(&setup.views), config.report.interval);
        alerts.resume(inheritance.state().map_or(&[], |state| &state.alerts));
        let earlier = inheritance.names();
        let broken = attacher.settle_inherited();
        let edge = inherit(inheritance, &broken, attachments, &mut first.batch, &first.seen, setup.interfaces());
        match &mut handover {
            Some(handover) => handover.take_over(earlier, attachments.slot_states()),
            // Without a handover nothing else removes them.
            None => Inheritance::forget(earlier),
        }
        Self { last, alerts, edge, handover }
    }
}

/// Reads what earlier weirs left behind into the first window: records go into `batch`, counters into the returned
/// edge. `broken` are the links that could not be taken over.
fn inherit(
    inheritance: Inheritance,
    broken: &[(syscall::Hook, u32)],
    attachments: &mut Attachments<'_>,
    batch: &mut RecordBatch,
    seen: &Seen,
    interfaces: usize,
) -> Option<Edge> {
    let (slot_states, until) = inheritance.state().map(|state| (state.slot_states.clone(), state.until))?;
    // A CPU may still be running an old program that was replaced.
    syscall::wait_for_programs();
    let mut edge = Edge::empty(interfaces);
    for previous_run in inheritance.previous_runs {
        match previous_run.settle(|slot_state| attachments.slot_of(slot_state), batch, seen, &mut edge) {
            Ok(Inherited { packets, lost, left_out }) => {
                info!(
                    packets = packets.packets,
                    lost = lost.packets,
                    "took over from an earlier weir: the first report begins where its last one ended"
                );
                if !left_out.is_zero() {
                    warn!(
                        packets = left_out.packets,
                        "an earlier weir has measured an interface that is not measured now: these packets of it, since its \
                         last report, are in no report"
                    );
                }
            }
            Err(error) => warn!("cannot read what an earlier weir has left: {}", with_causes(&error)),
        }
    }
    attachments.resume(&slot_states, &edge, until.monotonic, broken);
    Some(edge)
}
