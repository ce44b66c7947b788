//! What each interface has carried by hour, day or month, for a bill or a quota.

use std::{
    io::{self, Write},
    net::IpAddr,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_system::numbers::{bytes, percent, scaled};

use super::{
    Tally,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::{Alarm, Faint, Plain, Strong},
    },
    instant,
};

/// The schema that [`Usage`] serialises to.
pub const USAGE_SCHEMA: &str = "weir.usage/1";

/// The answer to `usage` on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The schema's name and version.
    pub schema: String,
    /// The length of a period: `hour`, `day` or `month`.
    pub by: String,
    /// The day on which a month begins, 1 to 28.
    pub day: u8,
    /// The end of the last window that is included, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub until: Timestamp,
    /// Each interface and direction in each period, the oldest period first. A period of which nothing is known has no
    /// row.
    pub rows: Vec<UsageRow>,
}

/// What an interface has carried in one direction in one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The name of the interface.
    pub interface: String,
    /// `ingress` or `egress`; absent for `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The start of the period, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// Its end, which may be still to come.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// The packets of the time that weir saw.
    pub packets: Amount,
    /// Their bytes on the wire.
    pub bytes: Amount,
    /// Those of these packets that were lost: they are in `packets` and `bytes`, but in no list.
    pub lost: Tally,
    /// How many seconds of the period weir saw the interface.
    pub seen_seconds: f64,
    /// How many seconds of the period so far it did not. What the interface carried then is in no other number here,
    /// apart from the bounds of `p95`.
    pub unseen_seconds: f64,
    /// The 95th percentile of the means of five minutes, in bits per second. Absent if no five minutes are over yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<Amount>,
    /// The busiest second. Absent if the seconds are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest: Option<BusiestSecond>,
}

/// The answer to `usage` about hosts or networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostUsage {
    /// The schema's name and version.
    pub schema: String,
    /// The length of a period: `day` or `month`.
    pub by: String,
    /// The day on which a month begins, 1 to 28.
    pub day: u8,
    /// The end of the last window that is included, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub until: Timestamp,
    /// The periods of which something is known, the oldest first.
    pub periods: Vec<HostPeriod>,
}

/// What hosts or networks have carried in one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostPeriod {
    /// The start of the period, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// Its end, which may be still to come.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// How many seconds of the period weir counted hosts.
    pub seen_seconds: f64,
    /// How many seconds of the period so far it did not. What hosts carried then is in no number here.
    pub unseen_seconds: f64,
    /// The probability that the true numbers of all rows lie between their bounds, 0 to 1; 1 if they always do.
    pub confidence: f64,
    /// The most bytes that a host without a row has. Absent for networks, which all have rows, and if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// The largest, in order of their bytes.
    pub rows: Vec<HostUsageRow>,
}

/// The bytes of one host or network in a period. A packet between two own addresses is in `down` of one and in `up` of
/// the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUsageRow {
    /// The own address. Absent for a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<IpAddr>,
    /// The name of the own network. Absent for a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// What was sent to it.
    pub down: Amount,
    /// What it sent.
    pub up: Amount,
    /// Both together.
    pub bytes: Amount,
}

/// What an interface has carried in the month so far, both directions together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceUsage {
    /// Its name.
    pub interface: String,
    /// When the month began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub since: Timestamp,
    /// The bytes on the wire that weir saw, up to the end of this window. Without an upper bound, weir did not see all
    /// of the month.
    pub bytes: Amount,
}

/// A number with bounds that always hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Amount {
    /// The number as weir counted it.
    pub value: u64,
    /// The true number is at least this.
    pub lower: u64,
    /// The true number is at most this. Absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<u64>,
}

/// The busiest second of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusiestSecond {
    /// When it began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// Its bits.
    pub bits: u64,
}

impl Amount {
    /// Whether the value is the true number.
    pub fn is_exact(&self) -> bool {
        self.lower == self.value && self.upper == Some(self.value)
    }
}

