//! The key of a row: its fields as the report names them.

use std::net::IpAddr;

use serde_json::{Map, Value};
use weir_config::names::{prefix::Prefix, services::service_name};
use weir_system::text::escaped;

/// The protocols that have ports.
const WITH_PORTS: [&str; 5] = ["tcp", "udp", "sctp", "dccp", "udplite"];

/// The fields of a key, by name, in the order of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(Vec<(String, String)>);

impl Key {
    /// A key of these fields.
    pub fn new<const N: usize>(fields: [(&str, String); N]) -> Self {
        Self(fields.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// A key of these fields. The value of a field without a name is shown alone.
    pub fn of_fields(fields: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(fields.into_iter().collect())
    }

    /// The key of a view's row.
    pub fn of_row(fields: &Map<String, Value>) -> Self {
        Self(fields.iter().map(|(name, value)| (name.clone(), as_text(value))).collect())
    }

    /// This key as an argument of `weir ask`.
    pub fn question(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Returns the IP protocol.
    pub fn proto(&self) -> Option<&str> {
        self.get("proto")
    }

    /// All values that are an address or a network.
    pub fn networks(&self) -> impl Iterator<Item = Prefix> {
        self.0.iter().filter_map(|(_, value)| value.parse().ok())
    }

    /// All addresses of single hosts.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().filter_map(|(_, value)| value.parse().ok())
    }

    /// The only host that it names.
    pub fn host(&self) -> Option<IpAddr> {
        let mut hosts = self.hosts();
        hosts.next().filter(|_| hosts.next().is_none())
    }

    /// Returns the source and the destination.
    pub fn ends(&self) -> Option<[IpAddr; 2]> {
        Some([self.get("src_ip")?.parse().ok()?, self.get("dst_ip")?.parse().ok()?])
    }

    /// The service of a flow: its protocol and its lower port, as the list of services takes it.
    pub fn service(&self) -> Option<Self> {
        let proto = self.proto()?.to_owned();
        let port = self.ports().min().filter(|_| has_ports(&proto)).unwrap_or(0);
        Some(Self::new([("proto", proto), ("port", port.to_string())]))
    }

    /// Returns all ports of the key.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.0.iter().filter(|(name, _)| name.ends_with("port")).filter_map(|(_, value)| value.parse().ok())
    }

    /// The key for people: one text, or two for a source and a destination. `named` formats an address.
    pub fn show(&self, named: &dyn Fn(IpAddr) -> String) -> Vec<String> {
        let address = |text: &str| text.parse().map_or_else(|_| text.to_owned(), named);
        if let (Some(src), Some(dst)) = (self.get("src_ip"), self.get("dst_ip")) {
            return self.two_ends([address(src), address(dst)]);
        }
        if let (Some(proto), Some(port)) = (self.get("proto"), self.get("port"))
            && self.0.len() == 2
        {
            return vec![service(proto, port)];
        }
        let fields = self.0.iter().map(|(name, value)| match name.as_str() {
            "src_ip" | "dst_ip" | "host" | "prefix" | "" => address(value),
            name => format!("{name} {value}"),
        });
        vec![escaped(&fields.collect::<Vec<_>>().join(", "))]
    }

    fn two_ends(&self, [src, dst]: [String; 2]) -> Vec<String> {
        let ports = self.get("src_port").zip(self.get("dst_port"));
        let (src, dst) = match (self.proto(), ports) {
            (Some(proto), Some((src_port, dst_port))) if has_ports(proto) => {
                let lower = [src_port, dst_port].iter().filter_map(|port| port.parse().ok()).min();
                let name = lower.and_then(|port| service_name(Some(proto), port));
                let name = name.map_or_else(String::new, |name| format!(" ({name})"));
                (format!("{proto} {}", endpoint(&src, src_port)), endpoint(&dst, dst_port) + &name)
            }
            (Some(proto), Some((kind, code))) if proto.starts_with("icmp") => {
                (format!("{proto} {kind}/{code} {src}"), dst)
            }
            (Some(proto), _) => (format!("{proto} {src}"), dst),
            (None, _) => (src, dst),
        };
        vec![escaped(&src), escaped(&format!("→ {dst}"))]
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn has_ports(proto: &str) -> bool {
    WITH_PORTS.contains(&proto)
}

/// Address and port as people write them; without a port if there is none.
fn endpoint(address: &str, port: &str) -> String {
    match (port, address.contains(':')) {
        ("0", _) => address.to_owned(),
        (port, true) => format!("[{address}]:{port}"),
        (port, false) => format!("{address}:{port}"),
    }
}

fn service(proto: &str, port: &str) -> String {
    if !has_ports(proto) {
        return escaped(proto);
    }
    let name = port.parse().ok().and_then(|port| service_name(Some(proto), port));
    escaped(&name.map_or_else(|| format!("{proto}/{port}"), |name| format!("{proto}/{port} ({name})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(key: &Key) -> String {
        key.show(&|address| address.to_string()).join(" ")
    }

    #[test]
    fn a_key_is_shown_in_the_usual_notation_and_asked_in_that_of_the_report() {
        let flow = |proto: &str, src: &str, dst: &str, ports: [&str; 2]| {
            Key::new([
                ("src_ip", src.to_owned()),
                ("dst_ip", dst.to_owned()),
                ("src_port", ports[0].to_owned()),
                ("dst_port", ports[1].to_owned()),
                ("proto", proto.to_owned()),
            ])
        };
        let web = flow("tcp", "192.0.2.1", "2001:db8::1", ["51000", "443"]);
        assert_eq!(show(&web), "tcp 192.0.2.1:51000 → [2001:db8::1]:443 (https)");
        assert_eq!(web.question(), "src_ip=192.0.2.1,dst_ip=2001:db8::1,src_port=51000,dst_port=443,proto=tcp");
        assert_eq!(show(&flow("icmp", "192.0.2.1", "192.0.2.2", ["8", "0"])), "icmp 8/0 192.0.2.1 → 192.0.2.2");
        assert_eq!(show(&flow("udp", "192.0.2.1", "192.0.2.2", ["0", "0"])), "udp 192.0.2.1 → 192.0.2.2");
        let service = |proto: &str, port: &str| Key::new([("proto", proto.to_owned()), ("port", port.to_owned())]);
        assert_eq!((show(&service("udp", "53")), show(&service("253", "0"))), ("udp/53 (domain)".into(), "253".into()));
        assert_eq!(show(&Key::new([("prefix", "192.0.2.0/24".to_owned())])), "192.0.2.0/24");
    }

    #[test]
    fn a_view_may_have_any_fields_and_any_text() {
        let row = serde_json::json!({"interface": "eth\u{1b}[2J0", "dscp": 46});
        let key = Key::of_row(row.as_object().unwrap());
        assert_eq!(show(&key), "dscp 46, interface eth\\u{1b}[2J0");
    }
}
