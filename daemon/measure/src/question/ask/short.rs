//! The short forms of a query: `:443`, `tcp/443`, `udp`, `192.0.2.7:443`, `AS64496`.
//!
//! A short form stands for several queries with fields, one for each kind of key that a list or view may have.
//! Addresses and prefixes need no short form, and names are resolved before: [`is_name`].

use std::net::{IpAddr, SocketAddr};

use weir_config::names::protocol::protocol_number;

/// The possible protocols of a port without a protocol.
const OF_PORTS: [&str; 2] = ["tcp", "udp"];

/// The queries for which a short form stands. `None` if the text is not a short form.
pub fn meant(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if let Some(port) = text.strip_prefix(':').and_then(port) {
        let of_services = OF_PORTS.iter().map(|proto| format!("proto={proto},port={port}"));
        return Some(
            of_services.chain(["port", "src_port", "dst_port"].map(|field| format!("{field}={port}"))).collect(),
        );
    }
    if let Some((proto, port)) = service(text) {
        return Some(["port", "src_port", "dst_port"].map(|field| format!("proto={proto},{field}={port}")).into());
    }
    if let Ok(end) = text.parse::<SocketAddr>() {
        let (ip, port) = (end.ip(), end.port());
        return Some(["port", "src_port", "dst_port"].map(|field| format!("{ip},{field}={port}")).into());
    }
    if let Some(number) = autonomous_system(text) {
        return Some(["src_as", "dst_as"].map(|field| format!("{field}={number}")).into());
    }
    protocol_number(&text.to_ascii_lowercase()).map(|_| vec![format!("proto={text}")])
}

/// Returns true if a query is the name of a host, which has to be resolved first.
pub fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !part.is_empty() && part.bytes().all(is_of_names)
    };
    let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    has_letter
        && meant(text).is_none()
        && text.parse::<IpAddr>().is_err()
        && text.strip_suffix('.').unwrap_or(text).split('.').all(is_part)
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok()
}

/// A service as reports show it: `tcp/443`.
fn service(text: &str) -> Option<(&str, u16)> {
    let (proto, port) = text.split_once('/')?;
    protocol_number(&proto.to_ascii_lowercase())?;
    Some((proto, self::port(port)?))
}

fn autonomous_system(text: &str) -> Option<u32> {
    let prefix = text.get(..2).filter(|prefix| prefix.eq_ignore_ascii_case("as"))?;
    text[prefix.len()..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_stand_for_fields() {
        let ports = ["proto=tcp,port=443", "proto=udp,port=443", "port=443", "src_port=443", "dst_port=443"];
        assert_eq!(meant(":443").unwrap(), ports);
        assert_eq!(meant("tcp/443").unwrap()[0], "proto=tcp,port=443");
        assert_eq!(meant("UDP").unwrap(), ["proto=UDP"]);
        assert_eq!(meant("192.0.2.7:443").unwrap()[2], "192.0.2.7,dst_port=443");
        assert_eq!(meant("[2001:db8::7]:443").unwrap()[0], "2001:db8::7,port=443");
        assert_eq!(meant("as64496").unwrap(), ["src_as=64496", "dst_as=64496"]);
        for long in
            ["192.0.2.7", "192.0.2.0/24", "2001:db8::/48", "src_ip=192.0.2.7", "443", ":65536", ":", "tcp/x", ""]
        {
            assert_eq!(meant(long), None, "{long}");
        }
    }

    #[test]
    fn only_texts_without_another_meaning_are_names() {
        for name in ["example.net", "example.net.", "fritz.box", "router", "a-b_c.example"] {
            assert!(is_name(name), "{name}");
        }
        for other in ["192.0.2.7", "2001:db8::7", ":443", "tcp", "tcp/443", "AS64496", "src_ip=a", "443", "a..b", "a,b"]
        {
            assert!(!is_name(other), "{other}");
        }
    }
}
