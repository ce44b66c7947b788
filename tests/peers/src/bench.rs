//! One run: its settings, what came out, and which answers were wrong.

use crate::{markdown, report::Group, settings::Settings};

/// The state of a run.
pub struct Bench {
    /// What the user asks for.
    pub settings: Settings,
    /// What was measured.
    pub groups: Vec<Group>,
    /// Answers that no right sketch gives.
    pub wrong: Vec<String>,
}

impl Bench {
    /// A run that has not begun.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, groups: Vec::new(), wrong: Vec::new() }
    }

    /// Prints a group and keeps it.
    pub fn finish(&mut self, group: Group) {
        println!("{}", markdown::table(&group));
        self.groups.push(group);
    }

    /// Takes note of an answer unless it is right.
    pub fn check(&mut self, right: bool, complaint: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(complaint());
        }
    }
}
