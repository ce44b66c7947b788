//! The names of IP protocols.

use std::borrow::Cow;

/// The IP protocol's name in lower case (IANA's keyword without punctuation), or its number as text.
pub fn protocol_name(number: u8) -> Cow<'static, str> {
    let name = match number {
        0 => "hopopt",
        1 => "icmp",
        2 => "igmp",
        4 => "ipip",
        6 => "tcp",
        8 => "egp",
        9 => "igp",
        17 => "udp",
        27 => "rdp",
        33 => "dccp",
        41 => "ipv6",
        43 => "ipv6-route",
        44 => "ipv6-frag",
        46 => "rsvp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        59 => "ipv6-nonxt",
        60 => "ipv6-opts",
        88 => "eigrp",
        89 => "ospf",
        97 => "etherip",
        103 => "pim",
        108 => "ipcomp",
        112 => "vrrp",
        115 => "l2tp",
        132 => "sctp",
        135 => "mobility",
        136 => "udplite",
        137 => "mpls-in-ip",
        139 => "hip",
        140 => "shim6",
        143 => "ethernet",
        other => return Cow::Owned(other.to_string()),
    };
    Cow::Borrowed(name)
}

/// The number of the protocol with this name, as given by [`protocol_name`].
pub fn protocol_number(name: &str) -> Option<u8> {
    (0..=u8::MAX).find(|number| protocol_name(*number) == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_protocol_has_its_own_name() {
        let names: BTreeSet<_> = (0..=u8::MAX).map(protocol_name).collect();
        assert_eq!(names.len(), 256);
        assert_eq!(
            (protocol_name(6), protocol_name(58), protocol_name(253)),
            ("tcp".into(), "icmpv6".into(), "253".into())
        );
    }
}
