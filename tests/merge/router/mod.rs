//! A router of these tests makes its reports with the product's own parts, in small sizes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use weir_config::Config;
use weir_measure::{
    keys::Keys,
    question::Views,
    seen::{self, Rotation},
    shard::Shard,
};
use weir_report::{SketchExporter, closing::Closing, observer::Observer};
use weir_schema::alerting::Alerts;
use weir_sketch::hash::Key;

/// Makes the estimates small, and leaves two of the standard lists.
pub fn make_small(config: &mut Config) {
    config.estimates.top_error = 0.005;
    config.estimates.unique_error = 0.016;
    config.seen_flows.capacity = 10_000;
    config.standard_views.retain(|view| ["sources", "services"].contains(&view.name()));
}

/// A router with this number and secret, whose first window begins at `start`.
pub fn begin(
    config: &Config,
    views: Arc<Views>,
    (number, secret): (u64, Key),
    start: Timestamp,
) -> (Closing, Box<Shard>) {
    let mut keys = Keys::new(secret, Key([9, number]), start);
    let shard = keys.shard(&config.estimates, &views);
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    let closing = Closing {
        key_id: keys.id(),
        keys,
        seen,
        rotation: Rotation::new(config.seen_flows.generation, None),
        interfaces: 1,
        views,
        asks: Vec::new(),
        observer: Observer::of_replay(&config.observer, number),
        memory_bytes: 0,
        cpu_time: Duration::ZERO,
        last: None,
        alerts: Alerts::default(),
        exporter: SketchExporter::new(config.export.clone()),
        remembered: None,
        networks: Arc::default(),
        local: None,
    };
    (closing, shard)
}
