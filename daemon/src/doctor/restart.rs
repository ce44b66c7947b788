//! Finds out if weir misses packets while the service restarts. It misses none if systemd keeps weir's file
//! descriptors.

use weir_attach::Obtained;
use weir_config::{Config, Mode, interface::Way, slots};
use weir_datapath::Cpus;

use super::{Answer, Finding, command::output};

const NAME: &str = "restart";
/// The name of the service in the package and the documentation.
const UNIT: &str = "weir.service";
/// How many descriptors weir hands over, in addition to a ring per CPU and a link per direction of an interface.
const BESIDE: usize = 5;

/// Asks systemd about the service.
pub fn examine(config: &Config) -> Finding {
    let shown = match sd_notify::booted() {
        Ok(true) => output(
            "systemctl",
            &["show", "--property=LoadState,ActiveState,FileDescriptorStoreMax,NFileDescriptorStore", UNIT],
        ),
        _ => return Finding::new(NAME, Answer::Note, WITHOUT_SYSTEMD),
    };
    let rings = Cpus::of_this_machine().map_or(0, |cpus| cpus.online.len());
    judge(shown.as_deref(), rings + slots(&config.interfaces) + BESIDE)
}

const WITHOUT_SYSTEMD: &str = "this machine does not run systemd, which could keep weir's programs attached during a \
                               restart: packets between the end of one weir and the start of the next are in no report";

/// Judges the output of `systemctl show`.
fn judge(shown: Option<&str>, needed: usize) -> Finding {
    let value = |name: &str| shown?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let number = |name| value(name)?.parse::<usize>().ok();
    if value("LoadState") == Some("not-found") {
        let detail = format!("systemd knows no {UNIT}: without it, packets between two runs are in no report");
        return Finding::new(NAME, Answer::Note, detail);
    }
    let Some(most) = number("FileDescriptorStoreMax") else {
        return Finding::new(NAME, Answer::Unknown, format!("systemctl has no answer about {UNIT}"));
    };
    if most < needed {
        let detail = format!(
            "a restart misses packets: {UNIT} lets systemd keep {most} file descriptors, and weir hands over up to \
             {needed} (FileDescriptorStoreMax=4096 in the unit)"
        );
        return Finding::new(NAME, Answer::No, detail);
    }
    match number("NFileDescriptorStore") {
        Some(0) if value("ActiveState") == Some("active") => {
            let detail = "the running weir has handed nothing to systemd: a restart misses packets. Its log says why, \
                          unless all its interfaces have `mode: afpacket` or `mode: tc`";
            Finding::new(NAME, Answer::No, detail)
        }
        held => {
            let now = held.map_or(String::new(), |held| format!(", now {held}"));
            let detail = format!(
                "misses no packet: systemd keeps up to {most} file descriptors of weir{now}. Exceptions are listed \
                 with their interfaces"
            );
            Finding::new(NAME, Answer::Yes, detail)
        }
    }
}

/// The finding for an interface where a restart leaves a gap. `obtained` says how weir is likely to see its packets.
pub fn of_interface(obtained: &[(Way, Obtained)], mode: Mode, has_tcx: bool) -> Option<Finding> {
    let gap = |obtained| matches!(obtained, Obtained::Tc | Obtained::AfPacket);
    let named = |&(way, obtained): &(Way, Obtained)| {
        let what = match way {
            Way::Ingress => "what it receives",
            Way::Egress => "what it sends",
        };
        gap(obtained).then(|| format!("{what} ({})", obtained.name()))
    };
    let which: Vec<_> = obtained.iter().filter_map(named).collect();
    let way_out = match mode {
        Mode::Tc if has_tcx => ". `mode: tcx` avoids that",
        Mode::AfPacket => ". With `mode: auto` weir would use programs, which stay",
        _ => "",
    };
    let detail = || {
        let which = which.join(" and ");
        format!("misses packets, also under systemd: {which} is not measured between two runs{way_out}")
    };
    (!which.is_empty()).then(|| Finding::new(NAME, Answer::No, detail()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_systemd_decides() {
        let shown = |active: &str, most: u32, held: u32| {
            format!(
                "LoadState=loaded\nActiveState={active}\nFileDescriptorStoreMax={most}\nNFileDescriptorStore={held}\n"
            )
        };
        for (shown, expected, says) in [
            (Some(shown("active", 4096, 9)), Answer::Yes, "now 9"),
            (Some(shown("inactive", 4096, 0)), Answer::Yes, "now 0"),
            (Some(shown("active", 4096, 0)), Answer::No, "has handed nothing"),
            (Some("LoadState=loaded\nFileDescriptorStoreMax=4096\n".to_owned()), Answer::Yes, "descriptors of weir. "),
            (Some(shown("active", 0, 0)), Answer::No, "keep 0 file descriptors, and weir hands over up to 12"),
            (Some(shown("active", 11, 11)), Answer::No, "FileDescriptorStoreMax=4096"),
            (Some("LoadState=not-found\n".to_owned()), Answer::Note, "knows no weir.service"),
            (None, Answer::Unknown, "systemctl has no answer"),
        ] {
            let finding = judge(shown.as_deref(), 12);
            assert_eq!(finding.answer, expected, "{shown:?}");
            assert!(finding.detail.contains(says), "{says:?} in {finding:?}");
        }
    }

    #[test]
    fn interfaces_whose_program_does_not_stay_are_reported() {
        let of = |obtained: &[(Way, Obtained)], mode| of_interface(obtained, mode, true).map(|finding| finding.detail);
        assert_eq!(of(&[(Way::Ingress, Obtained::Native), (Way::Egress, Obtained::Tcx)], Mode::Auto), None);
        let tc = of(&[(Way::Ingress, Obtained::Tc), (Way::Egress, Obtained::Tc)], Mode::Tc).unwrap();
        assert!(tc.contains("what it receives (tc) and what it sends (tc)") && tc.ends_with("`mode: tcx` avoids that"));
        let half = of(&[(Way::Ingress, Obtained::Generic), (Way::Egress, Obtained::Tc)], Mode::Auto).unwrap();
        assert!(half.contains("what it sends (tc)") && !half.contains("receives"), "{half}");
        assert!(of(&[(Way::Ingress, Obtained::AfPacket)], Mode::AfPacket).unwrap().contains("(afpacket)"));
    }
}
