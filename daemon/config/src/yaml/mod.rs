//! The configuration: the content of `weir.yaml`, validated, with a value for every setting.
//!
//! Text becomes a [`Config`] in three steps. `node` parses YAML into a tree of plain values. `read` takes the settings
//! from the tree through `section`, which notes each mistake and continues. `locate` finds the line and column of each
//! mistake. [`Config::default`] equals the shipped `config/weir.yaml`.

mod alert;
mod export;
mod history;
mod horizon;
mod interface;
mod interval;
mod key;
pub mod limits;
mod locate;
mod location;
mod mistake;
mod names;
mod network;
mod new_hosts;
mod node;
mod own_files;
mod place;
mod read;
mod secret;
mod section;
mod sections;
mod sink;
mod source;
mod spool;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
mod tunnel_ports;
mod units;
mod usage;
mod view;
mod web;

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use serde::{Serialize, Serializer};
use weir_common::packet;

pub use self::export::{Export, ExportViews, UNIQUE};
pub use self::history::History;
pub use self::interface::{Direction, Interface, Mode, slots};
pub use self::key::{HashKey, KeyError, Secret};
pub use self::location::Location;
pub use self::mistake::{Mistake, Mistakes, Position};
pub use self::names::Names;
pub use self::new_hosts::NewHosts;
pub use self::own_files::OwnFiles;
pub use self::secret::{Exposed, is_credential_of_service};
pub use self::sections::{Refused, Started};
pub use self::sink::{
    Address, Addresses, Compress, File, Format, Http, IPFIX_FIELDS, Ipfix, Kafka, Mechanism, Nats, NatsUrl, Otlp, Sasl,
    Sink, Target, Tls, Transport, rotated,
};
pub use self::source::Source;
pub use self::spool::{Fsync, Spool};
pub use self::units::parse_duration;
pub use self::usage::Usage;
pub use self::web::Web;

use self::limits::FILE_MAX;
use self::section::{Field, Log};
use self::sink::write_headers;
use crate::{
    names::{GeoFiles, Network, PRIVATE, Prefix},
    rule::Rule,
    view::{Standard, View},
};

/// All settings of weir.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// The name and site of the observer in reports.
    pub observer: Observer,
    /// The interfaces to measure, without duplicates. They have at most [`limits::INTERFACES_MAX`] directions.
    pub interfaces: Vec<Interface>,
    /// The names for addresses: at most [`limits::NETWORKS_MAX`], with different names. No prefix is in two of them.
    #[serde(serialize_with = "network::write_networks")]
    pub networks: Vec<Network>,
    /// Where the names of hosts come from.
    pub names: Names,
    /// The ASN and country databases.
    pub geo: GeoFiles,
    /// When to report, and how much.
    pub report: Report,
    /// How exact the estimates are.
    pub estimates: Estimates,
    /// How weir detects new flows.
    pub seen_flows: SeenFlows,
    /// How weir finds new hosts; `None` (`off`): it does not.
    #[serde(serialize_with = "new_hosts::write")]
    pub new_hosts: Option<NewHosts>,
    /// The standard views that are turned on.
    pub standard_views: Vec<Standard>,
    /// The user's views: at most [`limits::VIEWS_MAX`], with different names.
    pub views: Vec<View>,
    /// When to send alerts, and where.
    pub alerts: Alerts,
    /// Which sketches leave the router with its reports.
    pub export: Export,
    /// How many bytes daemon and kernel may use together. `None`: as many as the settings need.
    #[serde(serialize_with = "write_budget")]
    pub memory: Option<u64>,
    /// How much weir remembers; `None` (`off`): nothing.
    #[serde(serialize_with = "history::write")]
    pub history: Option<History>,
    /// How usage by hour, day and month is counted; `None` (`off`): it is not.
    #[serde(serialize_with = "usage::write")]
    pub usage: Option<Usage>,
    /// How to query a running weir.
    pub control: Control,
    /// The endpoint that Prometheus scrapes.
    pub prometheus: Prometheus,
    /// The page in a browser.
    pub web: Web,
    /// The datapath in the kernel.
    pub datapath: Datapath,
    /// The share of packets that are measured.
    pub sampling: Sampling,
    /// How much of addresses may be disclosed at most: to sinks, the alert webhook, the log, the control socket,
    /// Prometheus and the page. A sink may have a stricter limit.
    pub addresses: Addresses,
    /// The key of all hashes.
    pub hash_key: HashKey,
    /// True if weir drops access that it does not need, besides capabilities: [`weir_system::sandbox`].
    pub sandbox: bool,
    /// Where reports go: at most [`limits::SINKS_MAX`] sinks with different targets. The list may be empty.
    pub sinks: Vec<Sink>,
    /// Where reports wait for sinks.
    pub spool: Spool,
    /// The networks of this machine's own interfaces, without that of the default route. They are not written in the
    /// configuration: the program that measures finds them.
    #[serde(skip)]
    pub found_networks: Vec<Prefix>,
}

