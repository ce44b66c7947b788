//! Service names by port, for services that operators often see, as registered by IANA.
//!
//! weir does not use `/etc/services`: a container or a small router may not have that file, and all machines must show
//! the same names. A name shows the registered use of a port, not what the packets contained.

/// Flags for the protocols of a service. A service may use several.
const TCP: u8 = 1;
const UDP: u8 = 2;
const SCTP: u8 = 4;

/// Each port once, with its name and its protocols.
const SERVICES: [(u16, &str, u8); 83] = [
    (20, "ftp-data", TCP),
    (21, "ftp", TCP),
    (22, "ssh", TCP),
    (23, "telnet", TCP),
    (25, "smtp", TCP),
    (43, "whois", TCP),
    (49, "tacacs", TCP),
    (53, "domain", TCP | UDP),
    (67, "bootps", UDP),
    (68, "bootpc", UDP),
    (69, "tftp", UDP),
    (80, "http", TCP),
    (88, "kerberos", TCP | UDP),
    (110, "pop3", TCP),
    (111, "sunrpc", TCP | UDP),
    (119, "nntp", TCP),
    (123, "ntp", UDP),
    (135, "epmap", TCP),
    (137, "netbios-ns", UDP),
    (138, "netbios-dgm", UDP),
    (139, "netbios-ssn", TCP),
    (143, "imap", TCP),
    (161, "snmp", UDP),
    (162, "snmptrap", UDP),
    (179, "bgp", TCP),
    (389, "ldap", TCP | UDP),
    (443, "https", TCP | UDP),
    (445, "microsoft-ds", TCP),
    (464, "kpasswd", TCP | UDP),
    (465, "submissions", TCP),
    (500, "isakmp", UDP),
    (514, "syslog", UDP),
    (515, "printer", TCP),
    (520, "router", UDP),
    (521, "ripng", UDP),
    (546, "dhcpv6-client", UDP),
    (547, "dhcpv6-server", UDP),
    (548, "afpovertcp", TCP),
    (554, "rtsp", TCP),
    (587, "submission", TCP),
    (631, "ipp", TCP),
    (636, "ldaps", TCP),
    (646, "ldp", TCP | UDP),
    (853, "domain-s", TCP | UDP),
    (873, "rsync", TCP),
    (989, "ftps-data", TCP),
    (990, "ftps", TCP),
    (993, "imaps", TCP),
    (995, "pop3s", TCP),
    (1194, "openvpn", TCP | UDP),
    (1433, "ms-sql-s", TCP),
    (1701, "l2tp", UDP),
    (1812, "radius", UDP),
    (1813, "radius-acct", UDP),
    (1883, "mqtt", TCP),
    (1900, "ssdp", UDP),
    (1985, "hsrp", UDP),
    (2049, "nfs", TCP | UDP),
    (2123, "gtp-control", UDP),
    (2152, "gtp-user", UDP),
    (3260, "iscsi-target", TCP),
    (3306, "mysql", TCP),
    (3389, "ms-wbt-server", TCP | UDP),
    (3478, "stun", TCP | UDP),
    (3784, "bfd-control", UDP),
    (3868, "diameter", TCP | SCTP),
    (4500, "ipsec-nat-t", UDP),
    (4739, "ipfix", TCP | UDP | SCTP),
    (4789, "vxlan", UDP),
    (5060, "sip", TCP | UDP | SCTP),
    (5061, "sips", TCP | UDP | SCTP),
    (5222, "xmpp-client", TCP),
    (5353, "mdns", UDP),
    (5432, "postgresql", TCP),
    (5672, "amqp", TCP),
    (6081, "geneve", UDP),
    (6343, "sflow", UDP),
    (6379, "redis", TCP),
    (6514, "syslog-tls", TCP),
    (6653, "openflow", TCP),
    (8080, "http-alt", TCP),
    (8883, "secure-mqtt", TCP),
    (9418, "git", TCP),
];

/// The name of the service at this port. Without a protocol, any protocol matches.
pub fn service_name(proto: Option<&str>, port: u16) -> Option<&'static str> {
    let nth = SERVICES.binary_search_by_key(&port, |(port, ..)| *port).ok()?;
    let (_, name, protocols) = SERVICES[nth];
    let bit = match proto {
        None => protocols,
        Some("tcp") => TCP,
        Some("udp") => UDP,
        Some("sctp") => SCTP,
        Some(_) => 0,
    };
    (protocols & bit != 0).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_name_for_its_protocols() {
        assert!(SERVICES.is_sorted_by(|(one, ..), (other, ..)| one < other));
        for (port, name, _) in SERVICES {
            // The rules of IANA for names (RFC 6335).
            assert!(
                name.len() <= 15
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert_eq!(service_name(None, port), Some(name));
        }
        assert_eq!(
            [Some("tcp"), Some("udp"), Some("icmp"), None].map(|proto| service_name(proto, 22)),
            [Some("ssh"), None, None, Some("ssh")]
        );
        assert_eq!(
            [443, 514, 1, 65_535].map(|port| service_name(Some("udp"), port)),
            [Some("https"), Some("syslog"), None, None]
        );
    }
}
