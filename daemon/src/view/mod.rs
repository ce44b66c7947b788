//! Views: questions on the traffic, and the names of addresses that they are asked by.

pub mod geo;
pub mod networks;
