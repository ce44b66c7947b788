//! Turns series into metrics: sums, gauges and histograms.

use jiff::Timestamp;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, metric::Data,
        number_data_point::Value as Number,
    },
};
use serde_json::Value;
use weir_schema::{
    Report,
    series::{
        Kind, Series, Target,
        point::{Classes, Label, Labels, Point, Scalar},
    },
};

/// The attributes that distinguish the points of a metric.
pub(super) type Attributes = Vec<KeyValue>;

/// A metric's name, its unit (UCUM), and its description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'n>(pub &'n str, pub &'n str, pub &'n str);

/// Makes a text attribute.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

/// Labels as attributes. No two attributes of a point may have the same name.
fn attributes(labels: &Labels<'_>) -> Attributes {
    let mut attributes = Attributes::with_capacity(labels.len());
    for (name, label) in labels {
        if attributes.iter().all(|known| known.key != *name) {
            attributes.push(match label {
                Label::Text(value) => text(name, value),
                Label::Field(value) => field(name, value),
            });
        }
    }
    attributes
}

/// An attribute with a field of the report, of the same type.
fn field(key: &str, value: &Value) -> KeyValue {
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

    /// Ends the request and returns all metrics.
    pub fn finish(self) -> Vec<Metric> {
        self.all
    }

    /// Adds a series of a report, and those of its bounds that are exported.
    pub fn add(&mut self, series: &Series, report: &Report) {
        let name = format!("weir.{}", series.name);
        if let Some(classes) = series.classes(report) {
            return self.histogram(Name(&name, series.unit.ucum, series.help), &classes);
        }
        for side in series.sides(Target::Otlp) {
            let points = series.points(report).filter_map(|Point { labels, reading, .. }| {
                Some((
                    attributes(&labels),
                    match (side.of)(&reading)? {
                        Scalar::Whole(number) => int(number),
                        Scalar::Real(number) => Number::AsDouble(number),
                    },
                ))
            });
            let (ending, help) = (side.name, format!("{}{}", series.help, side.help));
            let name = if ending.is_empty() { name.clone() } else { format!("{name}.{ending}") };
            self.numbers(Name(&name, series.unit.ucum, &help), series.kind == Kind::Sum && ending.is_empty(), points);
        }
    }

    /// Counts of the window: deltas, which can be summed.
    pub fn sum(&mut self, name: Name<'_>, attributes: Attributes, number: u64) {
        self.numbers(name, true, [(attributes, int(number))].into_iter());
    }

    /// A whole number as of the end of the window.
    pub fn gauge(&mut self, name: Name<'_>, attributes: Attributes, number: u64) {
        self.numbers(name, false, [(attributes, int(number))].into_iter());
    }

    fn numbers(&mut self, name: Name<'_>, is_sum: bool, points: impl Iterator<Item = (Attributes, Number)>) {
        let start = if is_sum { self.start } else { 0 };
        let data_points: Vec<_> = points.map(|(attributes, number)| self.point(attributes, start, number)).collect();
        let is_empty = data_points.is_empty();
        let aggregation_temporality = AggregationTemporality::Delta.into();
        self.push(
            name,
            is_empty,
            if is_sum {
                Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            } else {
                Data::Gauge(Gauge { data_points })
            },
        );
    }

    /// Counts per class. A class is its upper edge (inclusive) and a count; the last one includes everything larger.
    fn histogram(&mut self, name: Name<'_>, points: &[(Labels<'_>, Classes<'_>)]) {
        let point = |(labels, classes): &(Labels<'_>, Classes<'_>)| {
            let (_, below) = classes.split_last()?;
            Some(HistogramDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: self.start,
                time_unix_nano: self.end,
                count: classes.iter().fold(0, |count: u64, (_, number)| count.saturating_add(*number)),
                bucket_counts: classes.iter().map(|(_, number)| *number).collect(),
                explicit_bounds: below.iter().map(|(edge, _)| *edge as f64).collect(),
                ..HistogramDataPoint::default()
            })
        };
        let data_points: Vec<_> = points.iter().filter_map(point).collect();
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