/// The columns of [`Usage::write_csv`].
const CSV: &str = "interface,direction,start,end,packets,packets_lower,packets_upper,bytes,bytes_lower,bytes_upper,\
                   lost_packets,lost_bytes,seen_seconds,unseen_seconds,p95_bits_per_second,p95_lower,p95_upper,\
                   busiest_second,busiest_bits_per_second";

impl Usage {
    /// Writes comma-separated values (RFC 4180), a line for each row, below a line with names.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{CSV}")?;
        let amount = |of: Option<Amount>| of.map_or_else(|| ",,".to_owned(), |of| values(&of));
        for row in &self.rows {
            let UsageRow { interface, direction, start, end, packets, bytes, lost, p95, busiest, .. } = row;
            let (name, direction) = (quoted(interface), direction.as_deref().unwrap_or_default());
            let (packets, bytes, p95) = (amount(Some(*packets)), amount(Some(*bytes)), amount(*p95));
            let busiest = busiest.map_or_else(|| ",".to_owned(), |of| format!("{},{}", of.start, of.bits));
            let (lost, seen) = (format!("{},{}", lost.packets, lost.bytes), row.seen_seconds);
            let unseen = row.unseen_seconds;
            writeln!(out, "{name},{direction},{start},{end},{packets},{bytes},{lost},{seen},{unseen},{p95},{busiest}")?;
        }
        Ok(())
    }

    /// Writes a table for people, in at most `width` columns.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, width: usize, color: bool, out: &mut impl Write) -> io::Result<()> {
        let mut grid = Grid::new([Left, Left, Left, Right, Right, Right, Right, Left]);
        let heads = ["interface", "direction", &self.by, "packets", "bytes", "95th percentile", "busiest second", ""];
        grid.row(heads.map(|head| Cell::new(head, Strong)));
        for row in &self.rows {
            let rate = |bits: u64| scaled(bits as f64, "bit/s");
            let p95 = row.p95.map_or_else(String::new, |of| shown(&of, rate));
            let unseen = (row.unseen_seconds >= 1.0).then(|| format!("not seen: {}", length(row.unseen_seconds)));
            grid.row([
                Cell::from(&row.interface),
                Cell::from(row.direction.as_deref().unwrap_or_default()),
                Cell::new(self.label(row.start), Faint),
                Cell::new(shown(&row.packets, |packets| scaled(packets as f64, "")), Plain),
                Cell::new(shown(&row.bytes, bytes), Plain),
                Cell::new(p95, Plain),
                Cell::new(row.busiest.map_or_else(String::new, |of| rate(of.bits)), Plain),
                Cell::new(unseen.unwrap_or_default(), Alarm),
            ]);
        }
        grid.write_within(width, color, out)
    }

    /// How people call the period that starts then.
    pub fn label(&self, start: Timestamp) -> String {
        label(&self.by, self.day, start)
    }
}

fn label(by: &str, first_day: u8, start: Timestamp) -> String {
    let text = start.to_string();
    let length = match by {
        "hour" => return text[..16].replace('T', " "),
        "month" if first_day == 1 => 7,
        _ => 10,
    };
    text[..length].to_owned()
}

/// The columns of [`HostUsage::write_csv`].
const HOST_CSV: &str = "host,network,start,end,down_bytes,down_lower,down_upper,up_bytes,up_lower,up_upper,bytes,\
                        bytes_lower,bytes_upper,seen_seconds,unseen_seconds,confidence";

