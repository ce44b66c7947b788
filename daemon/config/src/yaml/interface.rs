//! The section `interfaces`: which interfaces are measured, how, and in which direction.

use serde::{Serialize, Serializer};
use weir_common::control::{self, Feeds};
use weir_system::text::short;

use super::{
    AUTO,
    limits::{DEFAULT_ROUTES_MAX, INTERFACES_MAX, OTHER_NAME_BYTES},
    section::Field,
};
use crate::interface::{self, DEFAULT_ROUTE, Way};

/// An entry for interfaces to measure: one by name, all that match a pattern, or all that carry a default route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The interface's name or an alternative name, as Linux allows it; a pattern, if it contains `*` or `?`; or
    /// [`interface::DEFAULT_ROUTE`].
    pub name: String,
    /// How to attach to it.
    pub mode: Mode,
    /// The packets of it that are measured.
    pub direction: Direction,
    /// Which of these packets feed totals and lists. If `None`, weir decides.
    #[serde(serialize_with = "write_feeds")]
    pub feeds: Option<Feeds>,
}

fn write_feeds<S: Serializer>(feeds: &Option<Feeds>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(feeds.map_or(AUTO, Feeds::name))
}

impl Interface {
    /// Returns true if the name is a pattern.
    pub fn is_pattern(&self) -> bool {
        interface::is_pattern(&self.name)
    }

    /// Returns true if it means the interfaces that carry the default route.
    pub fn is_default_route(&self) -> bool {
        self.name == DEFAULT_ROUTE
    }

    /// Returns true if it names one interface, for which weir waits. The interfaces of other entries come and go.
    pub fn is_named(&self) -> bool {
        !self.is_pattern() && !self.is_default_route()
    }

    /// How many slots it may need.
    pub fn slots(&self) -> usize {
        if self.is_pattern() {
            SLOTS_MAX
        } else if self.is_default_route() {
            DEFAULT_ROUTES_MAX * self.direction.ways().len()
        } else {
            self.direction.ways().len()
        }
    }

    /// Returns true if this entry covers the interface `name`. `carries_default` is set if a default route uses the
    /// interface. A pattern never matches the loopback interface.
    pub fn covers(&self, name: &str, carries_default: bool) -> bool {
        if self.is_pattern() {
            name != "lo" && interface::fits(&self.name, name)
        } else {
            self.name == name || carries_default && self.is_default_route()
        }
    }
}

/// The number of slots for interfaces, including the shared one.
pub(super) const SLOTS_MAX: usize = control::SLOTS_MAX as usize;

/// How many slots these interfaces need: one per direction, some for the default route, or all slots if there is a
/// pattern. The shared slot is always included.
pub fn slots<'i>(interfaces: impl IntoIterator<Item = &'i Interface>) -> usize {
    interfaces.into_iter().map(Interface::slots).sum::<usize>().min(SLOTS_MAX)
}

/// How the program is attached to an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The best mode that works for the interface.
    #[default]
    Auto,
    /// Native XDP, in the driver only.
    Native,
    /// Generic XDP, in the network stack, on any interface.
    Generic,
    /// The tc hook, through TCX (Linux 6.6 and later).
    Tcx,
    /// The tc hook, through a classic filter.
    Tc,
    /// A packet socket, without eBPF.
    AfPacket,
}

/// The packets of an interface that are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received packets.
    #[default]
    Ingress,
    /// Sent packets.
    Egress,
    /// Both, each with its own ledger.
    Both,
}

impl Direction {
    /// The directions that this includes.
    pub const fn ways(self) -> &'static [Way] {
        match self {
            Self::Ingress => &[Way::Ingress],
            Self::Egress => &[Way::Egress],
            Self::Both => &[Way::Ingress, Way::Egress],
        }
    }
}

const MODES: [(&str, Mode); 6] = [
    ("auto", Mode::Auto),
    ("native", Mode::Native),
    ("generic", Mode::Generic),
    ("tcx", Mode::Tcx),
    ("tc", Mode::Tc),
    ("afpacket", Mode::AfPacket),
];

const DIRECTIONS: [(&str, Direction); 3] =
    [("ingress", Direction::Ingress), ("egress", Direction::Egress), ("both", Direction::Both)];

/// The directions that a view may match.
pub(super) const WAYS: [(&str, Way); 2] = [("ingress", Way::Ingress), ("egress", Way::Egress)];

