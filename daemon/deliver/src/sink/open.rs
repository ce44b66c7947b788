//! Opens the sinks of a configuration.

use tracing::warn;
use weir_config::{self as config, Addresses, Target};

use super::{File, Http, Ipfix, OpenError, Outbox, Rotation, Sink, Stdout, check::check_one};
use crate::spool::root::SpoolRoot;

/// Opens every sink, each on its own threads; its reports wait in `spools`, if that is given. Standard output gets JSON
/// or, for people, tables.
///
/// # Errors
///
/// The first sink that cannot be opened.
pub fn open(sinks: &[config::Sink], spools: Option<&SpoolRoot>, has_tables: bool) -> Result<Vec<Outbox>, OpenError> {
    let open = |(nth, sink): (usize, &config::Sink)| {
        open_one(sink, spools.zip(sink.target.spool_key().as_deref()), has_tables)
            .map_err(|error| error.of(format!("sinks[{nth}]")))
    };
    sinks.iter().enumerate().map(open).collect()
}

fn open_one(sink: &config::Sink, spool: Option<(&SpoolRoot, &str)>, has_tables: bool) -> Result<Outbox, OpenError> {
    let (name, target): (_, Box<dyn Sink>) = match &sink.target {
        Target::Stdout => {
            let opened = Stdout::new(has_tables).map_err(|source| OpenError::System { name: "stdout", source })?;
            ("stdout", Box::new(opened))
        }
        Target::File(config::File { path, max_size, keep, compress }) => {
            let rotation = max_size.map(|max_size| Rotation { max_size, keep: *keep, compress: *compress });
            ("file", Box::new(File::new(path, rotation)))
        }
        Target::Http(settings) => ("http", Box::new(Http::new(settings)?)),
        Target::Ipfix(ipfix) => ("ipfix", Box::new(Ipfix::new(ipfix))),
        #[cfg(feature = "otlp")]
        Target::Otlp(settings) => ("otlp", Box::new(super::Otlp::new(settings)?)),
        #[cfg(not(feature = "otlp"))]
        Target::Otlp(_) => return Err(OpenError::NotBuilt("otlp")),
        #[cfg(feature = "nats")]
        Target::Nats(nats) => ("nats", Box::new(super::Nats::new(nats)?)),
        #[cfg(not(feature = "nats"))]
        Target::Nats(_) => return Err(OpenError::NotBuilt("nats")),
        #[cfg(feature = "kafka")]
        Target::Kafka(kafka) => ("kafka", Box::new(super::Kafka::new(kafka)?)),
        #[cfg(not(feature = "kafka"))]
        Target::Kafka(_) => return Err(OpenError::NotBuilt("kafka")),
    };
    if let Err(why) = check_one(&sink.target)? {
        warn!(sink = target.name(), "{why}: reports wait until that is fixed");
    }
    Outbox::start(target, sink.queue, sink.addresses, spool).map_err(|source| OpenError::System { name, source })
}

/// Opens the webhook, which gets alert messages, on its own thread with its own queue.
///
/// # Errors
///
/// The webhook cannot be opened.
pub fn open_webhook(webhook: &config::Webhook) -> Result<Outbox, OpenError> {
    let target = Http::webhook(webhook).map_err(|error| OpenError::from(error).of("alerts.webhook"))?;
    Outbox::start(Box::new(target), webhook.queue, Addresses::Full, None)
        .map_err(|source| OpenError::System { name: "webhook", source })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_config::Config;

    use super::*;

    #[test]
    fn sinks_are_opened_in_the_order_of_the_configuration() {
        let text = "sinks: [{type: file, path: /nowhere/reports}, {type: http, url: 'http://[::1]:9/weir'}]";
        let config = Config::parse(text, "weir.yaml").unwrap();
        let opened = open(&config.sinks, None, false).unwrap();
        let names: Vec<_> = Outbox::finish_all(opened, Duration::ZERO).into_iter().map(|sink| sink.name).collect();
        assert_eq!(names, ["file:/nowhere/reports", "http://[::1]:9/weir"]);
    }
}
