//! Looks up ASNs and countries of addresses in databases in `MaxMind`'s format.
//!
//! A lookup takes about 200 ns (60,000 networks, 22 November 2026). That is fast enough for the rows of a report, but
//! not for every record.

use std::{
    fmt,
    io::{self, Read},
    net::IpAddr,
    path::{Path, PathBuf},
};

use maxminddb::{MaxMindDbError, Reader, WithinOptions, path};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Visitor},
};
use weir_system::plain_file::open_regular;

/// The most bytes of a database, which is read into memory. The largest commercial ones are smaller.
pub const FILE_MAX: u64 = 512 << 20;

/// The paths of the ASN and country databases, in `MaxMind`'s format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GeoFiles {
    /// The ASN file, if any.
    pub asn: Option<PathBuf>,
    /// The country file, if any.
    pub country: Option<PathBuf>,
}

/// The databases that the configuration names, in memory.
#[derive(Debug, Default)]
pub struct Geo {
    asn: Option<Database>,
    country: Option<Database>,
    bytes: usize,
}

type Database = Reader<Box<[u8]>>;

/// How many networks are tried to check what a database has. Many networks have no record, and some records may lack
/// the field.
const NETWORKS_TRIED: usize = 10_000;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The database of autonomous systems.
    Asn,
    /// The database of countries.
    Country,
}

impl Key {
    /// The name of its setting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asn => "geo.asn",
            Self::Country => "geo.country",
        }
    }

    /// Returns, for messages, what the records must have and which databases have it.
    const fn needs(self) -> (&'static str, &'static str) {
        match self {
            Self::Asn => ("autonomous systems", "an ASN database, such as GeoLite2-ASN"),
            Self::Country => ("countries", "a Country or City database, such as GeoLite2-Country"),
        }
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file cannot be read.
    #[error("{}: cannot read the database {}", key.name(), path.display())]
    Unreadable {
        /// The setting that names the file.
        key: Key,
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is larger than any known database.
    #[error("{}: {} is longer than {} MiB, the limit for a database", key.name(), path.display(), FILE_MAX >> 20)]
    TooLong {
        /// The setting that names the file.
        key: Key,
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is not a database, or it is damaged.
    #[error("{}: {} is not a database in MaxMind's format (.mmdb)", key.name(), path.display())]
    Malformed {
        /// The setting that names the file.
        key: Key,
        /// The path of the file.
        path: PathBuf,
        /// The mistake in the file.
        source: MaxMindDbError,
    },
    /// The database is of another kind.
    #[error(
        "{}: {} is a database of the type {found:?}, which has no {}: name {}",
        key.name(), path.display(), key.needs().0, key.needs().1
    )]
    OtherType {
        /// The setting that names the file.
        key: Key,
        /// The path of the file.
        path: PathBuf,
        /// The type that the file declares.
        found: String,
    },
}

#[derive(Deserialize)]
struct AsRecord<'d> {
    #[serde(rename = "autonomous_system_number", deserialize_with = "as_number")]
    number: u32,
    #[serde(rename = "autonomous_system_organization", default, borrow)]
    organization: &'d str,
}

/// Reads an ASN in any type that the database's maker may have chosen: an integer of any size, or text, with or without
/// the prefix `AS`.
fn as_number<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u32, D::Error> {
    deserializer.deserialize_any(AsNumber)
}

struct AsNumber;

impl Visitor<'_> for AsNumber {
    type Value = u32;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the number of an autonomous system")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(E::custom)
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<u32, E> {
        u32::try_from(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
        let digits = text.strip_prefix("AS").or_else(|| text.strip_prefix("as")).unwrap_or(text);
        digits.parse().map_err(E::custom)
    }
}

impl Geo {
    /// Reads the databases into memory.
    ///
    /// # Errors
    ///
    /// [`GeoError`]: a file cannot be read, or is not a database for its setting.
    pub fn open(geo: &GeoFiles) -> Result<Self, GeoError> {
        let GeoFiles { asn, country } = geo;
        let mut bytes = 0;
        let mut open =
            |key, path: &Option<PathBuf>| path.as_deref().map(|path| open(key, path, &mut bytes)).transpose();
        Ok(Self { asn: open(Key::Asn, asn)?, country: open(Key::Country, country)?, bytes })
    }

