//! Rows of views. A view gives as many series as it has keys, but at most its `top` at a time.

use weir_report::{Bits, Estimate, Row, Sums, View};

use super::metrics::{Attributes, Metrics, Name, field, interface_attributes, text};

/// A part of a name with its unit, and a function that gets the number.
type Measured<T, N> = (&'static str, &'static str, fn(&T) -> N);

/// Each number of a row that a view may measure.
const MEASURES: [Measured<Row, Option<Estimate>>; 5] = [
    ("packets", "{packet}", |row| row.packets),
    ("bytes", "By", |row| row.bytes),
    ("flows", "{flow}", |row| row.flows),
    ("new_flows", "{flow}", |row| row.new_flows),
    ("distinct", "1", |row| row.distinct),
];

const SUMS: [Measured<Sums, Estimate>; 2] =
    [("packets", "{packet}", |sums| sums.packets), ("bytes", "By", |sums| sums.bytes)];

pub(super) fn of_views(metrics: &mut Metrics, views: &[View]) {
    let (mut rows, mut totals) = (Vec::new(), Vec::new());
    for view in views.iter().filter(|view| view.has_series()) {
        for (table, total, listed) in view.parts() {
            let mut attributes = vec![text("view", &view.name)];
            let interface = table.map(|table| interface_attributes(&table.interface, table.direction.as_ref()));
            attributes.extend(interface.into_iter().flatten());
            totals.extend(total.map(|total| (attributes.clone(), total)));
            rows.extend(listed.iter().map(|row| (with_key(attributes.clone(), row), row)));
        }
    }
    for (measure, unit, of) in MEASURES {
        let points = rows.iter().filter_map(|(attributes, row)| Some((attributes.clone(), of(row)?)));
        metrics.estimate(Name(&format!("weir.view.{measure}"), unit, &format!("Rows of views: {measure}.")), &points);
    }
    for (measure, unit, of) in SUMS {
        let points = totals.iter().map(|(attributes, total)| (attributes.clone(), of(total)));
        let description = format!("All that a view matched: {measure}.");
        metrics.estimate(Name(&format!("weir.view.sum.{measure}"), unit, &description), &points);
    }
    let entropies = views.iter().filter_map(|view| Some((vec![text("view", &view.name)], view.entropy?.bits)));
    for (name, which, number) in [
        ("weir.view.entropy", "", (|bits| bits.value) as fn(Bits) -> f64),
        ("weir.view.entropy.lower", " Lower bound.", |bits| bits.lower),
        ("weir.view.entropy.upper", " Upper bound.", |bits| bits.upper),
    ] {
        let points = entropies.clone().map(|(attributes, bits)| (attributes, number(bits)));
        let description = format!("How evenly packets or bytes are spread over all keys of a view.{which}");
        metrics.real(Name(name, "bit", &description), points);
    }
}

/// The attributes of a row, including the fields of its key. No two attributes of a point may have the same name.
fn with_key(mut attributes: Attributes, row: &Row) -> Attributes {
    for (name, value) in &row.key {
        if attributes.iter().all(|known| known.key != *name) {
            attributes.push(field(name, value));
        }
    }
    attributes
}
