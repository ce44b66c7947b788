//! Continues the measurement of earlier weirs.

use tracing::{info, warn};
use weir_attach::Attachments;
use weir_datapath::{Edge, syscall};
use weir_measure::batch::RecordBatch;
use weir_sketch::Seen;
use weir_system::text::with_causes;

use crate::handover::{Inheritance, previous_run::Inherited};

/// Reads what earlier weirs left behind into the first window: records go into `batch`, counters into the returned
/// edge. `broken` are the links that could not be taken over.
pub fn inherit(
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
