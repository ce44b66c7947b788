//! Packet sizes for a terminal.

use weir_common::size::{COARSE_CLASSES, COARSE_EDGES};
use weir_system::numbers::percent;

use super::{
    super::{
        Interface,
        grid::{
            Align::{Left, Right},
            Cell, Grid,
            Tone::Faint,
        },
    },
    words::ratio,
};

/// A line for each interface: the share of its packets in each size class. `None` unless there are several to compare.
pub(super) fn grid(interfaces: &[Interface]) -> Option<Grid> {
    if interfaces.len() < 2 {
        return None;
    }
    let mut grid = Grid::new([Left, Left].into_iter().chain([Right; COARSE_CLASSES]));
    let captions = COARSE_EDGES.map(|edge| format!("≤ {edge}")).into_iter().chain(["larger".to_owned()]);
    let captions = [String::new(), String::new()].into_iter().chain(captions);
    grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    for Interface { name, direction, packet_sizes, .. } in interfaces {
        let all = packet_sizes.iter().fold(0_u64, |all, (_, packets)| all.saturating_add(*packets));
        let shares = packet_sizes.iter().map(|(_, packets)| match packets {
            0 => Cell::new("-", Faint),
            packets => percent(ratio(*packets, all)).into(),
        });
        let names = [name.clone(), direction.clone().unwrap_or_default()].map(Cell::from);
        grid.row(names.into_iter().chain(shares));
    }
    Some(grid)
}
