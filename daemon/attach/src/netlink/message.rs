//! The format of netlink messages: a header, and a body with attributes. An attribute may contain other attributes.

use libc::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR,
};

use super::name;

/// The type of the message that ends an answer: an error or, with error number 0, an acknowledgement.
pub const ERROR: u16 = NLMSG_ERROR as u16;
/// The type of the message that ends a list.
pub const DONE: u16 = NLMSG_DONE as u16;

/// The flags of a request for one object.
pub const ONE: u16 = (NLM_F_REQUEST | NLM_F_ACK) as u16;
/// The flags of a request for a list.
pub const ALL: u16 = (NLM_F_REQUEST | NLM_F_DUMP) as u16;
/// A flag to add to [`ONE`]: create an object that must not exist yet.
pub const NEW: u16 = (NLM_F_CREATE | NLM_F_EXCL) as u16;
/// A flag to add to [`ONE`]: the kernel also returns its own message about the object.
pub const ECHO: u16 = NLM_F_ECHO as u16;
/// A flag of an answer: something changed during the dump, and the list may lack an entry.
pub const INTERRUPTED: u16 = NLM_F_DUMP_INTR as u16;

/// A flag in the type of an attribute that contains attributes.
pub const NESTED: u16 = libc::NLA_F_NESTED as u16;
/// Masks the flags for nesting and byte order out of an attribute's type.
const ATTRIBUTE_TYPE: u16 = libc::NLA_TYPE_MASK as u16;

/// `struct nlmsghdr`: length, type, flags, sequence and port.
const HEADER_BYTES: usize = size_of::<libc::nlmsghdr>();
/// `struct nlattr`: length and type.
const ATTRIBUTE_BYTES: usize = size_of::<libc::nlattr>();

/// A message that the kernel sent.
pub struct Message<'a> {
    /// The type of the body.
    pub kind: u16,
    /// The flags of the message. weir looks only at [`INTERRUPTED`].
    pub flags: u16,
    /// The sequence number of the request that it answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// The messages of a datagram, up to the first malformed one.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = word(bytes, 0)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let message = Message { kind: half(bytes, 4)?, flags: half(bytes, 6)?, sequence: word(bytes, 8)?, body };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// A message for the kernel.
pub fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + body.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// The attributes of a message or of another attribute, type and value, up to the first malformed one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        let attribute = (half(bytes, 2)? & ATTRIBUTE_TYPE, value);
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(attribute)
    })
}

/// The value of the first attribute of this type.
pub fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(candidate, _)| *candidate == kind).map(|(_, value)| value)
}

pub fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
}

/// Reads text that the kernel ends with a NUL. It may have any bytes.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    name::of_bytes(&value[..end])
}

/// The 2-byte integer at this offset.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

/// The 4-byte integer at this offset.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

/// The 8-byte integer at this offset.
pub fn double(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        let (mut inner, mut body) = (Vec::new(), Vec::new());
        put(&mut inner, 1, b"veth");
        put(&mut body, 3, b"wan0\0");
        put(&mut body, 18 | NESTED, &inner);
        let two = [message(16, ONE, 7, &body), message(17, ALL, 8, &[])].concat();
        let read: Vec<_> = messages(&two).map(|one| (one.kind, one.flags, one.sequence, one.body)).collect();
        assert_eq!(read, [(16, ONE, 7, &body[..]), (17, ALL, 8, &[])]);
        assert_eq!(value(&body, 3).map(text).as_deref(), Some("wan0"));
        assert_eq!(value(&body, 18).and_then(|inner| value(inner, 1)).map(text).as_deref(), Some("veth"));
        assert_eq!(value(&body, 4), None);
    }

    #[test]
    fn a_malformed_entry_ends_the_list() {
        let mut body = Vec::new();
        put(&mut body, 3, b"wan0\0");
        let whole = message(16, ONE, 7, &body);
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut]).count(), 0, "cut at {cut}");
        }
        for length in 0..HEADER_BYTES as u8 {
            let short = [&[length][..], &[0; 31]].concat();
            assert_eq!(messages(&short).count(), 0, "a message of {length} bytes, shorter than its own header");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than its own header");
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0, "a length of 0");
        assert_eq!(attributes(&[9, 0, 1, 0, 0, 0, 0, 0]).count(), 0, "longer than the buffer");
    }
}
