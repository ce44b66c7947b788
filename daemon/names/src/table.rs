//! The best name of each address.

use std::{collections::BTreeMap, net::IpAddr};

use weir_schema::{NAMES_SCHEMA, NameOf, NameSource, NamesAnswer};

/// How many addresses have a name at most.
pub const NAMES_MAX: usize = 512;
/// The longest name, in bytes. A longer one is cut.
const BYTES_MAX: usize = 64;
/// Characters of names besides letters and digits. Others become `?`: a name may not look like something else.
const ALLOWED: &[char] = &['-', '_', '.', ':', '@', '+', '(', ')', '\''];

/// The memory of two tables, in bytes: the old one may still be read when the new one is there.
pub const MEMORY_BYTES: usize = 2 * NAMES_MAX * (2 * BYTES_MAX + size_of::<(IpAddr, (NameSource, Name))>());

/// A cleaned name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Box<str>);

impl Name {
    /// A name as someone else wrote it; `None` if there is nothing to show.
    pub fn new(text: &str) -> Option<Self> {
        let clean = |c: char| if c.is_alphanumeric() || ALLOWED.contains(&c) { c } else { '?' };
        let mut name: String = text.trim_matches(['.', ' ', '\t']).chars().take(BYTES_MAX).map(clean).collect();
        name.truncate(name.floor_char_boundary(BYTES_MAX));
        name.chars().any(char::is_alphanumeric).then(|| Self(name.into()))
    }

    /// The name.
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    names: BTreeMap<IpAddr, (NameSource, Name)>,
    /// How many addresses had no place.
    left_out: usize,
}

impl Table {
    /// Adds a name, unless the address has one of a better source. Of two names of the same source the first one stays.
    pub fn add(&mut self, address: IpAddr, source: NameSource, name: Name) {
        let address = address.to_canonical();
        // These are no hosts: lists of blocked names have thousands of names for them.
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return;
        }
        let has_room = self.names.len() < NAMES_MAX;
        match self.names.get_mut(&address) {
            Some(known) if source < known.0 => *known = (source, name),
            Some(_) => {}
            None if has_room => drop(self.names.insert(address, (source, name))),
            None => self.left_out += 1,
        }
    }

    /// The name of an address, and where it is from.
    pub fn of(&self, address: IpAddr) -> Option<(NameSource, &str)> {
        self.names.get(&address.to_canonical()).map(|(source, name)| (*source, name.as_str()))
    }

    /// How many addresses have a name.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if no address has a name.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How many addresses had a name, but no place in the table.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// All names, for an answer.
    pub fn answer(&self) -> NamesAnswer {
        let name = |(address, (source, name)): (&IpAddr, &(NameSource, Name))| NameOf {
            address: *address,
            name: name.as_str().to_owned(),
            source: *source,
        };
        NamesAnswer { schema: NAMES_SCHEMA.to_owned(), names: self.names.iter().map(name).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_best_source_wins_in_any_order() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let all = [NameSource::File, NameSource::Hosts, NameSource::Lease];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut table = Table::default();
            for nth in order {
                table.add(address, all[nth], name(&format!("of-{nth}")));
                table.add(address, all[nth], name("a-later-one"));
            }
            assert_eq!(table.of(address), Some((NameSource::File, "of-0")), "{order:?}");
            assert_eq!(table.of("::ffff:192.0.2.7".parse().unwrap()), table.of(address));
        }
    }

    #[test]
    fn names_are_cleaned_and_short() {
        assert_eq!(name("Annas iPhone").as_str(), "Annas?iPhone");
        assert_eq!(name("a\u{1b}[2J\u{202e}<b>").as_str(), "a??2J??b?");
        assert_eq!(name("büro.example.net.").as_str(), "büro.example.net");
        assert_eq!(name(&"x".repeat(500)).as_str().len(), 64);
        assert!(["", "*", ".", "  ", "\u{1b}"].iter().all(|text| Name::new(text).is_none()));
    }

    #[test]
    fn memory_is_fixed_and_addresses_that_are_no_hosts_take_no_place() {
        let mut table = Table::default();
        for nth in 0..3 * NAMES_MAX as u32 {
            table.add(std::net::Ipv4Addr::from_bits(0x0a00_0000 + nth).into(), NameSource::Lease, name("host"));
        }
        assert_eq!((table.len(), table.left_out()), (NAMES_MAX, 2 * NAMES_MAX));
        let mut table = Table::default();
        for address in ["0.0.0.0", "127.0.0.1", "::", "::1", "ff02::1", "224.0.0.251"] {
            table.add(address.parse().unwrap(), NameSource::Hosts, name("blocked"));
        }
        assert!(table.is_empty());
    }
}
