//! The leases of DHCP servers: the files of dnsmasq, of Kea's memfile backend, and of ISC dhcpd. The format is
//! recognised by the content.

use std::{collections::HashMap, net::IpAddr};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::table::Name;

/// A lease that has not ended, and that has a name.
type Leases = HashMap<IpAddr, Name>;

/// Reads the leases that have not ended at this time. Also returns how many lines or blocks are not understood.
pub fn read(text: &str, now: Timestamp) -> (Leases, usize) {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    if first.starts_with("address,") {
        kea(text, now)
    } else if text.lines().any(|line| is_block(line.trim())) {
        isc(text, now)
    } else {
        dnsmasq(text, now)
    }
}

/// `expiry MAC address name client-id` on each line; an expiry of 0 is none. Leases of IPv6 follow a line with the
/// server's DUID, and have the same fields.
fn dnsmasq(text: &str, now: Timestamp) -> (Leases, usize) {
    let (mut leases, mut wrong) = (Leases::new(), 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next();
        if first.is_none_or(|word| word == "duid") {
            continue;
        }
        let expiry = first.and_then(|word| word.parse::<i64>().ok());
        let address = words.nth(1).and_then(|word| word.parse::<IpAddr>().ok());
        let (Some(expiry), Some(address), Some(name)) = (expiry, address, words.next()) else {
            wrong += 1;
            continue;
        };
        let is_over = expiry != 0 && expiry < now.as_second();
        note(&mut leases, address, Some(name).filter(|_| !is_over));
    }
    (leases, wrong)
}

/// Comma-separated values with a header. A later line of an address replaces an earlier one. In state 0 the lease is
/// assigned.
fn kea(text: &str, now: Timestamp) -> (Leases, usize) {
    let (mut leases, mut wrong) = (Leases::new(), 0);
    let mut columns = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let cells: Vec<_> = line.split(',').collect();
        let place = |name: &str| cells.iter().position(|cell| cell.trim() == name);
        if line.starts_with("address,") {
            columns = Some([place("address"), place("expire"), place("hostname"), place("state")]);
            continue;
        }
        let [address, expire, name, state] = columns.unwrap_or_default().map(|at| cells.get(at?).copied());
        let expire = expire.and_then(|text| text.parse::<i64>().ok());
        let (Some(address), Some(expire)) = (address.and_then(|text| text.parse::<IpAddr>().ok()), expire) else {
            wrong += 1;
            continue;
        };
        let is_over = expire < now.as_second() || state.is_some_and(|state| state != "0");
        note(&mut leases, address, name.filter(|_| !is_over));
    }
    (leases, wrong)
}

/// Blocks such as `lease 192.0.2.7 { ends 4 2026/11/26 14:00:00; binding state active; client-hostname "anna"; }`. A
/// later block of an address replaces an earlier one.
fn isc(text: &str, now: Timestamp) -> (Leases, usize) {
    let (mut leases, mut wrong) = (Leases::new(), 0);
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !is_block(line) {
            continue;
        }
        let address = line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<IpAddr>().ok());
        let (mut name, mut is_over, mut is_whole) = (None, false, false);
        for line in lines.by_ref() {
            let statement = line.trim_end_matches(';');
            if line == "}" {
                is_whole = true;
                break;
            } else if let Some(text) = statement.strip_prefix("client-hostname ") {
                name = Some(text.trim_matches('"'));
            } else if let Some(state) = statement.strip_prefix("binding state ") {
                is_over |= state != "active";
            } else if let Some(time) = statement.strip_prefix("ends ") {
                is_over |= ended(time).is_some_and(|end| end < now);
            }
        }
        match address.filter(|_| is_whole) {
            Some(address) => note(&mut leases, address, name.filter(|_| !is_over)),
            None => wrong += 1,
        }
    }
    (leases, wrong)
}

fn is_block(line: &str) -> bool {
    line.starts_with("lease ") && line.ends_with('{')
}

