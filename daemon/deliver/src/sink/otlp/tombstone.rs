//! The metrics of a tombstone: the loss appears where the reports would have been.

use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use weir_schema::Tombstone;

use super::{
    NAME,
    metrics::{Metrics, Name, text},
    of_resource,
};

/// The tombstone as one resource. `time` is when the window of its first report ended, in seconds since 1970. So it is
/// the same in every attempt, unlike the time of sending.
pub(super) fn mapped(tombstone: &Tombstone, time: u64) -> ResourceMetrics {
    let Tombstone { schema: _, id: _, observer, first_seq, last_seq, reports, reason } = tombstone;
    let mut metrics = Metrics::at(time);
    let lost = Name("weir.reports.lost", "{report}", "Reports that will never come.");
    metrics.sum(lost, vec![text("reason", reason.name())], *reports);
    let of_run = || vec![text("reason", reason.name()), text("run", &observer.boot_id)];
    let first = Name("weir.reports.lost.first_seq", "1", "The number of the first report that is lost.");
    metrics.gauge(first, of_run(), *first_seq);
    let last = Name("weir.reports.lost.last_seq", "1", "The number of the last report that is lost.");
    metrics.gauge(last, of_run(), *last_seq);
    of_resource(
        vec![text("service.name", NAME), text("service.instance.id", &observer.id)],
        env!("CARGO_PKG_VERSION"),
        metrics.finish(),
    )
}
