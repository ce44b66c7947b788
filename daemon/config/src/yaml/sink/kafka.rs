//! The settings of the sink `kafka`.

use std::{path::PathBuf, time::Duration};

use serde::{Serialize, Serializer};

use weir_system::sandbox::Files;

use super::{
    super::{
        limits::{KAFKA_BROKERS_MAX, KAFKA_TOPIC_BYTES, TIMEOUT},
        section::{Field, Section},
        units,
    },
    Settings,
    http::{Tls, tls},
    ipfix::{Address, address},
    nats::user,
};

/// A topic of a Kafka cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kafka {
    /// Where the cluster is asked for its brokers: the first of these that answers names all of them. Never empty.
    #[serde(serialize_with = "write_brokers")]
    pub brokers: Vec<Address>,
    /// The topic. weir does not create it.
    pub topic: String,
    /// How long a delivery may take, including the connection.
    #[serde(serialize_with = "units::write_duration")]
    pub timeout: Duration,
    /// The trusted roots, and weir's own certificate. Connections are encrypted if this is given.
    pub tls: Option<Tls>,
    /// How weir proves who it is.
    pub sasl: Option<Sasl>,
}

/// The settings of authentication by SASL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sasl {
    /// The mechanism that the broker accepts.
    pub mechanism: Mechanism,
    /// The name of the user.
    pub user: String,
    /// A file with the password. weir reads it for each connection.
    pub password_file: PathBuf,
}

/// A mechanism of SASL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// The broker gets the password itself (RFC 4616).
    Plain,
    /// The broker gets a proof of the password (RFC 7677).
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[default]
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

impl Kafka {
    /// The default of `topic`.
    pub const TOPIC: &'static str = "weir.reports";
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Identifies where reports go: the first broker and the topic. More brokers of the same cluster do not change it,
    /// and neither does encryption.
    pub fn place(&self) -> String {
        let first = self.brokers.first().map(Address::to_string).unwrap_or_default();
        format!("kafka:{}/{}", first.to_ascii_lowercase(), self.topic)
    }

    /// Returns true if the other sink writes to the same topic of the same cluster: they name a common broker.
    pub(super) fn is_same_topic(&self, other: &Self) -> bool {
        let is_same =
            |one: &Address| other.brokers.iter().any(|other| one.to_string().eq_ignore_ascii_case(&other.to_string()));
        self.topic == other.topic && self.brokers.iter().any(is_same)
    }
}

/// The port of brokers where no other is given.
const PORT: u16 = 9092;
const BROKERS: &str = "[kafka-1:9092, kafka-2:9092]";
const MECHANISMS: [(&str, Mechanism); 3] =
    [("plain", Mechanism::Plain), ("scram-sha-256", Mechanism::ScramSha256), ("scram-sha-512", Mechanism::ScramSha512)];

impl Settings for Kafka {
    fn spool_key(&self) -> Option<String> {
        Some(self.place())
    }

    fn hosts(&self) -> Vec<&str> {
        self.brokers.iter().map(|broker| &*broker.host).collect()
    }

    fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        files.reads(&setting("sasl.password_file"), self.sasl.iter().map(|sasl| &sasl.password_file));
        if let Some(tls) = &self.tls {
            tls.add_files(setting, files);
        }
    }
}

/// Reads the settings of this sink.
pub(super) fn kafka(s: &mut Section<'_>) -> Option<Kafka> {
    let brokers = s.require("brokers", "the cluster, such as [kafka-1:9092, kafka-2:9092]", |f| brokers(&f));
    let topic = s.get("topic", Kafka::TOPIC.to_owned(), |f| topic(&f));
    let timeout = s.get("timeout", Kafka::TIMEOUT, |f| f.duration(TIMEOUT));
    let tls = s.get("tls", None, |f| tls(&f).map(Some));
    let sasl = s.get("sasl", None, |f| sasl(&f).map(Some));
    Some(Kafka { brokers: brokers?, topic, timeout, tls, sasl })
}

