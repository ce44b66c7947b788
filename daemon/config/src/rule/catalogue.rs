//! The names of all numbers that rules can use. They are the names in the report.

use weir_common::ledger::{Loss, Skip};

use super::{
    subject::{Account, Amount, Column, Flag, OfEntropy, OfInterface, Place, Subject, Sum},
    unit::Dimension,
};
use crate::view::{Measure, Standard, View};

/// A share that is at most 1.
const PART: Dimension = Dimension::Share { may_exceed: false };

/// All names that a rule may use.
#[derive(Debug, Default)]
pub struct Catalogue(Vec<Named>);

/// A subject with all of its names.
#[derive(Debug)]
struct Named {
    names: Vec<String>,
    subject: Subject,
}

impl Catalogue {
    /// The names for these standard views and the user's views. If both have a view of the same name, the user's view
    /// gets it, and the standard view has a longer name.
    pub fn new(standard: impl IntoIterator<Item = Standard>, own: &[View]) -> Self {
        let mut all = Self::default();
        for view in own {
            all.add_view(view, None);
        }
        for standard in standard {
            all.add_standard(standard);
        }
        all.add_sums();
        all.add_interfaces();
        all.add_self();
        all
    }

    /// The names for these standard views alone.
    pub fn of_standard(standard: impl IntoIterator<Item = Standard>) -> Self {
        let mut all = Self::default();
        for standard in standard {
            all.add_standard(standard);
        }
        all
    }

    /// The subject with this name.
    pub fn find(&self, name: &str) -> Option<&Subject> {
        self.0.iter().find(|named| named.names.iter().any(|known| known == name)).map(|named| &named.subject)
    }

