//! Turns numbers into metrics: sums, gauges, estimates with their bounds, and histograms.

use jiff::Timestamp;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, metric::Data,
        number_data_point::Value as Number,
    },
};
use serde_json::Value;
use weir_report::Estimate;

/// The attributes that distinguish the points of a metric.
pub(super) type Attributes = Vec<KeyValue>;

/// A metric's name, its unit (UCUM), and its description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'n>(pub &'n str, pub &'n str, pub &'n str);

/// The suffix of a name, a part of its description, and a function that gets the number.
pub(super) type Told<T> = (&'static str, &'static str, fn(&T) -> u64);

/// The value, lower bound and upper bound of an estimate.
const BOUNDS: [Told<Estimate>; 3] = [
    ("", "", |estimate| estimate.value),
    (".lower", " Lower bound.", |estimate| estimate.lower),
    (".upper", " Upper bound.", |estimate| estimate.upper),
];

/// A text attribute.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

/// The attributes of an interface.
pub(super) fn interface_attributes(name: &str, direction: Option<&String>) -> Attributes {
    let mut attributes = vec![text("interface", name)];
    attributes.extend(direction.map(|direction| text("direction", direction)));
    attributes
}

/// An attribute with a field of the report, of the same type.
pub(super) fn field(key: &str, value: &Value) -> KeyValue {
    use any_value::Value::{BoolValue, DoubleValue, IntValue, StringValue};
    let value = match value {
        Value::String(text) => StringValue(text.clone()),
        Value::Bool(flag) => BoolValue(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => IntValue(whole),
            (None, Some(real)) => DoubleValue(real),
            (None, None) => StringValue(number.to_string()),
        },
        other => StringValue(other.to_string()),
    };
    attribute(key, value)
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// OTLP integers are signed, so larger numbers are capped. No network reaches that in one window.
fn int(number: u64) -> Number {
    Number::AsInt(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Nanoseconds since 1970; 0, which means unknown, for earlier times.
fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

/// The metrics of one window.
#[derive(Debug)]
pub(super) struct Metrics {
    start: u64,
    end: u64,
    all: Vec<Metric>,
}

impl Metrics {
    /// Metrics of the window from `start` to `end`.
    pub fn within(start: Timestamp, end: Timestamp) -> Self {
        Self { start: nanoseconds(start), end: nanoseconds(end), all: Vec::new() }
    }

    /// Metrics at this time, in seconds since 1970, whose counting began at an unknown time.
    pub const fn at(seconds: u64) -> Self {
        Self { start: 0, end: seconds.saturating_mul(1_000_000_000), all: Vec::new() }
    }

    /// All metrics.
    pub fn finish(self) -> Vec<Metric> {
        self.all
    }

    /// Counts of the window: deltas, which can be summed.
    pub fn sum(&mut self, name: Name<'_>, points: impl IntoIterator<Item = (Attributes, u64)>) {
        let point = |(attributes, number)| self.point(attributes, self.start, int(number));
        let data_points: Vec<_> = points.into_iter().map(point).collect();
        let is_empty = data_points.is_empty();
        let aggregation_temporality = AggregationTemporality::Delta.into();
        self.push(name, is_empty, Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true }));
    }

    /// Whole numbers as of the end of the window.
    pub fn gauge(&mut self, name: Name<'_>, points: impl IntoIterator<Item = (Attributes, u64)>) {
        self.numbers(name, points.into_iter().map(|(attributes, number)| (attributes, int(number))));
    }

    /// Floating-point numbers as of the end of the window.
    pub fn real(&mut self, name: Name<'_>, points: impl IntoIterator<Item = (Attributes, f64)>) {
        self.numbers(name, points.into_iter().map(|(attributes, number)| (attributes, Number::AsDouble(number))));
    }

    fn numbers(&mut self, name: Name<'_>, points: impl Iterator<Item = (Attributes, Number)>) {
        let point = |(attributes, number)| self.point(attributes, 0, number);
        let data_points: Vec<_> = points.map(point).collect();
        let is_empty = data_points.is_empty();
        self.push(name, is_empty, Data::Gauge(Gauge { data_points }));
    }

    /// Estimates of the window, with their bounds as separate metrics.
    pub fn estimate(
        &mut self,
        Name(name, unit, description): Name<'_>,
        points: &(impl Iterator<Item = (Attributes, Estimate)> + Clone),
    ) {
        for (suffix, which, number) in BOUNDS {
            let points = points.clone().map(|(attributes, estimate)| (attributes, number(&estimate)));
            self.gauge(Name(&format!("{name}{suffix}"), unit, &format!("{description}{which}")), points);
        }
    }

    /// Counts per class. A class is its upper edge (inclusive) and a count; the last one includes everything larger.
    pub fn histogram<'c>(&mut self, name: Name<'_>, points: impl IntoIterator<Item = (Attributes, &'c [(u64, u64)])>) {
        let point = |(attributes, classes): (Attributes, &[(u64, u64)])| {
            let (_, below) = classes.split_last()?;
            Some(HistogramDataPoint {
                attributes,
                start_time_unix_nano: self.start,
                time_unix_nano: self.end,
                count: classes.iter().fold(0, |count: u64, (_, number)| count.saturating_add(*number)),
                bucket_counts: classes.iter().map(|(_, number)| *number).collect(),
                explicit_bounds: below.iter().map(|(edge, _)| *edge as f64).collect(),
                ..HistogramDataPoint::default()
            })
        };
        let data_points: Vec<_> = points.into_iter().filter_map(point).collect();
        let is_empty = data_points.is_empty();
        let aggregation_temporality = AggregationTemporality::Delta.into();
        self.push(name, is_empty, Data::Histogram(Histogram { data_points, aggregation_temporality }));
    }

    fn point(&self, attributes: Attributes, start_time_unix_nano: u64, number: Number) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            start_time_unix_nano,
            time_unix_nano: self.end,
            value: Some(number),
            ..NumberDataPoint::default()
        }
    }

    fn push(&mut self, Name(name, unit, description): Name<'_>, is_empty: bool, data: Data) {
        if !is_empty {
            self.all.push(Metric {
                name: name.to_owned(),
                description: description.to_owned(),
                unit: unit.to_owned(),
                data: Some(data),
                ..Metric::default()
            });
        }
    }
}
