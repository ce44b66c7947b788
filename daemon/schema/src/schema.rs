//! The JSON Schemas (draft 2020-12) of the messages that weir sends. They are files in `json-schema/`, and a test
//! compares them with the structs that serialise the messages.
//!
//! Unknown fields are allowed, because fields may be added within a schema version.

/// The JSON Schema of a report, indented, with a newline at its end.
pub const REPORT: &str = include_str!("../json-schema/report.json");
/// The JSON Schema of a tombstone, which replaces lost reports.
pub const TOMBSTONE: &str = include_str!("../json-schema/tombstone.json");
/// The JSON Schema of the message of a second, which `subscribe` on the control socket sends.
pub const SECOND: &str = include_str!("../json-schema/second.json");
/// The JSON Schema of the answer to `live` on the control socket: the lists of the open window.
pub const LIVE: &str = include_str!("../json-schema/live.json");

#[cfg(test)]
mod tests {
    use jsonschema::Validator;
    use schemars::{
        JsonSchema, Schema,
        generate::SchemaSettings,
        transform::{Transform, transform_subschemas},
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::{Live, Report, Second, Tombstone};

    /// A report with every field present; also the sample for the tests of tables and sinks.
    const GOLDEN: &str = include_str!("../tests/golden/report.json");

    /// The schema of `T`, derived from the struct.
    fn made<T: JsonSchema>(title: &str) -> String {
        let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
        schema.insert("title".to_owned(), json!(title));
        SpellOutIp.transform(&mut schema);
        format!("{:#}\n", schema.as_value())
    }

    /// Replaces the format `ip`, which is not in the standard, by "IPv4 or IPv6".
    struct SpellOutIp;

    impl Transform for SpellOutIp {
        fn transform(&mut self, schema: &mut Schema) {
            if schema.get("format") == Some(&json!("ip")) {
                schema.remove("format");
                schema.insert("anyOf".to_owned(), json!([{ "format": "ipv4" }, { "format": "ipv6" }]));
            }
            transform_subschemas(self, schema);
        }
    }

    /// `WEIR_WRITE_SCHEMAS=1` writes the files again.
    #[test]
    fn the_files_are_the_schemas_of_the_structs() {
        for (name, file, made) in [
            ("report", REPORT, made::<Report>("weir report")),
            ("tombstone", TOMBSTONE, made::<Tombstone>("weir tombstone")),
            ("second", SECOND, made::<Second>("weir second")),
            ("live", LIVE, made::<Live>("weir live")),
        ] {
            if std::env::var_os("WEIR_WRITE_SCHEMAS").is_some() {
                std::fs::write(format!("{}/json-schema/{name}.json", env!("CARGO_MANIFEST_DIR")), &made).unwrap();
            } else {
                assert!(file == made, "{name}.json is old: WEIR_WRITE_SCHEMAS=1 cargo test -p weir-schema schema");
            }
        }
    }

    fn validator() -> Validator {
        let schema: Value = serde_json::from_str(REPORT).unwrap();
        jsonschema::draft202012::meta::validate(&schema).unwrap();
        jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
    }

    /// The golden report with the value at `pointer` replaced.
    fn golden_with(pointer: &str, value: Value) -> Value {
        let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
        *report.pointer_mut(pointer).expect(pointer) = value;
        report
    }

    #[test]
    fn the_golden_report_reads_and_writes_byte_for_byte() {
        let report: Report = serde_json::from_str(GOLDEN).unwrap();
        assert_eq!(serde_json::to_string_pretty(&report).unwrap() + "\n", GOLDEN);
        assert!(report.interfaces.iter().all(|interface| interface.ledger.balances()));
    }

    #[test]
    fn the_golden_report_is_valid() {
        let report: Value = serde_json::from_str(GOLDEN).unwrap();
        let errors: Vec<_> = validator().iter_errors(&report).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }

    #[test]
    fn fields_of_a_later_version_are_valid_and_ignored() {
        let mut report = golden_with("/self/rings", json!({ "peak_fill": 0.0, "later": true }));
        report["later"] = json!({ "than": "this" });
        assert!(validator().is_valid(&report));
        let report: Report = serde_json::from_value(report).unwrap();
        assert_eq!(report.self_metrics.rings.peak_fill, Some(0.0));
    }

    #[test]
    fn optional_fields_may_be_absent() {
        let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
        let parents = [
            ("", "previous"),
            ("/window", "clock_step_seconds"),
            ("/window", "late_packets"),
            ("/window", "untimed_packets"),
            ("/observer", "site"),
            ("/interfaces/0", "alias"),
            ("/interfaces/1", "vrf"),
            ("/interfaces/1", "earlier_name"),
            ("/interfaces/0", "direction"),
            ("/interfaces/0", "coverage"),
            ("/interfaces/0", "coverage_lower"),
            ("/interfaces/0", "coverage_upper"),
            ("/interfaces/0", "coverage_bytes"),
            ("/interfaces/0", "coverage_bytes_lower"),
            ("/interfaces/0", "coverage_bytes_upper"),
            ("/interfaces/1", "unseen"),
            ("/interfaces/1", "blind_seconds"),
            ("/interfaces/1", "trouble"),
            ("/interfaces/1/tcp", "bounds"),
            ("/top/unlisted", "services"),
            ("/top_by_packets", "unlisted"),
            ("/views/0", "unlisted"),
            ("", "views"),
            ("", "answers"),
            ("", "sketches"),
            ("", "horizons"),
            ("", "new_hosts"),
            ("/self", "kernel_ns_per_packet"),
            ("/self/rings", "peak_fill"),
            ("/self/sinks/0", "last_error"),
            ("/top/flows/1/packets", "sampled"),
        ];
        for (parent, field) in parents {
            let removed = report.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            assert!(removed.is_some(), "the golden report has every field: {parent}/{field}");
        }
        assert!(validator().is_valid(&report));
        let read: Report = serde_json::from_value(report.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), report, "absent stays absent");
    }

