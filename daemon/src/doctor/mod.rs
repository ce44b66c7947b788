//! `weir doctor`: what this kernel, these interfaces and this user can do, and why not.
//!
//! It attaches nothing. It loads the programs, runs them on a test packet, and asks the kernel for the rest. If only
//! attaching can show something, the answer is "unknown".

pub mod bundle;
mod bypass;
mod command;
mod hooks;
mod interface;
mod machine;
mod restart;
mod rights;
mod running;
mod stand_ins;
mod sysfs;
mod time;

use std::{
    error::Error,
    fmt,
    io::{self, Write},
};

use serde::Serialize;
use weir_config::Config;
use weir_datapath::LoadedProgram;
use weir_system::text::{causes, escaped};

use self::machine::Machine;

/// The result of `weir doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The schema of the JSON: `weir.doctor/1`.
    pub schema: &'static str,
    /// The version of weir.
    pub version: &'static str,
    /// True if `weir run` would work.
    pub possible: bool,
    /// The kernel and what this process may do.
    pub machine: Vec<Finding>,
    /// The programs of weir that the kernel accepted.
    pub programs: Vec<LoadedProgram>,
    /// The interfaces that were examined.
    pub interfaces: Vec<InterfaceFindings>,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The question, in a few words.
    pub name: &'static str,
    /// The answer to the question.
    pub answer: Answer,
    /// True if `weir run` needs it.
    pub needed: bool,
    /// The details: what was found, or why not, and what weir does instead.
    pub detail: String,
}

/// The answer to a question about the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is available.
    Yes,
    /// It is not available.
    No,
    /// Only attaching, or more privilege, can show it.
    Unknown,
    /// Good to know, but neither yes nor no.
    Note,
}

/// The findings about an interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceFindings {
    /// The name of the interface.
    pub name: String,
    /// The findings about the interface.
    pub findings: Vec<Finding>,
}

impl Finding {
    fn new(name: &'static str, answer: Answer, detail: impl Into<String>) -> Self {
        Self { name, answer, needed: false, detail: detail.into() }
    }

    /// A finding that `weir run` depends on.
    fn needed(name: &'static str, answer: Answer, detail: impl Into<String>) -> Self {
        Self { needed: true, ..Self::new(name, answer, detail) }
    }

    /// Returns true if this alone keeps `weir run` from working.
    fn forbids(&self) -> bool {
        self.needed && self.answer == Answer::No
    }
}

/// Examines the machine for `weir run` with this configuration.
pub fn examine(config: &Config) -> Diagnosis {
    let Machine { findings: mut machine, programs, has_programs } = machine::examine(config);
    machine.extend(running::examine(config.control.socket.as_deref()));
    let interfaces: Vec<_> = config.interfaces.iter().flat_map(|rule| interface::examine(rule, has_programs)).collect();
    let mut all = machine.iter().chain(interfaces.iter().flat_map(|interface| &interface.findings));
    Diagnosis {
        schema: "weir.doctor/1",
        version: env!("CARGO_PKG_VERSION"),
        possible: !all.any(Finding::forbids),
        machine,
        programs,
        interfaces,
    }
}

impl Diagnosis {
    /// Writes it as one line of JSON.
    ///
    /// # Errors
    ///
    /// `out` cannot be written to.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "MACHINE")?;
        self.machine.iter().try_for_each(|finding| writeln!(f, "{finding}"))?;
        for InterfaceFindings { name, findings } in &self.interfaces {
            writeln!(f, "\nINTERFACE {}", escaped(name))?;
            findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))?;
        }
        let conclusion = match (self.possible, self.interfaces.is_empty()) {
            (true, true) => "weir run can measure here; `weir doctor IFACE` also examines an interface.",
            (true, false) => "weir run can measure here.",
            (false, _) => "weir run cannot measure here: see each line marked NO.",
        };
        write!(f, "\n{conclusion}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The column where details begin, on a terminal of a hundred columns.
        const DETAIL: usize = 31;
        const WIDTH: usize = 100 - DETAIL;
        let answer = match self.answer {
            Answer::No if self.needed => "NO",
            Answer::No => "no",
            Answer::Yes => "yes",
            Answer::Unknown => "unknown",
            Answer::Note => "note",
        };
        let mut lines = wrapped(&escaped(&self.detail), WIDTH).into_iter();
        write!(f, "  {answer:<8} {:<19} {}", self.name, lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(f, "\n{:DETAIL$}{line}", ""))
    }
}

