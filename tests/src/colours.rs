//! Text in the colours of a terminal (ECMA-48, and the colours of xterm) becomes a document that a browser can draw.

/// How a character looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    front: Option<String>,
    back: Option<String>,
    is_bold: bool,
    is_dim: bool,
    is_reversed: bool,
    is_underlined: bool,
}

const HEAD: &str = "<!doctype html><meta charset='utf-8'><style>body { margin: 0; background: #11171d } \
    pre { margin: 0; padding: 14px 16px; width: max-content; color: #d5dde4; \
    font: 14px/17px 'DejaVu Sans Mono', monospace }</style><pre>";

/// Returns the HTML document.
pub fn html(text: &str) -> String {
    let mut page = String::from(HEAD);
    let mut look = Look::default();
    for part in text.split_inclusive('\u{1b}') {
        let part = part.trim_end_matches('\u{1b}');
        let plain = match part.strip_prefix('[').and_then(|rest| rest.split_once('m')) {
            Some((codes, plain)) if codes.chars().all(|code| code.is_ascii_digit() || code == ';' || code == ':') => {
                let numbers: Vec<_> = codes.split([';', ':']).map(|code| code.parse().unwrap_or(0)).collect();
                look.change(&numbers);
                plain
            }
            _ => part,
        };
        let plain = plain.replace('&', "&amp;").replace('<', "&lt;");
        page += &format!("<span style=\"{}\">{plain}</span>", look.style());
    }
    page + "</pre>"
}

impl Look {
    fn change(&mut self, numbers: &[usize]) {
        let mut rest = numbers.iter().copied();
        while let Some(number) = rest.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                4 => self.is_underlined = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                24 => self.is_underlined = false,
                27 => self.is_reversed = false,
                30..=37 => self.front = Some(indexed(number - 30)),
                38 => self.front = colour(&mut rest),
                39 => self.front = None,
                40..=47 => self.back = Some(indexed(number - 40)),
                48 => self.back = colour(&mut rest),
                49 => self.back = None,
                90..=97 => self.front = Some(indexed(number - 82)),
                100..=107 => self.back = Some(indexed(number - 92)),
                _ => {}
            }
        }
    }

    fn style(&self) -> String {
        let front = self.front.clone().unwrap_or_else(|| "#d5dde4".to_owned());
        let back = self.back.clone().unwrap_or_else(|| "#11171d".to_owned());
        let (front, back) = if self.is_reversed { (back, front) } else { (front, back) };
        let bold = if self.is_bold { ";font-weight:bold" } else { "" };
        let dim = if self.is_dim { ";opacity:0.65" } else { "" };
        let line = if self.is_underlined { ";text-decoration:underline" } else { "" };
        format!("color:{front};background:{back}{bold}{dim}{line}")
    }
}

/// A colour after 38 or 48: one of 256, or its parts.
fn colour(numbers: &mut impl Iterator<Item = usize>) -> Option<String> {
    match numbers.next()? {
        5 => Some(indexed(numbers.next()?)),
        2 => {
            let [red, green, blue] = [numbers.next()?, numbers.next()?, numbers.next()?];
            Some(format!("rgb({red},{green},{blue})"))
        }
        _ => None,
    }
}

/// One of xterm's 256 colours.
fn indexed(number: usize) -> String {
    const FIRST: [&str; 16] = [
        "#1c252e", "#e5675f", "#6cc98f", "#e0b15a", "#5aa7dc", "#b08fe0", "#4fc1c9", "#c7d0d8", "#6d7b88", "#ff8a80",
        "#8fe0ab", "#f0c674", "#7cc5ea", "#c9adf5", "#79dbe2", "#ffffff",
    ];
    let level = |part: usize| if part == 0 { 0 } else { 55 + 40 * part };
    match number {
        0..=15 => FIRST[number].to_owned(),
        16..=231 => {
            let of = number - 16;
            format!("rgb({},{},{})", level(of / 36), level(of / 6 % 6), level(of % 6))
        }
        _ => {
            let grey = 8 + 10 * (number.min(255) - 232);
            format!("rgb({grey},{grey},{grey})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_colours() {
        let html = html("a \u{1b}[1;38;5;9mup\u{1b}[0m <\n\u{1b}[7mE");
        assert!(html.contains("<span style=\"color:#ff8a80;background:#11171d;font-weight:bold\">up</span>"), "{html}");
        assert!(html.contains(" &lt;\n") && html.contains("color:#11171d;background:#d5dde4\">E<"), "{html}");
    }
}
