//! Reports as IPFIX flow records (RFC 7011).

mod element;
mod message;
mod records;
mod transport;

use std::{
    io,
    time::{Duration, Instant},
};

use tracing::warn;
use weir_config::{self as config, Address, Transport};
use weir_schema::{FromJson, Report};
use weir_system::clock;

use self::{
    message::{Messages, Templates},
    records::Ignored,
    transport::Way,
};
use super::{DeliveryError, Sink, now, vrf};
use crate::spool::Item;

/// How many reports go at once over a connection; with datagrams each report is sent alone.
const BATCH: usize = 100;

/// How often weir checks whether datagrams still lead to the collector: each check may take seconds if a name server
/// does not answer.
const LOOK_UP: Duration = Duration::from_secs(60);

/// A collector of flow records.
///
/// Each report becomes options (sampling, names of interfaces, exact counts and loss of each interface) and one flow
/// record for each row of a view. IPFIX cannot express bounds, and collectors give no answer: over TCP a report is
/// delivered when the collector's system has acknowledged it, over UDP when it has left. Tombstones are skipped,
/// because IPFIX has no form for them.
#[derive(Debug)]
pub struct Ipfix {
    address: Address,
    transport: Transport,
    timeout: Duration,
    view: String,
    domain: u32,
    vrf: Option<String>,
    session: Option<Session>,
    /// Packets that were lost since this exporter began.
    ignored: Ignored,
}

/// State that lasts as long as a connection, or with datagrams as long as the exporter.
#[derive(Debug)]
struct Session {
    way: Way,
    templates: Templates,
    /// When the path was opened or last checked.
    looked: Instant,
    /// Records sent so far, modulo 2^32.
    sequence: u32,
}

impl Ipfix {
    /// The sink for a collector, which is resolved with the first report.
    pub fn new(config: &config::Ipfix) -> Self {
        let config::Ipfix { address, transport, timeout, view, domain, vrf } = config.clone();
        Self { address, transport, timeout, view, domain, vrf, session: None, ignored: Ignored::default() }
    }

    fn session(&mut self) -> io::Result<&mut Session> {
        if self.session.as_mut().is_some_and(|session| session.check_over(&self.address, self.vrf.as_deref(), now())) {
            self.session = None;
        }
        Ok(match &mut self.session {
            Some(session) => session,
            none => {
                let way = Way::open(&self.address, self.vrf.as_deref(), self.transport, self.timeout)?;
                none.insert(Session { way, templates: Templates::default(), looked: now(), sequence: 0 })
            }
        })
    }
}

impl Session {
    /// Looks up the collector's address if that is due. Returns whether a new session is needed.
    fn check_over(&mut self, address: &Address, vrf: Option<&str>, now: Instant) -> bool {
        if self.way.is_closed() {
            return true;
        }
        let is_due = self.way.forgets() && now.saturating_duration_since(self.looked) >= LOOK_UP;
        if is_due {
            self.looked = now;
        }
        is_due && self.way.has_moved(address, vrf)
    }
}

impl Sink for Ipfix {
    fn name(&self) -> String {
        format!("ipfix:{}:{}", self.transport.name(), self.address)
    }

    fn check(&self) -> Result<(), String> {
        vrf::check(self.vrf.as_deref())
    }

    fn batch(&self) -> usize {
        match self.transport {
            Transport::Udp => 1,
            Transport::Tcp => BATCH,
        }
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let mut ignored = self.ignored.clone();
        let mut records = Vec::new();
        let mut without_view = 0_u64;
        for parcel in batch.iter().filter(|parcel| parcel.is_report) {
            let report = Report::from_json(&parcel.encoded.line)
                .map_err(|error| DeliveryError::Refused(format!("not a report: {error}")))?;
            without_view += u64::from(!records::has_view(&report, &self.view));
            records.extend(records::of_report(&report, &self.view, self.domain, &mut ignored));
        }
        if records.is_empty() {
            return Ok(());
        }
        let (domain, timeout) = (self.domain, self.timeout);
        let failed = |error: io::Error| DeliveryError::unavailable(error.to_string());
        let session = self.session().map_err(failed)?;
        let time = u32::try_from(clock::now().wall.as_second()).unwrap_or(0);
        let (bytes_max, again) = (session.way.message_bytes(), session.way.forgets());
        let mut messages = Messages::new(&mut session.templates, domain, session.sequence, time, bytes_max, again);
        for record in &records {
            messages.add(record);
        }
        let (messages, sequence) = messages.finish();
        match session.way.send(&messages, timeout) {
            Ok(()) => {
                session.sequence = sequence;
                self.ignored = ignored;
                if without_view > 0 {
                    warn!(
                        sink = self.name(),
                        reports = without_view,
                        "these reports were made before the view `{}` was configured: the collector gets no flow records of them, \
                         only the counts of interfaces",
                        self.view
                    );
                }
                Ok(())
            }
            Err(error) => {
                // Closing the connection also lets a collector that got only a part start afresh.
                if self.transport == Transport::Tcp
                    && let Some(session) = self.session.take()
                {
                    session.way.abandon();
                }
                Err(failed(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_a_collector_has_moved_is_looked_up_once_a_minute() {
        let at = |port| Address { host: "127.0.0.1".to_owned(), port };
        let way = Way::open(&at(9), None, Transport::Udp, Duration::from_secs(1)).unwrap();
        let begin = now();
        let mut session = Session { way, templates: Templates::default(), looked: begin, sequence: 0 };
        let elsewhere = at(10);
        assert!(!session.check_over(&elsewhere, None, begin + LOOK_UP - Duration::from_secs(1)), "not looked up yet");
        assert!(!session.check_over(&at(9), None, begin + LOOK_UP), "it is where it was");
        assert!(
            !session.check_over(&elsewhere, None, begin + 2 * LOOK_UP - Duration::from_secs(1)),
            "looked up a moment ago"
        );
        assert!(session.check_over(&elsewhere, None, begin + 2 * LOOK_UP));
    }
}
