//! The peers: each at its fastest that its documentation offers, with the hash that it comes with or, where it takes
//! ready hashes, weir's.

pub mod distinct;
pub mod filters;
pub mod frequency;
pub mod record;
pub mod spread;
pub mod top_k;
