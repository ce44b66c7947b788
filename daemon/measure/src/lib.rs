//! The measurement: turns records into the summary of a window.
//!
//! A [`question`] is a view that is prepared for measuring. Only `fields` knows where a field is in a record, and
//! [`by`] makes the key of a record in a view. [`keys`] has the secret key of each day.
//!
//! A [`worker`] reads rings through its [`ring_aggregator`], which has a [`lane`] for each. A [`reader`] reads packet
//! sockets through its [`userspace`] aggregator. Both fill a [`shard`] in a [`batch`] at a time, laid out in
//! [`columns`], and sample as [`sampling_control`] decides. At the end of a [`window`] they get an [`order`] to close
//! it, and their shards are merged into a [`summary`] on several threads (`views`). An [`open`] window can be read,
//! too. If sampling left packets out, [`sampling_error`] widens the bounds.
//!
//! [`unique`] counts distinct addresses and flows. Flows that came moments ago are [`recent`] and not counted again.
//! The filter of [`seen`] flows says which flows are new, and [`new_flows`] how many. [`protocols`] counts packets by
//! protocol, [`sizes`] by size, and [`tcp`] those that begin or end connections. [`heavy_hitters`] lists the keys with
//! the most bytes or packets, [`spreaders`] the keys with the most different peers, and [`hosts`] own addresses in both
//! directions. [`prefixes`] get the traffic that
//! the lists of addresses do not hold, and are ranked by their traffic [`beyond`] the listed addresses. A [`ranking`]
//! is a list in two orders. [`entropy`] says how evenly traffic is spread over the keys of a view. Bounds come from the
//! tails of the [`binomial`] distribution.
//!
//! Distinct counts over [`local`] horizons and new hosts need a key that does not change at midnight. A [`sampler`]
//! draws the records that the history keeps, for questions that no view asks.
//!
//! [`export`] extracts what is merged with the exports of other routers. An [`account`] has the exact numbers. Records
//! that sampling took are held until it is known whether anything was left out. Rows and totals are made to agree with
//! their [`whole`], and [`uncertainty`] says how far the numbers may be off.

#![forbid(unsafe_code)]

pub mod account;
pub mod answer;
pub mod batch;
pub mod beyond;
pub mod binomial;
pub mod by;
pub mod closed;
pub mod columns;
mod configured;
mod drawn;
pub mod entropy;
pub mod export;
mod fields;
pub mod heavy_hitters;
pub mod hosts;
pub mod keys;
pub mod known_hosts;
pub mod lane;
pub mod local;
pub mod local_shard;
pub mod look_up;
pub mod new_flows;
pub mod open;
pub mod order;
pub mod pool;
pub mod prefixes;
pub mod price;
pub mod protocols;
pub mod question;
pub mod ranking;
pub mod reader;
pub mod recent;
pub mod ring_aggregator;
pub mod sampler;
pub mod sampling_control;
pub mod sampling_error;
pub mod seen;
pub mod shard;
pub mod sizes;
pub mod spreaders;
pub mod summary;
pub mod tcp;
pub mod uncertainty;
pub mod unique;
pub mod userspace;
mod views;
pub mod whole;
pub mod window;
pub mod worker;
