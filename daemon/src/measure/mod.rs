//! The measurement: records in, the summary of a window out.
//!
//! A [`worker`] reads some rings by its [`collector`], which has a [`lane`] for each. A [`reader`] reads packet sockets
//! by its [`userspace`] collector. Both fill a [`shard`], [`batch`] by batch, through [`columns`], and leave packets
//! out as [`sampling_control`] decides. At the end of a [`window`] they are given an [`order`] to close it; the shards
//! of all of them become a [`summary`], whose bounds [`sampling_error`] widens where packets were left out. What comes
//! again within the window counts nothing distinct: flows that were here lately are [`recent`]. The filter of [`seen`]
//! flows tells which are new, and [`new_flows`] how many. [`unique`] counts addresses and flows, [`protocols`] packets
//! by protocol, and [`tcp`] those that begin or end connections. [`prefixes`] are fed by what the lists of addresses do
//! not hold, and ranked by what they have [`beyond`] the listed addresses: a [`ranking`] has the largest. Bounds come
//! from the tails of the [`binomial`] distribution. [`heavy_hitters`] have most bytes, [`spreaders`] touch most. Of a
//! view's keys follows how evenly traffic is spread over them: its [`entropy`]. Packets are counted by their [`sizes`].
//! Records that sampling took are held as drawn until it is known whether anything was left out. All parts agree
//! with their [`whole`], and [`uncertainty`] says how far the truth may be away.

pub mod answer;
pub mod batch;
pub mod beyond;
pub mod binomial;
pub mod collector;
pub mod columns;
mod drawn;
pub mod entropy;
pub mod heavy_hitters;
pub mod interface;
pub mod lane;
pub mod look_up;
pub mod new_flows;
pub mod order;
pub mod pool;
pub mod prefixes;
pub mod price;
pub mod protocols;
pub mod ranking;
pub mod reader;
pub mod recent;
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
pub mod view;
pub mod whole;
pub mod window;
pub mod worker;