impl HostUsage {
    /// Writes comma-separated values (RFC 4180), a line for each row, below a line with names.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{HOST_CSV}")?;
        for HostPeriod { start, end, seen_seconds, unseen_seconds, confidence, rows, .. } in &self.periods {
            for HostUsageRow { host, network, down, up, bytes } in rows {
                let host = host.map_or_else(String::new, |host| host.to_string());
                let network = quoted(network.as_deref().unwrap_or_default());
                let [down, up, bytes] = [down, up, bytes].map(values);
                writeln!(
                    out,
                    "{host},{network},{start},{end},{down},{up},{bytes},{seen_seconds},{unseen_seconds},{confidence}"
                )?;
            }
        }
        Ok(())
    }

    /// Writes a table for people, in at most `width` columns.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, width: usize, color: bool, out: &mut impl Write) -> io::Result<()> {
        if self.periods.iter().all(|period| period.rows.is_empty()) {
            return writeln!(
                out,
                "nothing is known of it in this time: `weir check` says which addresses and networks are own"
            );
        }
        let mut grid = Grid::new([Left, Left, Right, Right, Right, Left]);
        let of_networks = self.periods.iter().flat_map(|period| &period.rows).any(|row| row.network.is_some());
        let whose = if of_networks { "network" } else { "host" };
        grid.row([&*self.by, whose, "down", "up", "total", ""].map(|head| Cell::new(head, Strong)));
        for HostPeriod { start, unseen_seconds, confidence, unlisted, rows, .. } in &self.periods {
            let mut when = label(&self.by, self.day, *start);
            let unseen = (*unseen_seconds >= 1.0).then(|| format!("not seen: {}", length(*unseen_seconds)));
            // Packets were sampled.
            let uncertain = (*confidence < 1.0).then(|| match *confidence {
                0.0 => "sampled: the bounds may not hold".to_owned(),
                some => format!("sampled: the bounds hold at {}", percent(some)),
            });
            let mut note = unseen.into_iter().chain(uncertain).collect::<Vec<_>>().join(", ");
            for HostUsageRow { host, network, down, up, bytes: both } in rows {
                let host = host.map(|host| host.to_string());
                let [down, up, both] = [down, up, both].map(|of| Cell::new(shown(of, bytes), Plain));
                let when = Cell::new(std::mem::take(&mut when), Faint);
                let note = Cell::new(std::mem::take(&mut note), Alarm);
                grid.row([
                    when,
                    Cell::from(host.or_else(|| network.clone()).unwrap_or_default()),
                    down,
                    up,
                    both,
                    note,
                ]);
            }
            let others = unlisted.filter(|most| *most > 0).map(|most| format!("at most {} each", bytes(most)));
            if let Some(others) = others.filter(|_| !of_networks) {
                let [when, note] = [Cell::new(when, Faint), Cell::new(note, Alarm)];
                let none = || Cell::new("", Plain);
                grid.row([when, Cell::new("others", Faint), none(), none(), Cell::new(others, Faint), note]);
            }
        }
        grid.write_within(width, color, out)
    }
}

/// A number and its bounds, as comma-separated values. Without an upper bound, that is empty.
fn values(Amount { value, lower, upper }: &Amount) -> String {
    let upper = upper.map_or_else(String::new, |upper| upper.to_string());
    format!("{value},{lower},{upper}")
}

/// The usage of a month so far, as rows.
pub(super) fn grid(of: &[InterfaceUsage]) -> Grid {
    let mut grid = Grid::new([Left, Left, Right]);
    grid.row(["interface", "since", "bytes"].map(|head| Cell::new(head, Strong)));
    for InterfaceUsage { interface, since, bytes: sum } in of {
        let since = &since.to_string()[..10];
        grid.row([Cell::from(interface), Cell::new(since, Faint), Cell::from(shown(sum, bytes))]);
    }
    grid
}

/// A number for people: its bounds if they differ from it.
fn shown(of: &Amount, text: impl Fn(u64) -> String) -> String {
    match of.upper {
        _ if of.is_exact() => text(of.value),
        Some(upper) if text(upper) == text(of.lower) => text(of.value),
        Some(upper) => format!("{} to {}", text(of.lower), text(upper)),
        None => format!("{} (at least {})", text(of.value), text(of.lower)),
    }
}

