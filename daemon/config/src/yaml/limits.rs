//! The limits of every setting, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

use weir_common::{control, sampling::RATE_MAX};

use crate::names;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Bytes of a configuration file: enough for every interface and sink with long headers, and few enough to read at
/// once.
pub const FILE_MAX: usize = 128 << 10;

/// Values and bytes of text after aliases are expanded. This is twice the file size, which a file without aliases
/// cannot exceed: each byte yields at most one value and one byte of text.
pub const EXPANDED_MAX: usize = 2 * FILE_MAX;

/// The nesting depth of lists and maps: several times deeper than any setting.
pub const DEPTH_MAX: usize = 32;

/// The most mistakes that are listed. No one corrects more at once.
pub const MISTAKES_MAX: usize = 100;

/// Bytes that are read to locate mistakes. The file is read again for each mistake, which takes some tenths of a second
/// in all. So fewer mistakes are listed for a very long file.
pub const LOCATED_MAX: usize = 2 << 20;

/// Bytes of an observer's name and site; enough for a full domain name.
pub const NAME_BYTES: RangeInclusive<usize> = 1..=255;

/// Interface directions with a ledger of their own. A key has one byte for them, and one of its values means all
/// others. Each direction costs a row of counters on every CPU.
pub const INTERFACES_MAX: usize = control::OTHERS as usize;
/// The most interface directions for which weir chooses TCX on its own: see `weir_attach`.
pub const TCX_MAX: usize = 32;

/// Interfaces that `default route` covers. More uplinks are rare, and each costs a row of counters on every CPU.
pub const DEFAULT_ROUTES_MAX: usize = 4;

/// Rows of each list that Prometheus gets. Each address that was ever among them is a series there.
pub const EXPORTED: RangeInclusive<u64> = 0..=20;

/// The default path of the control socket, in the directory that systemd creates for the service.
pub const CONTROL_SOCKET: &str = "/run/weir/control.sock";

/// Bytes of a socket's path: `sun_path` has 108 with its terminator, and weir first creates the socket under a longer
/// name.
pub const SOCKET_BYTES: usize = 90;

/// Bytes of memory for everything. Less than the program alone takes must be a mistake.
pub const MEMORY: RangeInclusive<u64> = (16 << 20)..=(1 << 40);

/// Bytes for the windows of the history: at least an hour of them.
pub const HISTORY: RangeInclusive<u64> = (256 << 10)..=(1 << 30);

/// Bytes that an interface may carry in a month: less than a megabyte must be a mistake.
pub const QUOTA_BYTES: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000_000_000;

/// The day on which a month begins: every month has it.
pub const MONTH_DAY: RangeInclusive<u64> = 1..=28;

/// Rows that the history keeps of each list of a window.
pub const HISTORY_ROWS: RangeInclusive<u64> = 1..=256;

/// Flow records that the history keeps of each minute; 0 keeps none.
pub const HISTORY_SAMPLE: RangeInclusive<u64> = 0..=10_000;

/// Bytes of the history on disk.
pub const HISTORY_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// How long the history is kept on disk.
pub const HISTORY_AGE: RangeInclusive<Duration> = seconds(60 * 60)..=seconds(10 * 366 * 24 * 60 * 60);

/// Registers of an exported distinct count, as a power of two, within the range that every reader of `DataSketches`
/// accepts.
pub const EXPORT_LG_K: RangeInclusive<u64> = 4..=16;

/// How many of the largest keys an exported list has, by bytes and by packets each.
pub const EXPORT_KEYS: RangeInclusive<u64> = 1..=1024;

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

/// Networks. A byte distinguishes them, and one of its values means no network.
pub const NETWORKS_MAX: usize = u8::MAX as usize;

/// Bytes of a network's name. It is a word in report rows, not a description.
pub const NETWORK_NAME_BYTES: RangeInclusive<usize> = 1..=64;

/// Prefixes of all networks together: as many as the Internet has IPv4 routes. They take at most about 60 MiB.
pub const PREFIXES_MAX: usize = 1_000_000;

/// Bytes of a prefix file: the maximum number of prefixes, each with a short comment.
pub const PREFIX_FILE_MAX: u64 = 64 << 20;

/// Bytes of a line in a prefix file. A longer line is not text.
pub const PREFIX_LINE_MAX: usize = 4096;

/// Mistakes that are listed per prefix file. If there are more, the file is probably of another kind.
pub const PREFIX_MISTAKES_MAX: usize = 10;

/// Bytes of a database of autonomous systems or countries.
pub const GEO_FILE_MAX: u64 = names::geo::FILE_MAX;

/// Entries of each top list: beyond 100 a report stops being readable.
pub const TOP: RangeInclusive<u64> = 1..=100;

