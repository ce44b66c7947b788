//! The truth about a fleet: what `weir merge` makes of the reports of many routers, whose sketches are those of the
//! product, from records on.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod fleet;
mod questions;
mod router;