fn brokers(field: &Field<'_>) -> Option<Vec<Address>> {
    let mut brokers: Vec<Address> = Vec::new();
    let fields = field.list(KAFKA_BROKERS_MAX, BROKERS)?;
    if fields.is_empty() {
        field.refuse(format!("is empty: name a broker of the cluster, such as {BROKERS}"));
        return None;
    }
    for field in fields {
        let broker = address(&field, PORT, "kafka-1:9092")?;
        if broker.host.contains(':') {
            field.refuse("the Kafka client of weir takes no IPv6 address: give the broker's name, which may have one");
            return None;
        }
        if brokers.contains(&broker) {
            field.refuse("given twice: keep one of them");
            return None;
        }
        brokers.push(broker);
    }
    Some(brokers)
}

fn sasl(field: &Field<'_>) -> Option<Sasl> {
    const EXAMPLE: &str = "{user: weir, password_file: /etc/weir/kafka.password}";
    let (mechanism, user, password_file) = field.section(EXAMPLE, |s| {
        (
            s.get("mechanism", Mechanism::default(), |f| f.choice(&MECHANISMS)),
            s.require("user", "the name that the brokers know weir by", |f| user(&f)),
            s.require("password_file", "the file with the password", |f| f.file_path()),
        )
    })?;
    Some(Sasl { mechanism, user: user?, password_file: password_file? })
}

/// Reads the name of a topic, as brokers accept it.
fn topic(field: &Field<'_>) -> Option<String> {
    let topic = field.text()?;
    let (least, most) = KAFKA_TOPIC_BYTES.into_inner();
    if KAFKA_TOPIC_BYTES.contains(&topic.len())
        && topic.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !matches!(topic, "." | "..")
    {
        return Some(topic.to_owned());
    }
    field.refuse(format!(
        "not the name of a topic: it has {least} to {most} letters, digits, dots, dashes and underscores"
    ));
    None
}

fn write_brokers<S: Serializer>(brokers: &[Address], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(brokers.iter().map(Address::to_string))
}

#[cfg(test)]
#[cfg(feature = "kafka")]
mod tests {
    use super::{
        super::{Addresses, Sink, Target},
        *,
    };
    use crate::yaml::Config;

    fn parse(settings: &str) -> Result<Config, Vec<String>> {
        let text = format!("sinks: [{{type: kafka, {settings}}}]");
        Config::parse(&text, "f").map_err(|mistakes| {
            let place = |path: &str| path.trim_start_matches("sinks[0].").to_owned();
            mistakes.list().iter().map(|one| format!("{}: {}", place(&one.path), one.message)).collect()
        })
    }

    fn kafka(settings: &str) -> Kafka {
        let mut config = parse(settings).unwrap();
        let Some(Sink { target: Target::Kafka(kafka), .. }) = config.sinks.pop() else { panic!("not a kafka sink") };
        *kafka
    }

    #[test]
    fn every_setting_is_read_and_printed() {
        let text = "brokers: [K1.example:9093, 192.0.2.1], topic: edge.weir, timeout: 250ms, queue: 3, addresses: prefix, \
                    tls: {ca_file: ca, certificate_file: c, key_file: k}, \
                    sasl: {mechanism: scram-sha-256, user: weir, password_file: /p}";
        let broker = |host: &str, port| Address { host: host.into(), port };
        let expected = Kafka {
            brokers: vec![broker("K1.example", 9093), broker("192.0.2.1", 9092)],
            topic: "edge.weir".into(),
            timeout: Duration::from_millis(250),
            tls: Some(Tls {
                ca_file: Some("ca".into()),
                certificate_file: Some("c".into()),
                key_file: Some("k".into()),
            }),
            sasl: Some(Sasl { mechanism: Mechanism::ScramSha256, user: "weir".into(), password_file: "/p".into() }),
        };
        assert_eq!(kafka(text), expected);
        let config = parse(text).unwrap();
        assert_eq!((config.sinks[0].queue, config.sinks[0].addresses), (3, Addresses::Prefix));
        let plain = "brokers: [a], sasl: {mechanism: plain, user: u, password_file: p}";
        for text in [text, "brokers: [a]", "brokers: [a], tls: {}", plain] {
            let config = parse(text).unwrap();
            let printed = config.to_yaml();
            assert_eq!(Config::parse(&printed, "f").unwrap_or_else(|e| panic!("{e}\n{printed}")), config);
        }
    }

