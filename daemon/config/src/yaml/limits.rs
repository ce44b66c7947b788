//! The limits of every setting, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

use weir_common::{control, sampling::RATE_MAX};

use crate::names;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Bytes of a configuration file: enough for every interface and sink with long headers, and small enough to read in
/// one go.
pub const FILE_MAX: usize = 128 << 10;

/// Values and bytes of text after aliases are expanded. Twice the file size, which a file without aliases cannot
/// exceed: each byte yields at most one value and one byte of text.
pub const EXPANDED_MAX: usize = 2 * FILE_MAX;

/// Nesting of lists and maps: several times deeper than any setting.
pub const DEPTH_MAX: usize = 32;

/// Mistakes that are listed. A person does not correct more at once.
pub const MISTAKES_MAX: usize = 100;

/// Bytes that are read to locate mistakes: the file is read again for each one. This takes some tenths of a second, so
/// fewer mistakes are listed for a very long file.
pub const LOCATED_MAX: usize = 2 << 20;

/// Bytes of an observer's name and site; enough for a full domain name.
pub const NAME_BYTES: RangeInclusive<usize> = 1..=255;

/// Interface directions with a ledger of their own: a key has one byte for them, and one value is for all others. Each
/// costs a row of counters on every CPU.
pub const INTERFACES_MAX: usize = control::OTHERS as usize;
/// The most interface directions for which weir chooses TCX by itself: see `weir_attach`.
pub const TCX_MAX: usize = 32;

/// Interfaces that `default route` covers. More uplinks are rare, and each costs a row of counters on every CPU.
pub const DEFAULT_ROUTES_MAX: usize = 4;

/// Default path of the control socket, in the directory that systemd makes for the service.
pub const CONTROL_SOCKET: &str = "/run/weir/control.sock";

/// Bytes of a socket's path: `sun_path` has 108 with its terminator, and weir first creates the socket under a longer
/// name.
pub const SOCKET_BYTES: usize = 90;

/// Bytes for everything. Less than the program alone takes must be a mistake.
pub const MEMORY: RangeInclusive<u64> = (16 << 20)..=(1 << 40);

/// User-defined views: each costs time for every record.
pub const VIEWS_MAX: usize = 64;

/// Bytes of a view's name; each report repeats it.
pub const VIEW_NAME_BYTES: RangeInclusive<usize> = 1..=64;

/// Alert rules: each may have an entry in every report.
pub const ALERT_RULES_MAX: usize = 64;

/// Bytes of a rule's name; reports repeat it, and it is part of a webhook header.
pub const ALERT_NAME_BYTES: RangeInclusive<usize> = 1..=64;

/// Consecutive windows that a rule may wait for: about three hours with windows of ten seconds.
pub const ALERT_WINDOWS: RangeInclusive<u64> = 1..=1000;

/// Fields of a view's key: more than exist.
pub const FIELDS_MAX: usize = 16;

/// Fields whose distinct values are counted together.
pub const DISTINCT_FIELDS_MAX: usize = 5;

/// Values of a condition. Longer lists of addresses belong in a network.
pub const CONDITION_VALUES_MAX: usize = 256;

/// Packet sockets: each has its own ring, and memory must not grow with the number of interfaces that match a pattern.
pub const TAPS_MAX: usize = 64;

/// Bytes of an interface name: Linux's `IFNAMSIZ` is 16 with its terminator.
pub const INTERFACE_NAME_BYTES: RangeInclusive<usize> = 1..=15;

/// Bytes of an alternative name of an interface: Linux's `ALTIFNAMSIZ` is 128 with its terminator.
pub const OTHER_NAME_BYTES: RangeInclusive<usize> = 1..=127;

/// The report interval. With a shorter one, closing windows would cost more than measuring; with a longer one, reports
/// would come too late.
pub const INTERVAL: RangeInclusive<Duration> = seconds(1)..=seconds(3600);

/// Seconds of a day. The report interval divides it, so that windows are the same every day.
pub const DAY_SECONDS: u64 = 86_400;

/// Networks: a byte tells them apart, and one value is for addresses in none of them.
pub const NETWORKS_MAX: usize = u8::MAX as usize;

/// Bytes of a network's name: it is a word in report rows, not a description.
pub const NETWORK_NAME_BYTES: RangeInclusive<usize> = 1..=64;

/// Prefixes of all networks together: as many as the Internet has IPv4 routes. They take at most about 60 MiB.
pub const PREFIXES_MAX: usize = 1_000_000;

