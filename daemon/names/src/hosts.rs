//! Files in the format of `/etc/hosts`: an address and its names on each line, as hosts(5) describes.

use std::net::IpAddr;

use crate::table::Name;

/// Calls `each` with every address and its first name. Returns how many lines have no address or no name.
pub fn read(text: &str, mut each: impl FnMut(IpAddr, Name)) -> usize {
    let mut wrong = 0;
    for line in text.lines() {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_ascii_whitespace();
        let Some(address) = words.next() else { continue };
        // An address of one link may have the interface with it.
        let address = address.split('%').next().unwrap_or_default().parse();
        match address.ok().zip(words.next().and_then(Name::new)) {
            Some((address, name)) => each(address, name),
            None => wrong += 1,
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_each_line_is_taken() {
        let text = "# a comment\n192.0.2.7\tanna-laptop anna  # hers\n\n2001:db8::7 printer.example.net printer\n\
                    fe80::1%eth0 router\nnonsense here\n192.0.2.8\n192.0.2.9 *\n  192.0.2.10   last";
        let mut all = Vec::new();
        let wrong = read(text, |address, name| all.push(format!("{address} {}", name.as_str())));
        let expected =
            ["192.0.2.7 anna-laptop", "2001:db8::7 printer.example.net", "fe80::1 router", "192.0.2.10 last"];
        assert_eq!((all, wrong), (expected.map(str::to_owned).to_vec(), 3));
    }
}