    #[test]
    fn missing_settings_have_their_defaults() {
        let kafka_of = kafka("brokers: [a]");
        assert_eq!(kafka_of.place(), "kafka:a:9092/weir.reports");
        assert_eq!((kafka_of.timeout, kafka_of.tls, kafka_of.sasl), (Duration::from_secs(5), None, None));
        let encrypted = kafka("brokers: [a], tls: {}, sasl: {user: u, password_file: p}");
        assert_eq!(encrypted.tls, Some(Tls::default()), "an empty section encrypts, too");
        assert_eq!(encrypted.sasl.map(|sasl| sasl.mechanism), Some(Mechanism::ScramSha512));
    }

    #[test]
    fn mistakes_name_the_way_out() {
        let together = "belong together: give both, or none";
        for (settings, path, message) in [
            ("topic: a", "brokers", "is missing: the cluster, such as [kafka-1:9092, kafka-2:9092]"),
            ("brokers: []", "brokers", "is empty: name a broker of the cluster"),
            ("brokers: ['a:0']", "brokers[0]", "not a host with a port, such as kafka-1:9092"),
            ("brokers: ['kafka://a']", "brokers[0]", "not a host with a port"),
            ("brokers: [b, '[2001:db8::1]:9092']", "brokers[1]", "takes no IPv6 address: give the broker's name"),
            ("brokers: [b, 'b:9092']", "brokers[1]", "given twice"),
            ("brokers: [a], topic: ''", "topic", "1 to 249 letters"),
            ("brokers: [a], topic: 'a b'", "topic", "not the name of a topic"),
            ("brokers: [a], topic: ..", "topic", "not the name of a topic"),
            ("brokers: [a], timeout: 1ms", "timeout", "1ms is below the minimum"),
            ("brokers: [a], tls: {key_file: a}", "tls", together),
            ("brokers: [a], sasl: {user: a}", "sasl.password_file", "is missing: the file with the password"),
            ("brokers: [a], sasl: {password_file: a}", "sasl.user", "is missing: the name that the brokers know"),
            (
                "brokers: [a], sasl: {mechanism: md5, user: a, password_file: a}",
                "sasl.mechanism",
                "expected one of plain, scram-sha-256, scram-sha-512",
            ),
            (
                "brokers: [a], url: b",
                "url",
                "unknown key (known here: queue, addresses, type, brokers, topic, timeout, tls, sasl)",
            ),
        ] {
            let found = parse(settings).expect_err(settings);
            assert_eq!(found.len(), 1, "{settings}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}: ")) && found[0].contains(message), "{settings}: {found:?}");
        }
    }

    #[test]
    fn a_spool_belongs_to_the_first_broker_and_the_topic() {
        let key = |settings: &str| Target::Kafka(kafka(settings).into()).spool_key();
        let first = key("brokers: [a]");
        assert_eq!(first.as_deref(), Some("kafka:a:9092/weir.reports"));
        for same in ["brokers: [a, b], timeout: 1s", "brokers: ['a:9092'], tls: {}"] {
            assert_eq!(first, key(same), "{same}");
        }
        for other in ["brokers: [a], topic: other", "brokers: [b]"] {
            assert_ne!(first, key(other), "{other}");
        }
        let text = "sinks: [{type: kafka, brokers: [a]}, {type: kafka, brokers: [a, b]}]";
        let mistakes = Config::parse(text, "f").unwrap_err();
        assert_eq!(mistakes.list()[0].message, "sends to the same place as sinks[0]");
    }
}

#[cfg(test)]
#[cfg(not(feature = "kafka"))]
mod tests {
    use crate::yaml::Config;

    #[test]
    fn without_the_feature_the_type_is_refused_with_the_way_out() {
        let mistakes = Config::parse("sinks: [{type: kafka, brokers: [a]}]", "f").unwrap_err();
        let [mistake] = mistakes.list() else { panic!("{mistakes}") };
        assert_eq!(mistake.path, "sinks[0].type");
        for part in ["built without Kafka", "--features kafka", "Debian package"] {
            assert!(mistake.message.contains(part), "{mistakes}");
        }
    }
}
