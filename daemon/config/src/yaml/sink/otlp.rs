//! The sink `otlp`: sends metrics to an OpenTelemetry receiver. It has the settings of `http`, and another payload.

use serde::Serialize;
use weir_system::sandbox::Files;

use super::{
    super::section::Section,
    Settings,
    http::{Format, Http, settings, url},
};

/// A receiver of OTLP metrics: the settings are those of HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Otlp(pub Http);

impl Settings for Otlp {
    fn spool_key(&self) -> Option<String> {
        Some(format!("otlp:{}", self.0.place()))
    }

    fn hosts(&self) -> Vec<&str> {
        self.0.hosts()
    }

    fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        self.0.add_files(setting, files);
    }

    fn http(&self) -> Option<&Http> {
        Some(&self.0)
    }

    fn translates(&self) -> bool {
        true
    }
}

/// Reads the settings of this sink.
///
/// Its URL must be complete, like that of an exporter's metrics endpoint (OTLP exporter specification, "Endpoint URLs
/// for OTLP/HTTP"). A URL without a path is usually a base URL by mistake: weir refuses it and does not append a path.
pub(super) fn otlp(s: &mut Section<'_>) -> Option<Otlp> {
    let url = s.require("url", "the receiver, such as http://collector:4318/v1/metrics", |f| {
        let url = url(&f)?;
        if url.path() == "/" {
            f.refuse(
                "the URL has no path: receivers take metrics at /v1/metrics, as in http://collector:4318/v1/metrics",
            );
            return None;
        }
        Some(url)
    });
    settings(s, url, Format::default()).map(Otlp)
}
