//! Views of several kinds, and the lists of floods and scans: the questions, and the true answers.

use std::{collections::HashMap, net::IpAddr};

use anyhow::{Context, Result};
use weir_common::ledger::Tally;
use weir_config::{
    Config,
    names::Network,
    view::{Field, Measure, Standard, View, ViewKey},
};
use weir_measure::{
    answer::{Answer, Rows, Table},
    beyond::RankedPrefix,
    by::{By, Kind},
    question::{Question, Structure, Views},
    ranking::Ranking,
};
use weir_tests::{oracle::Oracle, truth::Key};

use crate::judge::holds;

/// The key of a row, defined independently of weir: the address or its network, and the other fields in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    ip: Option<IpAddr>,
    numbers: [u16; 2],
}

/// The value that is counted as distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Ip(IpAddr),
    Port(u16),
    Flow(Key),
}

/// The rows for which a flow counts, and with which item.
enum Counted {
    Sums(fn(&Key) -> Vec<Row>),
    Distinct(fn(&Key) -> Vec<(Row, Item)>),
}

/// A view whose answer is judged.
struct ViewCase {
    name: &'static str,
    /// The view as in the configuration; `None` for a standard view.
    view: &'static str,
    counted: Counted,
}

/// Every kind of view.
const ALL: [ViewCase; 16] = [
    ViewCase {
        name: "protocols",
        view: "{by: [proto, ip_version]}",
        counted: Counted::Sums(|flow| vec![row(None, [flow.proto.into(), flow.src.is_ipv6().into()])]),
    },
    ViewCase {
        name: "source networks",
        view: "{by: [src_ip/24]}",
        counted: Counted::Sums(|flow| vec![row(Some(network(flow.src, 24, 48)), [0; 2])]),
    },
    ViewCase {
        name: "ports of TCP",
        view: "{by: [dst_port], match: {proto: tcp}}",
        counted: Counted::Sums(|flow| only(flow.proto == TCP, row(None, [flow.dst_port, 0]))),
    },
    ViewCase {
        name: "hosts",
        view: "{by: [host], match: {not: {dst_port: 443}}, measure: packets}",
        counted: Counted::Sums(|flow| {
            let hosts = if flow.dst_port == 443 { Vec::new() } else { vec![flow.src, flow.dst] };
            hosts.into_iter().map(|host| row(Some(host), [0; 2])).collect()
        }),
    },
    ViewCase {
        name: "named networks",
        view: "{by: [src_net]}",
        counted: Counted::Sums(|flow| vec![row(None, [named(flow.src), 0])]),
    },
    ViewCase {
        name: "sources of each interface",
        view: "{by: [src_ip], per: interface}",
        counted: Counted::Sums(|flow| vec![row(Some(flow.src), [slot(flow).into(), 0])]),
    },
    ViewCase {
        name: "one sum",
        view: "{match: {dst_port: [80, 400-500], ip_version: 4}}",
        counted: Counted::Sums(|flow| {
            only(matches!(flow.dst_port, 80 | 400..=500) && flow.src.is_ipv4(), Row::default())
        }),
    },
    ViewCase {
        name: "distinct sources",
        view: "{match: {dst_port: [443, 8000-9000]}, measure: {distinct: src_ip}}",
        counted: Counted::Distinct(|flow| {
            only(matches!(flow.dst_port, 443 | 8000..=9000), (Row::default(), Item::Ip(flow.src)))
        }),
    },
    ViewCase {
        name: "distinct flows",
        view: "{match: {proto: udp}, measure: flows}",
        counted: Counted::Distinct(|flow| only(flow.proto == UDP, (Row::default(), Item::Flow(*flow)))),
    },
    ViewCase {
        name: "flows by network",
        view: "{by: [dst_ip/12], measure: flows}",
        counted: Counted::Distinct(|flow| vec![(row(Some(network(flow.dst, 12, 48)), [0; 2]), Item::Flow(*flow))]),
    },
    ViewCase {
        name: "destinations by port",
        view: "{by: [dst_port], measure: {distinct: dst_ip}}",
        counted: Counted::Distinct(|flow| vec![(row(None, [flow.dst_port, 0]), Item::Ip(flow.dst))]),
    },
    ViewCase {
        name: Standard::SourcePrefixes.name(),
        view: "",
        counted: Counted::Sums(|flow| vec![row(Some(network(flow.src, 24, 48)), [0; 2])]),
    },
    ViewCase {
        name: Standard::DestinationPrefixes.name(),
        view: "",
        counted: Counted::Sums(|flow| vec![row(Some(network(flow.dst, 24, 48)), [0; 2])]),
    },
    ViewCase {
        name: Standard::SourcesPerDestination.name(),
        view: "",
        counted: Counted::Distinct(|flow| vec![(row(Some(flow.dst), [0; 2]), Item::Ip(flow.src))]),
    },
    ViewCase {
        name: Standard::DestinationsPerSource.name(),
        view: "",
        counted: Counted::Distinct(|flow| vec![(row(Some(flow.src), [0; 2]), Item::Ip(flow.dst))]),
    },
    ViewCase {
        name: Standard::PortsPerSource.name(),
        view: "",
        counted: Counted::Distinct(|flow| vec![(row(Some(flow.src), [0; 2]), Item::Port(flow.dst_port))]),
    },
];

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The networks with names. One is inside another.
const NETWORKS: [(&str, &str); 3] = [("low", "10.0.0.0/9"), ("quarter", "10.64.0.0/10"), ("six", "2001:db8::/32")];

