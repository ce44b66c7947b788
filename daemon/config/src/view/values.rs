//! How the values of fields are written and read, apart from numbers.

use crate::{
    interface::Way,
    names::{Scope, protocol::protocol_number},
};

/// TCP flags and their letters, from the lowest bit on (RFC 9293): FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
pub const TCP_FLAGS: [(&str, char); 8] =
    [("fin", 'F'), ("syn", 'S'), ("rst", 'R'), ("psh", 'P'), ("ack", 'A'), ("urg", 'U'), ("ece", 'E'), ("cwr", 'C')];

/// Explicit congestion notification (RFC 3168).
pub(super) const ECN: [(&str, u8); 4] = [("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

/// The letters of the flags that are set, in the order of their bits.
pub(super) fn flag_letters(flags: u8) -> String {
    TCP_FLAGS.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, (_, letter))| letter).collect()
}

/// The flags of these letters.
pub(super) fn flags(text: &str) -> Option<u8> {
    let mut flags = 0;
    for letter in text.chars() {
        let bit = TCP_FLAGS.iter().position(|(_, known)| known.eq_ignore_ascii_case(&letter))?;
        flags |= 1 << bit;
    }
    Some(flags)
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

pub(super) fn named(text: &str, names: &[(&str, u8)]) -> Option<u8> {
    names.iter().find(|(name, _)| *name == text).map(|(_, number)| *number)
}

pub(super) fn protocol(text: &str) -> Option<u8> {
    number(text).or_else(|| protocol_number(text))
}

/// The number of a direction, as in [`crate::interface::Directions`].
pub(super) fn direction(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    (1..).zip(Way::ALL).find(|(_, way)| way.name() == lower).map(|(number, _)| number)
}

/// An ASN, written as `64496` or `AS64496`.
pub(super) fn autonomous_system(text: &str) -> Option<u32> {
    let has_prefix = text.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("as"));
    number(if has_prefix { &text[2..] } else { text })
}

/// The two letters of a country as a number, as in databases.
pub(super) fn two_letters(text: &str) -> Option<u16> {
    match text.to_ascii_uppercase().as_bytes() {
        [first, second] => Some(u16::from_be_bytes([*first, *second])),
        _ => None,
    }
}

/// The number of a scope.
pub(super) fn scope(text: &str) -> Option<u8> {
    Scope::ALL.iter().position(|scope| scope.name() == text).map(|nth| nth as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_numbers_of_the_rfcs() {
        // RFC 3168, section 5: ECT(0) is 10, ECT(1) is 01.
        let ecn = ["not-ect", "ect1", "ect0", "ce", "ECT0"].map(|name| named(name, &ECN));
        assert_eq!(ecn, [Some(0b00), Some(0b01), Some(0b10), Some(0b11), None]);
        // RFC 9293, section 3.1, from the lowest bit on: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
        assert_eq!(["SA", "fpu", "R", "EC", "X"].map(flags), [Some(0x12), Some(0x29), Some(0x04), Some(0xc0), None]);
        assert_eq!([0x12, 0x29, 0xc2, 0].map(flag_letters), ["SA", "FPU", "SEC", ""]);
    }

    #[test]
    fn systems_and_countries_are_read_as_people_write_them() {
        assert_eq!(
            ["64496", "AS64496", "as0", "ASx", "a"].map(autonomous_system),
            [Some(64_496), Some(64_496), Some(0), None, None]
        );
        let country = u16::from_be_bytes(*b"DE");
        assert_eq!(["de", "DE", "D", "DEU"].map(two_letters), [Some(country), Some(country), None, None]);
    }
}
