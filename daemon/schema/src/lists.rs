//! The lists of a report, all in one form. This module alone knows which lists there are: another one is a row of
//! [`LISTS`], and of `standard_lists` if it has a type of row of its own.

use std::{borrow::Cow, net::IpAddr};

use serde_json::{Map, Value};
use weir_config::view::Standard;

use crate::{Beyond, HostNumbers, Row, Spread, Sums, Top, TopPrefix};

/// The words in which screens describe a standard list.
#[derive(Clone, Copy, Debug)]
pub struct ListName {
    /// The list that they describe.
    pub list: Standard,
    /// The short name, for tabs on screens.
    pub name: &'static str,
    /// The title of its table.
    pub title: &'static str,
    /// The unit that is counted, if not packets and bytes.
    pub counted: Option<&'static str>,
    /// A sentence that describes the rows.
    pub about: &'static str,
    /// A caveat about its numbers, if a reader needs one.
    pub note: Option<&'static str>,
}

const OF_UNLISTED: &str = "what unlisted hosts have: without those in the lists of hosts";

/// The lists that every report has, in the order of screens.
pub const LISTS: &[ListName] = &[
    ListName {
        list: Standard::Hosts,
        name: "hosts",
        title: "HOSTS",
        counted: None,
        about: "The own addresses with the most traffic, down and up",
        note: None,
    },
    ListName {
        list: Standard::Sources,
        name: "sources",
        title: "SOURCES",
        counted: None,
        about: "The addresses that sent most",
        note: None,
    },
    ListName {
        list: Standard::Destinations,
        name: "destinations",
        title: "DESTINATIONS",
        counted: None,
        about: "The addresses that received most",
        note: None,
    },
    ListName {
        list: Standard::Pairs,
        name: "pairs",
        title: "PAIRS",
        counted: None,
        about: "Who sent most to whom",
        note: None,
    },
    ListName {
        list: Standard::Flows,
        name: "flows",
        title: "FLOWS",
        counted: None,
        about: "The largest single connections, each direction for itself",
        note: None,
    },
    ListName {
        list: Standard::Services,
        name: "services",
        title: "SERVICES",
        counted: None,
        about: "The protocols and ports that were used most",
        note: None,
    },
    ListName {
        list: Standard::SourcePrefixes,
        name: "source nets",
        title: "SOURCE PREFIXES",
        counted: None,
        about: "The networks that sent most, without the traffic of the addresses in sources",
        note: Some(OF_UNLISTED),
    },
    ListName {
        list: Standard::DestinationPrefixes,
        name: "destination nets",
        title: "DESTINATION PREFIXES",
        counted: None,
        about: "The networks that received most, without the traffic of the addresses in destinations",
        note: Some(OF_UNLISTED),
    },
    ListName {
        list: Standard::SourcesPerDestination,
        name: "floods",
        title: "DESTINATIONS WITH MOST SOURCES",
        counted: Some("sources"),
        about: "Destinations by the number of sources that sent to them: far more than usual may be a flood",
        note: Some("destinations with the most sources: busy servers are here, too"),
    },
    ListName {
        list: Standard::DestinationsPerSource,
        name: "scans",
        title: "SOURCES WITH MOST DESTINATIONS",
        counted: Some("destinations"),
        about: "Sources by the number of destinations that they sent to: far more than usual may be a scan",
        note: Some("sources with the most destinations: busy clients are here, too"),
    },
    ListName {
        list: Standard::PortsPerSource,
        name: "ports",
        title: "SOURCES WITH MOST PORTS",
        counted: Some("ports"),
        about: "Sources by the number of ports that they sent to: far more than usual may be a scan of ports",
        note: Some("sources with the most ports of destinations: busy clients are here, too"),
    },
];

/// Returns the words for a list. One that is not in [`LISTS`] has its name in the configuration.
pub fn name_of(list: Standard) -> ListName {
    let unnamed = || ListName { list, name: list.name(), title: list.name(), counted: None, about: "", note: None };
    LISTS.iter().find(|of| of.list == list).copied().unwrap_or_else(unnamed)
}

