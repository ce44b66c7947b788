//! Writes a view as in a configuration.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Condition, Field, Measure, View};

/// Writes every setting, also those that have their defaults.
impl Serialize for View {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            name,
            conditions,
            by,
            measure,
            top,
            per_interface,
            error,
            follows_top_error: _,
            has_entropy,
            of_hosts,
        } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        if !conditions.is_empty() {
            map.serialize_entry("match", &Conditions(conditions, false))?;
        }
        map.serialize_entry("by", &by.iter().map(Field::to_string).collect::<Vec<_>>())?;
        if *of_hosts {
            map.serialize_entry("measure", "hosts")?;
        } else {
            map.serialize_entry("measure", measure)?;
        }
        map.serialize_entry("top", top)?;
        if *per_interface {
            map.serialize_entry("per", "interface")?;
        }
        map.serialize_entry("error", error)?;
        if *has_entropy {
            map.serialize_entry("entropy", has_entropy)?;
        }
        map.end()
    }
}

struct Conditions<'a>(&'a [Condition], bool);

impl Serialize for Conditions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(conditions, negated) = *self;
        let mut map = serializer.serialize_map(None)?;
        for condition in conditions.iter().filter(|condition| condition.is_negated == negated) {
            map.serialize_entry(condition.field.name(), &condition.texts)?;
        }
        if !negated && conditions.iter().any(|condition| condition.is_negated) {
            map.serialize_entry("not", &Conditions(conditions, true))?;
        }
        map.end()
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes => serializer.serialize_str("bytes"),
            Self::Packets => serializer.serialize_str("packets"),
            Self::Flows => serializer.serialize_str("flows"),
            Self::NewFlows => serializer.serialize_str("new_flows"),
            Self::Distinct(of) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("distinct", &of.iter().map(Field::to_string).collect::<Vec<_>>())?;
                map.end()
            }
        }
    }
}