/// The relative standard error of unique counts. `HyperLogLog` needs about 2^18 registers for the smallest error, and
/// 2^9 for the largest.
pub const UNIQUE_ERROR: RangeInclusive<f64> = 0.002..=0.05;

/// The relative standard error of distinct counts by key, for keys with so many values that counts are not exact. Each
/// key takes 32 KiB with the smallest error, and 256 bytes with the largest.
pub const DISTINCT_ERROR: RangeInclusive<f64> = 0.005..=0.06;

/// The error of top entries as a share of a window's total: 53,336 candidates for the smallest error, 268 for the
/// largest.
pub const TOP_ERROR: RangeInclusive<f64> = 0.000_05..=0.01;

/// The minimum number of candidates per top list. With fewer, the longest list would lose entries; more would not fit
/// into the CPU's caches.
pub const TOP_CANDIDATES: RangeInclusive<u64> = 64..=16_384;

/// Flows per generation of the seen-flow filter: at most about 170 MiB per generation at the default rate.
pub const CAPACITY: RangeInclusive<u64> = 1_000..=100_000_000;

/// The false positive rate of the seen-flow filter: from about 29 bits per flow down to 5.
pub const FALSE_POSITIVE_RATE: RangeInclusive<f64> = 0.000_001..=0.1;

/// The length of a generation of the seen-flow filter. It is also at least the report interval.
pub const GENERATION: RangeInclusive<Duration> = seconds(10)..=seconds(86_400);

/// How far back distinct counts reach: longer than a few windows, and as far as hosts are known by default.
pub const HORIZON: RangeInclusive<Duration> = seconds(5 * 60)..=seconds(30 * 86_400);

/// Horizons: each takes about 300 KiB.
pub const HORIZONS_MAX: usize = 4;

/// Report intervals that a horizon has at least.
pub const INTERVALS_OF_HORIZON: u32 = 2;

/// Days for which a host stays known.
pub const HOST_DAYS: RangeInclusive<u64> = 1..=365;

/// Hosts per generation of the filter of known hosts: at most about 3 MiB per generation.
pub const HOSTS: RangeInclusive<u64> = 256..=1_000_000;

/// For how long weir must have known hosts before it says that one is new.
pub const HOST_LEARNING: RangeInclusive<Duration> = seconds(1)..=seconds(30 * 86_400);

/// Slots of the flow cache per CPU, a power of two: at most 4 MiB of records per CPU.
pub const CACHE_FLOWS: RangeInclusive<u64> = 256..=65_536;

/// Bytes of the ring per CPU, a power of two: the minimum is the largest page size in use.
pub const RING: RangeInclusive<u64> = (64 << 10)..=(64 << 20);

/// Bytes of a packet socket's ring, a power of two: the minimum is the largest page size in use.
pub const PACKET_RING: RangeInclusive<u64> = (64 << 10)..=(256 << 20);

/// The sampling rate: one packet in this many is taken. A record has 16 bits for it.
pub const ONE_IN: RangeInclusive<u64> = 1..=RATE_MAX as u64;

/// The share of a CPU that may be spent on reading its records. Even an idle worker needs a little.
pub const CPU_SHARE: RangeInclusive<f64> = 0.01..=1.0;

/// Sinks: each is a thread and a queue.
pub const SINKS_MAX: usize = 16;

/// Bytes on disk that wait for one sink: at least enough for a few reports that are being sent, and a few that wait.
pub const SPOOL_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// How long a report may wait on disk.
pub const SPOOL_AGE: RangeInclusive<Duration> = seconds(60)..=seconds(10 * 366 * 24 * 60 * 60);

/// Reports that wait for a sink while its target is slow or down.
pub const QUEUE: RangeInclusive<u64> = 1..=4096;

/// Bytes of a report file before it is renamed; the largest report has some hundred KiB.
pub const FILE_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Renamed files that are kept.
pub const FILES_KEPT: RangeInclusive<u64> = 1..=100;

/// Observation domain IDs; 0 means none in particular (RFC 7011 section 3.1).
pub const DOMAIN: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Bytes of a NATS sink's subject: servers accept a line of 4096 bytes with two subjects in it.
pub const NATS_SUBJECT_BYTES: RangeInclusive<usize> = 1..=255;

/// Bytes of the name of a user of a Kafka or NATS sink.
pub const USER_BYTES: RangeInclusive<usize> = 1..=255;

/// Brokers of a Kafka sink: one that answers names all others.
pub const KAFKA_BROKERS_MAX: usize = 16;

/// Bytes of a Kafka topic's name: what brokers accept.
pub const KAFKA_TOPIC_BYTES: RangeInclusive<usize> = 1..=249;

/// How long an HTTP, Kafka or NATS sink waits for its collector.
pub const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=seconds(60);

/// Headers of an HTTP sink: as many as common servers still accept.
pub const HEADERS_MAX: usize = 32;