    #[test]
    fn broken_reports_are_invalid() {
        let validator = validator();
        let mut without_ledger: Value = serde_json::from_str(GOLDEN).unwrap();
        without_ledger["interfaces"][0].as_object_mut().unwrap().remove("ledger").unwrap();
        let broken = [
            ("no ledger", without_ledger),
            ("another schema", golden_with("/schema", json!("weir.report/2"))),
            ("a negative count", golden_with("/interfaces/0/ledger/seen/packets", json!(-1))),
            ("half a packet", golden_with("/totals/packets", json!(0.5))),
            ("a count as text", golden_with("/totals/bytes", json!("12"))),
            ("a number for null", golden_with("/unique/flows/value", Value::Null)),
            ("not an address", golden_with("/top/flows/0/src_ip", json!("192.0.2.256"))),
            ("not a port", golden_with("/top/flows/0/dst_port", json!(65_536))),
            ("not a time", golden_with("/window/start", json!("yesterday"))),
            ("more than everything", golden_with("/interfaces/0/kept", json!(1.5))),
            ("a bucket without a count", golden_with("/histograms/packet_size_bytes/buckets/0", json!([64]))),
        ];
        for (what, report) in broken {
            assert!(!validator.is_valid(&report), "{what} must be invalid");
        }
    }

    #[test]
    fn every_field_is_described() {
        fn undescribed(at: &str, schema: &Value, found: &mut Vec<String>) {
            let Some(object) = schema.as_object() else { return };
            for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if property.get("description").is_none() {
                    found.push(format!("{at}.{name}"));
                }
            }
            for (key, value) in object {
                undescribed(&format!("{at}/{key}"), value, found);
            }
        }
        let mut found = Vec::new();
        undescribed("", &serde_json::from_str(REPORT).unwrap(), &mut found);
        assert!(found.is_empty(), "{found:?}");
    }
}
