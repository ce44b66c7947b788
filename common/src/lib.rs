//! What weir's kernel and user sides share.
//!
//! No I/O, no clock, no threads, no allocator. In pipeline order: [`control`] is what the two sides tell each other,
//! [`cpu`] what the kernel side keeps for a CPU, [`packet`] parses bytes to a [`flow`] key, [`record`] is what
//! one flow did, [`sampling`] is the valve, [`ledger`] accounts for every packet, [`hash`] is keyed.
//!
//! With the feature `sketch`, which only userspace has, flow keys and tallies go into the sketches of `weir-sketch`.

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
pub mod record;
pub mod sampling;
pub mod size;
#[cfg(feature = "sketch")]
pub mod sketch;