    /// The ASN of an address, and the name of the organization (which may be empty). `None` if there is no database, or
    /// if the database does not have the address.
    pub fn autonomous_system(&self, address: IpAddr) -> Option<(u32, &str)> {
        let AsRecord { number, organization } = self.asn.as_ref()?.lookup(address).ok()?.decode().ok()??;
        Some((number, organization))
    }

    /// The country of an address, as two capital letters (ISO 3166-1). `None` if there is no database, or if the
    /// database does not have the address.
    pub fn country(&self, address: IpAddr) -> Option<[u8; 2]> {
        let found = self.country.as_ref()?.lookup(address).ok()?;
        let code: &str = found.decode_path(&path!["country", "iso_code"]).ok()??;
        code.as_bytes().try_into().ok().filter(|code: &[u8; 2]| code.iter().all(u8::is_ascii_uppercase))
    }

    /// The memory of the databases, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Which database of this kind there is: its type, and when it was built, in seconds since 1970. `None` if there is
    /// none.
    pub fn edition(&self, key: Key) -> Option<(&str, u64)> {
        let database = match key {
            Key::Asn => self.asn.as_ref(),
            Key::Country => self.country.as_ref(),
        };
        database.map(Reader::metadata).map(|data| (data.database_type.as_str(), data.build_epoch))
    }

    /// Returns true if there is a database of this kind.
    pub const fn has(&self, key: Key) -> bool {
        match key {
            Key::Asn => self.asn.is_some(),
            Key::Country => self.country.is_some(),
        }
    }
}

/// Reads a database into memory, and adds its size to `total`.
fn open(key: Key, path: &Path, total: &mut usize) -> Result<Database, GeoError> {
    let unreadable = |source| GeoError::Unreadable { key, path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = open_regular(path).map_err(unreadable)?;
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(GeoError::TooLong { key, path: path.to_owned() });
    }
    *total += bytes.len();
    let malformed = |source| GeoError::Malformed { key, path: path.to_owned(), source };
    let database = Reader::from_source(bytes.into_boxed_slice()).map_err(malformed)?;
    if !has(key, &database).map_err(malformed)? {
        let found = database.metadata().database_type.clone();
        return Err(GeoError::OtherType { key, path: path.to_owned(), found });
    }
    Ok(database)
}

