//! Connections to the brokers of a Kafka cluster, and the thread that drives them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use rskafka::{
    BackoffConfig, BackoffError, ConnectionError,
    client::{
        Client, ClientBuilder,
        error::Error,
        partition::{Compression, PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};
use weir_config::{Address, Kafka};

use super::login;
use crate::sink::{
    DeliveryError, KAFKA_ANSWER_BYTES,
    client::{Driver, quoted, tls, unavailable},
};

/// Retries within a delivery: enough to find a partition's new leader, or a broker that has closed an idle connection.
/// Anything longer is the queue's task.
const RETRIES: BackoffConfig = BackoffConfig {
    init_backoff: Duration::from_millis(50),
    max_backoff: Duration::from_millis(200),
    base: 2.0,
    deadline: Some(Duration::from_millis(200)),
};

/// Connections for one topic.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    topic: String,
    /// The partitions of the topic, in order. Never empty.
    partitions: Vec<i32>,
    /// The partitions that have been written to.
    open: BTreeMap<i32, PartitionClient>,
    driver: Driver,
}

/// Why nothing was acknowledged.
#[derive(Debug)]
pub(super) enum Failure {
    /// The time is over.
    Silence,
    /// An answer of a broker, or a failed connection.
    Error(Error),
}

impl Connection {
    /// Connects. If that fails, `last` is set to the thread that may still be looking up a name.
    pub fn open(settings: &Kafka, within: Duration, last: &mut Option<Driver>) -> Result<Self, DeliveryError> {
        let Kafka { brokers, topic, tls, sasl, .. } = settings;
        let names: Vec<String> = brokers.iter().map(Address::to_string).collect();
        let failed = |why: String| unavailable(quoted(&format!("cannot connect to {}: {why}", names.join(", "))));
        let mut builder = ClientBuilder::new(names.clone())
            .client_id("weir")
            .max_message_size(KAFKA_ANSWER_BYTES as usize)
            .backoff_config(RETRIES);
        if let Some(tls) = tls {
            let tls = tls::config(tls).map_err(|error| unavailable(error.to_string()))?;
            builder = builder.tls_config(Arc::new(tls));
        }
        if let Some(sasl) = sasl {
            builder = builder.sasl_config(login(sasl).map_err(|error| unavailable(error.to_string()))?);
        }
        let mut driver = Driver::start("kafka").map_err(|error| failed(error.to_string()))?;
        let connecting = async {
            let client = builder.build().await?;
            let topics = client.list_topics().await?;
            Ok::<_, Error>((client, topics))
        };
        let error = match driver.block_on(within, connecting) {
            Some(Ok((client, topics))) => {
                let found = topics.into_iter().find(|found| found.name == *topic).map(|found| found.partitions);
                match found.filter(|partitions| !partitions.is_empty()) {
                    Some(partitions) => {
                        let partitions = partitions.into_iter().collect();
                        return Ok(Self { client, topic: topic.clone(), partitions, open: BTreeMap::new(), driver });
                    }
                    None => unavailable(format!(
                        "the cluster shows weir no topic {topic:?}: create it, for example `kafka-topics.sh --create --topic \
                         {topic} --bootstrap-server {}`, or let weir's user describe it",
                        names[0]
                    )),
                }
            }
            Some(Err(error)) => failed(text(root(&error))),
            None => failed(format!("no answer within {:?}", settings.timeout)),
        };
        driver.stop();
        *last = Some(driver);
        Err(error)
    }

    /// The partition of this key: always the same while the topic has as many partitions.
    pub fn partition(&self, key: &str) -> i32 {
        self.partitions[crc32fast::hash(key.as_bytes()) as usize % self.partitions.len()]
    }

    /// Sends records, and waits until all replicas in sync have them.
    pub fn produce(&mut self, partition: i32, records: Vec<Record>, within: Duration) -> Result<(), Failure> {
        let Self { client, topic, open, driver, .. } = self;
        let produced = async {
            let leader = match open.entry(partition) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let handling = UnknownTopicHandling::Error;
                    unknown.insert(client.partition_client(topic.clone(), partition, handling).await?)
                }
            };
            leader.produce(records, Compression::NoCompression).await
        };
        driver.block_on(within, produced).ok_or(Failure::Silence)?.map(drop).map_err(Failure::Error)
    }

    /// Closes the connections. Data that was not sent yet is never sent.
    pub fn close(self) -> Driver {
        let mut driver = self.driver;
        driver.stop();
        driver
    }
}

/// The error of the last attempt, if this is the end of several.
pub(super) fn root(error: &Error) -> &Error {
    match error {
        Error::RetryFailed(BackoffError::DeadlineExceded { source, .. }) => {
            source.downcast_ref::<Error>().map_or(error, root)
        }
        _ => error,
    }
}

/// An error in words.
pub(super) fn text(error: &Error) -> String {
    match error {
        Error::Connection(ConnectionError::RetryFailed(BackoffError::DeadlineExceded { source, .. })) => {
            source.to_string()
        }
        Error::Connection(error) => error.to_string(),
        Error::Request(error) => error.to_string(),
        Error::ServerError { protocol_error, .. } => format!("{protocol_error:?}"),
        other => other.to_string(),
    }
}
