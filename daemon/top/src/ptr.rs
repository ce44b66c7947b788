//! DNS packets that ask for the name of an address, and their answers (RFC 1035, RFC 3596).

use std::net::IpAddr;

/// The type of a record with the name of an address.
const PTR: u16 = 12;
const INTERNET: u16 = 1;
const HEADER: usize = 12;
/// A name has at most this many bytes.
const NAME_MAX: usize = 255;
/// How many pointers a name may follow: a name of 255 bytes has at most this many labels.
const JUMPS_MAX: usize = 127;

/// A question for the name of this address.
pub fn question(id: u16, address: IpAddr) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    // A standard query with recursion, and one question.
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in labels(address) {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(PTR.to_be_bytes());
    packet.extend(INTERNET.to_be_bytes());
    packet
}

fn labels(address: IpAddr) -> Vec<String> {
    let (parts, zone): (Vec<String>, _) = match address {
        IpAddr::V4(address) => (address.octets().iter().rev().map(u8::to_string).collect(), "in-addr"),
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            (nibbles.map(|nibble| format!("{nibble:x}")).collect(), "ip6")
        }
    };
    parts.into_iter().chain([zone.to_owned(), "arpa".to_owned()]).collect()
}

/// The first name in the answer to the question with this id. `None` if it has no name, or is not a valid answer.
pub fn name(packet: &[u8], id: u16) -> Option<String> {
    let header = packet.get(..HEADER)?;
    let (flags, rcode) = (header[2], header[3] & 15);
    if number(packet, 0)? != id || flags & 0x80 == 0 || rcode != 0 {
        return None;
    }
    let (questions, answers) = (number(packet, 4)?, number(packet, 6)?);
    let mut at = HEADER;
    for _ in 0..questions {
        at = after_name(packet, at)? + 4;
    }
    for _ in 0..answers {
        at = after_name(packet, at)?;
        let (kind, length) = (number(packet, at)?, usize::from(number(packet, at + 8)?));
        if kind == PTR {
            return read_name(packet, at + 10);
        }
        at += 10 + length;
    }
    None
}

fn number(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

/// The end of the name that begins at `at`.
fn after_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

fn read_name(packet: &[u8], mut at: usize) -> Option<String> {
    let (mut name, mut jumps) = (String::new(), 0);
    loop {
        let length = *packet.get(at)?;
        if length & 0xc0 == 0xc0 {
            at = usize::from(number(packet, at)? & 0x3fff);
            jumps += 1;
            if jumps > JUMPS_MAX {
                return None;
            }
        } else if length == 0 {
            return (!name.is_empty()).then_some(name);
        } else {
            let label = packet.get(at + 1..at + 1 + usize::from(length))?;
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&String::from_utf8_lossy(label));
            if name.len() > NAME_MAX {
                return None;
            }
            at += 1 + usize::from(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to the question, with this data after the fields of its only record.
    fn answer(question: &[u8], data: &[u8]) -> Vec<u8> {
        let mut packet = question.to_vec();
        (packet[2], packet[7]) = (0x81, 1);
        // The name of the record is that of the question.
        packet.extend([0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        packet.extend(data);
        packet
    }

    #[test]
    fn a_question_is_written_and_its_answer_is_parsed() {
        let asked = question(7, "192.0.2.53".parse().unwrap());
        assert_eq!(&asked[12..], b"\x0253\x012\x010\x03192\x07in-addr\x04arpa\0\0\x0c\0\x01");
        assert_eq!(name(&answer(&asked, b"\x02ns\x07example\0"), 7).as_deref(), Some("ns.example"));
        // A pointer to "arpa" within the question.
        let arpa = 12 + 3 + 2 + 2 + 4 + 8;
        assert_eq!(name(&answer(&asked, &[2, b'n', b's', 0xc0, arpa]), 7).as_deref(), Some("ns.arpa"));
        let v6 = question(7, "2001:db8::1".parse().unwrap());
        assert!(v6[12..].starts_with(b"\x011\x010\x010") && v6.ends_with(b"\x012\x03ip6\x04arpa\0\0\x0c\0\x01"));
    }

    #[test]
    fn an_invalid_answer_has_no_name() {
        let asked = question(7, "192.0.2.53".parse().unwrap());
        let right = answer(&asked, b"\x02ns\x07example\0");
        assert_eq!(name(&right, 8), None, "another question");
        assert_eq!(name(&asked, 7), None, "the question itself");
        for end in 0..right.len() {
            assert_eq!(name(&right[..end], 7), None, "cut at {end}");
        }
        let data = (right.len() - 12) as u8;
        let circle = answer(&asked, &[0xc0, data]);
        let itself = (circle.len() - 2) as u8;
        assert_eq!(name(&answer(&asked, &[0xc0, itself]), 7), None, "a name that points to itself");
        let mut failed = right;
        failed[3] = 3;
        assert_eq!(name(&failed, 7), None, "there is no such name");
    }
}
