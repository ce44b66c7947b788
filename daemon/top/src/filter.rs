//! The user's filter: `host:192.0.2.7 port:443 net:10.0.0.0/8 proto:udp`, or a part of the text of a row.

use std::net::IpAddr;

use weir_config::names::{prefix::Prefix, services::service_name};

use crate::key::Key;

/// The words before a colon.
pub const WORDS: &str = "host: port: net: proto:";

/// Conditions. A row passes if all of them hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Host(IpAddr),
    Net(Prefix),
    Port(Port),
    Proto(String),
    /// A part of the row's text, in lower case.
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Port {
    Number(u16),
    /// The name of a service, as the rows show it.
    Name(String),
}

impl Port {
    /// A number, or a name that any port has.
    fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Some(Self::Number(number));
        }
        let is_name = |port| service_name(None, port).is_some_and(|name| name.eq_ignore_ascii_case(text));
        (0..=u16::MAX).any(is_name).then(|| Self::Name(text.to_owned()))
    }
}

impl Filter {
    /// Parses conditions, separated by blanks.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split_whitespace().map(Condition::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if all rows pass.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a row with this key and text passes.
    pub fn passes(&self, key: &Key, shown: &str) -> bool {
        self.0.iter().all(|condition| condition.holds(key, shown))
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Self, String> {
        // An IPv6 address also has colons. `weir ask` has `=`.
        let split = text.split_once([':', '=']).filter(|(word, _)| word.chars().all(char::is_alphabetic));
        let Some((word, value)) = split else { return Ok(Self::Text(text.to_lowercase())) };
        let not = |what: &str| match value {
            "" => format!("{word}: has no value: write {what}"),
            _ => format!("{value:?} is not {what}"),
        };
        match word {
            "host" => value.parse().map(Self::Host).map_err(|_| not("an address, such as 192.0.2.7")),
            "net" => value.parse().map(Self::Net).map_err(|_| not("a network, such as 10.0.0.0/8")),
            "port" => Port::parse(value).map(Self::Port).ok_or_else(|| not("a port, such as 443 or https")),
            "proto" if value.is_empty() => Err(not("a protocol, such as udp")),
            "proto" => Ok(Self::Proto(value.to_lowercase())),
            // A part of an IPv6 address.
            word if word.chars().all(|letter| letter.is_ascii_hexdigit()) => Ok(Self::Text(text.to_lowercase())),
            _ => Err(format!("{word:?} is not one of {WORDS}")),
        }
    }

    fn holds(&self, key: &Key, shown: &str) -> bool {
        match self {
            Self::Host(host) => key.networks().any(|network| network.contains(*host)),
            Self::Net(net) => key.networks().any(|one| net.contains(one.first()) && net.contains(one.last())),
            Self::Port(Port::Number(port)) => key.ports().any(|one| one == *port),
            Self::Port(Port::Name(name)) => {
                key.ports().any(|port| service_name(key.proto(), port).is_some_and(|of| of.eq_ignore_ascii_case(name)))
            }
            Self::Proto(proto) => key.proto() == Some(proto),
            Self::Text(text) => shown.to_lowercase().contains(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_conditions_have_to_hold_each_by_its_meaning() {
        let key = Key::new([
            ("src_ip", "192.0.2.7".to_owned()),
            ("dst_ip", "2001:db8::1".to_owned()),
            ("src_port", "51000".to_owned()),
            ("dst_port", "443".to_owned()),
            ("proto", "tcp".to_owned()),
        ]);
        let network = Key::new([("prefix", "192.0.2.0/24".to_owned())]);
        for (text, of_flow, of_network) in [
            ("", true, true),
            ("host:192.0.2.7", true, true),
            ("host:192.0.2.70", false, true),
            ("net:192.0.0.0/16", true, true),
            ("net:192.0.2.0/28", true, false),
            ("net:2001:db8::/32 proto:TCP", true, false),
            ("port:443 proto:udp", false, false),
            ("port:51000 HTTPS", true, false),
            ("port:https", true, false),
            ("port=HTTPS proto=tcp", true, false),
            ("port:domain", false, false),
            ("host=192.0.2.7", true, true),
            ("db8::", true, false),
            ("2001:db8::1", true, false),
        ] {
            let filter = Filter::parse(text).unwrap();
            let found = [filter.passes(&key, "tcp https 2001:db8::1"), filter.passes(&network, "192.0.2.0/24")];
            assert_eq!(found, [of_flow, of_network], "{text}");
        }
    }

    #[test]
    fn the_error_names_the_wrong_condition() {
        for (text, why) in [
            ("port:99999", "\"99999\" is not a port, such as 443 or https"),
            ("port:nonsense", "\"nonsense\" is not a port, such as 443 or https"),
            ("host:10.9", "\"10.9\" is not an address, such as 192.0.2.7"),
            ("host=", "host: has no value: write an address, such as 192.0.2.7"),
            ("net:10", "\"10\" is not a network, such as 10.0.0.0/8"),
            ("proto:", "proto: has no value: write a protocol, such as udp"),
            ("src:10.0.0.1", "\"src\" is not one of host: port: net: proto:"),
        ] {
            assert_eq!(Filter::parse(text), Err(why.to_owned()));
        }
    }
}
