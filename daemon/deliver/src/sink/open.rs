//! Opens the sinks of a configuration.

use tracing::warn;
use weir_config::{self as config, Addresses, Target};

use super::{File, Http, Ipfix, OpenError, Outbox, Rotation, Sink, Stdout};
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
    let target = make(&sink.target, has_tables)?;
    if let Err(why) = target.check() {
        warn!(sink = target.name(), "{why}: reports wait until that is fixed");
    }
    let name = sink.target.kind();
    Outbox::start(target, sink.queue, sink.addresses, spool).map_err(|source| OpenError::System { name, source })
}

/// Makes a sink, without its threads. It opens files and connections when it delivers.
pub(super) fn make(target: &Target, has_tables: bool) -> Result<Box<dyn Sink>, OpenError> {
    Ok(match target {
        Target::Stdout => {
            Box::new(Stdout::new(has_tables).map_err(|source| OpenError::System { name: "stdout", source })?)
        }
        Target::File(config::File { path, max_size, keep, compress }) => {
            let rotation = max_size.map(|max_size| Rotation { max_size, keep: *keep, compress: *compress });
            Box::new(File::new(path, rotation))
        }
        Target::Http(settings) => Box::new(Http::new(settings)?),
        Target::Ipfix(ipfix) => Box::new(Ipfix::new(ipfix)),
        #[cfg(feature = "otlp")]
        Target::Otlp(otlp) => Box::new(super::Otlp::new(&otlp.0)?),
        #[cfg(feature = "nats")]
        Target::Nats(nats) => Box::new(super::Nats::new(nats)?),
        #[cfg(feature = "kafka")]
        Target::Kafka(kafka) => Box::new(super::Kafka::new(kafka)?),
        #[cfg(not(all(feature = "kafka", feature = "nats", feature = "otlp")))]
        not_built => return Err(OpenError::NotBuilt(not_built.kind())),
    })
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
