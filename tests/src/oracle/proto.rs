//! Names of IP protocols, as reports and other programs write them.

/// Protocols that reports name, with all their names in use.
const PROTOS: [(u8, &[&str]); 14] = [
    (1, &["icmp"]),
    (2, &["igmp"]),
    (4, &["ipip", "ipv4", "ip-in-ip", "ipencap"]),
    (6, &["tcp"]),
    (17, &["udp"]),
    (33, &["dccp"]),
    (41, &["6in4", "ipv6"]),
    (47, &["gre"]),
    (50, &["esp"]),
    (51, &["ah"]),
    (58, &["icmpv6", "icmp6", "ipv6-icmp"]),
    (89, &["ospf", "ospfigp"]),
    (132, &["sctp"]),
    (136, &["udplite", "udp-lite", "udp_lite"]),
];

/// The name of a protocol, or its number as text.
pub fn name(proto: u8) -> String {
    let named = PROTOS.iter().find(|(number, _)| *number == proto);
    named.map_or_else(|| proto.to_string(), |(_, names)| names[0].to_owned())
}

/// The number of a protocol that has this name, or whose number this is.
pub fn number(name: &str) -> Option<u8> {
    /// Protocols that other programs name, but [`name`] does not.
    const MORE: [(u8, &str); 17] = [
        (8, "egp"),
        (9, "igp"),
        (27, "rdp"),
        (46, "rsvp"),
        (59, "ipv6-nonxt"),
        (88, "eigrp"),
        (97, "etherip"),
        (103, "pim"),
        (108, "ipcomp"),
        (112, "vrrp"),
        (115, "l2tp"),
        (135, "mobility"),
        (135, "mobility-header"),
        (137, "mpls-in-ip"),
        (139, "hip"),
        (140, "shim6"),
        (143, "ethernet"),
    ];
    let also = MORE.iter().find(|(_, more)| *more == name).map(|(number, _)| *number);
    let listed = PROTOS.iter().find(|(_, names)| names.contains(&name)).map(|(number, _)| *number);
    listed.or(also).or_else(|| name.parse().ok())
}
