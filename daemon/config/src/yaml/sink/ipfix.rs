//! The settings of the sink `ipfix`.

use std::{fmt, net::IpAddr, time::Duration};

use serde::{Serialize, Serializer};
use weir_system::text::short;

use super::{
    super::{
        Config,
        interface::interface_name,
        limits::{DOMAIN, TIMEOUT},
        section::{Field, Section},
        units,
    },
    Settings,
};
use crate::view::Standard;

/// The default port of collectors (RFC 7011 section 10.3.4).
const PORT: u16 = 4739;

/// The fields of a view for which IPFIX has information elements.
pub const FIELDS: [&str; 13] = [
    "src_ip",
    "dst_ip",
    "src_port",
    "dst_port",
    "proto",
    "ip_version",
    "interface",
    "direction",
    "vlan",
    "dscp",
    "tcp_flags",
    "src_as",
    "dst_as",
];

/// The settings of an IPFIX collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipfix {
    /// The address of the collector.
    #[serde(serialize_with = "write_address")]
    pub address: Address,
    /// The transport of messages.
    pub transport: Transport,
    /// How long connecting may take, and how long the collector may take to acknowledge.
    #[serde(serialize_with = "units::write_duration")]
    pub timeout: Duration,
    /// The view whose rows are sent as flow records.
    pub view: String,
    /// The observation domain that messages carry.
    pub domain: u32,
    /// The VRF in which messages leave. `None`: that of the system's other programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an address.
    pub host: String,
    /// The port of the collector.
    pub port: u16,
}

/// The transport of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Datagrams. weir does not learn whether they arrive.
    #[default]
    Udp,
    /// A TCP connection.
    Tcp,
}

impl Transport {
    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

impl Ipfix {
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Identifies where its messages go. No other sink may send there, because both would number their messages.
    pub(super) fn place(&self) -> (Transport, &Address, u32) {
        (self.transport, &self.address, self.domain)
    }

    /// The reason why the rows of its view cannot be sent, if any.
    pub(super) fn conflict(&self, Config { standard_views, views, .. }: &Config) -> Option<String> {
        let (name, flows) = (&self.view, Standard::Flows.name());
        let Some(view) = views.iter().find(|view| view.name == *name) else {
            if name == flows {
                let is_off = !standard_views.contains(&Standard::Flows);
                let why = "the standard view flows is switched off: switch it on, or name another view";
                return is_off.then(|| why.to_owned());
            }
            if Standard::ALL.iter().any(|standard| standard.name() == name) {
                return Some(format!(
                    "of the standard views only {flows} can be sent: make a view of your own like {name}"
                ));
            }
            let known: Vec<&str> = [flows].into_iter().chain(views.iter().map(|view| view.name.as_str())).collect();
            return Some(format!("there is no view {:?} (known here: {})", short(name), known.join(", ")));
        };
        if !view.measure.is_tally() {
            return Some(format!("the view {name} counts no bytes and packets, and flow records have these"));
        }
        let unknown = view.by.iter().find(|field| !FIELDS.contains(&field.name()))?;
        Some(format!("the view {name} groups by {unknown}, for which IPFIX has no element: take a view without it"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Settings for Ipfix {
    fn spool_key(&self) -> Option<String> {
        let (transport, address, domain) = self.place();
        let in_vrf = self.vrf.as_ref().map_or_else(String::new, |vrf| format!(" vrf={vrf}"));
        Some(format!("ipfix:{}:{}:{domain}{in_vrf}", transport.name(), address.to_string().to_ascii_lowercase()))
    }

    fn hosts(&self) -> Vec<&str> {
        vec![&self.address.host]
    }

    fn translates(&self) -> bool {
        true
    }
}

/// Reads the settings of this sink.
pub(super) fn ipfix(s: &mut Section<'_>) -> Option<Ipfix> {
    let transports = [Transport::Udp, Transport::Tcp].map(|one| (one.name(), one));
    let transport = s.get("transport", Transport::default(), |f| f.choice(&transports));
    let timeout = s.get("timeout", Ipfix::TIMEOUT, |f| f.duration(TIMEOUT));
    let view = s.get("view", Standard::Flows.name().to_owned(), |f| f.text().map(str::to_owned));
    let domain = s.get("domain", 1, |f| f.count(DOMAIN).and_then(|domain| domain.try_into().ok()));
    let address =
        s.require("address", "the collector, such as collector:4739", |f| address(&f, PORT, "collector:4739"))?;
    let vrf = s.get("vrf", None, |f| interface_name(&f).map(Some));
    Some(Ipfix { address, transport, timeout, view, domain, vrf })
}

/// Reads a name or an address, with or without a port.
pub(super) fn address(field: &Field<'_>, default_port: u16, example: &str) -> Option<Address> {
    let text = field.text()?;
    let (host, port) = if let Ok(address) = text.parse::<IpAddr>() {
        (address.to_string(), Some(default_port))
    } else {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)),
            None => (text, Some(default_port)),
        };
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => (inner.to_owned(), port),
            None if is_host_name(host) => (host.to_owned(), port),
            _ => (String::new(), None),
        }
    };
    let Some(port) = port else {
        field.refuse(format!(
            "{:?} is not a host with a port, such as {example} or [2001:db8::1]:{default_port}",
            short(text)
        ));
        return None;
    };
    Some(Address { host, port })
}

fn is_host_name(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

pub(super) fn write_address<S: Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}
