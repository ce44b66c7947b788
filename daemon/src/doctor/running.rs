//! Queries a running weir on this machine: only it knows whether its programs see all packets.

use std::path::Path;

use weir_deliver::status::Status;
use weir_schema::FromJson;
use weir_system::text::escaped;

use super::{Answer, Finding};
use crate::control::{
    client::{self, AskError},
    protocol::Command,
};

const NAME: &str = "running weir";

/// The findings from the weir with this control socket; empty if none is running.
pub fn examine(socket: Option<&Path>) -> Vec<Finding> {
    let Some(socket) = socket else { return Vec::new() };
    let status = match client::ask(socket, Command::Status) {
        Ok(status) => status,
        Err(AskError::NotThere(_) | AskError::Gone(_)) => return Vec::new(),
        Err(error) => return vec![Finding::new(NAME, Answer::Unknown, error.to_string())],
    };
    match Status::from_json(status.get().as_bytes()) {
        Ok(status) => told(&status),
        Err(_) => vec![Finding::new(NAME, Answer::Unknown, "its version differs from this one")],
    }
}

fn told(Status { identity, troubles, .. }: &Status) -> Vec<Finding> {
    let pid = identity.pid;
    if troubles.is_empty() {
        return vec![Finding::new(NAME, Answer::Yes, format!("process {pid} sees all packets, as far as it knows"))];
    }
    let found = |trouble: &String| {
        Finding::new(NAME, Answer::No, format!("process {pid} does not see all packets: {}", escaped(trouble)))
    };
    troubles.iter().map(found).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use weir_deliver::status::Identity;

    use super::*;

    #[test]
    fn packets_that_it_does_not_see_are_reported_and_forbid_no_start() {
        assert_eq!(examine(None), []);
        assert_eq!(examine(Some(Path::new("/nowhere/weir.sock"))), []);
        let identity = Identity {
            version: "1".to_owned(),
            pid: 7,
            started: Timestamp::UNIX_EPOCH,
            interval_seconds: 10,
            memory_bytes: 0,
        };
        let mut status = Status { identity, last_report: None, next_report: None, troubles: Vec::new() };
        assert_eq!(told(&status)[0].answer, Answer::Yes);
        status.troubles = vec!["eth0 (ingress): another process has removed weir's program\u{1b}[1m".to_owned()];
        let found = told(&status);
        assert!(found[0].answer == Answer::No && !found[0].forbids());
        assert!(found[0].detail.contains("process 7") && found[0].detail.contains("eth0 (ingress)"), "{found:?}");
        assert!(!found[0].detail.contains('\u{1b}'), "{found:?}");
    }
}
