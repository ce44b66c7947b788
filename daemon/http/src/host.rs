//! The header `Host`.
//!
//! A foreign web page may make a browser send requests here, under a name that resolves to this machine (DNS
//! rebinding). The browser would treat that page as the same origin, so servers check the name.

use std::net::{IpAddr, Ipv6Addr};

/// Returns true for a host with or without a port, as a URI has them (RFC 9112 section 3.2, RFC 3986 section 3.2.2).
/// User names are no part of it: in `localhost:80@evil.example` the host is the last name, and a careless reader takes
/// the first one.
pub fn is_valid(host: &str) -> bool {
    let is_port = |rest: &str| {
        rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(rest) = host.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(address, port)| address.parse::<Ipv6Addr>().is_ok() && is_port(port));
    }
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    let end = host.bytes().position(|byte| !in_name(byte)).unwrap_or(host.len());
    is_port(&host[end..])
}

/// The name in the header, without the port.
pub fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Returns true if a name is an address or localhost. A foreign page has neither.
pub fn is_own(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_no_user_name() {
        let valid =
            ["", "localhost", "localhost:", "a.example:80", "[::1]", "[::1]:9469", "192.0.2.1:1", "under_score:1"];
        for host in valid {
            assert!(is_valid(host), "{host}");
        }
        for host in [
            "localhost@evil.example",
            "localhost:80@evil.example",
            "@localhost",
            "user:password@localhost:80",
            "localhost:80:80",
            "localhost:x",
            "localhost/",
            "localhost evil.example",
            "::1",
            "[::1",
            "[localhost]",
            "[::1]x",
            "z\u{fc}rich",
        ] {
            assert!(!is_valid(host), "{host}");
        }
    }

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
