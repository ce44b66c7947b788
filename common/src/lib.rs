//! What weir's kernel and user sides share.
//!
//! This crate does no I/O, reads no clock, starts no threads and allocates no memory. In pipeline order: [`control`] is
//! what the two sides exchange; [`cpu`] is the kernel side's data for one CPU; [`packet`] parses bytes to a [`flow`]
//! key, with the protocol numbers of [`proto`]; [`record`] is what one flow did; [`sampling`] leaves packets out;
//! [`ledger`] accounts for every packet; [`hash`] finds a flow's place in the cache.
//!
//! The feature `sketch` is for userspace: it makes flow keys and tallies usable in the sketches of `weir-sketch`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod control;
pub mod cpu;
pub mod flow;
pub mod hash;
pub mod ledger;
pub mod packet;
pub mod proto;
pub mod record;
pub mod sampling;
pub mod size;
#[cfg(feature = "sketch")]
pub mod sketch;