/// The name and site of the observer in reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observer {
    /// The name in reports; `None` means the host name.
    pub name: Option<String>,
    /// The site or group in reports, if any.
    pub site: Option<String>,
}

/// When to report, and how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The length of a window: whole seconds, a divisor of a day.
    #[serde(serialize_with = "units::write_duration")]
    pub interval: Duration,
    /// The first window after a start ends at a multiple of this, if that is before a multiple of the interval.
    #[serde(serialize_with = "units::write_duration")]
    pub first_window: Duration,
    /// The number of entries of each top list.
    pub top: usize,
    /// How far back distinct counts reach, besides those of the window: whole seconds, sorted, at most
    /// [`limits::HORIZONS_MAX`].
    #[serde(serialize_with = "horizon::write")]
    pub horizons: Vec<Duration>,
}

/// How exact the estimates are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimates {
    /// The relative standard error of unique counts.
    pub unique_error: f64,
    /// The usual distance between the bounds of a count in a top list, as a share of the window's total.
    pub top_error: f64,
    /// The minimum number of candidates for each top list.
    pub top_candidates: usize,
}

/// How weir detects new flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenFlows {
    /// How many flows one generation can hold at the false positive rate.
    pub capacity: u64,
    /// The share of new flows that weir may mistake for known ones.
    pub false_positive_rate: f64,
    /// How long one filter is filled; at least the report interval. An idle flow is forgotten after one to two
    /// generations.
    #[serde(serialize_with = "units::write_duration")]
    pub generation: Duration,
}

/// When to send alerts, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Alerts {
    /// The rules: at most [`limits::ALERT_RULES_MAX`], with different names.
    pub rules: Vec<Rule>,
    /// Where notifications go, if there are rules.
    pub webhook: Option<Webhook>,
}

/// Where a notification goes when an alert begins or ends.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// The URL, `http` or `https`, without credentials. The path may be secret: neither `Debug` nor [`Config::to_yaml`]
    /// shows it.
    #[serde(serialize_with = "alert::write_host")]
    pub url: Uri,
    /// How long a request may take.
    #[serde(serialize_with = "units::write_duration")]
    pub timeout: Duration,
    /// Headers to add. Their values are secret, too.
    #[serde(serialize_with = "write_headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many notifications wait while the target is slow or down.
    pub queue: usize,
}

/// How to query a running weir.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Control {
    /// The Unix socket; `None` (`none`) turns it off.
    #[serde(serialize_with = "write_or_none")]
    pub socket: Option<PathBuf>,
}

/// The endpoint that Prometheus scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prometheus {
    /// The address; `None` (`none`) turns it off.
    #[serde(serialize_with = "write_address")]
    pub listen: Option<SocketAddr>,
    /// How many of the largest sources, destinations and services are series.
    pub top: usize,
}

fn write_address<S: Serializer>(address: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(NONE),
    }
}

fn write_or_none<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().unwrap_or(Path::new(NONE)).serialize(serializer)
}

impl Control {
    /// Returns true if the socket's path exists.
    pub fn is_there(&self) -> bool {
        self.socket.as_ref().is_some_and(|path| path.exists())
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: Some(PathBuf::from(limits::CONTROL_SOCKET)) }
    }
}

