//! Sends reports to a topic of a Kafka cluster.

mod connection;

use std::{collections::BTreeMap, time::Instant};

use rskafka::{
    chrono::DateTime,
    client::{
        Credentials, SaslConfig,
        error::{Error, ProtocolError},
    },
    record::Record,
};
use weir_config::{self as config, Mechanism, Sasl, is_credential_of_service};

use self::connection::{Connection, Failure};
use super::{
    DeliveryError, OpenError, Sink,
    client::{
        self, Driver, left, quoted,
        secret::{self, SecretError},
        tls, unavailable,
    },
    now,
};
use crate::spool::Item;

/// Maximum number of records in a request.
const BATCH: usize = 100;
/// Maximum bytes of JSON in a request, beyond the first report: half of what brokers take by default
/// (`message.max.bytes`), since a list entry more makes no request too large then.
const BATCH_BYTES: usize = 512 << 10;
/// The header with the id of a report.
const ID: &str = "id";

/// A topic of a Kafka cluster.
///
/// Each report and tombstone is a record: a line of JSON without its newline. Its header `id` is its id, by which
/// consumers recognise a record that was sent again. Its key is the observer, so that the records of a router are in
/// one partition, in order. Delivered means that all replicas in sync have the batch. If the cluster does not answer,
/// the connection is closed, so that nothing of this attempt is sent alongside the next one. The next one reads the
/// file with the password again.
#[derive(Debug)]
pub struct Kafka {
    settings: config::Kafka,
    connection: Option<Connection>,
    /// The thread of the last connection, which may still be looking up a broker's name.
    last: Option<Driver>,
}

impl Kafka {
    /// The sink of these settings; it connects when there is something to deliver.
    ///
    /// # Errors
    /// A file with certificates or a key cannot be used.
    pub fn new(settings: &config::Kafka) -> Result<Self, OpenError> {
        if let Some(tls) = &settings.tls {
            tls::config(tls).map_err(|source| OpenError::Tls { name: "kafka", source: source.into() })?;
        }
        Ok(Self { settings: settings.clone(), connection: None, last: None })
    }

    /// The open connection, or a new one.
    fn connected(&mut self, until: Instant) -> Result<&mut Connection, DeliveryError> {
        if self.connection.is_none() {
            client::wait_for_last(&mut self.last, until, "a broker")?;
            self.connection = Some(Connection::open(&self.settings, left(until), &mut self.last)?);
        }
        self.connection.as_mut().ok_or_else(|| unavailable("there is no connection".to_owned()))
    }

    fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last = Some(connection.close());
        }
    }
}

/// Reads the credentials for SASL.
fn login(Sasl { mechanism, user, password_file }: &Sasl) -> Result<SaslConfig, SecretError> {
    let credentials = Credentials::new(user.clone(), secret::line(password_file, "password")?);
    Ok(match mechanism {
        Mechanism::Plain => SaslConfig::Plain(credentials),
        Mechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
        Mechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
    })
}

impl Sink for Kafka {
    fn name(&self) -> String {
        self.settings.place()
    }

