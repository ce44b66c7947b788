//! XDP in generic mode, by any program. Behind such a program the kernel may hide the link header from programs at the
//! tc hook (seen with Linux 6.18, if the XDP program accepts packets in several buffers). weir's programs find the
//! header nevertheless.

use std::fmt;

use super::netlink::Device;

/// Interfaces stacked deeper than this are not followed.
const DEPTH_MAX: usize = 8;

/// An interface with an XDP program in generic mode: the interface in question, or one below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericXdp {
    /// The name of the interface.
    pub interface: String,
}

impl GenericXdp {
    /// The program that packets of `device` pass before its tc hook; `None` if there is none.
    pub fn before(device: &Device, devices: &[Device]) -> Option<Self> {
        Self::within(device, devices, DEPTH_MAX)
    }

    /// Returns true if such a program is on this interface.
    pub fn is_on(device: &Device) -> bool {
        device.xdp.is_some_and(|program| matches!(program.place, "generic" | "several modes"))
    }

    fn within(device: &Device, devices: &[Device], depth: usize) -> Option<Self> {
        if Self::is_on(device) {
            return Some(Self { interface: device.name.clone() });
        }
        // The peer of a veth is not below it: packets that the peer sends have a link header.
        let lower = device.lower.filter(|_| device.kind.as_deref() != Some("veth"));
        let is_below = |other: &&Device| lower == Some(other.ifindex) || other.master == Some(device.ifindex);
        let mut below = devices.iter().filter(is_below);
        below.find_map(|other| Self::within(other, devices, depth.checked_sub(1)?))
    }
}

/// The warning for the log.
impl fmt::Display for GenericXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "XDP runs in generic mode on {}. Behind it the kernel may hide Ethernet headers from programs at the tc hook. \
             weir finds them; another program may misread such packets",
            self.interface
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::netlink::XdpProgram, *};

    fn device(ifindex: u32, kind: &str) -> Device {
        Device { ifindex, name: format!("if{ifindex}"), kind: Some(kind.to_owned()), ..Device::default() }
    }

    fn with(place: &'static str, device: Device) -> Device {
        Device { xdp: Some(XdpProgram { id: Some(7), place }), ..device }
    }

    #[test]
    fn generic_xdp_is_found_on_an_interface_and_below_it() {
        let on = |lower, device| Device { lower: Some(lower), ..device };
        let devices = [
            Device { master: Some(4), ..with("generic", device(2, "veth")) },
            on(2, device(3, "macvlan")),
            device(4, "bridge"),
            on(4, device(5, "vlan")),
            on(2, device(6, "veth")),
            with("native", device(7, "veth")),
            on(9, device(8, "vlan")),
            on(8, device(9, "vlan")),
        ];
        for (ifindex, expected) in [(2, true), (3, true), (4, true), (5, true), (6, false), (7, false), (8, false)] {
            let device = devices.iter().find(|device| device.ifindex == ifindex).unwrap();
            let found = GenericXdp::before(device, &devices).map(|found| found.interface);
            assert_eq!(found.as_deref(), expected.then_some("if2"), "{ifindex}");
        }
    }
}