/// The settings of the datapath in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Datapath {
    /// Slots of the flow cache per CPU, a power of two. `None` (`auto`): see `weir_datapath::Shares`.
    #[serde(serialize_with = "write_or_auto")]
    pub cache_flows: Option<u32>,
    /// Bytes of the ring per CPU, a power of two. `None` (`auto`): see `weir_datapath::Shares`.
    #[serde(serialize_with = "write_bytes_or_auto")]
    pub ring: Option<u64>,
    /// Bytes of the ring of each packet socket, a power of two.
    #[serde(serialize_with = "units::write_bytes")]
    pub packet_ring: u64,
    /// Which flow a tunnelled packet belongs to.
    pub tunnels: Tunnels,
    /// The UDP ports that identify tunnels.
    #[serde(serialize_with = "tunnel_ports::write")]
    pub tunnel_ports: packet::TunnelPorts,
}

/// Which flow a tunnelled packet belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tunnels {
    /// The flow of the tunnel.
    #[default]
    Outer,
    /// The flow inside the tunnel.
    Inner,
}

impl From<Tunnels> for packet::Tunnels {
    fn from(tunnels: Tunnels) -> Self {
        match tunnels {
            Tunnels::Outer => Self::Outer,
            Tunnels::Inner => Self::Inner,
        }
    }
}

/// The share of packets that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// The rate at which packets are sampled.
    pub packets: Packets,
    /// The share of a CPU that may be spent on reading its records before `auto` measures fewer packets.
    pub cpu: f64,
}

/// The rate at which packets are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// One packet in this many, 1 to `weir_common::sampling::RATE_MAX`.
    OneIn(u32),
    /// Every packet, but fewer while the daemon cannot keep up.
    Auto,
}

impl Packets {
    /// Returns the initial rate.
    pub const fn first_rate(self) -> u32 {
        match self {
            Self::OneIn(rate) => rate,
            Self::Auto => 1,
        }
    }

    /// Returns true if any packet may be skipped.
    pub const fn leaves_out(self) -> bool {
        !matches!(self, Self::OneIn(1))
    }
}

impl Serialize for Packets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::OneIn(rate) => serializer.serialize_u32(*rate),
            Self::Auto => serializer.serialize_str(AUTO),
        }
    }
}

/// The word in a configuration that lets weir decide.
const AUTO: &str = "auto";
/// The word in a configuration that turns something off.
const NONE: &str = "none";

impl Config {
    /// All rules of a running weir: those of `alerts`, and that of the quota.
    pub fn rules(&self) -> Vec<Rule> {
        let quota = self.usage.as_ref().and_then(Usage::rule);
        self.alerts.rules.iter().cloned().chain(quota).collect()
    }

    /// Returns true if a rule is about what interfaces have carried in a month.
    pub fn watches_usage(&self) -> bool {
        self.usage.is_some() && self.rules().iter().any(|rule| rule.when.subject.selector.series == usage::USAGE_BYTES)
    }

    /// Returns true if weir measures anything with a key that lives longer than a day.
    pub const fn has_local_key(&self) -> bool {
        self.new_hosts.is_some() || !self.report.horizons.is_empty()
    }

    /// Returns true if the interface with this name is measured only while it carries a default route.
    pub fn means_only_by_route(&self, name: &str) -> bool {
        let covered = |carries_default| self.interfaces.iter().any(|interface| interface.covers(name, carries_default));
        covered(true) && !covered(false)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// All mistakes in it, or the reason why it cannot be read.
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        Self::read_with_source(path).map(|(config, _)| config)
    }

