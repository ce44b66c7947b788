//! Judges the answers of a collector.

use std::{io::Read, time::Duration};

use flate2::read::GzDecoder;
use ureq::{
    Body,
    http::{HeaderMap, Response, StatusCode, header},
};
use weir_system::clock;

/// How much of the body of a refusal is quoted in the error: enough for a sentence.
const REFUSAL_BYTES_MAX: u64 = 200;
/// The longest pause that a collector may ask for.
const AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// The most that is read of an answer whose content does not matter. After a larger one the connection cannot be
/// reused.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// An answer of 2xx.
pub(in crate::sink) struct Accepted(pub(super) Response<Body>);

impl Accepted {
    /// Returns the body as it comes, unpacked if it is packed by gzip: some servers do that unasked.
    pub fn reader(&mut self) -> Box<dyn Read + '_> {
        let encoding = self.0.headers().get(header::CONTENT_ENCODING);
        let is_packed = encoding.is_some_and(|name| [&b"gzip"[..], b"x-gzip"].contains(&name.as_bytes()));
        let body = self.0.body_mut().as_reader();
        if is_packed { Box::new(GzDecoder::new(body)) } else { Box::new(body) }
    }

    /// Reads the start of the body.
    pub fn start(&mut self) -> Vec<u8> {
        let mut start = Vec::new();
        // If only a part arrives, that part is returned.
        let _ = self.reader().take(ANSWER_BYTES_MAX).read_to_end(&mut start);
        start
    }
}

/// Returns true if this status has nothing to do with the report itself, so that a later attempt may succeed.
pub(super) fn may_pass(status: StatusCode) -> bool {
    const PASSING: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    PASSING.contains(&status)
}

/// How long the collector asks weir to wait (RFC 9110 section 10.2.3): seconds, or a date in one of the three forms of
/// section 5.6.7.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let after = if is_number {
        // A number that is too large to parse means the longest pause.
        text.parse().map_or(AFTER_MAX, Duration::from_secs)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(clock::now().wall.into()).unwrap_or_default()
    };
    Some(after.min(AFTER_MAX))
}

/// An answer other than 2xx in one line: status, target of a redirect, and the beginning of its body.
pub(super) fn refusal(response: &mut Response<Body>) -> String {
    let mut message = response.status().to_string();
    let is_redirect = response.status().is_redirection();
    if let Some(location) = response.headers().get(header::LOCATION).filter(|_| is_redirect) {
        message += &format!(", redirects are not followed, configure the URL {location:?}");
    }
    let mut body = Vec::new();
    // If only a part arrives, that part is quoted.
    let _ = response.body_mut().as_reader().take(REFUSAL_BYTES_MAX).read_to_end(&mut body);
    let text = String::from_utf8_lossy(&body);
    let words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    if !words.is_empty() {
        message += &format!(": {}", words.join(" "));
    }
    message
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderValue;

    use super::*;

    #[test]
    fn a_collector_may_ask_weir_to_wait() {
        let after = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("999999999"), Some(AFTER_MAX));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "that is over");
        for far in ["99999999999999999999", "Tue, 01 Jan 2999 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(after(far), Some(AFTER_MAX), "{far}");
        }
        let soon = clock::now().wall + Duration::from_secs(600);
        let soon = soon.to_zoned(jiff::tz::TimeZone::UTC);
        for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
            let text = soon.strftime(form).to_string();
            let after = after(&text).unwrap_or_default();
            assert!((500..=600).contains(&after.as_secs()), "{text}: {after:?}");
        }
        for wrong in ["", "soon", "-1", "1.5", "Fri, 31 Dec 99999 23:59:59 GMT"] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }
}
