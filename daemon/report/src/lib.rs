//! How a report is made: a window ends, its shards become a summary, and that becomes a report.
//!
//! [`closing`] ends a window, [`compose`] makes its report, [`observer`] numbers it, `sample` has the flow records
//! that the history keeps, and a [`SketchExporter`] gathers the sketches that leave the router in reports. What a
//! report means to its readers is in [`weir_schema`].

#![forbid(unsafe_code)]

pub mod closing;
pub mod compose;
pub mod exporter;
pub mod observer;
mod questions;
mod sample;

pub use exporter::SketchExporter;
pub use questions::questions;