/// A time such as `4 2026/11/26 14:00:00`, in UTC, or `epoch 1764165600`; `None` for `never`.
fn ended(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix("epoch ") {
        return Timestamp::from_second(seconds.split_ascii_whitespace().next()?.parse().ok()?).ok();
    }
    let (_, time) = text.split_once(' ')?;
    let time: DateTime = time.trim().replace('/', "-").parse().ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Notes the name of a lease, or that the address has none any more.
fn note(leases: &mut Leases, address: IpAddr, name: Option<&str>) {
    match name.and_then(Name::new) {
        Some(name) => leases.insert(address, name),
        None => leases.remove(&address),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_764_165_600; // 2025-11-26 14:00:00 in UTC

    fn names(text: &str) -> (Vec<String>, usize) {
        let (leases, wrong) = read(text, Timestamp::from_second(NOW).unwrap());
        let mut all: Vec<_> = leases.iter().map(|(address, name)| format!("{address} {}", name.as_str())).collect();
        all.sort();
        (all, wrong)
    }

    #[test]
    fn dnsmasq_has_a_line_for_each_lease() {
        let text = "1764169200 02:00:00:00:00:01 192.168.1.20 anna-laptop 01:02:00:00:00:00:01\n\
                    0 02:00:00:00:00:02 192.168.1.21 printer *\n\
                    1764165599 02:00:00:00:00:03 192.168.1.22 gone *\n\
                    1764169200 02:00:00:00:00:04 192.168.1.23 * *\n\
                    duid 00:01:00:01:2e:00:00:00:02:00:00:00:00:05\n\
                    1764169200 16777217 2001:db8::20 anna-laptop 00:01:00\n\
                    nonsense\n";
        assert_eq!(
            names(text),
            (
                ["192.168.1.20 anna-laptop", "192.168.1.21 printer", "2001:db8::20 anna-laptop"]
                    .map(str::to_owned)
                    .to_vec(),
                1
            )
        );
    }

    #[test]
    fn the_last_line_of_an_address_counts_for_kea() {
        let head =
            "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";
        let text = format!(
            "{head}192.168.1.20,02:00:00:00:00:01,,3600,1764169200,1,0,0,first,0,\n\
             192.168.1.21,02:00:00:00:00:02,,3600,1764169200,1,0,0,declined,1,\n\
             192.168.1.20,02:00:00:00:00:01,,3600,1764172800,1,0,0,anna-laptop,0,\n\
             192.168.1.22,02:00:00:00:00:03,,3600,1764165000,1,0,0,gone,0,\n\
             192.168.1.23,02:00\n"
        );
        assert_eq!(names(&text), (vec!["192.168.1.20 anna-laptop".to_owned()], 1));
        let v6 = "address,duid,valid_lifetime,expire,subnet_id,pref_lifetime,lease_type,iaid,prefix_len,fqdn_fwd,fqdn_rev,\
                  hostname,hwaddr,state\n2001:db8::20,00:01,3600,1764169200,1,1800,0,7,128,0,0,anna.example.net.,,0\n";
        assert_eq!(names(v6), (vec!["2001:db8::20 anna.example.net".to_owned()], 0));
    }

    #[test]
    fn the_last_block_of_an_address_counts_for_isc() {
        let block = |address: &str, end: &str, state: &str, name: &str| {
            format!(
                "lease {address} {{\n  starts 3 2025/11/26 12:00:00;\n  ends {end};\n  binding state {state};\n  hardware \
                 ethernet 02:00:00:00:00:01;\n  client-hostname \"{name}\";\n}}\n"
            )
        };
        let text = format!(
            "# The format of this file is documented in the dhcpd.leases(5) manual page.\nauthoring-byte-order \
             little-endian;\n{}{}{}{}{}lease 192.168.1.24 {{\n  ends never;\n",
            block("192.168.1.20", "3 2025/11/26 15:00:00", "active", "first"),
            block("192.168.1.21", "3 2025/11/26 13:59:59", "active", "gone"),
            block("192.168.1.22", "never", "active", "printer"),
            block("192.168.1.23", "epoch 1764169200; # Wed Nov 26 15:00:00 2025", "free", "freed"),
            block("192.168.1.20", "3 2025/11/26 16:00:00", "active", "anna-laptop"),
        );
        let expected = ["192.168.1.20 anna-laptop", "192.168.1.22 printer"].map(str::to_owned).to_vec();
        assert_eq!(names(&text), (expected, 1));
    }

    #[test]
    fn no_damage_makes_it_panic_or_invent_an_address() {
        let whole = "lease 192.168.1.20 {\n  ends 3 2025/11/26 15:00:00;\n  client-hostname \"a\";\n}\naddress,hwaddr,expire,\
                     hostname\n192.168.1.21,,1764169200,b\n1764169200 02:00:00:00:00:01 192.168.1.22 c *\n";
        let mut random = 7_u64;
        for _ in 0..20_000 {
            let mut text = whole.as_bytes().to_vec();
            for _ in 0..4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % text.len();
                match random >> 20 & 3 {
                    0 => drop(text.remove(at)),
                    1 => text.insert(at, b" ,{}\"\n;\xff"[(random >> 10) as usize & 7]),
                    _ => text[at] = (random >> 12) as u8,
                }
            }
            let text = String::from_utf8_lossy(&text);
            for address in names(&text).0 {
                let address = address.split(' ').next().unwrap().to_owned();
                assert!(text.contains(&address), "{address} is not in {text}");
            }
        }
    }
}
