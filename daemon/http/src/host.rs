//! The header `Host`.
//!
//! A foreign web page may make a browser send requests here, under a name that resolves to this machine (DNS
//! rebinding). The browser would treat that page as the same origin, so servers check the name.

use std::net::IpAddr;

/// The name in the header, without the port.
pub fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Whether a name is an address or localhost. A foreign page has neither.
pub fn is_own(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_names_of_this_machine() {
        for host in ["127.0.0.1:9469", "127.0.0.1", "[::1]:9469", "localhost", "LOCALHOST:9469", "192.0.2.1:1"] {
            assert!(is_own(name(host)), "{host}");
        }
        for host in
            ["", "example.net", "example.net:9469", "localhost.example.net", "127.0.0.1.example.net", "[", "::1"]
        {
            assert!(!is_own(name(host)), "{host}");
        }
        assert_eq!(
            (name("edge-1.example.net:9470"), name("edge-1.example.net")),
            ("edge-1.example.net", "edge-1.example.net")
        );
    }
}