    /// Like [`Config::read`], and also returns the text.
    ///
    /// # Errors
    ///
    /// All mistakes in it, or the reason why it cannot be read.
    pub fn read_with_source(path: &Path) -> Result<(Self, Source), Mistakes> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let unreadable = |error| Mistakes::unreadable(&name, None, format!("cannot read the configuration: {error}"));
        let file = fs::File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Mistakes::missing(&name, path),
            _ => unreadable(error),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => {
                let config = Self::parse(text, &name)?.kept(path, &metadata)?;
                Ok((config, Source::new(name, text)))
            }
            // A truncated file may end within a character. Its length is the mistake to report.
            Err(_) if bytes.len() > FILE_MAX => Err(too_long(&name)),
            Err(_) if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) => {
                let (place, message) = (Position::after(&[]), "this is UTF-16 text: save the file as UTF-8");
                Err(Mistakes::unreadable(&name, Some(place), message.to_owned()))
            }
            Err(error) => {
                let (place, byte) = (Position::after(&bytes[..error.valid_up_to()]), bytes[error.valid_up_to()]);
                Err(Mistakes::unreadable(&name, Some(place), format!("the byte {byte:#04x} is not UTF-8 text")))
            }
        }
    }

    /// Returns the configuration, unless it contains a secret and every user may read its file.
    fn kept(self, path: &Path, metadata: &Metadata) -> Result<Self, Mistakes> {
        let Some(secret) = self.secret() else { return Ok(self) };
        match Exposed::check(path, metadata) {
            Ok(()) => Ok(self),
            Err(exposed) => {
                let mistake = Mistake { place: None, path: secret, message: exposed.to_string() };
                Err(Mistakes::in_content(&path.display().to_string(), vec![mistake], 0))
            }
        }
    }

    /// The first setting that contains a secret itself, and not the path of a file with a secret.
    fn secret(&self) -> Option<String> {
        if let HashKey::Given(_) = self.hash_key {
            return Some("hash_key".to_owned());
        }
        if let Some(webhook) = &self.alerts.webhook {
            if webhook.has_path() {
                return Some("alerts.webhook.url".to_owned());
            }
            let secret = webhook.headers.iter().find(|(name, _)| secret::is_credential(name));
            if let Some((name, _)) = secret {
                return Some(format!("alerts.webhook.headers.{name}"));
            }
        }
        let headers = self.sinks.iter().enumerate().flat_map(|(nth, sink)| {
            let headers = sink.target.http().map(|http| &http.headers[..]).unwrap_or_default();
            headers.iter().map(move |(name, _)| (nth, name))
        });
        let mut secrets = headers.filter(|(_, name)| secret::is_credential(name));
        secrets.next().map(|(nth, name)| format!("sinks[{nth}].headers.{name}"))
    }

    /// Parses a configuration. `file` is its name in mistakes. Missing and null settings have their defaults, so an
    /// empty text gives [`Config::default`].
    ///
    /// # Errors
    ///
    /// All mistakes in it. If it is not valid YAML, only the first one.
    pub fn parse(text: &str, file: &str) -> Result<Self, Mistakes> {
        if text.len() > FILE_MAX {
            return Err(too_long(file));
        }
        let text = without_mark(text);
        let root = node::parse(text).map_err(|mistake| Mistakes::in_content(file, vec![mistake], 0))?;
        let log = Log::default();
        let config = read::config(&Field::root(&root, &log));
        log.into_result(file, text).map(|()| config)
    }

    /// Parses one view from the command line, with the defaults of this configuration. `file` is its name in mistakes.
    /// `name` is the view's name unless the text sets one.
    ///
    /// # Errors
    ///
    /// All mistakes in it. If it is not valid YAML, only the first one.
    pub fn parse_view(&self, text: &str, file: &str, name: &str) -> Result<View, Mistakes> {
        let no_yaml = |mistake| Mistakes::in_content(file, vec![mistake], 0).in_a_view();
        let root = node::parse(text).map_err(no_yaml)?;
        let log = Log::default();
        let view = view::view(&Field::root(&root, &log), self, Some(name));
        log.into_result(file, text).map_err(Mistakes::in_a_view)?;
        view.ok_or_else(|| Mistakes::unreadable(file, None, "there is no view in it".to_owned()))
    }

    /// The networks whose addresses are hosts: those with `own: true`. If there are none, these are the private ranges
    /// and the networks that were found on this machine's interfaces.
    pub fn networks_of_hosts(&self) -> Vec<Prefix> {
        let own: Vec<Prefix> = self.networks.iter().filter(|of| of.own).flat_map(Network::all_prefixes).collect();
        if own.is_empty() { PRIVATE.into_iter().chain(self.found_networks.iter().copied()).collect() } else { own }
    }

    /// The standard views in use. A user's view replaces the standard view of the same name.
    pub fn standard(&self) -> impl Iterator<Item = Standard> + Clone {
        let is_taken = |standard: &Standard| self.views.iter().any(|view| view.name == standard.name());
        self.standard_views.iter().copied().filter(move |standard| !(standard.is_per_interface() && is_taken(standard)))
    }

    /// The configuration in use, as YAML with every setting. Secrets are replaced: the hash key by `<set>`, header
    /// values by `***`.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_yaml::to_string(self).expect("maps with text keys, lists, text and finite numbers, all of which YAML has")
    }

    /// Every setting with its value as in [`Config::to_yaml`], named as in messages: `report.top`, `sinks[0].queue`, or
    /// `views.NAME.error`. A list of words has an entry for each word.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Ok(value) = serde_yaml::to_value(self) {
            list_settings("", &value, &mut all);
        }
        all
    }
}

