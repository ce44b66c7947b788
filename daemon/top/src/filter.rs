//! The user's filter: `host:192.0.2.7 port:443 net:10.0.0.0/8 proto:udp`, or a part of the text of a row.

use std::net::IpAddr;

use weir_config::names::prefix::Prefix;

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
    Port(u16),
    Proto(String),
    /// A part of the row's text, in lower case.
    Text(String),
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

    /// Whether all rows pass.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a row with this key and text passes.
    pub fn passes(&self, key: &Key, shown: &str) -> bool {
        self.0.iter().all(|condition| condition.holds(key, shown))
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Self, String> {
        // An IPv6 address also has colons.
        let Some((word, value)) = text.split_once(':').filter(|(word, _)| word.chars().all(char::is_alphabetic)) else {
            return Ok(Self::Text(text.to_lowercase()));
        };
        match word {
            "host" => value
                .parse()
                .map(Self::Host)
                .map_err(|_| format!("{value:?} is no address: write all of it, or {value} alone")),
            "net" => value.parse().map(Self::Net).map_err(|_| format!("{value:?} is no network, such as 10.0.0.0/8")),
            "port" => value
                .parse()
                .map(Self::Port)
                .map_err(|_| format!("{value:?} is no port: write its number, or {value} alone")),
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
            Self::Port(port) => key.ports().any(|one| one == *port),
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
            ("port:https", "\"https\" is no port: write its number, or https alone"),
            ("host:10.9", "\"10.9\" is no address: write all of it, or 10.9 alone"),
            ("net:10", "\"10\" is no network, such as 10.0.0.0/8"),
            ("src:10.0.0.1", "\"src\" is not one of host: port: net: proto:"),
        ] {
            assert_eq!(Filter::parse(text), Err(why.to_owned()));
        }
    }
}
