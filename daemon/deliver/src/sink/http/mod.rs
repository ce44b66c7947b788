//! Reports to a collector over HTTP or HTTPS.

mod answer;
mod bound;
mod bulk;
mod client;
mod failure;
mod format;
#[cfg(test)]
mod hostile;
mod secret;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod tls;
mod transport;

use weir_config::{self as config, Compress, Format};

pub(super) use self::client::Client;
pub use self::{client::HttpError, secret::SecretError};
use super::{DeliveryError, Sink};
use crate::spool::Item;

/// Maximum number of reports in one request.
pub(super) const BATCH: usize = 100;

/// A collector that takes reports as the bodies of POST requests (NDJSON, one report a line).
///
/// The header `Idempotency-Key` is the report's id, or the ids of the first and the last one of a batch, the same in
/// every attempt. Delivered means an answer of 2xx that came after the whole request was sent. 4xx refuses the reports,
/// except for statuses that may pass: 401, 403 and 404 (a token that has expired, a collector that is being deployed),
/// 408, 425 and 429. Everything else may work later. `Retry-After` is honoured. Redirects are not followed. HTTPS
/// trusts the roots of the platform, unless others are given.
#[derive(Debug)]
pub struct Http {
    client: Client,
    format: Format,
    /// True if it takes alert messages instead of reports.
    is_webhook: bool,
}

impl Http {
    /// A collector with these settings.
    ///
    /// # Errors
    /// The certificates, the key or the proxy cannot be used.
    pub fn new(settings: &config::Http) -> Result<Self, HttpError> {
        let format = settings.format;
        Ok(Self { client: Client::new(settings, format::content_type(format))?, format, is_webhook: false })
    }

    /// A webhook, which takes alert messages, each as uncompressed JSON. Otherwise like [`Http::new`].
    ///
    /// # Errors
    /// The proxy of the environment cannot be used.
    pub fn webhook(webhook: &config::Webhook) -> Result<Self, HttpError> {
        let config::Webhook { url, timeout, headers, queue: _ } = webhook.clone();
        let settings = config::Http { url, timeout, headers, compress: Compress::None, ..config::Http::default() };
        Ok(Self { client: Client::new(&settings, "application/json")?, format: Format::Ndjson, is_webhook: true })
    }
}

impl Sink for Http {
    fn name(&self) -> String {
        // The path of a webhook is often its secret.
        if self.is_webhook { format!("webhook:{}", self.client.origin()) } else { self.client.name() }
    }

    fn carries(&self) -> [&'static str; 2] {
        if self.is_webhook { ["an alert", "alerts"] } else { ["a report", "reports"] }
    }

    fn check(&self) -> Result<(), String> {
        self.client.check()
    }

    fn batch(&self) -> usize {
        if self.is_webhook { 1 } else { format::batch(self.format) }
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let body = format::body(self.format, batch)?;
        let parts: Vec<&[u8]> = body.iter().map(|part| &**part).collect();
        let mut answer = self.client.post(batch, &parts)?;
        match self.format {
            Format::Elasticsearch => bulk::judge(answer.reader(), batch.len()),
            Format::Ndjson | Format::Loki => {
                answer.start();
                Ok(())
            }
        }
    }
}