const FEEDS: [(&str, Option<Feeds>); 4] =
    [(AUTO, None), ("all", Some(Feeds::All)), ("local", Some(Feeds::Local)), ("none", Some(Feeds::None))];

/// Reads the section `interfaces`.
pub(super) fn interfaces(field: &Field<'_>) -> Option<Vec<Interface>> {
    let mut taken: Vec<(Field<'_>, Interface)> = Vec::new();
    for field in field.list(INTERFACES_MAX, "[eth0, eth1]")? {
        let Some(interface) = interface(&field) else { continue };
        match taken.iter().find(|(_, earlier)| earlier.name == interface.name) {
            Some((earlier, _)) => field.refuse(format!("{} is listed already, as {}", interface.name, earlier.path())),
            None => taken.push((field, interface)),
        }
    }
    let ways_of = |interface: &Interface| match interface.is_pattern() {
        true => interface.direction.ways().len(),
        false => interface.slots(),
    };
    let ways: usize = taken.iter().map(|(_, interface)| ways_of(interface)).sum();
    if ways > INTERFACES_MAX {
        field.refuse(format!(
            "{ways} directions of interfaces are more than the {INTERFACES_MAX} allowed (`direction: both` counts twice, \
             `default route` as {DEFAULT_ROUTES_MAX} interfaces)"
        ));
    }
    Some(taken.into_iter().map(|(_, interface)| interface).collect())
}

/// Reads an entry: a name, or a map with a name and further settings.
fn interface(field: &Field<'_>) -> Option<Interface> {
    if !field.is_map() {
        return Some(Interface {
            name: interface_or_route(field)?,
            mode: Mode::default(),
            direction: Direction::default(),
            feeds: None,
        });
    }
    let (name, mode, direction, feeds) = field.section("{name: eth0}", |s| {
        let name = s.require("name", "the interface, such as eth0", |f| interface_or_route(&f));
        let mode = s.get("mode", Mode::default(), |f| f.choice(&MODES));
        let direction = s.get("direction", Direction::default(), |f| direction(&f, mode));
        (name, mode, direction, s.get("feeds", None, |f| feeds(&f, direction)))
    })?;
    Some(Interface { name: name?, mode, direction, feeds })
}

/// Reads which packets feed totals and lists. With `both`, `local` applies to the sent packets.
fn feeds(field: &Field<'_>, direction: Direction) -> Option<Option<Feeds>> {
    let feeds = field.choice(&FEEDS)?;
    if feeds == Some(Feeds::Local) && direction == Direction::Ingress {
        field.refuse("`local` is about packets that the interface sends: add `direction: egress` or `direction: both`");
        return None;
    }
    Some(feeds)
}

/// Reads the direction. `both` works with any mode: TCX then measures the sent packets.
fn direction(field: &Field<'_>, mode: Mode) -> Option<Direction> {
    let direction = field.choice(&DIRECTIONS)?;
    if direction == Direction::Egress && matches!(mode, Mode::Native | Mode::Generic) {
        field.refuse("XDP sees only packets that an interface receives: leave out `mode`, or use `mode: tcx`");
        return None;
    }
    Some(direction)
}

/// Reads an interface's name, or the words for the default route.
fn interface_or_route(field: &Field<'_>) -> Option<String> {
    let name = field.text()?;
    if name == DEFAULT_ROUTE { Some(name.to_owned()) } else { device_name(field, name) }
}

pub(super) fn interface_name(field: &Field<'_>) -> Option<String> {
    device_name(field, field.text()?)
}

/// Checks a name: one that Linux accepts for a device (`dev_valid_name`), without control characters, or an alternative
/// name, which may be longer.
fn device_name(field: &Field<'_>, name: &str) -> Option<String> {
    if !OTHER_NAME_BYTES.contains(&name.len()) {
        let (min, max) = OTHER_NAME_BYTES.into_inner();
        field.refuse(format!("{:?} has {} bytes, but an interface name {min} to {max}", short(name), name.len()));
    } else if name.contains(is_forbidden_in_name) || name == "." || name == ".." {
        field.refuse(format!(
            "{name:?} cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'"
        ));
    } else {
        return Some(name.to_owned());
    }
    None
}

fn is_forbidden_in_name(c: char) -> bool {
    c == '/' || c == ':' || c.is_whitespace() || c.is_control()
}