/// Calls a macro with all lists of [`Top`] that windows and routers can add up: the standard view, the field, the type
/// of its rows, what a row is called, the fields of its key, and a field with more numbers, if the rows have some.
#[macro_export]
macro_rules! standard_lists {
    ($with:ident) => {
        $with! {
            Hosts hosts TopHost "host": host + numbers;
            Flows flows TopFlow "flow": src_ip, dst_ip, src_port, dst_port, proto;
            Sources sources TopSource "source address": src_ip;
            Destinations destinations TopDestination "destination address": dst_ip;
            Pairs pairs TopPair "pair of addresses": src_ip, dst_ip;
            Services services TopService "service": proto, port;
        }
    };
}

/// A list of a report.
#[derive(Clone, Debug)]
pub struct List<'r> {
    /// The standard view that the list answers.
    pub list: Standard,
    /// The most that a key without a row has, in bytes or packets as the rows are ordered, if that is known.
    pub unlisted: Option<u64>,
    /// The rows, the largest first.
    pub rows: Vec<ListRow<'r>>,
}

/// A row of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListRow<'r> {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The key of the row.
    pub key: Key<'r>,
    /// The packets and bytes of the key.
    pub sums: Sums,
    /// The sums that order the row, if the list is not ordered by all traffic of a key.
    pub beyond: Option<Sums>,
    /// More numbers, if the row is one of a host.
    pub host: Option<HostNumbers>,
}

/// The key of a row: those fields that its list has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key<'r> {
    /// The own address of a host.
    pub host: Option<IpAddr>,
    /// The source address.
    pub src_ip: Option<IpAddr>,
    /// The destination address.
    pub dst_ip: Option<IpAddr>,
    /// The source port.
    pub src_port: Option<u16>,
    /// The destination port.
    pub dst_port: Option<u16>,
    /// The IP protocol.
    pub proto: Option<&'r str>,
    /// The port of a service.
    pub port: Option<u16>,
    /// The network, as a prefix.
    pub prefix: Option<&'r str>,
}

impl Key<'_> {
    /// Returns the fields that are set, by name, in the order of the report.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, String)> {
        let Self { host, src_ip, dst_ip, src_port, dst_port, proto, port, prefix } = *self;
        let ip = |ip: IpAddr| ip.to_string();
        let number = |port: u16| port.to_string();
        let fields = [
            ("host", host.map(ip)),
            ("src_ip", src_ip.map(ip)),
            ("dst_ip", dst_ip.map(ip)),
            ("src_port", src_port.map(number)),
            ("dst_port", dst_port.map(number)),
            ("proto", proto.map(str::to_owned)),
            ("port", port.map(number)),
            ("prefix", prefix.map(str::to_owned)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// The fields of a key as a row of a report has them: ports are numbers.
pub fn fields_as_json(fields: &[(&'static str, String)]) -> Map<String, Value> {
    let json = |(name, value): &(&'static str, String)| {
        let port = value.parse::<u16>().ok().filter(|_| name.ends_with("port"));
        ((*name).to_owned(), port.map_or_else(|| Value::from(value.clone()), Value::from))
    };
    fields.iter().map(json).collect()
}

/// A field of a row as [`Key`] has it.
trait InKey {
    type Field<'r>
    where
        Self: 'r;
    fn in_key(&self) -> Self::Field<'_>;
}

impl InKey for IpAddr {
    type Field<'r> = Self;

    fn in_key(&self) -> Self {
        *self
    }
}

impl InKey for u16 {
    type Field<'r> = Self;

    fn in_key(&self) -> Self {
        *self
    }
}

impl InKey for Cow<'static, str> {
    type Field<'r> = &'r str;

    fn in_key(&self) -> &str {
        self
    }
}

macro_rules! in_one_form {
    ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
        /// The fields of the keys of each list that can be added up.
        pub const FIELDS: &[(Standard, &[&str])] = &[$((Standard::$list, &[$(stringify!($field)),*])),*];

        $(impl crate::$row {
            /// The row in the form of all lists.
            pub fn in_list(&self) -> ListRow<'_> {
                let key = Key { $($field: Some(self.$field.in_key()),)* ..Key::default() };
                let sums = Sums { packets: self.packets, bytes: self.bytes };
                let host = None$(.or(Some(self.$more)))?;
                ListRow { rank: self.rank, key, sums, beyond: None, host }
            }
        })*

        impl Top {
            /// Returns all lists in the order of the report.
            pub fn lists(&self) -> Vec<List<'_>> {
                let prefixes = self.prefixes().map(|(list, rows)| {
                    let rows = rows.iter().map(TopPrefix::in_list).collect();
                    List { list, unlisted: None, rows }
                });
                FIELDS.iter().filter_map(|(list, _)| self.list(*list)).chain(prefixes).collect()
            }

            /// One of the lists that can be added up.
            pub fn list(&self, list: Standard) -> Option<List<'_>> {
                match list {
                    $(Standard::$list => Some(List {
                        list,
                        unlisted: self.unlisted.$rows,
                        rows: self.$rows.iter().map(crate::$row::in_list).collect(),
                    }),)*
                    _ => None,
                }
            }
        }
    };
}
standard_lists!(in_one_form);