/// A length of time for people, in its two largest units.
fn length(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// A text as one value of a line.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        let at = |text: &str| text.parse().unwrap();
        let exact = |value| Amount { value, lower: value, upper: Some(value) };
        let row = UsageRow {
            interface: "wan0".to_owned(),
            direction: Some("ingress".to_owned()),
            start: at("2026-11-01T00:00:00Z"),
            end: at("2026-12-01T00:00:00Z"),
            packets: exact(1_500_000),
            bytes: Amount { value: 2_000_000_000, lower: 2_000_000_000, upper: Some(2_400_000_000) },
            lost: Tally { packets: 3, bytes: 180 },
            seen_seconds: 86_400.5,
            unseen_seconds: 97_200.0,
            p95: Some(Amount { value: 90_000_000, lower: 80_000_000, upper: None }),
            busiest: Some(BusiestSecond { start: at("2026-11-02T03:04:05Z"), bits: 99_000_000 }),
        };
        let bare = UsageRow { direction: None, p95: None, busiest: None, interface: "a,\"b".to_owned(), ..row.clone() };
        Usage {
            schema: USAGE_SCHEMA.to_owned(),
            by: "month".to_owned(),
            day: 1,
            until: at("2026-11-03T00:00:00Z"),
            rows: vec![row, bare],
        }
    }

    #[test]
    fn a_table_says_bounds_and_what_was_not_seen() {
        let mut text = Vec::new();
        usage().write(200, false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in ["2026-11 ", "2.0 GB to 2.4 GB", "90.0 Mbit/s (at least 80.0 Mbit/s)", "not seen: 1d 3h"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn lines_of_values_have_as_many_as_there_are_names() {
        let mut text = Vec::new();
        usage().write_csv(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let expected = "wan0,ingress,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,1500000,1500000,1500000,2000000000,\
                        2000000000,2400000000,3,180,86400.5,97200,90000000,80000000,,2026-11-02T03:04:05Z,99000000";
        assert_eq!(lines[1], expected);
        assert!(lines[2].starts_with("\"a,\"\"b\",,"), "{}", lines[2]);
        let commas = |line: &str| line.matches(',').count();
        assert!(commas(lines[0]) == commas(lines[1]) && commas(lines[2]) == commas(lines[1]) + 1);
    }

    #[test]
    fn it_survives_json() {
        let usage = usage();
        assert_eq!(serde_json::from_str::<Usage>(&serde_json::to_string(&usage).unwrap()).unwrap(), usage);
    }

    #[test]
    fn hosts_have_a_line_each_and_others_a_bound() {
        let at = |text: &str| text.parse().unwrap();
        let exact = |value| Amount { value, lower: value, upper: Some(value) };
        let row = |host: &str, down| HostUsageRow {
            host: Some(host.parse().unwrap()),
            network: None,
            down: exact(down),
            up: Amount { value: 1_000, lower: 1_000, upper: Some(3_000) },
            bytes: Amount { value: down + 1_000, lower: down + 1_000, upper: None },
        };
        let period = HostPeriod {
            start: at("2026-11-01T00:00:00Z"),
            end: at("2026-12-01T00:00:00Z"),
            seen_seconds: 86_400.0,
            unseen_seconds: 7200.0,
            confidence: 0.99,
            unlisted: Some(4_200_000),
            rows: vec![row("192.0.2.7", 2_000_000), row("2001:db8::7", 1_000_000)],
        };
        let usage = |periods| HostUsage {
            schema: USAGE_SCHEMA.to_owned(),
            by: "month".to_owned(),
            day: 1,
            until: at("2026-11-03T00:00:00Z"),
            periods,
        };
        let written = |usage: &HostUsage| {
            let mut text = Vec::new();
            usage.write(160, false, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let whole = usage(vec![period.clone()]);
        let text = written(&whole);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].contains("2026-11  192.0.2.7")
                && lines[1].contains("not seen: 2h 0m, sampled: the bounds hold at 99.0 %"),
            "{text}"
        );
        assert!(lines[2].contains("2001:db8::7") && lines[2].contains("1.0 kB to 3.0 kB"), "{text}");
        assert!(lines[3].contains("others") && lines[3].contains("at most 4.2 MB each"), "{text}");
        assert!(written(&usage(vec![HostPeriod { rows: vec![], ..period }])).contains("nothing is known"));
        let mut csv = Vec::new();
        whole.write_csv(&mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let commas: Vec<_> = csv.lines().map(|line| line.matches(',').count()).collect();
        assert!(commas == [15, 15, 15], "{csv}");
        assert_eq!(serde_json::from_str::<HostUsage>(&serde_json::to_string(&whole).unwrap()).unwrap(), whole);
    }
}
