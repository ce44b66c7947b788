//! The names of all numbers that rules may be about. They are those of the report.

use weir_common::ledger::{Loss, Skip};

use super::{
    number::Number,
    subject::{Account, Amount, Read, Subject, busiest, by_protocol, normalized, total_bytes},
    unit::Dimension,
};
use crate::view::{Measure, Standard, View};

/// A share that is at most 1.
const PART: Dimension = Dimension::Share { may_exceed: false };

/// All names that a rule may use.
#[derive(Debug, Default)]
pub struct Catalogue(Vec<Named>);

/// Numbers, and all names that they have.
#[derive(Debug)]
struct Named {
    names: Vec<String>,
    subject: Subject,
}

impl Catalogue {
    /// The names where these are the standard views in force and the user's views. If two have the same name, it is that
    /// of the user's view; the other one has a longer name.
    pub fn new(standard: impl IntoIterator<Item = Standard>, own: &[View]) -> Self {
        let mut all = Self::default();
        own.iter().for_each(|view| all.add_view(view, None));
        for standard in standard {
            all.add_standard(standard);
        }
        all.add_sums();
        all.add_interfaces();
        all.add_self();
        all
    }

    /// The names of these standard views alone.
    pub fn of_standard(standard: impl IntoIterator<Item = Standard>) -> Self {
        let mut all = Self::default();
        standard.into_iter().for_each(|standard| all.add_standard(standard));
        all
    }

    /// What has this name.
    pub fn find(&self, name: &str) -> Option<&Subject> {
        self.0.iter().find(|named| named.names.iter().any(|known| known == name)).map(|named| &named.subject)
    }