/// Wraps a text into lines of at most `width` characters, unless a single word is longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// An error and its causes in one line, without repetition. A verifier log is reduced to the line with the reason.
fn reasons(error: &dyn Error) -> String {
    let mut said = String::new();
    for cause in causes(error) {
        let cause = brief(&cause.to_string());
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

/// The first line of a message. If a verifier log follows, also its last line that is not statistics.
fn brief(message: &str) -> String {
    /// The verifier ends its log with statistics.
    const STATISTICS: [&str; 4] = ["processed ", "verification time", "stack depth", "max_"];
    /// The text that aya writes before the log.
    const LOG: &str = "Verifier output: ";
    let (said, log) = message.split_once(LOG).unwrap_or((message, ""));
    let first = said.lines().next().unwrap_or_default().trim().trim_end_matches('.');
    let mut log = log.lines().map(str::trim).filter(|line| !line.is_empty());
    match log.rfind(|line| !STATISTICS.iter().any(|statistics| line.starts_with(statistics))) {
        Some(last) => format!("{first}: {last}"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(machine: Vec<Finding>) -> Diagnosis {
        let possible = !machine.iter().any(Finding::forbids);
        Diagnosis { schema: "", version: "", possible, machine, programs: Vec::new(), interfaces: Vec::new() }
    }

    #[test]
    fn only_a_missing_need_forbids() {
        for (finding, forbids) in [
            (Finding::needed("a", Answer::Yes, ""), false),
            (Finding::needed("a", Answer::No, ""), true),
            (Finding::needed("a", Answer::Unknown, ""), false),
            (Finding::new("a", Answer::No, ""), false),
            (Finding::new("a", Answer::Note, ""), false),
        ] {
            assert_eq!(finding.forbids(), forbids, "{finding:?}");
        }
    }

    #[test]
    fn a_missing_need_is_marked_differently_from_other_missing_things() {
        let shown = diagnosis(vec![
            Finding::needed("ring buffer", Answer::No, "Linux 5.8 has it"),
            Finding::new("TCX", Answer::No, "Linux 6.6 has it"),
        ])
        .to_string();
        assert!(shown.contains("  NO       ring buffer         Linux 5.8 has it\n"), "{shown}");
        assert!(shown.contains("  no       TCX                 Linux 6.6 has it\n"), "{shown}");
        assert!(shown.ends_with("see each line marked NO."), "{shown}");
    }

    #[test]
    fn long_details_stay_in_their_column() {
        let detail = "word ".repeat(60);
        let shown = Finding::new("a", Answer::Yes, detail.trim()).to_string();
        assert!(shown.lines().count() > 3 && shown.lines().all(|line| line.len() <= 100), "{shown}");
        assert!(shown.lines().skip(1).all(|line| line.starts_with(&" ".repeat(31))), "{shown}");
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("averyverylongword b", 5), ["averyverylongword", "b"]);
    }

    #[test]
    fn a_verifier_log_is_reduced_to_its_reason() {
        let message = "the program was refused. Verifier output: 0: R1=ctx()\n1: (85) call unknown#189\n\
                       invalid func unknown#189\nprocessed 12 insns (limit 1000000)\n";
        assert_eq!(brief(message), "the program was refused: invalid func unknown#189");
        assert_eq!(brief("one line"), "one line");
        assert_eq!(brief(""), "");
    }
}
