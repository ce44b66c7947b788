//! Replays of captures, with this program's plan of memory.

use std::{io, sync::Arc};

use weir_config::Config;
use weir_datapath::{Cpus, capture::Broken};
use weir_measure::question::Views;
pub use weir_replay::{Listener, Options, ReplayError, Windows, interface_name, write_json};
use weir_schema::Report;

use crate::memory::Memory;

/// As [`weir_replay::replay`].
///
/// # Errors
///
/// The same.
pub fn replay(
    config: &Config,
    options: &Options,
    deliver: &mut dyn FnMut(&Report) -> io::Result<()>,
) -> Result<Vec<Broken>, ReplayError> {
    weir_replay::replay(config, options, planned, deliver)
}

/// As [`weir_replay::replay_to`].
///
/// # Errors
///
/// The same.
pub fn replay_to(config: &Config, options: &Options, listener: &mut dyn Listener) -> Result<Vec<Broken>, ReplayError> {
    weir_replay::replay_to(config, options, planned, listener)
}

fn planned(config: &Config, views: &Arc<Views>, cpus: &Cpus) -> u64 {
    Memory::plan(config, views, cpus, true).resident()
}
