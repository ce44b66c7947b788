//! Networks with names (stand-in until the real one is merged).
use weir_common::flow::Address;
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    prefixes: Vec<(Address, bool, u8)>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    In,
    Out,
    Transit,
    Internal,
}
impl Scope {
    pub const ALL: [Self; 4] = [Self::In, Self::Out, Self::Transit, Self::Internal];
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Transit => "transit",
            Self::Internal => "internal",
        }
    }
}
impl Networks {
    pub const NONE: u8 = 0;
    pub fn of_prefixes(prefixes: &[(std::net::IpAddr, u8)]) -> Self {
        Self { prefixes: prefixes.iter().map(|(ip, l)| (Address::from(*ip), ip.is_ipv6(), *l)).collect() }
    }
    pub fn of(&self, address: Address, is_v6: bool) -> u8 {
        let l = |len: u8| super::field::Lengths { v4: len, v6: len };
        self.prefixes.iter().any(|(p, v6, len)| *v6 == is_v6 && l(*len).network(address, is_v6) == *p).into()
    }
    pub fn name(&self, _id: u8) -> Option<&str> {
        None
    }
    pub fn scope(&self, _src: u8, _dst: u8) -> Scope {
        Scope::Transit
    }
    pub fn id(&self, _name: &str) -> Option<u8> {
        None
    }
}