impl TopPrefix {
    fn in_list(&self) -> ListRow<'_> {
        let Self {
            rank, prefix, packets, bytes, beyond: Beyond { packets: beyond_packets, bytes: beyond_bytes }, ..
        } = self;
        ListRow {
            rank: *rank,
            key: Key { prefix: Some(prefix), ..Key::default() },
            sums: Sums { packets: *packets, bytes: *bytes },
            beyond: Some(Sums { packets: *beyond_packets, bytes: *beyond_bytes }),
            host: None,
        }
    }
}

impl Top {
    /// The lists of networks.
    pub fn prefixes(&self) -> [(Standard, &[TopPrefix]); 2] {
        [(Standard::SourcePrefixes, &self.source_prefixes), (Standard::DestinationPrefixes, &self.destination_prefixes)]
    }
}

impl Spread {
    /// The lists of floods and scans.
    pub fn lists(&self) -> [(Standard, &[Row]); 3] {
        let Self { confidence: _, sources_per_destination, destinations_per_source, ports_per_source } = self;
        [
            (Standard::SourcesPerDestination, sources_per_destination),
            (Standard::DestinationsPerSource, destinations_per_source),
            (Standard::PortsPerSource, ports_per_source),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    #[test]
    fn every_list_of_a_report_has_a_name_and_the_fields_of_its_rows() {
        let report: Report = serde_json::from_str(include_str!("../tests/golden/report.json")).unwrap();
        let lists = report.top.lists();
        let there: Vec<Standard> =
            lists.iter().map(|list| list.list).chain(report.spread.lists().map(|(list, _)| list)).collect();
        assert!(there.iter().all(|list| LISTS.iter().any(|name| name.list == *list)), "{there:?}");
        assert_eq!(there.len(), LISTS.len());
        for List { list, rows, .. } in &lists {
            let in_json = match list {
                Standard::Flows => serde_json::to_value(&report.top.flows[0]),
                Standard::Services => serde_json::to_value(&report.top.services[0]),
                Standard::Pairs => serde_json::to_value(report.top.pairs[0]),
                _ => continue,
            };
            let in_json = in_json.unwrap();
            for (name, value) in rows[0].key.fields() {
                let text = in_json[name].as_str().map_or_else(|| in_json[name].to_string(), str::to_owned);
                assert_eq!(value, text, "{list:?}: {name}");
            }
            let (_, fields) = FIELDS.iter().find(|(of, _)| of == list).unwrap();
            assert!(rows[0].key.fields().map(|(name, _)| name).eq(fields.iter().copied()), "{list:?}");
        }
    }
}
