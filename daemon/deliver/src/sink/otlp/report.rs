//! The metrics of a report: the series of the table, each number for its window.

use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use weir_schema::{
    Observer, Report,
    series::{Series, Target},
};

use super::{
    NAME,
    metrics::{Metrics, text},
    of_resource,
};

/// The report as one resource.
pub(super) fn mapped(report: &Report) -> ResourceMetrics {
    let mut metrics = Metrics::within(report.window.start, report.window.end);
    for series in Series::all(Target::Otlp) {
        metrics.add(series, report);
    }
    let Observer { name, id, boot_id: _, seq: _, version, site } = &report.observer;
    // Names from OpenTelemetry's semantic conventions for resources, where one exists.
    let mut resource = vec![
        text("service.name", NAME),
        text("service.version", version),
        text("service.instance.id", id),
        text("host.name", name),
    ];
    resource.extend(site.as_ref().map(|site| text("weir.site", site)));
    resource.extend(report.addresses.as_ref().map(|addresses| text("weir.addresses", addresses)));
    of_resource(resource, version, metrics.finish())
}
