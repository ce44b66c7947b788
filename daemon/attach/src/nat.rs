//! Finds out whether this machine translates addresses (NAT). This changes the meaning of lists of addresses: weir sees
//! received packets before the kernel translates them, and sent packets after that.
//!
//! It looks for rules: chains of nftables, and tables of iptables-legacy. It cannot detect translation by programs or
//! by cards.

use std::{fmt, io, path::Path};

use weir_system::bounded;

use super::netlink;

/// The address translation in this network namespace, as far as weir can find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nat {
    /// These nftables rules translate addresses.
    Rules(Vec<String>),
    /// There are no such rules.
    None,
    /// Some rules are not visible.
    Unknown(Unknown),
}

/// Why rules are not visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// weir lacks the privilege to ask.
    NotPermitted,
    /// Any other error, with the kernel's error number.
    Failed(Option<i32>),
}

/// Tells if the source address of a sent packet shows that the router itself sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// The source address shows it.
    #[default]
    Tell,
    /// The router translates addresses: forwarded packets may have the router's address as their source.
    Translated,
    /// weir lacks permission to find out.
    Unknown,
}

impl Sources {
    /// Finds out by asking the kernel if it translates addresses.
    pub fn ask() -> Self {
        /// The kernel creates this file in a network namespace once it tracks connections. Without tracking, it
        /// translates nothing.
        const TRACKED: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
        Self::judge(&Nat::ask(), Path::new(TRACKED).exists())
    }

    fn judge(nat: &Nat, is_tracking: bool) -> Self {
        match nat {
            Nat::Rules(_) => Self::Translated,
            Nat::Unknown(_) if is_tracking => Self::Unknown,
            Nat::None | Nat::Unknown(_) => Self::Tell,
        }
    }

    /// The current result, or the earlier one if the current one is unknown: capabilities may have been dropped
    /// meanwhile.
    #[must_use]
    pub fn or_before(self, before: Option<Self>) -> Self {
        if self == Self::Unknown { before.unwrap_or(self) } else { self }
    }
}

/// The files in which the kernel lists the tables of iptables-legacy.
const TABLES: [(&str, &str); 2] =
    [("/proc/net/ip_tables_names", "iptables"), ("/proc/net/ip6_tables_names", "ip6tables")];

impl Nat {
    /// Asks the kernel for the rules that translate addresses.
    pub fn ask() -> Self {
        Self::judge(netlink::nat_chains(), TABLES.map(|(path, program)| (bounded::read_to_string(path), program)))
    }

    fn judge(chains: io::Result<Vec<String>>, tables: [(io::Result<String>, &str); 2]) -> Self {
        let (mut rules, mut unknown) = (Vec::new(), None);
        let mut failed = |error: io::Error| match error.kind() {
            // This kernel has no nftables, or no netfilter.
            _ if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {}
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {}
            io::ErrorKind::PermissionDenied => unknown = Some(Unknown::NotPermitted),
            _ => unknown = unknown.or(Some(Unknown::Failed(error.raw_os_error()))),
        };
        match chains {
            Ok(chains) => rules.extend(chains.iter().map(|chain| format!("nftables chain {chain}"))),
            Err(error) => failed(error),
        }
        for (names, program) in tables {
            match names {
                Ok(names) if names.lines().any(|name| name == "nat") => rules.push(format!("table nat of {program}")),
                Ok(_) => {}
                Err(error) => failed(error),
            }
        }
        match unknown {
            _ if !rules.is_empty() => Self::Rules(rules),
            Some(why) => Self::Unknown(why),
            None => Self::None,
        }
    }
}

/// The note for the reports.
impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(rules) => {
                const SHOWN: usize = 3;
                let shown = rules.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more =
                    if rules.len() > SHOWN { format!(" and {} more", rules.len() - SHOWN) } else { String::new() };
                write!(
                    f,
                    "this machine translates addresses ({shown}{more}). Lists see replies before they are translated back: \
                     the destination of downloads is this machine. For the clients, use views of the interface that is \
                     on their side (NAT in docs/VIEWS.md)"
                )
            }
            Self::None => f.write_str("no rule of nftables or iptables translates addresses"),
            Self::Unknown(Unknown::NotPermitted) => {
                f.write_str("weir is not permitted to list the rules that translate addresses")
            }
            Self::Unknown(Unknown::Failed(Some(number))) => {
                write!(f, "the kernel does not list the rules: {}", io::Error::from_raw_os_error(*number))
            }
            Self::Unknown(Unknown::Failed(None)) => f.write_str("the kernel's list of rules is not understood"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_identify_own_packets_only_without_translation() {
        let unknown = Nat::Unknown(Unknown::NotPermitted);
        for is_tracking in [false, true] {
            assert_eq!(Sources::judge(&Nat::Rules(Vec::new()), is_tracking), Sources::Translated);
            assert_eq!(Sources::judge(&Nat::None, is_tracking), Sources::Tell);
        }
        assert_eq!(Sources::judge(&unknown, true), Sources::Unknown);
        assert_eq!(Sources::judge(&unknown, false), Sources::Tell, "no connections are tracked");
        assert_eq!(Sources::Unknown.or_before(Some(Sources::Tell)), Sources::Tell);
        assert_eq!(Sources::Unknown.or_before(None), Sources::Unknown);
        assert_eq!(Sources::Translated.or_before(Some(Sources::Tell)), Sources::Translated);
    }

    #[test]
    fn visible_rules_count_and_invisible_ones_are_unknown() {
        let refused = || Err::<String, _>(io::ErrorKind::PermissionDenied.into());
        let absent = || Err::<String, _>(io::ErrorKind::NotFound.into());
        let judge = |chains: io::Result<Vec<String>>, v4: io::Result<String>| {
            Nat::judge(chains, [(v4, "iptables"), (absent(), "ip6tables")])
        };
        assert_eq!(judge(Ok(Vec::new()), absent()), Nat::None);
        assert_eq!(judge(Ok(Vec::new()), Ok("filter\nmangle\nraw\n".to_owned())), Nat::None);
        let table = judge(Ok(Vec::new()), Ok("filter\nnat\n".to_owned()));
        assert_eq!(table, Nat::Rules(vec!["table nat of iptables".to_owned()]));
        let chain = vec!["ip nat postrouting".to_owned()];
        let both = judge(Ok(chain), refused()).to_string();
        assert!(both.contains("(nftables chain ip nat postrouting). Lists see replies"), "{both}");
        assert_eq!(judge(refused().map(|_| Vec::new()), absent()), Nat::Unknown(Unknown::NotPermitted));
        assert_eq!(judge(Ok(Vec::new()), refused()), Nat::Unknown(Unknown::NotPermitted));
        assert_eq!(judge(Err(io::Error::from_raw_os_error(95)), absent()), Nat::None, "a kernel without nftables");
        assert_eq!(judge(Err(io::Error::from_raw_os_error(93)), absent()), Nat::None, "a kernel without netfilter");
        assert_eq!(judge(Err(io::Error::from_raw_os_error(12)), absent()), Nat::Unknown(Unknown::Failed(Some(12))));
        let many = Nat::Rules((0..5).map(|nth| format!("r{nth}")).collect()).to_string();
        assert!(many.contains("(r0, r1, r2 and 2 more)"), "{many}");
    }
}
