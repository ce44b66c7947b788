//! Resolves names to addresses with the system's resolver.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, ToSocketAddrs},
};

use weir_measure::question::is_name;

/// A name with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The name of the host.
    pub name: String,
    /// The addresses of the host, at least one.
    pub addresses: Vec<IpAddr>,
}

/// Replaces each name among the keys by its addresses. Also returns these names. `look_up` is [`system`], except in
/// tests.
///
/// # Errors
///
/// A name has no addresses, or the resolver does not know them.
pub fn resolve(
    keys: Vec<String>,
    look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>>,
) -> Result<(Vec<String>, Vec<Resolved>), String> {
    let (mut all, mut resolved) = (Vec::new(), Vec::new());
    for key in keys {
        if !is_name(&key) {
            all.push(key);
            continue;
        }
        let addresses = look_up(&key).map_err(|error| {
            format!("{key}: the resolver of this system does not know this name: {error}. Ask for its address instead")
        })?;
        let addresses: Vec<IpAddr> = addresses.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        if addresses.is_empty() {
            return Err(format!("{key}: this name has no address"));
        }
        all.extend(addresses.iter().map(ToString::to_string));
        resolved.push(Resolved { name: key, addresses });
    }
    Ok((all, resolved))
}

/// Asks the resolver of this system: its hosts file, its name servers, and its other configured sources.
///
/// # Errors
///
/// It knows no address.
pub fn system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip().to_canonical()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_by_all_of_its_addresses() {
        let look_up = |name: &str| match name {
            "example.net" => Ok(["192.0.2.7", "2001:db8::7", "192.0.2.7"].map(|ip| ip.parse().unwrap()).to_vec()),
            "empty.example" => Ok(Vec::new()),
            _ => Err(io::Error::other("Name or service not known")),
        };
        let keys = ["192.0.2.1", "example.net", ":443", "proto=tcp"].map(str::to_owned).to_vec();
        let (keys, names) = resolve(keys, look_up).unwrap();
        assert_eq!(keys, ["192.0.2.1", "192.0.2.7", "2001:db8::7", ":443", "proto=tcp"]);
        assert_eq!((names.len(), names[0].name.as_str()), (1, "example.net"));
        for (name, why) in [("empty.example", "no address"), ("no.example", "Ask for its address")] {
            let error = resolve(vec![name.to_owned()], look_up).unwrap_err();
            assert!(error.starts_with(name) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_system_knows_the_name_of_this_machine() {
        assert!(system("localhost").unwrap().iter().all(IpAddr::is_loopback));
    }
}
