//! A rule of an alert: the numbers, the side of the limit on which they cause the alert, and for how long.
//!
//! A rule compares a [`subject`] with a limit, in a [`unit`](mod@unit). The [`catalogue`] has the names of all
//! subjects. `alert` applies rules to reports.

pub mod catalogue;
pub mod subject;
pub mod unit;

use std::fmt;

use weir_system::text::short;

use self::{
    catalogue::Catalogue,
    subject::Subject,
    unit::{Dimension, Unit},
};
use crate::view::Standard;

/// How many windows it takes until a rule fires, unless the rule sets another number.
pub const WINDOWS: u32 = 1;
/// The default distance that a number must move back from the limit until the alert ends: a part of the limit, or, for
/// a share, a part of the distance from the limit to 1.
const BACK: f64 = 0.1;

/// A rule: when to raise an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The name of the alert.
    pub name: String,
    /// The condition that a window may meet.
    pub when: When,
    /// The name or pattern of the interfaces to which it applies; `None` for all interfaces.
    pub interface: Option<String>,
    /// How many consecutive windows it takes until the alert begins, and until it ends.
    pub windows: u32,
    /// The limit at which the alert ends, in the unit of the limit.
    pub clear: f64,
}

/// The condition that a number is beyond a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    /// The numbers to compare.
    pub subject: Subject,
    /// The side of the limit on which the condition holds.
    pub operator: Operator,
    /// The limit that the number is compared with.
    pub limit: Quantity,
}

/// A side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// A number with a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The number in the unit that is written.
    pub number: f64,
    /// The unit; `None` means the unit of the numbers.
    pub unit: Option<&'static Unit>,
}

/// Why a text is not a condition of a rule.
#[derive(Debug, PartialEq)]
pub enum WhenError {
    /// No number of a report has this name.
    Unknown(String),
    /// Any other mistake, as a message.
    Wrong(String),
}

/// The operators. Those with two characters come first.
const OPERATORS: [(&str, Operator); 4] =
    [(">=", Operator::AtLeast), ("<=", Operator::AtMost), (">", Operator::Above), ("<", Operator::Below)];

impl Operator {
    /// The operator as a rule writes it.
    pub fn sign(self) -> &'static str {
        OPERATORS.iter().find(|(_, operator)| *operator == self).map_or("", |(sign, _)| sign)
    }

    /// Returns true if it detects numbers that are too large.
    pub const fn is_upward(self) -> bool {
        matches!(self, Self::Above | Self::AtLeast)
    }

    /// Returns true if a number is on this side of the limit.
    pub fn holds(self, number: f64, limit: f64) -> bool {
        match self {
            Self::Above => number > limit,
            Self::AtLeast => number >= limit,
            Self::Below => number < limit,
            Self::AtMost => number <= limit,
        }
    }
}

impl Quantity {
    /// Reads a number with or without a unit.
    pub fn parse(text: &str, dimension: Dimension) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        // An exponent must be complete, because units may begin with the same letter.
        let exponent = text[digits..].strip_prefix(['e', 'E']).map_or(0, |rest| {
            let sign = usize::from(rest.starts_with(['+', '-']));
            let digits = rest[sign..].chars().take_while(char::is_ascii_digit).count();
            if digits > 0 { 1 + sign + digits } else { 0 }
        });
        let (number, unit) = text.split_at(digits + exponent);
        let Some(number) = number.parse::<f64>().ok().filter(|number| number.is_finite()) else {
            return Err(format!("expected a number from 0 up, such as 5000, found {:?}", short(text)));
        };
        match unit.trim() {
            "" => Ok(Self { number, unit: None }),
            name => match dimension.unit(name) {
                Some(unit) => Ok(Self { number, unit: Some(unit) }),
                None => Err(wrong_unit(name, dimension)),
            },
        }
    }

    /// A quantity without a unit, for the dimension of the subject.
    pub const fn plain(number: f64) -> Self {
        Self { number, unit: None }
    }
}

fn wrong_unit(name: &str, dimension: Dimension) -> String {
    let name = short(name);
    if let Some(meant) = dimension.meant(&name) {
        return format!("there is no unit {name:?}, did you mean {meant}?");
    }
    let units: Vec<_> = dimension.units().iter().map(|unit| unit.name).collect();
    let plain = dimension.plain();
    match units[..] {
        [] => format!("the unit {name:?} does not fit: it has none ({plain})"),
        _ => format!("the unit {name:?} does not fit: use {}, or none ({plain})", units.join(", ")),
    }
}

