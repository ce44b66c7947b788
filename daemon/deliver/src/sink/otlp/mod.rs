//! Reports as OTLP metrics (OpenTelemetry Protocol 1, OTLP/HTTP with binary protobuf).
//!
//! A report is one `ResourceMetrics`, and so is a tombstone. Every point of a report has the times of its window, so a
//! retry sends the same points with the same times. docs/collectors/otlp.md lists all metrics.

mod answer;
mod metrics;
mod report;
#[cfg(test)]
mod tests;
mod tombstone;

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{InstrumentationScope, KeyValue},
    metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
    resource::v1::Resource,
};
use prost::Message;
use weir_config as config;
use weir_schema::{FromJson, Report, Tombstone};

use self::answer::Answers;
use super::{
    DeliveryError, Sink,
    http::{BATCH, Client, HttpError},
};
use crate::spool::Item;

/// The name of the service, and of the scope of its metrics.
const NAME: &str = "weir";

/// Bytes of JSON in one request: as metrics they are at most [`GROWTH`] times as many, which is 1 MiB.
const BATCH_BYTES: usize = (1 << 20) / GROWTH;
/// The most that a report grows from JSON to metrics: each bound of each row becomes a point with all attributes.
const GROWTH: usize = 6;

/// A receiver of OTLP metrics.
///
/// weir treats it like an [`Http`](super::Http) collector, and its answers mean the same. So more statuses are retried
/// than OTLP asks for (429, 502, 503, 504): a report is not given up because a proxy in between answers 404 or 500.
#[derive(Debug)]
pub struct Otlp {
    client: Client,
    answers: Answers,
}

impl Otlp {
    /// A receiver with these settings; its URL is the complete one: `http://collector:4318/v1/metrics`.
    ///
    /// # Errors
    /// The certificates, the key or the proxy cannot be used.
    pub fn new(settings: &config::Http) -> Result<Self, HttpError> {
        Ok(Self { client: Client::new(settings, "application/x-protobuf")?, answers: Answers::default() })
    }
}

impl Sink for Otlp {
    fn name(&self) -> String {
        format!("otlp:{}", self.client.name())
    }

    fn check(&self) -> Result<(), String> {
        self.client.check()
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let parts = batch.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let answer = self.client.post(batch, &parts)?.start();
        self.answers.judge(&self.name(), &answer);
        Ok(())
    }
}

/// A request with this report or tombstone. A request with several is their concatenation, because protobuf
/// concatenates repeated fields. So only one report at a time is in memory as messages.
fn encoded(parcel: &Item) -> Result<Vec<u8>, DeliveryError> {
    let Item { is_report, time, encoded, .. } = parcel;
    let mapped = if *is_report {
        Report::from_json(&encoded.line).map(|report| report::mapped(&report))
    } else {
        Tombstone::from_json(&encoded.line).map(|tombstone| tombstone::mapped(&tombstone, *time))
    };
    let mapped = mapped.map_err(|error| {
        let what = if *is_report { "a report" } else { "a tombstone" };
        DeliveryError::Refused(format!("weir cannot read {} as {what}: {error}", encoded.id))
    })?;
    Ok(ExportMetricsServiceRequest { resource_metrics: vec![mapped] }.encode_to_vec())
}

/// These metrics as the resource of one observer.
fn of_resource(attributes: Vec<KeyValue>, version: &str, metrics: Vec<Metric>) -> ResourceMetrics {
    let scope =
        InstrumentationScope { name: NAME.to_owned(), version: version.to_owned(), ..InstrumentationScope::default() };
    ResourceMetrics {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
        ..ResourceMetrics::default()
    }
}
