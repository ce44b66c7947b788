//! Names of addresses and numbers: [`networks`] that the configuration defines by their [`prefix`]es, ASNs and
//! countries from databases ([`geo`]), [`protocol`]s, [`services`] by port, and DSCP code points ([`dscp`]).

pub mod dscp;
pub mod geo;
mod network;
pub mod networks;
pub mod prefix;
pub mod protocol;
pub mod services;

pub use self::{
    geo::{Geo, GeoError, GeoFiles},
    network::{Network, PrefixFile},
    networks::{Networks, Scope},
    prefix::{PRIVATE, Prefix, PrefixError},
};

use crate::interface::Directions;

/// The tables in which a view's fields are looked up, besides the record.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The networks that the configuration names.
    pub networks: &'a Networks,
    /// The databases of ASNs and countries.
    pub geo: &'a Geo,
    /// The directions of interfaces.
    pub directions: &'a Directions,
}
