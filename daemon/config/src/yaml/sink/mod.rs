//! The section `sinks`: where reports go.

mod file;
mod http;
mod ipfix;
mod kafka;
mod nats;
mod otlp;

use std::net::IpAddr;

use serde::Serialize;

pub(super) use self::http::{headers, url, write_headers};
pub use self::ipfix::FIELDS as IPFIX_FIELDS;
use self::{file::file, http::http, ipfix::ipfix, kafka::kafka, nats::nats, otlp::otlp};
pub use self::{
    file::{File, rotated},
    http::{Compress, Format, Http, Tls},
    ipfix::{Address, Ipfix, Transport},
    kafka::{Kafka, Mechanism, Sasl},
    nats::{Nats, NatsUrl},
};
use super::{
    Config, NONE,
    limits::{QUEUE, SINKS_MAX},
    section::{Field, Section},
};

/// Where reports go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sink {
    /// The kind of sink and its own settings.
    #[serde(flatten)]
    pub target: Target,
    /// How many reports wait in memory while the target is slow or down, if they are not spooled on disk.
    pub queue: usize,
    /// How much of addresses this sink may get.
    pub addresses: Addresses,
}

/// How much of an address may be disclosed. Later variants are stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    /// Whole addresses.
    #[default]
    Full,
    /// The first 24 bits of IPv4, and the first 48 of IPv6.
    Prefix,
    /// Only the IP version.
    None,
}

impl Addresses {
    /// All variants, in this order.
    pub const ALL: [Self; 3] = [Self::Full, Self::Prefix, Self::None];

    /// The name in the configuration and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Prefix => "prefix",
            Self::None => NONE,
        }
    }

    /// The variant with this name; `None` if this version of weir does not know it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|addresses| addresses.name() == name)
    }

    /// How many bits of an address of this IP version may be disclosed.
    pub const fn bits(self, like: IpAddr) -> u8 {
        match (self, like) {
            (Self::Full, IpAddr::V4(_)) => 32,
            (Self::Full, IpAddr::V6(_)) => 128,
            (Self::Prefix, IpAddr::V4(_)) => 24,
            (Self::Prefix, IpAddr::V6(_)) => 48,
            (Self::None, _) => 0,
        }
    }
}

/// The kinds of sinks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Target {
    /// Standard output, one report per line.
    Stdout,
    /// A file to which reports are appended, one per line.
    File(File),
    /// A collector that accepts POST requests.
    Http(Box<Http>),
    /// An IPFIX collector.
    Ipfix(Ipfix),
    /// A receiver of OTLP metrics over HTTP.
    Otlp(Box<Http>),
    /// A subject of a NATS server. A JetStream stream stores reports that are published there.
    Nats(Box<Nats>),
    /// A topic of a Kafka cluster.
    Kafka(Box<Kafka>),
}

impl Sink {
    /// The default of `queue`.
    pub const QUEUE: usize = 16;
}

/// The message about an earlier sink with the same place.
const SAME_PLACE: &str = "sends to the same place as";

impl Target {
    /// Its settings, if it uses HTTP.
    pub fn http(&self) -> Option<&Http> {
        match self {
            Self::Http(http) => Some(http),
            Self::Otlp(http) => Some(http),
            Self::Stdout | Self::File(_) | Self::Ipfix(_) | Self::Nats(_) | Self::Kafka(_) => None,
        }
    }

    /// Whether reports are converted to another format for it, which takes memory.
    pub const fn translates(&self) -> bool {
        match self {
            Self::Ipfix(_) | Self::Otlp(_) => true,
            Self::Stdout | Self::File(_) | Self::Http(_) | Self::Nats(_) | Self::Kafka(_) => false,
        }
    }

    /// Whether its target may be on another machine.
    pub const fn is_remote(&self) -> bool {
        !matches!(self, Self::Stdout | Self::File(_))
    }

    /// Identifies its spool: includes the whole target, but nothing that may change while the target stays the same.
    /// All sinks of a configuration have different keys. `None` if the sink has no spool.
    pub fn spool_key(&self) -> Option<String> {
        match self {
            Self::Stdout => None,
            Self::File(file) => Some(file.place().to_string_lossy().into_owned()),
            Self::Http(http) => Some(http.place()),
            Self::Ipfix(ipfix) => {
                let (transport, address, domain) = ipfix.place();
                Some(format!("ipfix:{}:{}:{domain}", transport.name(), address.to_string().to_ascii_lowercase()))
            }
            Self::Otlp(http) => Some(format!("otlp:{}", http.place())),
            Self::Nats(nats) => Some(nats.place()),
            Self::Kafka(kafka) => Some(kafka.place()),
        }
    }

