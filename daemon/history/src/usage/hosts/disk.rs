//! The format of a day on disk.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use weir_schema::Amount;

use super::{DAY_SECONDS, Day, Member, Sums};
use crate::usage::{
    calendar::month_of_hour,
    entry::{Entry, put, put_text, signed, take, take_text, unsigned},
};

/// What a member is, on disk.
const NETWORK: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// Doubts are kept in millionths.
const DOUBT: f64 = 1e6;

impl Entry for Day {
    const MAGIC: [u8; 8] = *b"weirush1";
    const PREFIX: &'static str = "hosts-";

    fn id(&self) -> (i64, i64) {
        (self.id, self.day)
    }

    fn month(&self) -> String {
        month_of_hour(self.day.saturating_mul(DAY_SECONDS / 3600))
    }

    fn put(&self, body: &mut Vec<u8>) {
        put(body, signed(self.id));
        put(body, signed(self.day));
        put(body, self.seen_ms);
        put(body, (self.doubt * DOUBT).ceil() as u64);
        put(body, self.unlisted.map_or(0, after));
        put(body, self.members.len() as u64);
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_unstable_by_key(|(member, _)| *member);
        for (member, Sums { down, up, bytes }) in members {
            put_member(body, member);
            for Amount { value, lower, upper } in [down, up, bytes] {
                put(body, *value);
                put(body, value.saturating_sub(*lower));
                put(body, upper.map_or(0, |upper| after(upper.saturating_sub(*value))));
            }
        }
    }

    fn take(body: &mut &[u8]) -> Option<Self> {
        let (id, day, seen_ms) = (unsigned(take(body)?), unsigned(take(body)?), take(body)?);
        let (doubt, unlisted, count) = (take(body)? as f64 / DOUBT, take(body)?.checked_sub(1), take(body)?);
        let mut members = HashMap::new();
        for _ in 0..count {
            let member = take_member(body)?;
            let mut sums = Sums::default();
            for of in sums.each() {
                let (value, below, above) = (take(body)?, take(body)?, take(body)?.checked_sub(1));
                let upper = above.map(|above| value.saturating_add(above));
                *of = Amount { value, lower: value.checked_sub(below)?, upper };
            }
            members.insert(member, sums);
        }
        Some(Self { id, day, seen_ms, doubt, unlisted, members })
    }
}

/// The number that stands for this one, because 0 stands for none.
const fn after(number: u64) -> u64 {
    number.saturating_add(1)
}

fn put_member(body: &mut Vec<u8>, member: &Member) {
    match member {
        Member::Network(name) => {
            body.push(NETWORK);
            put_text(body, name);
        }
        Member::Host(IpAddr::V4(address)) => {
            body.push(IPV4);
            body.extend(address.octets());
        }
        Member::Host(IpAddr::V6(address)) => {
            body.push(IPV6);
            body.extend(address.octets());
        }
    }
}

fn take_member(body: &mut &[u8]) -> Option<Member> {
    let (&kind, rest) = body.split_first()?;
    *body = rest;
    Some(match kind {
        NETWORK => Member::Network(take_text(body)?),
        IPV4 => Member::Host(Ipv4Addr::from(take_octets(body)?).into()),
        IPV6 => Member::Host(Ipv6Addr::from(take_octets(body)?).into()),
        _ => return None,
    })
}

fn take_octets<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (octets, rest) = body.split_first_chunk()?;
    *body = rest;
    Some(*octets)
}