/// The number of the named network of a source; 0 if there is none.
fn named(src: IpAddr) -> u16 {
    match src {
        IpAddr::V6(_) => 3,
        IpAddr::V4(src) => match src.octets()[1] {
            0..=63 => 1,
            64..=127 => 2,
            128.. => 0,
        },
    }
}

const fn row(ip: Option<IpAddr>, numbers: [u16; 2]) -> Row {
    Row { ip, numbers }
}

fn only<T>(counts: bool, what: T) -> Vec<T> {
    if counts { vec![what] } else { Vec::new() }
}

/// The network of an address, with these lengths for IPv4 and IPv6.
fn network(ip: IpAddr, v4: u32, v6: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() >> (32 - v4) << (32 - v4)).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> (128 - v6) << (128 - v6)).into()),
    }
}

/// The number of interfaces that the traffic comes by.
pub const INTERFACES: u32 = 2;

/// The interface that a flow comes by.
pub fn slot(flow: &Key) -> u8 {
    flow.src.is_ipv6().into()
}

/// The networks of the configuration.
pub fn networks() -> Result<Vec<Network>> {
    let network = |(name, prefix): (&str, &str)| {
        Ok(Network { name: name.to_owned(), prefixes: vec![prefix.parse()?], file: None, own: false })
    };
    NETWORKS.into_iter().map(network).collect()
}

/// The views of the configuration, which has the networks already.
pub fn own(config: &Config) -> Result<Vec<View>> {
    let own = ALL.iter().filter(|asked| !asked.view.is_empty());
    own.map(|asked| config.parse_view(asked.view, "accuracy", asked.name).with_context(|| asked.name)).collect()
}

/// The kind of statement that the rows of a view make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Bytes and packets.
    Sums,
    /// A distinct count.
    Unique,
    /// Distinct counts by key. Their bounds are always those of the stated confidence.
    Spread,
}

/// The true rows of every question.
pub struct Truths(Vec<Truth>);

enum Truth {
    Sums(HashMap<Row, Tally>),
    Distinct(HashMap<Row, u64>),
}

impl Truths {
    /// Adds up what the oracle knows.
    pub fn new(oracle: &Oracle) -> Self {
        let truth = |asked: &ViewCase| match asked.counted {
            Counted::Sums(rows) => Truth::Sums(oracle.grouped(rows)),
            Counted::Distinct(pairs) => Truth::Distinct(oracle.spread(pairs)),
        };
        Self(ALL.iter().map(truth).collect())
    }

    /// Returns for every question its name, its kind of statement, and whether any bound of any of its rows fails. If
    /// nothing was left out, exact structures must be exact, too.
    pub fn judge(
        &self,
        plan: &Views,
        answers: &[Answer],
        is_every_packet: bool,
    ) -> Vec<(&'static str, Statement, bool)> {
        let numbered = plan.questions.iter().zip(answers);
        // User views follow the standard ones, in the order of this list. (One of them may have replaced a standard
        // view.)
        let own = ALL.iter().filter(|asked| !asked.view.is_empty()).count();
        let mut own = numbered.clone().skip(plan.questions.len() - own);
        let judged = ALL.iter().zip(&self.0).map(|(asked, truth)| {
            let found = match asked.view {
                "" => numbered.clone().find(|(question, _)| question.view.name == asked.name),
                _ => own.next(),
            };
            let statement = |question: &Question| match question.structure {
                Structure::Unique { .. } => Statement::Unique,
                Structure::Spread { .. } => Statement::Spread,
                _ => Statement::Sums,
            };
            // A missing question has failed.
            let Some((question, answer)) = found else { return (asked.name, Statement::Sums, true) };
            (asked.name, statement(question), !is_true(question, answer, truth, is_every_packet))
        });
        judged.collect()
    }
}

