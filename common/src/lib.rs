//! What weir's kernel and user sides share.
//!
//! No I/O, no clock, no threads. In pipeline order: [`control`] is what the two sides tell each other,
//! [`cpu`] what the kernel side keeps for a CPU, [`packet`] parses bytes to a [`flow`] key, [`record`] is what
//! one flow did, [`sampling`] is the valve, [`ledger`] accounts for every packet, [`hash`] is keyed, [`sketch`] answers
//! in fixed memory.

#![no_std]
// Denied, not forbidden: `simd` has the only unsafe code, and the kernel's programs do not have that module.
#![cfg_attr(not(feature = "alloc"), forbid(unsafe_code))]
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
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
#[cfg(feature = "alloc")]
pub mod simd;
pub mod size;
#[cfg(feature = "alloc")]
pub mod sketch;
#[cfg(test)]
mod test_size;
