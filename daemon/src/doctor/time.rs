//! Finds out if the wall clock is synchronised.

use std::path::Path;

use super::{Answer, Finding, command::output};

/// systemd-timesyncd creates this file once it has synchronised the clock.
const TIMESYNCD: &str = "/run/systemd/timesync/synchronized";

/// The answers of all sources. `None` means that the source does not exist, or gave no answer.
#[derive(Clone, Copy, Debug, Default)]
struct ClockStatus {
    /// The kernel, asked by `timedatectl`.
    kernel: Option<bool>,
    /// systemd-timesyncd. It can only say yes.
    timesyncd: Option<bool>,
    /// chronyd. It may not tell the kernel (`rtcsync` in its configuration).
    chrony: Option<bool>,
}

/// Asks all sources that may know.
pub fn examine() -> Finding {
    judge(ClockStatus {
        kernel: output("timedatectl", &["show", "--property=NTPSynchronized"]).as_deref().and_then(of_timedatectl),
        timesyncd: Path::new(TIMESYNCD).exists().then_some(true),
        chrony: output("chronyc", &["-n", "-c", "tracking"]).as_deref().and_then(of_chrony),
    })
}

fn of_timedatectl(text: &str) -> Option<bool> {
    match text.trim().strip_prefix("NTPSynchronized=")? {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// The last of the comma-separated fields is the leap second status, which also says if the clock is not synchronised.
fn of_chrony(text: &str) -> Option<bool> {
    let (_, state) = text.trim().rsplit_once(',')?;
    Some(!state.to_ascii_lowercase().starts_with("not sync"))
}

fn judge(ClockStatus { kernel, timesyncd, chrony }: ClockStatus) -> Finding {
    let name = "clock";
    let said = [(kernel, "the kernel"), (chrony, "chronyd"), (timesyncd, "systemd-timesyncd")];
    let by = |answer| said.into_iter().find(|(told, _)| *told == Some(answer)).map(|(_, source)| source);
    if let Some(source) = by(true) {
        return Finding::new(
            name,
            Answer::Yes,
            format!("synchronised, says {source}: windows begin at the same times as elsewhere"),
        );
    }
    let consequence = "windows begin at round times of this clock. If it is wrong, reports do not line up with those of \
                       other machines. If it is set, a window is shorter or longer than the interval, and its report says so";
    match by(false) {
        Some(source) => {
            let detail = format!(
                "not synchronised, says {source}: {consequence}. Run a time service: systemd-timesyncd (timedatectl \
                 set-ntp true) or chronyd"
            );
            Finding::new(name, Answer::No, detail)
        }
        None => {
            let detail = format!("neither timedatectl nor chronyc says whether it is synchronised: {consequence}");
            Finding::new(name, Answer::Unknown, detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_that_says_synchronised_is_enough() {
        let told = ClockStatus::default();
        for (told, expected) in [
            (told, Answer::Unknown),
            (ClockStatus { kernel: Some(true), ..told }, Answer::Yes),
            (ClockStatus { kernel: Some(false), ..told }, Answer::No),
            (ClockStatus { kernel: Some(false), chrony: Some(true), ..told }, Answer::Yes),
            (ClockStatus { timesyncd: Some(true), ..told }, Answer::Yes),
            (ClockStatus { chrony: Some(false), ..told }, Answer::No),
        ] {
            let finding = judge(told);
            assert_eq!(finding.answer, expected, "{told:?}");
            assert_eq!(finding.detail.contains("If it is set"), expected != Answer::Yes, "{told:?}");
            assert!(!finding.forbids());
        }
    }

    #[test]
    fn the_outputs_of_timedatectl_and_chronyc_are_parsed() {
        assert_eq!(of_timedatectl("NTPSynchronized=yes\n"), Some(true));
        assert_eq!(of_timedatectl("NTPSynchronized=no\n"), Some(false));
        assert_eq!(of_timedatectl("Failed to parse\n"), None);
        let tracking = |leap: &str| format!("A29FC801,192.0.2.1,3,1763900000.1,-0.00002,0.00001,{leap}\n");
        assert_eq!(of_chrony(&tracking("Normal")), Some(true));
        assert_eq!(of_chrony(&tracking("Insert second")), Some(true));
        assert_eq!(of_chrony(&tracking("Not synchronised")), Some(false));
        assert_eq!(of_chrony("506 Cannot talk to daemon\n"), None);
    }
}