/// Adds all settings in this value, which has this name.
fn list_settings(name: &str, value: &serde_yaml::Value, all: &mut Vec<(String, String)>) {
    use serde_yaml::Value;
    match value {
        Value::Mapping(settings) => {
            for (key, value) in settings {
                let key = key.as_str().unwrap_or_default();
                let name = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
                list_settings(&name, value, all);
            }
        }
        Value::Sequence(items) => {
            for (nth, item) in items.iter().enumerate() {
                let own = match (item, item.get("name").and_then(Value::as_str)) {
                    (Value::Mapping(_), Some(own)) => format!("{name}.{own}"),
                    (Value::Mapping(_), None) => format!("{name}[{nth}]"),
                    _ => name.to_owned(),
                };
                list_settings(&own, item, all);
            }
        }
        scalar => all.push((name.to_owned(), serde_yaml::to_string(scalar).unwrap_or_default().trim().to_owned())),
    }
}

fn too_long(file: &str) -> Mistakes {
    let message = format!("longer than {}, the limit for a configuration", units::show_bytes(FILE_MAX as u64));
    Mistakes::unreadable(file, None, message)
}

/// The text without the byte order mark that some editors write at the start. The mark does not count as a column.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            observer: Observer::default(),
            interfaces: Vec::new(),
            networks: Vec::new(),
            geo: GeoFiles::default(),
            report: Report::default(),
            estimates: Estimates::default(),
            seen_flows: SeenFlows::default(),
            names: Names::default(),
            new_hosts: None,
            standard_views: Standard::ALL.to_vec(),
            views: Vec::new(),
            alerts: Alerts::default(),
            export: Export::default(),
            memory: None,
            history: Some(History::default()),
            usage: Some(Usage::default()),
            control: Control::default(),
            prometheus: Prometheus::default(),
            web: Web::default(),
            datapath: Datapath::default(),
            sampling: Sampling::default(),
            addresses: Addresses::default(),
            hash_key: HashKey::default(),
            sandbox: true,
            sinks: vec![Sink { target: Target::Stdout, queue: Sink::QUEUE, addresses: Addresses::default() }],
            spool: Spool::default(),
            found_networks: Vec::new(),
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), first_window: Duration::from_secs(10), top: 10, horizons: Vec::new() }
    }
}

impl Default for Estimates {
    fn default() -> Self {
        Self { unique_error: 0.005, top_error: 0.0005, top_candidates: 1024 }
    }
}

impl Default for SeenFlows {
    fn default() -> Self {
        Self { capacity: 1_000_000, false_positive_rate: 0.001, generation: Duration::from_secs(300) }
    }
}

impl Default for Datapath {
    fn default() -> Self {
        Self {
            cache_flows: None,
            ring: None,
            packet_ring: 8 << 20,
            tunnels: Tunnels::default(),
            tunnel_ports: packet::TunnelPorts::USUAL,
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self { packets: Packets::OneIn(1), cpu: 0.5 }
    }
}

fn write_or_auto<S: Serializer>(number: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.serialize_u32(*number),
        None => serializer.serialize_str(AUTO),
    }
}

fn write_budget<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => units::write_bytes(bytes, serializer),
        None => serializer.serialize_none(),
    }
}

fn write_bytes_or_auto<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => units::write_bytes(bytes, serializer),
        None => serializer.serialize_str(AUTO),
    }
}
