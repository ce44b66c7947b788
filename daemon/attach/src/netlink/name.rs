//! The names of interfaces as text. The kernel takes any bytes but `/`, `:` and blanks.

/// The text of a name. Bytes that are not UTF-8 are written as `\xff`. A `\` is written as `\x5c` where it would be read
/// as such a byte, so different names have different texts.
pub fn of_bytes(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid();
        for (at, character) in valid.char_indices() {
            match escape(&valid.as_bytes()[at..]) {
                Some(_) => text.push_str("\\x5c"),
                None => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// The name that has this text.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let (mut name, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let escaped = escape(rest);
        name.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &rest[ESCAPE..] } else { after };
    }
    name
}

/// The length of `\xff`.
const ESCAPE: usize = 4;

/// The byte that an escape at the start of this text stands for.
fn escape(text: &[u8]) -> Option<u8> {
    let digits = text.get(..ESCAPE)?.strip_prefix(b"\\x")?;
    let is_hex = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    u8::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_have_texts_that_differ() {
        for (name, text) in [
            (&b"eth0"[..], "eth0"),
            ("Zürich".as_bytes(), "Zürich"),
            (b"ba\xffd", "ba\\xffd"),
            (b"ba\xfed", "ba\\xfed"),
            (b"\xc3\xa4\xc3", "ä\\xc3"),
            (b"\xe2\x82", "\\xe2\\x82"),
            // Only what looks like an escape is changed.
            (b"\\xff", "\\x5cxff"),
            (b"\\x5cxff", "\\x5cx5cxff"),
            (b"a\\b\\x4", "a\\b\\x4"),
            (b"\\x4\xff", "\\x4\\xff"),
            (b"\\\xff", "\\\\xff"),
            (b"\\xFF", "\\xFF"),
        ] {
            assert_eq!(of_bytes(name), text);
            assert_eq!(to_bytes(text), name, "{text}");
        }
    }
}
