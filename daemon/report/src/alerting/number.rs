//! A number of a report with its bounds and its owner.

use serde::Serialize;
use serde_json::{Map, Value};
use weir_config::rule::Operator;

use crate::{Bits, Bounds, Distinct, Estimate, Interface, InterfaceRates, NewFlows};

/// A number of a report. The truth lies between the bounds, with the confidence that the report states; the bounds of
/// an exact number are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The number.
    pub value: f64,
    /// At least this.
    pub lower: f64,
    /// At most this; infinite if unknown.
    pub upper: f64,
}

impl Number {
    /// An exact number.
    pub const fn exact(value: f64) -> Self {
        Self { value, lower: value, upper: value }
    }

    /// An exact count.
    pub const fn count(count: u64) -> Self {
        Self::exact(count as f64)
    }

    const fn of(value: u64, lower: u64, upper: u64) -> Self {
        Self { value: value as f64, lower: lower as f64, upper: upper as f64 }
    }

    /// A count of which `assumed` is assumed, not counted.
    pub const fn assumed(count: u64, assumed: u64) -> Self {
        let (value, lower) = (count as f64, count.saturating_sub(assumed) as f64);
        Self { value, lower, upper: if assumed == 0 { value } else { f64::INFINITY } }
    }

    /// The bound by which a rule judges it: if this is beyond the limit, so is the truth.
    pub const fn judged(self, by: Operator) -> f64 {
        if by.is_upward() { self.lower } else { self.upper }
    }

    /// The same number in a unit of this size.
    #[must_use]
    pub fn per(self, scale: f64) -> Self {
        let Self { value, lower, upper } = self;
        Self { value: value / scale, lower: lower / scale, upper: upper / scale }
    }
}

impl From<Estimate> for Number {
    fn from(Estimate { value, lower, upper, sampled: _ }: Estimate) -> Self {
        Self::of(value, lower, upper)
    }
}

impl From<Distinct> for Number {
    fn from(Distinct { value, lower, upper, confidence: _ }: Distinct) -> Self {
        Self::of(value, lower, upper)
    }
}

impl From<NewFlows> for Number {
    fn from(NewFlows { value, lower, upper, .. }: NewFlows) -> Self {
        Self::of(value, lower, upper)
    }
}

impl From<Bits> for Number {
    fn from(Bits { value, lower, upper }: Bits) -> Self {
        Self { value, lower, upper }
    }
}

impl From<(u64, Option<Bounds>)> for Number {
    fn from((value, bounds): (u64, Option<Bounds>)) -> Self {
        bounds.map_or(Self::count(value), |Bounds { lower, upper }| Self::of(value, lower, upper))
    }
}

/// The fields of a row that are not part of its key.
const MEASURED: [&str; 8] = ["rank", "packets", "bytes", "flows", "new_flows", "distinct", "beyond", "members"];

/// The owner of a number.
#[derive(Clone, Copy)]
pub enum Holder<'r> {
    /// All traffic, or everything in a view.
    All,
    /// An interface, in one direction.
    Interface(&'r str, Option<&'r str>),
    /// A row of a list.
    Row(&'r dyn Keyed),
    /// A row in the table of an interface.
    InTable(&'r str, Option<&'r str>, &'r dyn Keyed),
}

/// Something with a key.
pub trait Keyed {
    /// The fields of its key, by their names in reports.
    fn key(&self) -> Map<String, Value>;
}

impl<T: Serialize> Keyed for T {
    fn key(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return Map::new() };
        for measured in &MEASURED {
            _ = fields.remove(*measured);
        }
        fields
    }
}

impl<'r> Holder<'r> {
    /// The interface of an account.
    pub fn interface(interface: &'r Interface) -> Self {
        Self::Interface(&interface.name, interface.direction.as_deref())
    }

    /// The interface of these rates.
    pub fn rates(rates: &'r InterfaceRates) -> Self {
        Self::Interface(&rates.interface, rates.direction.as_deref())
    }

    /// The interface, if there is one.
    pub const fn name(&self) -> Option<&'r str> {
        match self {
            Self::Interface(name, _) | Self::InTable(name, ..) => Some(*name),
            Self::All | Self::Row(_) => None,
        }
    }

    /// The owner as the report names it.
    pub fn key(&self) -> Map<String, Value> {
        let mut key = Map::new();
        let mut put = |name: &str, direction: Option<&str>| {
            key.insert("interface".to_owned(), name.into());
            key.extend(direction.map(|direction| ("direction".to_owned(), direction.into())));
        };
        match self {
            Self::All => {}
            Self::Interface(name, direction) => put(name, *direction),
            Self::Row(row) => key = row.key(),
            Self::InTable(name, direction, row) => {
                put(name, *direction);
                key.extend(row.key());
            }
        }
        key
    }
}
