//! The names of differentiated services code points.

/// The names in lower case (RFC 2474, 2597, 3246, 5865, 8622).
const NAMES: [(&str, u8); 24] = [
    ("be", 0),
    ("default", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The code point with this name.
pub fn dscp_number(name: &str) -> Option<u8> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The name of a code point, as RFCs write it: `EF`, `AF41`.
pub fn dscp_name(number: u64) -> Option<String> {
    NAMES.iter().find(|(_, known)| u64::from(*known) == number).map(|(name, _)| name.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!([0, 1, 46, 34, 48].map(|number| dscp_name(number).unwrap()), ["BE", "LE", "EF", "AF41", "CS6"]);
        assert_eq!([2, 63, 64, 256 + 46].map(dscp_name), [const { None }; 4]);
        // Assured forwarding has four classes with three drop precedences each (RFC 2597).
        for (class, drop) in (1..=4).flat_map(|class| (1..=3).map(move |drop| (class, drop))) {
            assert_eq!(dscp_number(&format!("af{class}{drop}")), Some(8 * class + 2 * drop));
        }
        assert!((1..=7).all(|class| dscp_number(&format!("cs{class}")) == Some(8 * class)));
        assert_eq!(["default", "EF"].map(dscp_number), [Some(0), None]);
    }
}
