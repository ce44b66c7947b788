//! The rates of interfaces in each second, in a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_system::numbers::scaled;

use super::{
    Histogram,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::Faint,
    },
};

/// The traffic of one interface in each second of the window. It shows bursts that the mean of the window hides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceRates {
    /// The interface's name. For a replay this is the name of the capture.
    pub interface: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The longest time between two readings of the counters, in seconds: 1, unless the daemon was delayed. The rate of
    /// a longer time is its mean, so a short burst within it may have been higher.
    #[schemars(range(min = 0))]
    pub longest_second: f64,
    /// Packets that are in no second, because they came more than a minute after others or have no time. One second may
    /// have had this much more. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<super::Tally>,
    /// Packets per second: the number of seconds, and their distribution. `min` and `max` are exact.
    pub packets: Histogram,
    /// Bytes per second, likewise.
    pub bytes: Histogram,
}

/// A line for each interface: its median second, the 90th percentile, and its busiest second.
pub(super) fn grid(rates: &[InterfaceRates]) -> Grid {
    let mut grid = Grid::new([Left, Left, Right, Right, Right, Right, Right, Right]).with_optional(3);
    let captions = ["", "", "median", "90 %", "max", "median", "90 %", "max"];
    grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    for InterfaceRates { interface, direction, longest_second: _, unplaced: _, packets, bytes } in rates {
        let bits = |bytes: u64| scaled(bytes as f64 * 8.0, "bit/s");
        let each = |packets: u64| scaled(packets as f64, "pkt/s");
        let name = [interface.clone(), direction.clone().unwrap_or_default()];
        let numbers = [
            bits(bytes.p50),
            bits(bytes.p90),
            bits(bytes.max),
            each(packets.p50),
            each(packets.p90),
            each(packets.max),
        ];
        grid.row(name.into_iter().chain(numbers).map(Cell::from));
    }
    grid
}