    /// The reason why the two sinks conflict, as a message at the later one about the earlier one.
    fn conflict(&self, earlier: &Self) -> Option<String> {
        match (self, earlier) {
            (Self::Stdout, Self::Stdout) => Some(SAME_PLACE.to_owned()),
            (Self::File(one), Self::File(other)) if one.place() != other.place() => one.conflict(other),
            (Self::Kafka(one), Self::Kafka(other)) if one.is_same_topic(other) => Some(SAME_PLACE.to_owned()),
            // With the same key, reports would arrive twice, or two writers would mix their lines. The same collector
            // with other headers is a different place, because headers may name a tenant.
            _ if self.spool_key()? != earlier.spool_key()? => None,
            (Self::Http(one), Self::Http(other)) | (Self::Otlp(one), Self::Otlp(other)) => Some(one.conflict(other)),
            _ => Some(SAME_PLACE.to_owned()),
        }
    }
}

/// The value of `type` in a sink.
#[derive(Clone, Copy)]
enum Kind {
    Stdout,
    File,
    Http,
    Ipfix,
    Kafka,
    Nats,
    Otlp,
}

const KINDS: [(&str, Kind); 7] = [
    ("stdout", Kind::Stdout),
    ("file", Kind::File),
    ("http", Kind::Http),
    ("ipfix", Kind::Ipfix),
    ("kafka", Kind::Kafka),
    ("nats", Kind::Nats),
    ("otlp", Kind::Otlp),
];

impl Kind {
    /// Whether this build includes it. If not, notes a mistake at its name.
    fn is_built(self, field: &Field<'_>) -> bool {
        let (is_built, feature, name) = match self {
            Self::Kafka => (cfg!(feature = "kafka"), "kafka", "Kafka"),
            Self::Nats => (cfg!(feature = "nats"), "nats", "NATS"),
            Self::Otlp => (cfg!(feature = "otlp"), "otlp", "OTLP"),
            Self::Stdout | Self::File | Self::Http | Self::Ipfix => return true,
        };
        if !is_built {
            field.refuse(format!(
                "this weir was built without {name}: build it with `--features {feature}`, or install the Debian package, \
                 which has it"
            ));
        }
        is_built
    }
}

/// Reads the list of sinks. `has_all_views` is set if the views of `config` are complete.
pub(super) fn sinks(field: &Field<'_>, config: &Config, has_all_views: bool) -> Option<Vec<Sink>> {
    let mut taken: Vec<(Field<'_>, Sink)> = Vec::new();
    for field in field.list(SINKS_MAX, "[{type: stdout}]")? {
        let Some(sink) = field.section("{type: stdout}", sink).flatten() else { continue };
        if let (Target::Ipfix(ipfix), true) = (&sink.target, has_all_views)
            && let Some(why) = ipfix.conflict(config)
        {
            field.refuse(why);
            continue;
        }
        let conflict = |(earlier, known): &(Field<'_>, Sink)| {
            Some(format!("{} {}", sink.target.conflict(&known.target)?, earlier.path()))
        };
        match taken.iter().find_map(conflict) {
            Some(why) => field.refuse(why),
            None => taken.push((field, sink)),
        }
    }
    Some(taken.into_iter().map(|(_, sink)| sink).collect())
}

pub(super) fn addresses(field: &Field<'_>) -> Option<Addresses> {
    field.choice(&Addresses::ALL.map(|one| (one.name(), one)))
}

fn sink(s: &mut Section<'_>) -> Option<Sink> {
    let queue = s.get("queue", Sink::QUEUE, |f| f.size(QUEUE));
    let addresses = s.get("addresses", Addresses::default(), |f| addresses(&f));
    let kind = s.require("type", "stdout, file, http, ipfix, kafka, nats or otlp", |f| {
        f.choice(&KINDS).filter(|kind| kind.is_built(&f))
    });
    let Some(kind) = kind else {
        s.pass_others();
        return None;
    };
    let target = match kind {
        Kind::Stdout => Target::Stdout,
        Kind::File => Target::File(file(s)?),
        Kind::Http => Target::Http(http(s)?.into()),
        Kind::Ipfix => Target::Ipfix(ipfix(s)?),
        Kind::Kafka => Target::Kafka(kafka(s)?.into()),
        Kind::Nats => Target::Nats(nats(s)?.into()),
        Kind::Otlp => Target::Otlp(otlp(s)?.into()),
    };
    Some(Sink { target, queue, addresses })
}
