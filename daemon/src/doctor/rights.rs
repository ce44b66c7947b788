//! Reports which capabilities weir keeps while it measures.

use aya::programs::ProgramError;
use weir_config::Interface;
use weir_system::{privileges::NeededCapability, sandbox};

use super::{Answer, Finding, reasons};
use crate::needs::{Needs, still_needed};

/// The finding for these interfaces on this machine.
pub fn examine(interfaces: &[Interface], has_programs: bool, has_tcx: Result<bool, ProgramError>) -> Vec<Finding> {
    match (has_programs, has_tcx) {
        (true, Err(error)) => {
            let detail = format!(
                "weir cannot find out if the kernel has TCX, which decides the capabilities that weir keeps: {}",
                reasons(&error)
            );
            vec![Finding::new(NAME, Answer::Unknown, detail)]
        }
        (_, has_tcx) => {
            let has_tcx = has_tcx.unwrap_or_default();
            judge(&still_needed(interfaces, Needs { has_programs, has_tcx }))
        }
    }
}

/// The finding about the sandbox, with which weir gives up further rights.
pub fn sandbox(is_wanted: bool) -> Finding {
    let detail = match (is_wanted, sandbox::is_known()) {
        (false, _) => "off in the configuration: weir keeps all files and system calls that its user has",
        (true, true) => {
            "on: weir opens only the files that it needs (Landlock), and makes only some system calls (seccomp)"
        }
        (true, false) => {
            "on for system calls (seccomp); not for files: this kernel has no Landlock, or one before 5.19"
        }
    };
    Finding::new("sandbox", Answer::Note, detail)
}

const NAME: &str = "rights kept";

fn judge(kept: &[NeededCapability]) -> Vec<Finding> {
    if kept.is_empty() {
        return vec![Finding::new(NAME, Answer::Note, "none: weir gives up all capabilities once it measures")];
    }
    let one = |NeededCapability { name, purpose, .. }: &NeededCapability| {
        Finding::new(NAME, Answer::Note, format!("{name}, also while weir measures: {purpose}"))
    };
    kept.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use weir_config::Config;

    use super::*;

    #[test]
    fn each_kept_right_is_listed_with_its_purpose() {
        let config = Config::parse("interfaces: [eth0, {name: eth1, mode: tc}]", "weir.yaml").unwrap();
        let needs = Needs { has_programs: true, has_tcx: true };
        let details: Vec<_> =
            judge(&still_needed(&config.interfaces, needs)).into_iter().map(|finding| finding.detail).collect();
        assert_eq!(details, ["CAP_NET_ADMIN, also while weir measures: filters of the classic tc hook"]);
        assert!(judge(&[])[0].detail.starts_with("none"));
        let only_sockets = examine(&config.interfaces, false, Ok(false));
        assert!(only_sockets[0].detail.starts_with("CAP_NET_RAW"), "{only_sockets:?}");
    }
}
