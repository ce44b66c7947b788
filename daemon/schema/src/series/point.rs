//! Points: the numbers of a series in one report, each with its bounds, its labels and its owner.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Bits, Bounds, Distinct, Estimate, Interface, InterfaceRates, NOT_KEY, NewFlows, NewHosts};

/// A number of a report.
pub struct Point<'r> {
    /// The labels that distinguish it from other points of its series.
    pub labels: Labels<'r>,
    /// The owner of the number.
    pub owner: Owner<'r>,
    /// The number with its bounds.
    pub reading: Reading,
    /// True if it may become a series of a metrics database.
    pub is_exported: bool,
}

/// The labels of a point, each with its name.
pub type Labels<'r> = Vec<(&'r str, Label<'r>)>;

/// The classes of a distribution: the upper edge of each, and its count.
pub type Classes<'r> = &'r [(u64, u64)];

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label<'r> {
    /// The value is text.
    Text(&'r str),
    /// A field of a row, of any type.
    Field(&'r Value),
}

/// A count or a measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A count, which is a whole number.
    Whole(u64),
    /// A measured value, which may have a fraction.
    Real(f64),
}

/// A number and its bounds, if it has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The likeliest value.
    pub value: Scalar,
    /// The true number lies between these bounds, with the confidence that the report states. Without bounds the number
    /// is exact.
    pub bounds: Option<[Scalar; 2]>,
}

impl Label<'_> {
    /// The value as text.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Field(Value::String(text)) => Cow::Borrowed(text),
            Self::Field(other) => Cow::Owned(other.to_string()),
        }
    }
}

impl<'r> From<&'r str> for Label<'r> {
    fn from(text: &'r str) -> Self {
        Self::Text(text)
    }
}

impl<'r> From<&'r String> for Label<'r> {
    fn from(text: &'r String) -> Self {
        Self::Text(text)
    }
}

impl From<Scalar> for f64 {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Whole(number) => number as Self,
            Scalar::Real(number) => number,
        }
    }
}

impl From<u64> for Scalar {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Scalar {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl Reading {
    /// A number with these bounds.
    pub fn between(value: impl Into<Scalar>, lower: impl Into<Scalar>, upper: impl Into<Scalar>) -> Self {
        Self { value: value.into(), bounds: Some([lower.into(), upper.into()]) }
    }

    /// A count of which the true number may exceed what was counted by this much.
    pub fn at_least(count: u64, beyond: u64) -> Self {
        if beyond == 0 { count.into() } else { Self::between(count, count, count.saturating_add(beyond)) }
    }

    /// The same if this part of it was not counted but assumed.
    pub fn with_assumed(self, assumed: u64) -> Self {
        match (self.value, assumed) {
            (_, 0) | (Scalar::Real(_), _) => self,
            (Scalar::Whole(count), _) => Self::between(count, count.saturating_sub(assumed), f64::INFINITY),
        }
    }
}

impl<T: Into<Scalar>> From<T> for Reading {
    fn from(number: T) -> Self {
        Self { value: number.into(), bounds: None }
    }
}

macro_rules! with_bounds {
    ($($estimate:ty),+) => {$(
        impl From<$estimate> for Reading {
            fn from(of: $estimate) -> Self {
                Self::between(of.value, of.lower, of.upper)
            }
        }
    )+};
}

with_bounds!(Estimate, Distinct, NewFlows, Bits);

impl From<&NewHosts> for Reading {
    fn from(of: &NewHosts) -> Self {
        Self::between(of.value, of.lower, of.upper)
    }
}

impl From<(u64, Option<Bounds>)> for Reading {
    fn from((value, bounds): (u64, Option<Bounds>)) -> Self {
        bounds.map_or_else(|| value.into(), |Bounds { lower, upper }| Self::between(value, lower, upper))
    }
}

/// The owner of a number.
#[derive(Clone, Copy)]
pub enum Owner<'r> {
    /// All traffic, or all traffic of a view.
    All,
    /// An interface, in one direction.
    Interface(&'r str, Option<&'r str>),
    /// A row of a list.
    Row(&'r dyn Keyed),
    /// A row in the table of an interface.
    InTable(&'r str, Option<&'r str>, &'r dyn Keyed),
}

/// A row that has a key.
pub trait Keyed {
    /// The fields of its key, by their names in reports.
    fn key(&self) -> Map<String, Value>;
}

impl<T: Serialize> Keyed for T {
    fn key(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return Map::new() };
        for measured in &NOT_KEY {
            _ = fields.remove(*measured);
        }
        fields
    }
}

impl<'r> Owner<'r> {
    /// The owner of an interface's numbers.
    pub fn interface(interface: &'r Interface) -> Self {
        Self::Interface(&interface.name, interface.direction.as_deref())
    }

    /// The owner of an interface's rates.
    pub fn rates(rates: &'r InterfaceRates) -> Self {
        Self::Interface(&rates.interface, rates.direction.as_deref())
    }

    /// The interface's name, if there is one.
    pub const fn name(&self) -> Option<&'r str> {
        match self {
            Self::Interface(name, _) | Self::InTable(name, ..) => Some(*name),
            Self::All | Self::Row(_) => None,
        }
    }

    /// The labels of its interface, if there is one.
    pub fn labels(&self) -> Labels<'r> {
        match *self {
            Self::Interface(name, direction) | Self::InTable(name, direction, _) => {
                let direction = direction.map(|direction| ("direction", direction.into()));
                [("interface", name.into())].into_iter().chain(direction).collect()
            }
            Self::All | Self::Row(_) => Labels::new(),
        }
    }

    /// The owner as the report names it.
    pub fn key(&self) -> Map<String, Value> {
        let mut key: Map<_, _> =
            self.labels().iter().map(|(name, label)| ((*name).to_owned(), label.text().into())).collect();
        if let Self::Row(row) | Self::InTable(_, _, row) = self {
            key.extend(row.key());
        }
        key
    }
}