    /// All names, including other spellings.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|named| named.names.iter().map(String::as_str))
    }

    /// The first name of each subject.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|named| named.subject.name.as_str())
    }

    /// Adds numbers that a report has once.
    fn add(&mut self, names: &[&str], dimension: Dimension, place: Place) -> Option<&mut Subject> {
        self.insert(names.iter().map(|name| (*name).to_owned()).collect(), dimension, place)
    }

    /// Adds a subject under those of the names that are not taken.
    fn insert(&mut self, names: Vec<String>, dimension: Dimension, place: Place) -> Option<&mut Subject> {
        let names: Vec<_> = names.into_iter().filter(|name| self.find(name).is_none()).collect();
        let name = names.first()?.clone();
        let subject = Subject { name, dimension, is_listed: false, is_per_interface: false, standard: None, place };
        self.0.push(Named { names, subject });
        self.0.last_mut().map(|named| &mut named.subject)
    }

    fn add_view(&mut self, view: &View, standard: Option<Standard>) {
        let View { name: view_name, by, measure, per_interface, has_entropy, .. } = view;
        let is_one = by.is_empty() && !per_interface;
        let names = |what: &str| vec![format!("{view_name}.{what}"), format!("views.{view_name}.{what}")];
        let mut put = |names: Vec<String>, dimension, is_listed, place| {
            if let Some(subject) = self.insert(names, dimension, place) {
                (subject.is_listed, subject.is_per_interface, subject.standard) = (is_listed, *per_interface, standard);
            }
        };
        let rows = |column| Place::Rows(view_name.clone(), column);
        let counted = match measure {
            Measure::Bytes | Measure::Packets => {
                for amount in Amount::ALL {
                    let (name, dimension) = (amount.name(), amount.dimension());
                    let total = Place::Total(view_name.clone(), amount);
                    let total_names = names(&format!("total.{name}"));
                    // A view without a key only has its total, which is in every window.
                    if is_one {
                        put([names(name), total_names].concat(), dimension, false, total);
                        continue;
                    }
                    put(names(name), dimension, true, rows(Column::Amount(amount)));
                    // An interface without packets has no table.
                    put(total_names, dimension, *per_interface, total);
                }
                None
            }
            Measure::Flows => Some(("flows", Dimension::Count, rows(Column::Flows))),
            Measure::NewFlows => Some(("new_flows", Dimension::Flows, rows(Column::NewFlows))),
            Measure::Distinct(_) => Some(("distinct", Dimension::Count, rows(Column::Distinct))),
        };
        if let Some((name, dimension, place)) = counted {
            let short = [view_name.clone(), format!("views.{view_name}")];
            put(names(name).into_iter().chain(short).collect(), dimension, !is_one, place);
        }
        if *has_entropy {
            let mut entropy = |what: &str, dimension, of| {
                put(names(&format!("entropy.{what}")), dimension, false, Place::Entropy(view_name.clone(), of));
            };
            entropy("bits", Dimension::Number, OfEntropy::Bits);
            entropy("normalized", PART, OfEntropy::Normalized);
            entropy("keys", Dimension::Count, OfEntropy::Keys);
        }
    }

    fn add_standard(&mut self, standard: Standard) {
        let name = standard.name();
        let view = standard.view(0.0, 0);
        if standard.is_per_interface() {
            self.add_view(&view, Some(standard));
            return;
        }
        let mut put = |names: Vec<String>, dimension, place| {
            if let Some(subject) = self.insert(names, dimension, place) {
                (subject.is_listed, subject.standard) = (true, Some(standard));
            }
        };
        if !view.measure.is_tally() {
            let names =
                ["distinct", ""].map(|what| if what.is_empty() { name.to_owned() } else { format!("{name}.{what}") });
            let spellings = names.clone().map(|name| format!("spread.{name}"));
            put(names.into_iter().chain(spellings).collect(), Dimension::Count, Place::Spread(standard));
            return;
        }
        for amount in Amount::ALL {
            let by = amount.name();
            let names = |what: &str| -> Vec<String> {
                let short = format!("{name}.{what}");
                let long = ["top.", "top_"].map(|top| format!("{top}{short}"));
                // The amount determines which list it is.
                let other = (amount == Amount::Packets).then(|| format!("top_by_packets.{short}"));
                [short].into_iter().chain(long).chain(other).collect()
            };
            put(names(by), amount.dimension(), Place::Top(standard, amount));
            if standard.of_addresses().is_some() {
                put(names(&format!("beyond.{by}")), amount.dimension(), Place::Beyond(standard, amount));
            }
        }
    }

    fn add_sums(&mut self) {
        use Dimension::{Bytes, Count, Flows, Packets};
        for (names, dimension, sum) in [
            (&["totals.packets", "packets"] as &[&str], Packets, Sum::Total(Amount::Packets)),
            (&["totals.bytes", "bytes"], Bytes, Sum::Total(Amount::Bytes)),
            (&["totals.ipv4_packets"], Packets, Sum::Ipv4),
            (&["totals.ipv6_packets"], Packets, Sum::Ipv6),
            (&["totals.tcp_packets"], Packets, Sum::Tcp),
            (&["totals.udp_packets"], Packets, Sum::Udp),
            (&["totals.icmp_packets"], Packets, Sum::Icmp),
            (&["totals.other_packets"], Packets, Sum::Other),
            (&["unique.src_ip", "unique.src_ip.value"], Count, Sum::Sources),
            (&["unique.dst_ip", "unique.dst_ip.value"], Count, Sum::Destinations),
            (&["unique.flows", "unique.flows.value"], Count, Sum::Flows),
            (&["new_flows", "new_flows.value"], Flows, Sum::NewFlows),
            (&["new_flows.fill"], PART, Sum::SeenFill),
        ] {
            self.add(names, dimension, Place::Sum(sum));
        }
    }

    fn add_interfaces(&mut self) {
        let mut put = |names: &[&str], dimension, place| {
            if let Some(subject) = self.add(names, dimension, place) {
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
                // The name without an amount means packets.
                let short = (amount == Amount::Packets).then(|| name.clone());
                let long = [format!("ledger.{full}"), format!("{place}.{full}")];
                let names: Vec<_> = [full].into_iter().chain(short).chain(long).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                put(&names, amount.dimension(), Place::Interface(OfInterface::Ledger(account, amount)));
            }
        }
        for (names, dimension, of) in [
            (["tcp.syn", "interfaces.tcp.syn"], Dimension::Packets, OfInterface::Tcp(Flag::Syn)),
            (["tcp.syn_ack", "interfaces.tcp.syn_ack"], Dimension::Packets, OfInterface::Tcp(Flag::SynAck)),
            (["tcp.rst", "interfaces.tcp.rst"], Dimension::Packets, OfInterface::Tcp(Flag::Rst)),
            (["tcp.fin", "interfaces.tcp.fin"], Dimension::Packets, OfInterface::Tcp(Flag::Fin)),
            (["coverage", "interfaces.coverage"], Dimension::Share { may_exceed: true }, OfInterface::Coverage),
            (["blind_seconds", "interfaces.blind_seconds"], Dimension::Number, OfInterface::BlindSeconds),
            (["kept", "interfaces.kept"], PART, OfInterface::Kept),
            (["sampling", "interfaces.sampling"], Dimension::Number, OfInterface::Sampling),
        ] {
            put(&names, dimension, Place::Interface(of));
        }
        for (names, dimension, amount) in [
            (["rates.packets.max", "rates.packets"], Dimension::PacketsOfSecond, Amount::Packets),
            (["rates.bytes.max", "rates.bytes"], Dimension::BytesOfSecond, Amount::Bytes),
        ] {
            put(&names, dimension, Place::BusiestSecond(amount));
        }
    }

    fn add_self(&mut self) {
        for (name, dimension, sum) in [
            ("self.rings.peak_fill", PART, Sum::RingFill),
            ("self.cache_hit_rate", PART, Sum::CacheHitRate),
            ("self.cpu_ns_per_packet", Dimension::Number, Sum::CpuPerPacket),
            ("self.rss_bytes", Dimension::Number, Sum::ResidentBytes),
        ] {
            self.add(&[name], dimension, Place::Sum(sum));
        }
    }
}
