//! The sink `otlp`: it has the settings of `http`, and another payload.

use super::{
    super::section::Section,
    http::{Format, Http, settings, url},
};

/// Reads the settings of this sink.
///
/// Its URL must be complete, like that of an exporter's metrics endpoint (OTLP exporter specification, "Endpoint URLs
/// for OTLP/HTTP"). A URL without a path is usually a base URL by mistake: weir refuses it and does not append a path.
pub(super) fn otlp(s: &mut Section<'_>) -> Option<Http> {
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
    settings(s, url, Format::default())
}
