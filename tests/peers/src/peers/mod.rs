//! The peers: each in the fastest way that its documentation offers, with its own hash or, if it takes ready hashes,
//! with weir's.

pub mod distinct;
pub mod filters;
pub mod frequency;
pub mod record;
pub mod spread;
pub mod top_k;
