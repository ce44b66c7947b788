//! The standard views: those that every report has unless they are switched off.

use serde::{Serialize, Serializer};

use super::{FLOW, Field, HOST, Lengths, Measure, Side, View};

/// A view that weir answers without a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// The largest flows.
    Flows,
    /// The sources that send the most.
    Sources,
    /// The destinations that receive the most.
    Destinations,
    /// The largest pairs of source and destination.
    Pairs,
    /// The largest services.
    Services,
    /// The networks of sources that send the most, without the listed sources.
    SourcePrefixes,
    /// The networks of destinations that receive the most, without the listed destinations.
    DestinationPrefixes,
    /// The own addresses with the most traffic in both directions.
    Hosts,
    /// Destinations with many sources, as in floods.
    SourcesPerDestination,
    /// Sources with many destinations, as in scans of a network.
    DestinationsPerSource,
    /// Sources with many destination ports, as in scans of hosts.
    PortsPerSource,
    /// IP versions on each interface.
    IpVersions,
    /// Protocols on each interface.
    Protocols,
    /// Code points on each interface.
    Dscp,
    /// The largest pairs of source and destination on each interface.
    Talkers,
}

/// The most rows of an interface's list of talkers. A report has such a list for each interface.
const TALKERS_MAX: usize = 5;
/// How much wider the bounds of talkers are than those of other lists. With wider bounds, the list uses little memory,
/// which stays in the CPU's nearest cache.
const TALKERS_WIDER: f64 = 20.0;
/// The relative standard error of distinct values by key. Each CPU has three of these lists, so each key with a counter
/// takes only 2 KiB, which count some 800 values exactly.
const DISTINCT_ERROR: f64 = 0.02;

/// What a standard view asks.
struct StandardRow {
    standard: Standard,
    /// The name in the configuration and in reports.
    name: &'static str,
    by: &'static [Field],
    /// The fields whose different values are counted; `None` for packets and bytes.
    distinct: Option<Field>,
    /// True if it has a table for each interface.
    is_per_interface: bool,
    /// True if only own addresses have a row, with the numbers of [`View::of_hosts`].
    of_hosts: bool,
}

/// A row for each standard view, in the order of the report, which is that of [`Standard`].
const ROWS: &[StandardRow] = &[
    StandardRow::of(Standard::Flows, "flows", &FLOW),
    StandardRow::of(Standard::Sources, "sources", &[SRC_IP]),
    StandardRow::of(Standard::Destinations, "destinations", &[DST_IP]),
    StandardRow::of(Standard::Pairs, "pairs", &[SRC_IP, DST_IP]),
    StandardRow::of(Standard::Services, "services", &[Field::Proto, Field::Port]),
    StandardRow::of(Standard::SourcePrefixes, "source_prefixes", &[Field::Ip(Side::Src, Lengths::PREFIX)]),
    StandardRow::of(Standard::DestinationPrefixes, "destination_prefixes", &[Field::Ip(Side::Dst, Lengths::PREFIX)]),
    StandardRow::of(Standard::Hosts, "hosts", &[HOST]).of_hosts(),
    StandardRow::of(Standard::SourcesPerDestination, "sources_per_destination", &[DST_IP]).distinct(SRC_IP),
    StandardRow::of(Standard::DestinationsPerSource, "destinations_per_source", &[SRC_IP]).distinct(DST_IP),
    StandardRow::of(Standard::PortsPerSource, "ports_per_source", &[SRC_IP]).distinct(Field::DstPort),
    StandardRow::of(Standard::IpVersions, "ip_versions", &[Field::IpVersion]).per_interface(),
    StandardRow::of(Standard::Protocols, "protocols", &[Field::Proto]).per_interface(),
    StandardRow::of(Standard::Dscp, "dscp", &[Field::Dscp]).per_interface(),
    StandardRow::of(Standard::Talkers, "talkers", &[SRC_IP, DST_IP]).per_interface(),
];

/// How much wider the bounds of hosts without a row are than those of other lists. An own network seldom has thousands
/// of addresses, and each that is a candidate takes more memory than in other lists.
const HOSTS_WIDER: f64 = 20.0;

const SRC_IP: Field = FLOW[0];
const DST_IP: Field = FLOW[1];

impl StandardRow {
    /// A list of the largest keys by bytes and by packets.
    const fn of(standard: Standard, name: &'static str, by: &'static [Field]) -> Self {
        Self { standard, name, by, distinct: None, is_per_interface: false, of_hosts: false }
    }

    const fn distinct(self, values: Field) -> Self {
        Self { distinct: Some(values), ..self }
    }

    const fn per_interface(self) -> Self {
        Self { is_per_interface: true, ..self }
    }

    const fn of_hosts(self) -> Self {
        Self { of_hosts: true, ..self }
    }
}

impl Standard {
    /// All standard views, in the order of the report.
    pub const ALL: [Self; ROWS.len()] = {
        let mut all = [Self::Flows; ROWS.len()];
        let mut nth = 0;
        while nth < all.len() {
            all[nth] = ROWS[nth].standard;
            nth += 1;
        }
        all
    };

    const fn row(self) -> &'static StandardRow {
        &ROWS[self as usize]
    }

    /// Returns the name in the configuration and in reports.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The standard view of addresses on the same side, if this view is one of prefixes.
    pub const fn of_addresses(self) -> Option<Self> {
        match self {
            Self::SourcePrefixes => Some(Self::Sources),
            Self::DestinationPrefixes => Some(Self::Destinations),
            _ => None,
        }
    }

    /// Returns true if it is redundant when only one interface is measured in only one direction.
    pub const fn is_for_several_interfaces(self) -> bool {
        matches!(self, Self::Talkers)
    }

    /// Returns true if it has a table for each interface. Such tables are among the views of the report; the other
    /// standard views have their own places in the report.
    pub const fn is_per_interface(self) -> bool {
        self.row().is_per_interface
    }

    /// The view, with this error for bytes and packets, and with lists of this many rows.
    pub fn view(self, error: f64, top: usize) -> View {
        let StandardRow { standard: _, name, by, distinct, is_per_interface, of_hosts } = *self.row();
        let measure = distinct.map_or(Measure::Bytes, |values| Measure::Distinct(vec![values]));
        let follows_top_error = measure.is_tally();
        let (error, top) = match self {
            Self::Talkers => (TALKERS_WIDER * error, top.min(TALKERS_MAX)),
            Self::Hosts => (HOSTS_WIDER * error, top),
            _ if follows_top_error => (error, top),
            _ => (DISTINCT_ERROR, top),
        };
        View {
            name: name.to_owned(),
            conditions: Vec::new(),
            by: by.to_vec(),
            measure,
            top,
            per_interface: is_per_interface,
            error,
            follows_top_error,
            has_entropy: false,
            of_hosts,
        }
    }
}

impl Serialize for Standard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_standard_view_has_the_row_at_its_place() {
        assert!(Standard::ALL.iter().all(|standard| standard.row().standard == *standard));
    }
}