    /// All names, with other spellings.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|named| named.names.iter().map(String::as_str))
    }

    /// The first name of each.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|named| named.subject.name.as_str())
    }

    /// Numbers that a report has once.
    fn add(&mut self, names: &[&str], dimension: Dimension, read: Read) -> Option<&mut Subject> {
        self.insert(names.iter().map(|name| (*name).to_owned()).collect(), dimension, read)
    }

    /// Under those names that are not taken.
    fn insert(&mut self, names: Vec<String>, dimension: Dimension, read: Read) -> Option<&mut Subject> {
        let names: Vec<_> = names.into_iter().filter(|name| self.find(name).is_none()).collect();
        let name = names.first()?.clone();
        let subject = Subject { name, dimension, is_listed: false, is_per_interface: false, standard: None, read };
        self.0.push(Named { names, subject });
        self.0.last_mut().map(|named| &mut named.subject)
    }

    fn add_view(&mut self, view: &View, standard: Option<Standard>) {
        let View { name: view_name, by, measure, per_interface, has_entropy, .. } = view;
        let is_one = by.is_empty() && !per_interface;
        let names = |what: &str| vec![format!("{view_name}.{what}"), format!("views.{view_name}.{what}")];
        let mut put = |names: Vec<String>, dimension, is_listed, read| {
            if let Some(subject) = self.insert(names, dimension, read) {
                (subject.is_listed, subject.is_per_interface, subject.standard) = (is_listed, *per_interface, standard);
            }
        };
        let counted = match measure {
            Measure::Bytes | Measure::Packets => {
                for amount in Amount::ALL {
                    let (name, dimension) = (amount.name(), amount.dimension());
                    let total = Read::Total(view_name.clone(), amount);
                    let total_names = names(&format!("total.{name}"));
                    // All that a view without a key has is its total, which is there in every window.
                    if is_one {
                        put([names(name), total_names].concat(), dimension, false, total);
                        continue;
                    }
                    let rows: Read = match amount {
                        Amount::Packets => Read::Rows(view_name.clone(), |row| row.packets),
                        Amount::Bytes => Read::Rows(view_name.clone(), |row| row.bytes),
                    };
                    put(names(name), dimension, true, rows);
                    // An interface without packets has no table.
                    put(total_names, dimension, *per_interface, total);
                }
                None
            }
            Measure::Flows => Some(("flows", Dimension::Count, Read::Rows(view_name.clone(), |row| row.flows))),
            Measure::NewFlows => {
                Some(("new_flows", Dimension::Flows, Read::Rows(view_name.clone(), |row| row.new_flows)))
            }
            Measure::Distinct(_) => {
                Some(("distinct", Dimension::Count, Read::Rows(view_name.clone(), |row| row.distinct)))
            }
        };
        if let Some((name, dimension, read)) = counted {
            let short = [view_name.clone(), format!("views.{view_name}")];
            put(names(name).into_iter().chain(short).collect(), dimension, !is_one, read);
        }
        if *has_entropy {
            let mut entropy = |what: &str, dimension, read| {
                put(names(&format!("entropy.{what}")), dimension, false, Read::Entropy(view_name.clone(), read));
            };
            entropy("bits", Dimension::Number, |entropy| entropy.bits.into());
            entropy("normalized", PART, normalized);
            entropy("keys", Dimension::Count, |entropy| entropy.keys.into());
        }
    }

    fn add_standard(&mut self, standard: Standard) {
        let name = standard.name();
        let view = standard.view(0.0, 0);
        if standard.is_per_interface() {
            self.add_view(&view, Some(standard));
            return;
        }
        let mut put = |names: Vec<String>, dimension, read| {
            if let Some(subject) = self.insert(names, dimension, read) {
                (subject.is_listed, subject.standard) = (true, Some(standard));
            }
        };
        if !view.measure.is_tally() {
            let names =
                ["distinct", ""].map(|what| if what.is_empty() { name.to_owned() } else { format!("{name}.{what}") });
            let spellings = names.clone().map(|name| format!("spread.{name}"));
            put(names.into_iter().chain(spellings).collect(), Dimension::Count, Read::Spread(standard));
            return;
        }
        for amount in Amount::ALL {
            let by = amount.name();
            let names = |what: &str| -> Vec<String> {
                let short = format!("{name}.{what}");
                let long = ["top.", "top_"].map(|top| format!("{top}{short}"));
                // Which list it is follows from what is counted.
                let other = (amount == Amount::Packets).then(|| format!("top_by_packets.{short}"));
                [short].into_iter().chain(long).chain(other).collect()
            };
            put(names(by), amount.dimension(), Read::Top(standard, amount));
            if standard.of_addresses().is_some() {
                put(names(&format!("beyond.{by}")), amount.dimension(), Read::Beyond(standard, amount));
            }
        }
    }

    fn add_sums(&mut self) {
        use Dimension::{Bytes, Count, Flows, Packets};
        self.add(&["totals.packets", "packets"], Packets, Read::One(|r| Number::count(r.totals.packets)));
        self.add(&["totals.bytes", "bytes"], Bytes, Read::One(total_bytes));
        let by_protocol: [(&[&str], _); 6] = [
            (&["totals.ipv4_packets"], Read::One(|r| by_protocol(r, r.totals.ipv4_packets))),
            (&["totals.ipv6_packets"], Read::One(|r| by_protocol(r, r.totals.ipv6_packets))),
            (&["totals.tcp_packets"], Read::One(|r| by_protocol(r, r.totals.tcp_packets))),
            (&["totals.udp_packets"], Read::One(|r| by_protocol(r, r.totals.udp_packets))),
            (&["totals.icmp_packets"], Read::One(|r| by_protocol(r, r.totals.icmp_packets))),
            (&["totals.other_packets"], Read::One(|r| by_protocol(r, r.totals.other_packets))),
        ];
        for (names, read) in by_protocol {
            self.add(names, Packets, read);
        }
        self.add(&["unique.src_ip", "unique.src_ip.value"], Count, Read::One(|r| r.unique.src_ip.into()));
        self.add(&["unique.dst_ip", "unique.dst_ip.value"], Count, Read::One(|r| r.unique.dst_ip.into()));
        self.add(&["unique.flows", "unique.flows.value"], Count, Read::One(|r| r.unique.flows.into()));
        self.add(&["new_flows", "new_flows.value"], Flows, Read::One(|r| r.new_flows.into()));
        self.add(&["new_flows.fill"], PART, Read::One(|r| Number::exact(r.new_flows.fill)));
    }

    fn add_interfaces(&mut self) {
        let mut put = |names: &[&str], dimension, read| {
            if let Some(subject) = self.add(names, dimension, read) {
                subject.is_per_interface = true;
            }
        };
        let skipped = [None].into_iter().chain(Skip::ALL.iter().map(|reason| Some(reason.name())));
        let lost = [None].into_iter().chain(Loss::ALL.iter().map(|reason| Some(reason.name())));
        let accounts = [Account::Seen, Account::Attributed, Account::SampledOut, Account::Repeated];
        let accounts = accounts.into_iter().chain(skipped.map(Account::Skipped)).chain(lost.map(Account::Lost));
        for account in accounts {
            let of = |what: &str, reason: Option<&str>| reason.map_or(what.to_owned(), |why| format!("{what}.{why}"));
            let name = match account {
                Account::Seen => "seen".to_owned(),
                Account::Attributed => "attributed".to_owned(),
                Account::SampledOut => "sampled_out".to_owned(),
                Account::Repeated => "repeated".to_owned(),
                Account::Skipped(reason) => of("skipped", reason),
                Account::Lost(reason) => of("lost", reason),
            };
            let place = if account == Account::Repeated { "interfaces" } else { "interfaces.ledger" };
            for amount in Amount::ALL {
                let full = format!("{name}.{}", amount.name());
                // Without an amount it is packets.
                let short = (amount == Amount::Packets).then(|| name.clone());
                let long = [format!("ledger.{full}"), format!("{place}.{full}")];
                let names: Vec<_> = [full].into_iter().chain(short).chain(long).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                put(&names, amount.dimension(), Read::Ledger(account, amount));
            }
        }
        let packets = Dimension::Packets;
        put(
            &["tcp.syn", "interfaces.tcp.syn"],
            packets,
            Read::Interface(|one| Some((one.tcp.syn, one.tcp.bounds.map(|bounds| bounds.syn)).into())),
        );
        put(
            &["tcp.syn_ack", "interfaces.tcp.syn_ack"],
            packets,
            Read::Interface(|one| Some((one.tcp.syn_ack, one.tcp.bounds.map(|bounds| bounds.syn_ack)).into())),
        );
        put(
            &["tcp.rst", "interfaces.tcp.rst"],
            packets,
            Read::Interface(|one| Some((one.tcp.rst, one.tcp.bounds.map(|bounds| bounds.rst)).into())),
        );
        put(
            &["tcp.fin", "interfaces.tcp.fin"],
            packets,
            Read::Interface(|one| Some((one.tcp.fin, one.tcp.bounds.map(|bounds| bounds.fin)).into())),
        );
        let coverage = Dimension::Share { may_exceed: true };
        put(&["coverage", "interfaces.coverage"], coverage, Read::Interface(|one| one.coverage.map(Number::exact)));
        put(&["kept", "interfaces.kept"], PART, Read::Interface(|one| Some(Number::exact(one.kept))));
        put(
            &["sampling", "interfaces.sampling"],
            Dimension::Number,
            Read::Interface(|one| Some(Number::exact(f64::from(one.sampling)))),
        );
        let busiest_second: [(&[&str], _, _); 2] = [
            (
                &["rates.packets.max", "rates.packets"],
                Dimension::PacketsOfSecond,
                Read::Rates(|rates| busiest(rates, rates.packets.max)),
            ),
            (
                &["rates.bytes.max", "rates.bytes"],
                Dimension::BytesOfSecond,
                Read::Rates(|rates| busiest(rates, rates.bytes.max)),
            ),
        ];
        for (names, dimension, read) in busiest_second {
            put(names, dimension, read);
        }
    }

    fn add_self(&mut self) {
        self.add(&["self.rings.peak_fill"], PART, Read::One(|r| Number::exact(r.self_metrics.rings.peak_fill)));
        self.add(&["self.cache_hit_rate"], PART, Read::One(|r| Number::exact(r.self_metrics.cache_hit_rate)));
        self.add(
            &["self.cpu_ns_per_packet"],
            Dimension::Number,
            Read::One(|r| Number::exact(r.self_metrics.cpu_ns_per_packet)),
        );
        self.add(&["self.rss_bytes"], Dimension::Number, Read::One(|r| Number::count(r.self_metrics.rss_bytes)));
    }
}
