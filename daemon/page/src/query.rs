//! The parameters of a request's URL: `?from=...&to=...`.

use jiff::Timestamp;
use weir_system::text::short;

/// A start and an end; `None` where the request has none.
pub type Times = (Option<Timestamp>, Option<Timestamp>);

/// The values of these parameters; `None` for a missing one.
///
/// # Errors
///
/// There is an unknown parameter, a parameter appears twice, or a value is not UTF-8.
pub fn read<const N: usize>(query: Option<&str>, names: [&str; N]) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let Some(nth) = names.iter().position(|known| *known == name) else {
            return Err(format!("there is no parameter {name:?} here (there are: {})", names.join(", ")));
        };
        let value = decoded(value).ok_or_else(|| format!("the value of {name} is not UTF-8"))?;
        if values[nth].replace(value).is_some() {
            return Err(format!("the parameter {name} appears twice"));
        }
    }
    Ok(values)
}

/// Parses the start and end of a time.
///
/// # Errors
///
/// One of them is not a time, or it ends before it begins.
pub fn times(from: Option<String>, to: Option<String>) -> Result<Times, String> {
    let time = |text: Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let wrong = |_| format!("{:?} is not a time in UTC, such as 2026-11-20T08:00:00Z", short(&text));
        text.parse().map(Some).map_err(wrong)
    };
    match (time(from)?, time(to)?) {
        (Some(from), Some(to)) if from >= to => Err(format!("the time from {from} to {to} ends before it begins")),
        times => Ok(times),
    }
}

/// A text without its percent encoding (RFC 3986 section 2.1). `+` is a blank, as browsers write it. A `%` that begins
/// no valid code stays as it is.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = code.filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = match (first, code.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                rest = &more[2..];
                byte
            }
            (b'+', _) => {
                rest = more;
                b' '
            }
            _ => {
                rest = more;
                *first
            }
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_unknown_names_refused() {
        let read = |query| read(Some(query), ["key", "to"]);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            read("key=src_ip%3D2001%3Adb8%3A%3A1%2Cproto%3Dtcp").unwrap()[0],
            some("src_ip=2001:db8::1,proto=tcp")
        );
        assert_eq!(read("to=a+b&key=100%&").unwrap(), [some("100%"), some("a b")]);
        assert_eq!(read("key=%zz%4").unwrap()[0], some("%zz%4"));
        assert_eq!(read("").unwrap(), [None, None]);
        for (query, part) in [("keys=1", "no parameter \"keys\""), ("to=1&to=2", "twice"), ("to=%ff", "not UTF-8")] {
            assert!(read(query).unwrap_err().contains(part));
        }
    }
}
