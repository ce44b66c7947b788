//! The laboratory that weir's tests and its demo are built on.
//!
//! [`traffic`] makes packets and knows everything about them ([`truth`]); [`oracle`] adds that up exactly and judges
//! reports by it; [`judge`] checks each report by itself, [`account`] checks the sum of every ledger, and what a run
//! may lose; [`chance`] distinguishes a fault from bad luck. [`pcap`] writes packets to a file and [`inject`] sends
//! them; [`story`] is the demo's traffic. [`captures`] finds captures of real networks. [`netns`] builds small networks
//! out of namespaces, [`forwarded`] sends numbered packets through their router, [`route`] as many as it forwards, and
//! [`daemon`] runs the real weir in them. [`foreign`] is an XDP program beside weir's. [`collector`] receives what it
//! reports, and [`collecting`] runs the real one; [`nats`] and [`kafka`] run a server and read what it stores,
//! [`router`] is sinks that send to it, and [`proxy`] drops acknowledgements in between; [`trial`] ignores a test that
//! lacks something, or fails it. [`object`] is the real eBPF object, one packet at a time; [`interpreter`] executes its
//! instructions without a kernel, so that [`cost`] can count them. [`chromium`] is a real
//! browser, [`tmux`] a real terminal, which [`colours`] draws; [`prometheus`] is a real Prometheus, and [`grafana`]
//! reads the dashboards.
//!
//! Nothing here parses a packet. The generator knows each packet because it made it. So the judge of weir's parser
//! cannot share the parser's mistakes.

#![forbid(unsafe_code)]

pub mod account;
pub mod captures;
pub mod chance;
pub mod chromium;
pub mod clock;
pub mod collecting;
pub mod collector;
pub mod colours;
pub mod cost;
pub mod daemon;
pub mod foreign;
pub mod forwarded;
pub mod grafana;
pub mod inject;
pub mod interpreter;
pub mod judge;
pub mod kafka;
pub mod livegen;
pub mod nats;
pub mod netns;
pub mod object;
pub mod oracle;
pub mod pcap;
pub mod prometheus;
pub mod proxy;
pub mod quiet;
pub mod route;
pub mod router;
pub mod scratch;
pub mod story;
pub mod table;
pub mod tmux;
pub mod traffic;
pub mod trial;
pub mod truth;
