//! One run: its settings, its results, and the wrong answers.

use crate::{markdown, report::Group, settings::Settings};

/// The state of a run.
pub struct Bench {
    /// The settings of the command line.
    pub settings: Settings,
    /// The measurements so far.
    pub groups: Vec<Group>,
    /// Answers that no correct sketch gives.
    pub wrong: Vec<String>,
}

impl Bench {
    /// A run without results yet.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, groups: Vec::new(), wrong: Vec::new() }
    }

    /// Prints a group and keeps it.
    pub fn finish(&mut self, group: Group) {
        println!("{}", markdown::table(&group));
        self.groups.push(group);
    }

    /// Notes a complaint about an answer, unless it is right.
    pub fn check(&mut self, right: bool, complaint: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(complaint());
        }
    }
}
