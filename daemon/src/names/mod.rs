//! What addresses and numbers are called: [`networks`] that the configuration names by their [`prefix`]es, autonomous
//! systems and countries from databases ([`geo`]), [`protocol`]s, [`services`] by their ports, and code points
//! ([`dscp`]).

pub mod dscp;
mod file;
pub mod geo;
mod network;
pub mod networks;
pub mod prefix;
pub mod protocol;
pub mod services;

pub(crate) use self::file::open_regular;
pub use self::{
    geo::{Geo, GeoError, GeoFiles},
    network::{Network, PrefixFile},
    networks::{Networks, Scope},
    prefix::{Prefix, PrefixError},
};

use crate::interface::Directions;

/// What a view's fields are read from, besides a record.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The networks with names.
    pub networks: &'a Networks,
    /// Autonomous systems and countries.
    pub geo: &'a Geo,
    /// Directions of interfaces.
    pub directions: &'a Directions,
}
