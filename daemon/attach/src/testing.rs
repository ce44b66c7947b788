//! Rules, interfaces and attachments for the unit tests of this crate.

use weir_config::{Direction, Interface, Mode, interface::Way};

use crate::{
    attachment::Attachment,
    netlink::Device,
    present::{Origin, Present},
};

/// A rule of the configuration with which weir chooses the mode.
pub fn rule(name: &str, direction: Direction) -> Interface {
    Interface { name: name.to_owned(), mode: Mode::Auto, direction, feeds: None }
}

/// Makes an Ethernet interface.
pub fn device(ifindex: u32, name: &str) -> Device {
    Device { ifindex, name: name.to_owned(), hardware: 1, ..Device::default() }
}

/// An attachment to this interface, for the rule with this number.
pub fn attached(rule: usize, name: &str, way: Way, ifindex: u32) -> Attachment {
    let mut one = Attachment::new(rule, name, way);
    one.present =
        Some(Present { ifindex, xdp: None, is_virtual: true, address: None, origin: Origin::default(), number: 1 });
    one
}
