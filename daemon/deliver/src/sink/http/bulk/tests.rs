//! Tests the judgement of answers of every size and shape.

use serde_json::json;

use super::*;

/// An answer of 400 for each of so many reports, with reasons of this length.
fn refusing(reports: usize, reason: &str) -> String {
    let error = json!({"reason": reason, "type": "document_parsing_exception", "caused_by": {"reason": reason}});
    let item = format!(r#"{{"create":{{"_index":"weir","_id":"7f/b/1","status":400,"error":{error}}}}}"#);
    format!(r#"{{"took":3,"errors":true,"items":[{}]}}"#, vec![item; reports].join(","))
}

fn is_refused(judged: &Result<(), DeliveryError>) -> bool {
    matches!(judged, Err(DeliveryError::Refused(_)))
}

#[test]
fn answers_of_every_size_are_judged() {
    for size in [0, 100, 1_500, 30_000, 200_000, 6_000_000] {
        let judged = judge(refusing(50, &"x".repeat(size)).as_bytes(), 50);
        assert!(is_refused(&judged), "{size}: {judged:?}");
        let message = judged.unwrap_err().to_string();
        assert!(message.starts_with("400 Bad Request for a report: ") && message.len() < 300, "{message}");
        // A report is refused alone, too, although its answer does not end within the limit.
        assert!(is_refused(&judge(refusing(1, &"x".repeat(size)).as_bytes(), 1)), "{size}");
    }
}

#[test]
fn an_answer_that_is_not_whole_is_judged_as_far_as_it_goes() {
    let whole = refusing(2, "no\u{e4} \"so\"");
    for end in 0..whole.len() {
        let cut = &whole.as_bytes()[..end];
        let text = String::from_utf8_lossy(cut);
        assert_eq!(is_refused(&judge(cut, 1)), end > 0, "{text}");
        let has_status = text.contains("\"status\":400,");
        assert!(!has_status || judge(cut, 2).is_err_and(|error| error.to_string().starts_with("400 Bad")), "{text}");
    }
    assert!(judge(whole.as_bytes(), 1).unwrap_err().to_string().contains("no\u{e4} \"so\""));
    // Two reports were sent, and the answer tells about one of them.
    let first = r#"{"errors":true,"items":[{"create":{"status":201}},{"cre"#;
    let judged = judge(first.as_bytes(), 2);
    assert!(
        is_refused(&judged) && judged.unwrap_err().to_string().contains("breaks off: it tells about 1 of 2 reports")
    );
    assert_eq!(judge(first.as_bytes(), 1), Ok(()));
    assert_eq!(judge(&br#"{"errors":false,"items":[{"#[..], 2), Ok(()), "there are no errors");
    assert_eq!(judge(format!("{{\"took\":\"{}", "x".repeat(5 << 20)).as_bytes(), 1), Ok(()), "as the status says");
}

#[test]
fn an_answer_may_have_any_bytes() {
    let odd = b"{\"errors\":true,\"items\":[{\"create\":{\"status\":400,\"error\":{\"reason\":\"a \xff\xfe \\q\"}}}]}";
    assert!(is_refused(&judge(&odd[..], 1)));
    let text = r#"{"errors" : true, "items" : [ {"create" : {"error" : "as a text", "status" : 429} } ] }"#;
    let judged = judge(text.as_bytes(), 1).unwrap_err();
    assert_eq!(judged, DeliveryError::unavailable("429 Too Many Requests for a report: as a text".to_owned()));
    for (no_bulk, why) in [("", ""), ("<html>", "not JSON"), ("{}", "neither"), ("[1]", "neither"), ("}", "not JSON")] {
        let judged = judge(no_bulk.as_bytes(), 2).unwrap_err();
        assert!(judged.to_string().contains(why), "{no_bulk}: {judged}");
        assert!(no_bulk.is_empty() || matches!(judged, DeliveryError::Unavailable { .. }), "{no_bulk}: {judged}");
    }
    assert!(judge("[".repeat(100_000).as_bytes(), 1).is_err());
}
