//! Distinct counts over horizons, and new hosts.

use jiff::Timestamp;
use weir_system::numbers::percent;

use super::accounts::counted;
use crate::{
    Distinct, Horizon, NewHosts, Unique,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::Faint,
    },
};

/// The most addresses in a line.
const LINE: usize = 4;

pub(super) fn horizons(horizons: &[Horizon]) -> Grid {
    let mut grid = Grid::new([Left, Left, Right, Right, Left, Right]);
    grid.row(["", "", "", "", "between", "confidence"].map(|caption| Cell::new(caption, Faint)));
    for Horizon { name, seconds: _, start, covered_seconds, unique } in horizons {
        let Unique { src_ip, dst_ip, flows } = unique;
        let mut horizon = name.clone();
        for (what, Distinct { value, lower, upper, confidence }) in
            [("source addresses", src_ip), ("destination addresses", dst_ip), ("flows", flows)]
        {
            let [value, error, bounds, sure] = counted([*value, *lower, *upper], *confidence);
            grid.row([std::mem::take(&mut horizon).into(), what.into(), value, error, bounds, sure]);
        }
        let covered = format!("since {}, of which weir has measured {}", time(*start), length(*covered_seconds));
        grid.across([Cell::new(covered, Faint)]);
    }
    grid
}

pub(super) fn new_hosts(new: &NewHosts) -> Grid {
    let NewHosts { value, lower, upper, confidence, false_positive_rate, fill, since, known_seconds, learning, hosts } =
        new;
    let mut grid = Grid::new([Left, Right, Right, Left, Right]);
    grid.row(["", "", "", "between", "confidence"].map(|caption| Cell::new(caption, Faint)));
    let [counted, error, bounds, sure] = counted([*value, *lower, *upper], *confidence);
    grid.row(["new hosts".into(), counted, error, bounds, sure]);
    if *learning {
        grid.across([Cell::from("weir is still learning which hosts there are: known ones count as new")]);
    }
    for line in hosts.chunks(LINE) {
        let line: Vec<_> = line.iter().map(|host| host.src_ip.to_string()).collect();
        grid.across([Cell::from(line.join(" "))]);
    }
    let filter = format!(
        "weir knows hosts since {}, of which it has measured {}; the filter is {} full and misses {} of new ones",
        time(*since),
        length(*known_seconds),
        percent(*fill),
        percent(*false_positive_rate)
    );
    grid.across([Cell::new(filter, Faint)]);
    grid
}

fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A length in the two largest units.
fn length(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let [days, hours, minutes] = [seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60];
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}
