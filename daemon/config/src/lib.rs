//! The configuration of weir. [`Config`] is the content of `weir.yaml`, validated, with a value for every setting.
//!
//! A [`view`] is a question that is asked of every record, and a [`rule`] defines an alert. [`names`] has the names of
//! addresses and numbers, and [`interface`] selects which packets of which interface are measured. Only the files in
//! `yaml/` read YAML. Each module imports only those before it in this order: interface, names, view, rule, yaml.

#![forbid(unsafe_code)]

mod flow_question;
mod horizon;
pub mod interface;
pub mod names;
pub mod priority;
pub mod rule;
mod typed_time;
pub mod view;
mod yaml;

pub use self::{flow_question::FlowQuestion, horizon::horizon_name, typed_time::TypedTime, yaml::*};
