//! Random days of hosts, against an oracle that knows what each host had.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Mutex,
};

use weir_schema::{Estimate, FromJson, HostNumbers, HostUsage, HostUsageRow, Sums as Both, TopHost};

use super::{
    super::{
        Disk,
        calendar::{By, Period, last_second},
        tests::{Folder, disk, window},
    },
    *,
};
use crate::testing::Random;

const HOSTS: u64 = 400;
/// Rows of a window: few, so that many hosts are in no row.
const ROWS: usize = 20;

/// Down and up of each host by day.
type Truth = HashMap<(i64, u64), [u64; 2]>;

/// A weir with its clock, in seconds.
struct Life {
    random: Random,
    now: i64,
    disk: Disk,
    days: Days,
    truth: Truth,
    seen: HashMap<i64, u64>,
    written: (Truth, HashMap<i64, u64>),
}

fn address(host: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + host as u32).into()
}

fn exact(value: u64) -> Amount {
    Amount { value, lower: value, upper: Some(value) }
}

/// Bounds that hold, some of them far apart.
fn around(random: &mut Random, truth: u64) -> Estimate {
    let (below, above) = (random.below(3) * random.below(truth / 8 + 1), random.below(3) * random.below(truth / 8 + 1));
    let (lower, upper) = (truth.saturating_sub(below), truth + above);
    Estimate { value: lower + random.below(upper - lower + 1), lower, upper, sampled: None }
}

impl Life {
    fn window(&mut self, seconds: i64) {
        let day = self.now.div_euclid(DAY_SECONDS);
        // Some hosts have much once, and are forgotten in favour of others later.
        let once = self.random.below(HOSTS);
        let mut all: Vec<_> = (0..HOSTS)
            .map(|host| {
                let most = if host == once { 3_000_000 } else { 1_000_000 / (host / 8 + 1) + 1 };
                let is_there = self.random.below(4) > 0;
                let of = [(); 2].map(|()| if is_there { self.random.below(most) } else { 0 });
                let sums = self.truth.entry((day, host)).or_default();
                *sums = [sums[0] + of[0], sums[1] + of[1]];
                (host, of)
            })
            .collect();
        all.sort_by_key(|(_, [down, up])| std::cmp::Reverse(down + up));
        // Sometimes there are fewer rows than hosts, and sometimes there are none.
        let rows = if self.random.below(30) == 0 { 0 } else { ROWS };
        let listed = all[..rows].iter().filter(|(_, of)| *of != [0; 2]).map(|(host, [down, up])| {
            let bytes = |estimate| Both { bytes: estimate, ..Both::default() };
            let mut around = |truth| around(&mut self.random, truth);
            let numbers = HostNumbers { down: bytes(around(*down)), up: bytes(around(*up)), ..HostNumbers::default() };
            let (rank, packets) = (1, Estimate::default());
            TopHost { rank, host: address(*host), packets, bytes: around(down + up), numbers }
        });
        let hosts = listed.collect();
        let unlisted = Some(all[rows..].iter().map(|(_, [down, up])| down + up).max().unwrap_or(0));
        let top = Top {
            hosts,
            confidence: 1.0,
            unlisted: weir_schema::TopUnlisted { hosts: unlisted, ..Default::default() },
            ..Top::default()
        };
        let [mut down, mut up] = [0; 2];
        for (_, of) in &all {
            (down, up) = (down + of[0], up + of[1]);
        }
        let sums = Sums { down: exact(down), up: exact(up), bytes: exact(down + up) };
        let networks = vec![NetworkBytes { name: "office".to_owned(), sums }];
        self.days.add_window(&window(self.now * 1000, (self.now + seconds) * 1000), &[], &top, networks);
        *self.seen.entry(day).or_default() += seconds.unsigned_abs();
        self.now += seconds;
    }

    fn write(&mut self) {
        let days = Mutex::new(std::mem::take(&mut self.days));
        self.disk.write(&Mutex::default(), &days);
        self.days = days.into_inner().unwrap();
        self.written = (self.truth.clone(), self.seen.clone());
    }

    /// SIGKILL: what was not written is lost, and nothing else.
    fn die(&mut self) {
        self.days = self.disk.load_days();
        (self.truth, self.seen) = self.written.clone();
    }

    fn ask(&self, whose: Whose, by: By, last: u32, top: u32) -> HostUsage {
        let until = Timestamp::from_second(self.now).unwrap();
        let own = vec!["10.0.0.0/8".parse().unwrap()];
        let known = Known { unwritten: self.days.unwritten(), until, first_day: 5, addresses: Addresses::Full, own };
        let query = HostQuery { whose, by, last: Some(last), top: Some(top), to: None };
        HostUsage::from_json(query.answer(&self.disk.files, &known).unwrap().as_bytes()).unwrap()
    }