/// Bytes of a prefix file: the maximum number of prefixes, each with a short comment.
pub const PREFIX_FILE_MAX: u64 = 64 << 20;

/// Bytes of a line in a prefix file; a longer one is not text.
pub const PREFIX_LINE_MAX: usize = 4096;

/// Mistakes that are listed per prefix file; more of them suggest another kind of file.
pub const PREFIX_MISTAKES_MAX: usize = 10;

/// Bytes of a database of autonomous systems or countries.
pub const GEO_FILE_MAX: u64 = names::geo::FILE_MAX;

/// Entries of each top list: beyond 100 a report stops being readable.
pub const TOP: RangeInclusive<u64> = 1..=100;

/// Relative standard error of unique counts: `HyperLogLog` with about 2^18 registers for the
/// smallest, 2^9 for the largest.
pub const UNIQUE_ERROR: RangeInclusive<f64> = 0.002..=0.05;

/// Relative standard error of distinct counts by key, for the keys with the most distinct values, where counts are not
/// exact: each takes 32 KiB for the smallest error, 256 bytes for the largest.
pub const DISTINCT_ERROR: RangeInclusive<f64> = 0.005..=0.06;

/// Error of top entries as a share of a window's total: 80,000 candidates for the smallest, 400 for the largest.
pub const TOP_ERROR: RangeInclusive<f64> = 0.000_05..=0.01;

/// Minimum number of candidates per top list. Fewer would lose entries of the longest list; more would not fit the
/// CPU's caches.
pub const TOP_CANDIDATES: RangeInclusive<u64> = 64..=16_384;

/// Flows per generation of the seen-flow filter: at most about 170 MiB per generation at the default rate.
pub const CAPACITY: RangeInclusive<u64> = 1_000..=100_000_000;

/// False positive rate of the seen-flow filter: from about 29 bits per flow down to 5.
pub const FALSE_POSITIVE_RATE: RangeInclusive<f64> = 0.000_001..=0.1;

/// Length of a generation of the seen-flow filter; also at least the report interval.
pub const GENERATION: RangeInclusive<Duration> = seconds(10)..=seconds(86_400);

/// Slots of the flow cache per CPU, a power of two: at most 4 MiB of records per CPU.
pub const CACHE_FLOWS: RangeInclusive<u64> = 256..=65_536;

/// Bytes of the ring per CPU, a power of two: the minimum is the largest page size in use.
pub const RING: RangeInclusive<u64> = (64 << 10)..=(64 << 20);

/// Bytes of a packet socket's ring, a power of two: the minimum is the largest page size in use.
pub const PACKET_RING: RangeInclusive<u64> = (64 << 10)..=(256 << 20);

/// Sampling rate: one packet in this many is taken. A record has 16 bits for it.
pub const ONE_IN: RangeInclusive<u64> = 1..=RATE_MAX as u64;

/// The share of a CPU that may be spent on reading its records. Even an idle worker needs a little.
pub const CPU_SHARE: RangeInclusive<f64> = 0.01..=1.0;

/// Sinks: each is a thread and a queue.
pub const SINKS_MAX: usize = 16;

/// Bytes on disk that wait for one sink: at least enough for a few reports in transit and a few waiting.
pub const SPOOL_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// How long a report may wait on disk. Durations have no days, so this is in hours.
pub const SPOOL_AGE: RangeInclusive<Duration> = seconds(60)..=seconds(10 * 366 * 24 * 60 * 60);

/// Reports that a sink holds while its target is slow or dead.
pub const QUEUE: RangeInclusive<u64> = 1..=4096;

/// Bytes of a report file before it is renamed; the largest report has some hundred KiB.
pub const FILE_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Renamed files that are kept.
pub const FILES_KEPT: RangeInclusive<u64> = 1..=100;

/// Observation domain IDs; 0 means none in particular (RFC 7011 section 3.1).
pub const DOMAIN: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Bytes of a NATS sink's subject: servers accept a line of 4096 bytes with two subjects in it.
pub const NATS_SUBJECT_BYTES: RangeInclusive<usize> = 1..=255;

/// Bytes of a NATS user's name.
pub const NATS_USER_BYTES: RangeInclusive<usize> = 1..=255;

/// How long an HTTP or NATS sink waits for its collector.
pub const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=seconds(60);

/// Headers of an HTTP sink: as many as common servers still accept.
pub const HEADERS_MAX: usize = 32;
