//! Finds the places of settings in a file that was read earlier, because some mistakes are found only later.

use super::{
    locate::{KeyOrValue, locate},
    mistake::Position,
    node::{self, Node},
    without_mark,
};

/// The text of a configuration, and its file name.
#[derive(Clone, Debug)]
pub struct Source {
    file: String,
    text: String,
}

impl Source {
    /// Keeps this text, from the file with this name.
    pub fn new(file: impl Into<String>, text: &str) -> Self {
        Self { file: file.into(), text: without_mark(text).to_owned() }
    }

    /// The file, with the line and column of a setting such as `sampling.packets` or `sinks[1].path`, or of the section
    /// around it, if there is one.
    pub fn place(&self, setting: &str) -> String {
        let file = &self.file;
        let place = self.find(setting);
        place.map_or_else(|| file.clone(), |place| format!("{file}:{}:{}", place.line, place.column))
    }

    /// The name of the file.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The line and column of a setting: see [`place`](Self::place).
    pub(super) fn find(&self, setting: &str) -> Option<Position> {
        let text = &self.text;
        let mut steps = Vec::new();
        if let Ok(root) = node::parse(text) {
            let mut node = &root;
            for step in setting.split(['.', '[']) {
                let Some((index, next)) = (match (node, step.strip_suffix(']')) {
                    (Node::List(items), Some(nth)) => nth.parse().ok().and_then(|nth| Some((nth, items.get(nth)?))),
                    (Node::Map(entries), _) => {
                        let index = entries.iter().position(|(name, _)| name == step);
                        index.map(|index| (index, &entries[index].1))
                    }
                    _ => None,
                }) else {
                    break;
                };
                steps.push(index);
                node = next;
            }
        }
        if steps.is_empty() { None } else { locate(text, &steps, KeyOrValue::Key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_its_place_and_a_missing_one_has_that_of_its_section() {
        let source = Source::new(
            "F",
            "\u{feff}interfaces: [eth0]\nsampling:\n  cpu: 0.3\n  packets: 10\nmemory: 1GiB\nsinks:\n  - type: stdout\n  - path: x",
        );
        for (setting, place) in [
            ("interfaces", "F:1:1"),
            ("sampling", "F:2:1"),
            ("sampling.packets", "F:4:3"),
            ("sampling.other", "F:2:1"),
            ("sinks[1].path", "F:8:5"),
            ("sinks[0]", "F:7:5"),
            ("sinks[2].path", "F:6:1"),
            ("sinks[x]", "F:6:1"),
            ("memory", "F:5:1"),
            ("memory.more", "F:5:1"),
            ("hash_key", "F"),
        ] {
            assert_eq!(source.place(setting), place, "{setting}");
        }
        assert_eq!(Source::new("F", "").place("interfaces"), "F");
    }
}