    /// What a host had in a period, down and up.
    fn truth(&self, period: Period, host: u64) -> [u64; 2] {
        let days = period.start / DAY_SECONDS..period.end / DAY_SECONDS;
        days.fold([0; 2], |[down, up], day| {
            let [more_down, more_up] = self.truth.get(&(day, host)).copied().unwrap_or_default();
            [down + more_down, up + more_up]
        })
    }

    fn check(&self, by: By, last: u32) {
        let periods: Vec<_> = Period::last(last, last_second(Timestamp::from_second(self.now).unwrap()), by, 5);
        let known: Vec<_> = periods
            .into_iter()
            .filter(|period| {
                (period.start / DAY_SECONDS..period.end / DAY_SECONDS).any(|day| self.seen.contains_key(&day))
            })
            .collect();
        let hosts = self.ask(Whose::Hosts, by, last, 15);
        assert_eq!(hosts.periods.iter().map(|of| of.start.as_second()).collect::<Vec<_>>(), starts(&known));
        for (period, of) in known.iter().zip(&hosts.periods) {
            let seen: u64 =
                (period.start / DAY_SECONDS..period.end / DAY_SECONDS).filter_map(|day| self.seen.get(&day)).sum();
            assert_eq!(of.seen_seconds, seen as f64);
            let elapsed = self.now.clamp(period.start, period.end) - period.start;
            assert_eq!(of.unseen_seconds, elapsed.unsigned_abs().saturating_sub(seen) as f64, "{period:?}");
            let mut rest: HashMap<IpAddr, u64> = (0..HOSTS).map(|host| (address(host), host)).collect();
            for row in &of.rows {
                let host = rest.remove(&row.host.unwrap()).unwrap();
                check_row(row, self.truth(*period, host));
            }
            for host in rest.into_values() {
                let [down, up] = self.truth(*period, host);
                assert!(down + up <= of.unlisted.unwrap(), "{host}: {down} and {up} of at most {:?}", of.unlisted);
            }
        }
        for host in (0..HOSTS).step_by(7) {
            let one = self.ask(Whose::Host(address(host)), by, last, 1);
            for (period, of) in known.iter().zip(&one.periods) {
                let [down, up] = self.truth(*period, host);
                assert!(of.rows.len() == 1 && of.unlisted.is_none(), "{of:?}");
                check_row(&of.rows[0], [down, up]);
            }
        }
        for (period, of) in known.iter().zip(self.ask(Whose::Networks, by, last, 1).periods) {
            let [down, up] =
                (0..HOSTS).map(|host| self.truth(*period, host)).fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            assert_eq!([of.rows[0].down, of.rows[0].up, of.rows[0].bytes], [down, up, down + up].map(exact));
        }
    }
}

fn starts(periods: &[Period]) -> Vec<i64> {
    periods.iter().map(|period| period.start).collect()
}

fn check_row(row: &HostUsageRow, [down, up]: [u64; 2]) {
    for (of, truth) in [(row.down, down), (row.up, up), (row.bytes, down + up)] {
        let upper = of.upper.unwrap();
        assert!((of.lower..=upper).contains(&truth), "{truth} is not in {of:?}: {row:?}");
        assert!((of.lower..=upper).contains(&of.value), "{row:?}");
    }
}

#[test]
fn bounds_hold_over_random_lives() {
    for seed in 1..=6 {
        let folder = Folder::new(&format!("hosts-{seed}"));
        // Shortly before a month ends, and one that begins on the fifth.
        let edges = ["2026-11-04T22:00:00Z", "2026-11-30T20:00:00Z"];
        let now = edges[seed as usize % 2].parse::<Timestamp>().unwrap().as_second();
        let (random, disk) = (Random(seed), disk(&folder.0));
        let mut life = Life {
            random,
            now,
            disk,
            days: Days::default(),
            truth: Truth::new(),
            seen: HashMap::new(),
            written: Default::default(),
        };
        for _ in 0..150 {
            match life.random.below(30) {
                0 => life.now += life.random.below(100_000) as i64,
                1 => life.now -= life.random.below(90_000) as i64,
                2 => life.die(),
                3 => life.write(),
                _ => life.window([10, 60, 1800][seed as usize % 3]),
            }
            // No more than so many days wait for the disk.
            if life.days.closed().len() > 2 {
                life.write();
            }
        }
        life.window(10);
        for (by, last) in [(By::Day, 12), (By::Month, 3)] {
            life.check(by, last);
        }
    }
}