impl When {
    /// Reads `SUBJECT OPERATOR NUMBER [UNIT]`.
    ///
    /// # Errors
    ///
    /// It is not a condition, or it always or never holds.
    pub fn parse(text: &str, catalogue: &Catalogue) -> Result<Self, WhenError> {
        let wrong = |why: String| WhenError::Wrong(why);
        let Some(at) = text.find(['<', '>', '=', '!']) else {
            return Err(wrong(format!("{:?} compares nothing: write it like sources.bytes > 1 Gbit/s", short(text))));
        };
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let Some((sign, operator)) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)).copied() else {
            return Err(wrong("a rule compares by >, >=, < or <=".to_owned()));
        };
        let subject = catalogue.find(name).ok_or_else(|| WhenError::Unknown(name.to_owned()))?.clone();
        let limit = Quantity::parse(&rest[sign.len()..], subject.dimension).map_err(wrong)?;
        let when = Self { subject, operator, limit };
        when.check().map_err(wrong)?;
        Ok(when)
    }

    /// Refuses conditions that cannot be evaluated, or that always have the same result.
    fn check(&self) -> Result<(), String> {
        let Self { subject, operator, limit } = self;
        let name = &subject.name;
        if !operator.is_upward() && subject.is_listed {
            return Err(format!(
                "{name} only covers the largest keys: a key with less is not listed. Use `>`, or a number of all keys, such as \
                 totals.packets, seen.packets or the total of a view"
            ));
        }
        if *operator == Operator::Below && limit.number == 0.0 {
            return Err(format!("{name} is never below 0"));
        }
        if *operator == Operator::AtLeast && limit.number == 0.0 {
            return Err(format!("{name} is always at least 0: use `> 0`"));
        }
        let Dimension::Share { may_exceed } = subject.dimension else { return Ok(()) };
        let share = limit.number * limit.unit.map_or(1.0, |unit| unit.scale(1.0));
        let percent = if limit.unit.is_none() && limit.number <= 100.0 {
            format!(": did you mean {} %?", limit.number)
        } else {
            String::new()
        };
        match operator {
            Operator::Below | Operator::AtMost if share > 1.0 => {
                Err(format!("{name} is a share, where 1 is all: {} is more{percent}", Shown(limit)))
            }
            Operator::Above if share >= 1.0 && !may_exceed => {
                Err(format!("{name} is a share: it is never more than 1{percent}"))
            }
            Operator::AtLeast if share > 1.0 && !may_exceed => {
                Err(format!("{name} is a share: it is never more than 1{percent}"))
            }
            _ => Ok(()),
        }
    }

    /// The limit at which an alert ends if its rule sets none.
    pub fn clear(&self) -> f64 {
        let Self { subject, operator, limit } = self;
        let number = limit.number;
        let clear = match (operator.is_upward(), subject.dimension) {
            (true, _) => number * (1.0 - BACK),
            (false, Dimension::Share { .. }) => {
                let all = limit.unit.map_or(1.0, |unit| 1.0 / unit.scale(1.0));
                number + (all - number).max(0.0) * BACK
            }
            (false, _) => number * (1.0 + BACK),
        };
        // Rounding removes floating-point noise in the last digits.
        format!("{clear:.12e}").parse().unwrap_or(clear)
    }

    /// Returns true if a number may be the limit for ending. It must not be on the wrong side of the limit.
    pub fn allows(&self, clear: f64) -> bool {
        if self.operator.is_upward() { clear <= self.limit.number } else { clear >= self.limit.number }
    }

    /// The factor that converts the limit to the unit of the numbers, in a window of `seconds`.
    pub fn scale(&self, seconds: f64) -> f64 {
        self.limit.unit.map_or(1.0, |unit| unit.scale(seconds))
    }

    /// The unit of the numbers, for people.
    pub fn unit(&self) -> Option<&'static str> {
        self.limit.unit.map(|unit| unit.name)
    }

    /// The unit to write after each number of the rule.
    fn suffix(&self) -> String {
        self.unit().map_or_else(String::new, |unit| format!(" {unit}"))
    }
}

impl Rule {
    /// The standard view that the rule is about, if any.
    pub fn standard(&self) -> Option<Standard> {
        self.when.subject.standard
    }
}

struct Shown<'a>(&'a Quantity);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quantity { number, unit } = self.0;
        write!(f, "{number}")?;
        unit.map_or(Ok(()), |unit| write!(f, " {unit}"))
    }
}

/// Writes the condition as in a configuration.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, operator, limit } = self;
        write!(f, "{} {} {}", subject.name, operator.sign(), Shown(limit))
    }
}

/// Writes the rule in one line, including its defaults.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, when, interface, windows, clear } = self;
        let (bound, back) = match when.operator {
            Operator::Above => ("lower", "at most"),
            Operator::AtLeast => ("lower", "below"),
            Operator::Below => ("upper", "at least"),
            Operator::AtMost => ("upper", "above"),
        };
        let holder = match (when.subject.is_listed, when.subject.is_per_interface, interface) {
            (true, false, _) => ", of any listed key",
            (_, true, None) => ", of any interface",
            (_, true, Some(_)) => ", of any interface that fits",
            (false, false, _) => "",
        };
        let only = interface.as_ref().map_or_else(String::new, |pattern| format!(" ({pattern})"));
        write!(f, "{name}: the {bound} bound of {when}{holder}{only}, for {}", in_windows(*windows))?;
        write!(f, "; ends when it is {back} {clear}{} for as long", when.suffix())
    }
}

/// Describes a number of windows.
pub fn in_windows(windows: u32) -> String {
    format!("{windows} window{}", if windows == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
