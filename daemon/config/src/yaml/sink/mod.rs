//! The section `sinks`: where reports go.

mod file;
mod http;
mod ipfix;
mod kafka;
mod nats;
mod otlp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use weir_system::sandbox::Files;

pub(super) use self::http::{headers, url, write_headers};
pub use self::ipfix::FIELDS as IPFIX_FIELDS;
use self::{file::file, http::http, ipfix::ipfix, kafka::kafka, nats::nats, otlp::otlp};
pub use self::{
    file::{File, rotated},
    http::{Compress, Format, Http, Tls},
    ipfix::{Address, Ipfix, Transport},
    kafka::{Kafka, Mechanism, Sasl},
    nats::{Nats, NatsUrl},
    otlp::Otlp,
};
use super::{
    Config, NONE,
    limits::{QUEUE, SINKS_MAX},
    section::{Field, Section},
};

/// A target for reports, with its queue.
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
    /// Only the IP version of addresses.
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

    /// The address with all bits set to 0 that may not be disclosed.
    pub fn masked(self, address: IpAddr) -> IpAddr {
        let bits = u32::from(self.bits(address));
        let mask = |width: u32| if bits == 0 { 0 } else { u128::MAX << (width - bits) };
        match address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & mask(32) as u32).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & mask(128)).into(),
        }
    }

    /// Why weir does not answer a question about more of an address. The answer would show who is there to everyone who
    /// tries addresses out.
    pub fn refusal(self) -> String {
        let [v4, v6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].map(|like: IpAddr| self.bits(like));
        let name = self.name();
        if v4 == 0 {
            return format!("the configuration has `addresses: {name}`, so weir answers no question about an address");
        }
        format!(
            "the configuration has `addresses: {name}`, so weir answers only questions about networks: of at most {v4} \
             bits (IPv4) or {v6} bits (IPv6)"
        )
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
    Otlp(Box<Otlp>),
    /// A subject of a NATS server. A JetStream stream stores reports that are published there.
    Nats(Box<Nats>),
    /// A topic of a Kafka cluster.
    Kafka(Box<Kafka>),
}

/// What the rest of weir asks about the settings of a sink. All that depends on its kind is in one file, except for how
/// it delivers.
trait Settings {
    /// See [`Target::spool_key`].
    fn spool_key(&self) -> Option<String>;

    /// See [`Target::hosts`].
    fn hosts(&self) -> Vec<&str> {
        Vec::new()
    }

    /// See [`Target::add_files`].
    fn add_files(&self, _: &dyn Fn(&str) -> String, _: &mut Files) {}

    /// See [`Target::http`].
    fn http(&self) -> Option<&Http> {
        None
    }

    /// See [`Target::translates`].
    fn translates(&self) -> bool {
        false
    }
}

impl Sink {
    /// The default of `queue`.
    pub const QUEUE: usize = 16;
}

/// The message about an earlier sink with the same place.
const SAME_PLACE: &str = "sends to the same place as";

impl Target {
    fn settings(&self) -> &dyn Settings {
        match self {
            Self::Stdout => &Stdout,
            Self::File(file) => file,
            Self::Http(http) => &**http,
            Self::Ipfix(ipfix) => ipfix,
            Self::Otlp(otlp) => &**otlp,
            Self::Nats(nats) => &**nats,
            Self::Kafka(kafka) => &**kafka,
        }
    }

    /// The value of `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::File(_) => "file",
            Self::Http(_) => "http",
            Self::Ipfix(_) => "ipfix",
            Self::Otlp(_) => "otlp",
            Self::Nats(_) => "nats",
            Self::Kafka(_) => "kafka",
        }
    }

    /// Identifies its spool: includes the whole target, but nothing that may change while the target stays the same.
    /// All sinks of a configuration have different keys. `None` if the sink has no spool.
    pub fn spool_key(&self) -> Option<String> {
        self.settings().spool_key()
    }

    /// The hosts that weir connects to; none if reports stay on this machine.
    pub fn hosts(&self) -> Vec<&str> {
        self.settings().hosts()
    }

    /// Whether its target may be on another machine.
    pub fn is_remote(&self) -> bool {
        !self.hosts().is_empty()
    }

    /// Adds the files that it reads and writes. `setting` is the full name of one of its keys.
    pub fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        self.settings().add_files(setting, files);
    }

    /// Its settings, if it uses HTTP.
    pub fn http(&self) -> Option<&Http> {
        self.settings().http()
    }

    /// Whether reports are converted to another format for it, which takes memory.
    pub fn translates(&self) -> bool {
        self.settings().translates()
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
            _ => match (self.http(), earlier.http()) {
                (Some(one), Some(other)) => Some(one.conflict(other)),
                _ => Some(SAME_PLACE.to_owned()),
            },
        }
    }
}

/// Standard output has no settings.
struct Stdout;

impl Settings for Stdout {
    fn spool_key(&self) -> Option<String> {
        None
    }
}

/// A value of `type` in a sink.
#[derive(Clone, Copy)]
struct Kind {
    /// What users write.
    name: &'static str,
    /// The feature of this program that it needs, and what people call it.
    feature: Option<Feature>,
    /// Reads its settings.
    read: fn(&mut Section<'_>) -> Option<Target>,
}

#[derive(Clone, Copy)]
struct Feature {
    is_built: bool,
    name: &'static str,
    title: &'static str,
}

impl Feature {
    const KAFKA: Self = Self { is_built: cfg!(feature = "kafka"), name: "kafka", title: "Kafka" };
    const NATS: Self = Self { is_built: cfg!(feature = "nats"), name: "nats", title: "NATS" };
    const OTLP: Self = Self { is_built: cfg!(feature = "otlp"), name: "otlp", title: "OTLP" };
}

const KINDS: [Kind; 7] = [
    Kind { name: "stdout", feature: None, read: |_| Some(Target::Stdout) },
    Kind { name: "file", feature: None, read: |s| Some(Target::File(file(s)?)) },
    Kind { name: "http", feature: None, read: |s| Some(Target::Http(http(s)?.into())) },
    Kind { name: "ipfix", feature: None, read: |s| Some(Target::Ipfix(ipfix(s)?)) },
    Kind { name: "kafka", feature: Some(Feature::KAFKA), read: |s| Some(Target::Kafka(kafka(s)?.into())) },
    Kind { name: "nats", feature: Some(Feature::NATS), read: |s| Some(Target::Nats(nats(s)?.into())) },
    Kind { name: "otlp", feature: Some(Feature::OTLP), read: |s| Some(Target::Otlp(otlp(s)?.into())) },
];

impl Kind {
    /// Returns true if this build includes it. If not, notes a mistake at its name.
    fn is_built(self, field: &Field<'_>) -> bool {
        let Some(Feature { name, title, .. }) = self.feature.filter(|feature| !feature.is_built) else { return true };
        field.refuse(format!(
            "this weir was built without {title}: build it with `--features {name}`, or install the Debian package, \
             which has it"
        ));
        false
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
    let [others @ .., last] = KINDS.map(|kind| kind.name);
    let kind = s.require("type", &format!("{} or {last}", others.join(", ")), |f| {
        f.choice(&KINDS.map(|kind| (kind.name, kind))).filter(|kind| kind.is_built(&f))
    });
    let Some(kind) = kind else {
        s.pass_others();
        return None;
    };
    let target = (kind.read)(s)?;
    Some(Sink { target, queue, addresses })
}