    fn check(&self) -> Result<(), String> {
        match &self.settings.sasl {
            Some(sasl) if !is_credential_of_service(&sasl.password_file) => {
                login(sasl).map(drop).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let until = now() + self.settings.timeout;
        let connection = self.connected(until)?;
        // A batch has one observer, unless the state of the observer was lost meanwhile.
        let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for item in batch {
            by_partition.entry(connection.partition(item.observer())).or_default().push(record(item));
        }
        for (partition, records) in by_partition {
            if let Err(failure) = connection.produce(partition, records, left(until)) {
                let error = told(&failure, &self.settings);
                // After a refusal the connection is as good as before.
                if !matches!(error, DeliveryError::Refused(_)) {
                    self.hang_up();
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A report or a tombstone as a record. Its time is the end of its window.
fn record(item: &Item) -> Record {
    let line = &*item.encoded.line;
    let headers = [(ID, &*item.encoded.id), ("content-type", "application/json")];
    Record {
        key: Some(item.observer().into()),
        value: Some(line.strip_suffix(b"\n").unwrap_or(line).to_vec()),
        headers: headers.map(|(name, value)| (name.to_owned(), value.into())).into(),
        timestamp: i64::try_from(item.time).ok().and_then(DateTime::from_timestamp_secs).unwrap_or_default(),
    }
}

/// Decides what happens to the batch after a failure.
fn told(failure: &Failure, config::Kafka { topic, timeout, .. }: &config::Kafka) -> DeliveryError {
    let error = match failure {
        Failure::Silence => return unavailable(format!("no acknowledgement within {timeout:?}")),
        Failure::Error(error) => error,
    };
    match connection::root(error) {
        Error::ServerError { protocol_error: why, .. } if REFUSALS.contains(why) => {
            let way_out = if SIZES.contains(why) { ": let the topic have a larger `max.message.bytes`" } else { "" };
            DeliveryError::Refused(format!("the broker refuses it with {why:?}{way_out}"))
        }
        Error::ServerError { protocol_error: ProtocolError::TopicAuthorizationFailed, .. } => {
            unavailable(format!("the user may not write to the topic {topic:?} (TopicAuthorizationFailed)"))
        }
        Error::ServerError { protocol_error: why, .. } => {
            unavailable(format!("the broker does not take it now: {why:?}"))
        }
        other => unavailable(quoted(&connection::text(other))),
    }
}

/// Answers about the size of a record or a batch.
const SIZES: [ProtocolError; 2] = [ProtocolError::MessageTooLarge, ProtocolError::RecordListTooLarge];
/// Answers that a broker would give again to the same batch.
const REFUSALS: [ProtocolError; 5] =
    [SIZES[0], SIZES[1], ProtocolError::CorruptMessage, ProtocolError::InvalidTimestamp, ProtocolError::InvalidRecord];

#[cfg(test)]
mod tests {
    use super::{super::tests::parcels, *};

    #[test]
    fn a_record_has_the_observer_as_its_key_and_its_id_in_a_header() {
        let [mut item] = parcels([7]);
        item.time = 1_700_000_000;
        let record = record(&item);
        assert_eq!(record.key.as_deref(), Some(&b"7f3c9a52"[..]));
        assert_eq!(record.headers["id"], b"7f3c9a52/0000b41d/7");
        assert_eq!(record.timestamp.timestamp(), 1_700_000_000);
        let value = record.value.unwrap();
        assert_eq!(value, item.encoded.line[..value.len()], "as in every sink");
        assert_eq!(item.encoded.line[value.len()..], *b"\n");
        item.encoded.id = "site/a/0000b41d/7-2".to_owned();
        assert_eq!(item.observer(), "site/a", "whatever its name has");
    }

    #[test]
    fn an_answer_is_told_with_its_way_out() {
        let config = config::Config::parse("sinks: [{type: kafka, brokers: [a]}]", "f").unwrap();
        let config::Target::Kafka(kafka) = &config.sinks[0].target else { panic!("not a kafka sink") };
        let answered = |why: ProtocolError| {
            let request = rskafka::client::error::RequestContext::Topic("weir.reports".to_owned());
            let error = Error::ServerError {
                protocol_error: why,
                error_message: None,
                request,
                response: None,
                is_virtual: false,
            };
            told(&Failure::Error(error), kafka)
        };
        let refused = answered(ProtocolError::MessageTooLarge);
        assert!(matches!(&refused, DeliveryError::Refused(why) if why.contains("`max.message.bytes`")), "{refused:?}");
        assert!(matches!(answered(ProtocolError::InvalidTimestamp), DeliveryError::Refused(_)));
        for (why, text) in [
            (ProtocolError::NotEnoughReplicas, "does not take it now: NotEnoughReplicas"),
            (ProtocolError::TopicAuthorizationFailed, "may not write to the topic \"weir.reports\""),
        ] {
            let error = answered(why);
            assert!(matches!(error, DeliveryError::Unavailable { .. }) && error.to_string().contains(text), "{error}");
        }
        let silence = told(&Failure::Silence, kafka).to_string();
        assert_eq!(silence, "no acknowledgement within 5s");
    }
}
