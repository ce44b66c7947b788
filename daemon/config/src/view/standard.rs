//! The standard views: those that every report has unless they are switched off.

use serde::{Serialize, Serializer};

use super::{FLOW, Field, Lengths, Measure, Side, View};

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

impl Standard {
    /// All standard views, in the order of the report.
    pub const ALL: [Self; 14] = [
        Self::Flows,
        Self::Sources,
        Self::Destinations,
        Self::Pairs,
        Self::Services,
        Self::SourcePrefixes,
        Self::DestinationPrefixes,
        Self::SourcesPerDestination,
        Self::DestinationsPerSource,
        Self::PortsPerSource,
        Self::IpVersions,
        Self::Protocols,
        Self::Dscp,
        Self::Talkers,
    ];

    /// Returns the name in the configuration and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Sources => "sources",
            Self::Destinations => "destinations",
            Self::Pairs => "pairs",
            Self::Services => "services",
            Self::SourcePrefixes => "source_prefixes",
            Self::DestinationPrefixes => "destination_prefixes",
            Self::SourcesPerDestination => "sources_per_destination",
            Self::DestinationsPerSource => "destinations_per_source",
            Self::PortsPerSource => "ports_per_source",
            Self::IpVersions => "ip_versions",
            Self::Protocols => "protocols",
            Self::Dscp => "dscp",
            Self::Talkers => "talkers",
        }
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
        matches!(self, Self::IpVersions | Self::Protocols | Self::Dscp | Self::Talkers)
    }

    /// The view, with this error for bytes and packets, and with lists of this many rows.
    pub fn view(self, error: f64, top: usize) -> View {
        let [src, dst, _, dst_port, _] = FLOW;
        let (by, measure) = match self {
            Self::Flows => (FLOW.to_vec(), Measure::Bytes),
            Self::Sources => (vec![src], Measure::Bytes),
            Self::Destinations => (vec![dst], Measure::Bytes),
            Self::Pairs | Self::Talkers => (vec![src, dst], Measure::Bytes),
            Self::Services => (vec![Field::Proto, Field::Port], Measure::Bytes),
            Self::SourcePrefixes => (vec![Field::Ip(Side::Src, Lengths::PREFIX)], Measure::Bytes),
            Self::DestinationPrefixes => (vec![Field::Ip(Side::Dst, Lengths::PREFIX)], Measure::Bytes),
            Self::SourcesPerDestination => (vec![dst], Measure::Distinct(vec![src])),
            Self::DestinationsPerSource => (vec![src], Measure::Distinct(vec![dst])),
            Self::PortsPerSource => (vec![src], Measure::Distinct(vec![dst_port])),
            Self::IpVersions => (vec![Field::IpVersion], Measure::Bytes),
            Self::Protocols => (vec![Field::Proto], Measure::Bytes),
            Self::Dscp => (vec![Field::Dscp], Measure::Bytes),
        };
        let per_interface = self.is_per_interface();
        let follows_top_error = measure.is_tally();
        let (error, top) = match self {
            Self::Talkers => (TALKERS_WIDER * error, top.min(TALKERS_MAX)),
            _ if follows_top_error => (error, top),
            _ => (DISTINCT_ERROR, top),
        };
        View {
            name: self.name().to_owned(),
            conditions: Vec::new(),
            by,
            measure,
            top,
            per_interface,
            error,
            follows_top_error,
            has_entropy: false,
        }
    }
}

impl Serialize for Standard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