/// Returns true if a database has what its setting needs. This checks its records, not the name of its type, because
/// every maker chooses that name freely.
fn has(key: Key, database: &Database) -> Result<bool, MaxMindDbError> {
    // Networks without a record count, too, so that this ends with any content.
    let all = WithinOptions::default().include_networks_without_data();
    for record in database.networks(all)?.take(NETWORKS_TRIED) {
        let record = record?;
        let found = match key {
            Key::Asn => record.decode::<AsRecord<'_>>().is_ok_and(|found| found.is_some()),
            Key::Country => {
                record.decode_path::<&str>(&path!["country", "iso_code"]).is_ok_and(|found| found.is_some())
            }
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weir_system::text::with_causes;

    use super::*;

    fn corpus(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(name)
    }

    fn geo(asn: Option<&str>, country: Option<&str>) -> Result<Geo, GeoError> {
        Geo::open(&GeoFiles { asn: asn.map(corpus), country: country.map(corpus) })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_have_systems_and_countries() {
        let geo = geo(Some("asn.mmdb"), Some("country.mmdb")).unwrap();
        for (address, system, country) in [
            ("192.0.2.1", Some((64496, "Example Networks")), Some(*b"XX")),
            // This network has a number without a name, and a registered country instead of a country.
            ("198.51.100.255", Some((4_200_000_000, "")), None),
            // This network has no number, and a country that is not a country code.
            ("203.0.113.1", None, None),
            ("203.0.113.255", None, None),
            ("2001:db8::1", Some((64497, "Ex\u{e4}mple GmbH")), Some(*b"XY")),
            ("192.0.3.0", None, None),
            ("2001:db9::1", None, None),
            ("0.0.0.0", None, None),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ] {
            assert_eq!((geo.autonomous_system(ip(address)), geo.country(ip(address))), (system, country), "{address}");
        }
        assert!(geo.has(Key::Asn) && geo.has(Key::Country));
        let bytes = ["asn.mmdb", "country.mmdb"].map(|name| fs::metadata(corpus(name)).unwrap().len() as usize);
        assert_eq!(geo.memory_bytes(), bytes[0] + bytes[1]);
    }

    #[test]
    fn without_a_database_lookups_find_nothing() {
        let geo = geo(None, None).unwrap();
        assert_eq!((geo.autonomous_system(ip("192.0.2.1")), geo.country(ip("192.0.2.1"))), (None, None));
        assert!(!geo.has(Key::Asn) && !geo.has(Key::Country) && geo.memory_bytes() == 0);
    }

    #[test]
    fn a_database_of_ipv4_has_no_ipv6_addresses() {
        let geo = geo(Some("asn-ipv4.mmdb"), None).unwrap();
        assert_eq!(geo.autonomous_system(ip("192.0.2.1")), Some((64496, "Example Networks")));
        assert_eq!(geo.autonomous_system(ip("2001:db8::1")), None);
    }

    #[test]
    fn errors_explain_why_a_database_cannot_be_used() {
        let shown = |asn, country| {
            let message = with_causes(&geo(asn, country).unwrap_err());
            message.replace(&corpus("").display().to_string(), "")
        };
        assert_eq!(
            shown(Some("nowhere.mmdb"), None),
            "geo.asn: cannot read the database nowhere.mmdb: No such file or directory (os error 2)"
        );
        assert_eq!(
            shown(None, Some("/dev/null")),
            "geo.country: cannot read the database /dev/null: it is not a regular file"
        );
        assert_eq!(
            shown(Some("README.md"), None),
            "geo.asn: README.md is not a database in MaxMind's format (.mmdb): invalid database: could not find MaxMind DB metadata in file"
        );
        assert_eq!(
            shown(Some("country.mmdb"), None),
            "geo.asn: country.mmdb is a database of the type \"GeoLite2-Country\", which has no autonomous systems: name \
             an ASN database, such as GeoLite2-ASN"
        );
        assert_eq!(
            shown(Some("asn.mmdb"), Some("asn-ipv4.mmdb")),
            "geo.country: asn-ipv4.mmdb is a database of the type \"Example-ASN\", which has no countries: name a \
             Country or City database, such as GeoLite2-Country"
        );
    }

    /// Builds a database field of this type (<https://maxmind.github.io/MaxMind-DB/>, "Output Data Section"). It is
    /// shorter than 29 bytes, or has fewer entries.
    fn data(kind: u8, size: usize, content: &[u8]) -> Vec<u8> {
        let control = if kind < 8 { vec![kind << 5 | size as u8] } else { vec![size as u8, kind - 7] };
        [&control, content].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        data(2, text.len(), text.as_bytes())
    }

    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let content: Vec<_> = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat()).collect();
        data(7, entries.len(), &content)
    }

    /// A database with one node that maps all addresses to one record with this number.
    fn asn_of(number: &[u8]) -> Vec<u8> {
        let short = |number: u8| data(5, 1, &[number]);
        let record = map(&[("autonomous_system_number", number.to_vec())]);
        let metadata = map(&[
            ("node_count", data(6, 1, &[1])),
            ("record_size", short(24)),
            ("ip_version", short(4)),
            ("database_type", text("Example-ASN")),
            ("languages", data(11, 0, &[])),
            ("binary_format_major_version", short(2)),
            ("binary_format_minor_version", short(0)),
            ("build_epoch", data(9, 1, &[1])),
            ("description", map(&[])),
        ]);
        let to_record = [0, 0, 1 + 16];
        [&to_record[..], &to_record, &[0; 16], &record, b"\xab\xcd\xefMaxMind.com", &metadata].concat()
    }

    #[test]
    fn a_number_may_be_of_any_type() {
        let path = std::env::temp_dir().join(format!("weir-geo-types-{}", std::process::id()));
        let number = |value: &[u8]| {
            fs::write(&path, asn_of(value)).unwrap();
            let geo = Geo::open(&GeoFiles { asn: Some(path.clone()), country: None }).ok()?;
            geo.autonomous_system(ip("192.0.2.1")).map(|(number, _)| number)
        };
        // These types are unsigned integers of 16, 32, 64 and 128 bits, and signed integers of 32 bits.
        for kind in [5, 6, 8, 9, 10] {
            assert_eq!(number(&data(kind, 2, &[0xfb, 0xf0])), Some(64_496), "type {kind}");
        }
        for kind in [6, 9, 10] {
            assert_eq!(number(&data(kind, 4, &[0xfa, 0x56, 0xea, 0x00])), Some(4_200_000_000), "type {kind}");
        }
        for (shown, expected) in [("AS64496", Some(64_496)), ("64496", Some(64_496)), ("as1", Some(1)), ("x", None)] {
            assert_eq!(number(&text(shown)), expected, "{shown}");
        }
        assert_eq!(number(&data(9, 5, &[1, 0, 0, 0, 0])), None, "the number exceeds 32 bits");
        assert_eq!(number(&data(8, 4, &[0xff; 4])), None, "negative");
        assert_eq!(number(&data(14, 1, &[])), None, "not a number");
        fs::remove_file(&path).unwrap();
    }

    /// In this search tree, all paths go through the same 128 nodes and never end.
    #[test]
    fn a_search_tree_with_endless_paths_is_refused() {
        let mut bytes = fs::read(corpus("asn.mmdb")).unwrap();
        let metadata = Reader::from_source(bytes.as_slice()).unwrap().metadata().clone();
        assert!(metadata.record_size == 24 && metadata.node_count > 128 && metadata.ip_version == 6, "{metadata:?}");
        for (node, records) in bytes.chunks_exact_mut(6).take(128).enumerate() {
            let next = if node < 127 { node as u32 + 1 } else { metadata.node_count };
            records.copy_from_slice(&[&next.to_be_bytes()[1..], &next.to_be_bytes()[1..]].concat());
        }
        let path = std::env::temp_dir().join(format!("weir-geo-endless-{}", std::process::id()));
        fs::write(&path, &bytes).unwrap();
        let opened = Geo::open(&GeoFiles { asn: Some(path.clone()), country: None });
        fs::remove_file(&path).unwrap();
        assert!(matches!(opened, Err(GeoError::OtherType { key: Key::Asn, .. })), "{opened:?}");
    }

    #[test]
    fn damaged_databases_never_panic() {
        let addresses = ["192.0.2.1", "203.0.113.1", "1.1.1.1", "2001:db8::1", "::1"].map(ip);
        let path = std::env::temp_dir().join(format!("weir-geo-{}", std::process::id()));
        let (mut seed, mut opened) = (0, 0);
        let mut random = |below: usize| {
            seed += 1;
            (weir_sketch::hash::mix(seed) % below as u64) as usize
        };
        for round in 0..1000 {
            let (key, name) = [(Key::Asn, "asn.mmdb"), (Key::Country, "country.mmdb")][round % 2];
            let mut bytes = fs::read(corpus(name)).unwrap();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] ^= 1 << random(8),
                    _ => bytes[at] = random(256) as u8,
                }
            }
            fs::write(&path, &bytes).unwrap();
            let named = |is| if is { Some(path.clone()) } else { None };
            let config = GeoFiles { asn: named(key == Key::Asn), country: named(key == Key::Country) };
            if let Ok(geo) = Geo::open(&config) {
                opened += 1;
                for address in addresses {
                    let _ = (geo.autonomous_system(address), geo.country(address));
                }
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(opened > 100, "only {opened} could be opened, so lookups were hardly tested");
    }
}
