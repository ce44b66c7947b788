//! The names of hosts, as weir answers them. They are no part of reports.

use std::{
    io::{self, Write},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::grid::{
    Align::Left,
    Cell, Grid,
    Tone::{Faint, Strong},
};

/// The schema that [`NamesAnswer`] serialises to.
pub const NAMES_SCHEMA: &str = "weir.names/1";

/// Where a name is from. Of two names, that of the earlier source is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameSource {
    /// The operator's own file.
    File,
    /// `/etc/hosts`.
    Hosts,
    /// The lease of a DHCP server, which has the name from its client.
    Lease,
}

impl NameSource {
    /// What screens call it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Hosts => "hosts",
            Self::Lease => "DHCP",
        }
    }
}

/// The answer to `names` on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesAnswer {
    /// The schema's name and version.
    pub schema: String,
    /// The names, in the order of their addresses.
    pub names: Vec<NameOf>,
}

impl NamesAnswer {
    /// Writes a table for people, in at most `width` columns.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, width: usize, color: bool, out: &mut impl Write) -> io::Result<()> {
        if self.names.is_empty() {
            return writeln!(out, "no name is known: `names:` in the configuration says where they come from");
        }
        let mut grid = Grid::new([Left, Left, Left]);
        grid.row(["address", "name", "from"].map(|head| Cell::new(head, Strong)));
        for NameOf { address, name, source } in &self.names {
            grid.row([Cell::from(address.to_string()), Cell::from(name), Cell::new(source.words(), Faint)]);
        }
        grid.write_within(width, color, out)
    }
}

/// The name of an address. It is text that somebody chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameOf {
    /// The address.
    pub address: IpAddr,
    /// Its name.
    pub name: String,
    /// Where the name is from.
    pub source: NameSource,
}