/// Returns true if every bound of every row holds.
fn is_true(question: &Question, answer: &Answer, truth: &Truth, is_every_packet: bool) -> bool {
    answer.tables.iter().all(|Table { slot, total: _, rows }| match (rows, truth) {
        (Rows::Tallies(ranking), Truth::Sums(sums)) => {
            let is_exact = matches!(question.structure, Structure::Total | Structure::Table { .. });
            let is_complete = !(is_exact && is_every_packet) || is_exactly(question, ranking, sums);
            let rows = ranking.by_bytes.iter().chain(&ranking.by_packets);
            is_complete
                && rows.into_iter().all(|ranked| {
                    let truth = sums.get(&read(&question.by, &ranked.key)).copied().unwrap_or_default();
                    let is_in_its_table = slot.is_none() || question.by.layout.slot(&ranked.key) == *slot;
                    is_in_its_table && holds(ranked.packets, truth.packets) && holds(ranked.bytes, truth.bytes)
                })
        }
        (Rows::Prefixes(ranking), Truth::Sums(sums)) => {
            let mut rows = ranking.by_bytes.iter().chain(&ranking.by_packets);
            rows.all(|RankedPrefix { all, .. }| {
                let truth = sums.get(&read(&question.by, &all.key)).copied().unwrap_or_default();
                holds(all.packets, truth.packets) && holds(all.bytes, truth.bytes)
            })
        }
        (Rows::Distinct(counts), Truth::Distinct(distinct)) => counts
            .iter()
            .all(|(key, counted)| holds(*counted, distinct.get(&read(&question.by, key)).copied().unwrap_or_default())),
        _ => false,
    })
}

/// Returns true if the rows are exactly the largest ones.
fn is_exactly(question: &Question, ranking: &Ranking<ViewKey>, sums: &HashMap<Row, Tally>) -> bool {
    let is_by_packets = question.view.measure == Measure::Packets;
    let value = |tally: &Tally| if is_by_packets { tally.packets } else { tally.bytes };
    let mut largest: Vec<u64> = sums.values().map(value).collect();
    largest.sort_unstable_by_key(|value| std::cmp::Reverse(*value));
    largest.truncate(question.view.top);
    // A sum over nothing also has a row.
    if question.structure == Structure::Total && largest.is_empty() {
        largest.push(0);
    }
    let rows = if is_by_packets { &ranking.by_packets } else { &ranking.by_bytes };
    rows.iter().all(|row| [row.packets, row.bytes].iter().all(|estimate| estimate.lower == estimate.upper))
        && rows.iter().map(|row| if is_by_packets { row.packets.value } else { row.bytes.value }).eq(largest)
}

/// The key of a row of a report.
fn read(by: &By, key: &ViewKey) -> Row {
    let flow = by.flow(key);
    let mut row = Row::default();
    let mut numbers = row.numbers.iter_mut();
    for field in by.layout.fields() {
        match field {
            Field::Ip(..) if by.kind() == Kind::Destination => row.ip = Some(flow.dst_ip()),
            Field::Ip(..) => row.ip = Some(flow.src_ip()),
            field => {
                if let Some(number) = numbers.next() {
                    *number = by.layout.number(key, *field).unwrap_or_default() as u16;
                }
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use weir_tests::truth::Lacks;

    use super::*;

    #[test]
    fn every_view_is_read_and_every_kind_of_structure_is_among_them() -> Result<()> {
        let mut config = Config { networks: networks()?, ..Config::default() };
        config.views = own(&config)?;
        let views = Views::new(&config, INTERFACES as usize)?;
        let has = |wanted: fn(&Structure) -> bool| views.own().any(|(_, question)| wanted(&question.structure));
        assert!(has(|structure| matches!(structure, Structure::Total)));
        assert!(has(|structure| matches!(structure, Structure::Table { .. })));
        assert!(has(|structure| matches!(structure, Structure::HeavyHitters { .. })));
        assert!(has(|structure| matches!(structure, Structure::Unique { .. })));
        assert!(has(|structure| matches!(structure, Structure::Spread { .. })));
        Ok(())
    }

    #[test]
    fn networks_are_cut_and_the_longest_prefix_has_the_name() -> Result<()> {
        assert_eq!(network("10.1.2.3".parse()?, 24, 48), "10.1.2.0".parse::<IpAddr>()?);
        assert_eq!(network("2001:db8:1:2::3".parse()?, 24, 48), "2001:db8:1::".parse::<IpAddr>()?);
        assert_eq!(
            ["10.0.0.1", "10.64.0.1", "10.128.0.1", "2001:db8::1"].map(|ip| ip.parse().map(named)),
            [Ok(1), Ok(2), Ok(0), Ok(3)]
        );
        let flow = Key {
            src: "2001:db8::1".parse()?,
            dst: "2001:db8::2".parse()?,
            src_port: 1,
            dst_port: 2,
            proto: TCP,
            lacks: Lacks::Nothing,
        };
        assert_eq!(slot(&flow), 1);
        Ok(())
    }
}