#[test]
fn hosts_that_are_always_listed_are_exact_and_a_day_is_small() {
    let folder = Folder::new("hosts-exact");
    let mut days = Days::default();
    let start = "2026-11-20T00:00:00Z".parse::<Timestamp>().unwrap().as_second();
    let all = |value| Estimate { value, lower: value, upper: value, sampled: None };
    let host = |nth: u64| {
        let both = |value| Both { bytes: all(value), ..Both::default() };
        let numbers = HostNumbers { down: both(90_000_000 * nth), up: both(3_000_000), ..HostNumbers::default() };
        let bytes = all(90_000_000 * nth + 3_000_000);
        TopHost { rank: 1, host: address(nth), packets: Estimate::default(), bytes, numbers }
    };
    let unlisted = weir_schema::TopUnlisted { hosts: Some(0), ..Default::default() };
    let top = Top { hosts: (1..=20).map(host).collect(), confidence: 1.0, unlisted, ..Top::default() };
    for nth in 0..8640 {
        days.add_window(&window((start + nth * 10) * 1000, (start + nth * 10 + 10) * 1000), &[], &top, Vec::new());
    }
    disk(&folder.0).write(&Mutex::default(), &Mutex::new(days.clone()));
    let size = std::fs::metadata(folder.0.join("usage/hosts-open")).unwrap().len();
    assert!((400..900).contains(&size), "a day of twenty busy hosts takes {size} bytes");
    let read = disk(&folder.0).load_days().open_day().unwrap();
    assert_eq!(read, days.open_day().unwrap());
    assert_eq!(read.members[&Member::Host(address(3))].down, exact(8640 * 270_000_000));
    assert_eq!((read.unlisted, read.seen_ms), (Some(0), 86_400_000));
}

#[test]
fn what_has_no_usage_is_told() {
    let folder = Folder::new("hosts-masked");
    let own = vec!["10.0.0.0/8".parse().unwrap()];
    let until = Timestamp::UNIX_EPOCH;
    let known = |addresses| Known { unwritten: Vec::new(), until, first_day: 1, addresses, own: own.clone() };
    let ask = |whose, by, addresses| {
        let query = HostQuery { whose, by, last: None, top: None, to: None };
        query.answer(&disk(&folder.0).files, &known(addresses))
    };
    let why = ask(Whose::Hosts, By::Day, Addresses::Prefix).unwrap_err();
    assert!(why.contains("addresses: prefix") && why.contains("weir usage networks"), "{why}");
    assert!(ask(Whose::Networks, By::Day, Addresses::None).is_ok());
    assert!(ask(Whose::Host(address(7)), By::Day, Addresses::Full).is_ok());
    let why = ask(Whose::Host([192, 0, 2, 7].into()), By::Day, Addresses::Full).unwrap_err();
    assert!(why.starts_with("192.0.2.7 is in no own network"), "{why}");
    let why = ask(Whose::Hosts, By::Hour, Addresses::Full).unwrap_err();
    assert!(why.contains("weir history top hosts"), "{why}");
    // Windows with masked addresses count no hosts, and say so.
    let mut days = Days { addresses: Addresses::Prefix, ..Days::default() };
    let unlisted = weir_schema::TopUnlisted { hosts: Some(0), ..Default::default() };
    let top = Top { unlisted, ..Top::default() };
    let networks = vec![NetworkBytes { name: "office".to_owned(), sums: Sums::default() }];
    days.add_window(&window(0, 10_000), &[], &top, networks);
    assert_eq!(days.open_day().unwrap().unlisted, None);
}

#[test]
fn an_hour_that_nobody_saw_is_told_however_long_the_month() {
    let folder = Folder::new("hosts-unseen");
    let mut life = Life {
        random: Random(1),
        now: "2026-11-05T00:00:00Z".parse::<Timestamp>().unwrap().as_second(),
        disk: disk(&folder.0),
        days: Days::default(),
        truth: Truth::new(),
        seen: HashMap::new(),
        written: Default::default(),
    };
    for nth in 0..600 {
        // One hour of twenty-five days is missing.
        life.now += if nth == 300 { 3600 } else { 0 };
        life.window(3600);
        life.write();
    }
    let month = life.ask(Whose::Hosts, By::Month, 1, 1);
    assert_eq!(month.periods[0].unseen_seconds, 3600.0);
}
