//! Messages as in RFC 7011 section 3. The maintained IPFIX libraries read messages, but weir only writes them.

/// The version in a message's header.
const VERSION: u16 = 10;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// Sets of templates and of options templates.
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The first set of data, and the number of the first template.
const DATA: u16 = 256;

/// A record: elements in order, with their values. Templates are made from it, so they can never differ from their
/// records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    shape: Shape,
    values: Vec<u8>,
}

/// The content of a template: the elements, each with its number and length in bytes. The first `scopes` elements are
/// scopes; with any of them it is an options template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    scopes: u16,
    elements: Vec<(u16, u16)>,
}

impl Record {
    /// An option whose scope is this element.
    pub fn about<const N: usize>(element: u16, value: [u8; N]) -> Self {
        let mut record = Self::default().with(element, value);
        record.shape.scopes = 1;
        record
    }

    /// Appends another element.
    pub fn with<const N: usize>(mut self, element: u16, value: [u8; N]) -> Self {
        self.shape.elements.push((element, N as u16));
        self.values.extend(value);
        self
    }
}

#[cfg(test)]
impl Record {
    /// Returns true if it is an option, and not a flow.
    pub fn is_option(&self) -> bool {
        self.shape.scopes > 0
    }

    /// The value of an element.
    pub fn get(&self, element: u16) -> Option<&[u8]> {
        let mut at = 0;
        for (known, bytes) in &self.shape.elements {
            let end = at + usize::from(*bytes);
            if *known == element {
                return Some(&self.values[at..end]);
            }
            at = end;
        }
        None
    }
}

/// The templates that a collector knows, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct Templates(Vec<Shape>);

/// The messages of one export.
#[derive(Debug)]
pub struct Messages<'t> {
    templates: &'t mut Templates,
    /// The header of every message, except for its length.
    time: u32,
    domain: u32,
    /// Records that were sent before, modulo 2^32.
    sequence: u32,
    bytes_max: usize,
    done: Vec<Vec<u8>>,
    /// The message that is being built; its sets may still grow.
    message: Vec<u8>,
    records: u32,
    /// The set that is being built, and where it begins.
    set: Option<(u16, usize)>,
}

impl<'t> Messages<'t> {
    /// Messages of at most this many bytes, exported at `time` in seconds since 1970. `sequence` is the number of
    /// records that the collector was sent before. If `again`, templates that it already knows are repeated.
    pub fn new(
        templates: &'t mut Templates,
        domain: u32,
        sequence: u32,
        time: u32,
        bytes_max: usize,
        again: bool,
    ) -> Self {
        let message = Vec::with_capacity(bytes_max);
        let mut messages =
            Self { templates, time, domain, sequence, bytes_max, done: Vec::new(), message, records: 0, set: None };
        if again {
            for nth in 0..messages.templates.0.len() {
                messages.template(nth);
            }
        }
        messages
    }

    /// Adds a record, preceded by its template if the collector does not know it.
    pub fn add(&mut self, record: &Record) {
        let known = self.templates.0.iter().position(|shape| *shape == record.shape);
        let nth = known.unwrap_or_else(|| {
            self.templates.0.push(record.shape.clone());
            let nth = self.templates.0.len() - 1;
            self.template(nth);
            nth
        });
        self.put(DATA + nth as u16, &record.values);
        self.records += 1;
    }

    fn template(&mut self, nth: usize) {
        let Shape { scopes, elements } = &self.templates.0[nth];
        let mut head = vec![DATA + nth as u16, elements.len() as u16];
        let set = if *scopes == 0 {
            TEMPLATES
        } else {
            head.push(*scopes);
            OPTIONS_TEMPLATES
        };
        let numbers = head.into_iter().chain(elements.iter().flat_map(|(element, bytes)| [*element, *bytes]));
        let bytes: Vec<u8> = numbers.flat_map(u16::to_be_bytes).collect();
        self.put(set, &bytes);
        // nfacctd reads only one options template per set.
        self.end_set();
    }

    fn put(&mut self, set: u16, bytes: &[u8]) {
        let is_same = self.set.is_some_and(|(id, _)| id == set);
        let takes = bytes.len() + if is_same { 0 } else { SET_HEADER_BYTES };
        if self.message.len() + takes > self.bytes_max {
            self.end();
        }
        if self.message.is_empty() {
            let numbers = [self.time, self.sequence, self.domain];
            self.message.extend(VERSION.to_be_bytes());
            self.message.extend([0; 2]);
            self.message.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
            debug_assert_eq!(self.message.len(), HEADER_BYTES);
        }
        if self.set.is_none_or(|(id, _)| id != set) {
            self.end_set();
            self.set = Some((set, self.message.len()));
            self.message.extend(set.to_be_bytes());
            self.message.extend([0; 2]);
        }
        self.message.extend(bytes);
    }

    fn end_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            self.write_length(start);
        }
    }

    fn end(&mut self) {
        self.end_set();
        if !self.message.is_empty() {
            self.write_length(0);
            self.done.push(std::mem::take(&mut self.message));
            self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.records));
        }
    }

    /// Writes the length of the structure that begins at `start`, after its first two bytes.
    fn write_length(&mut self, start: usize) {
        let length = (self.message.len() - start) as u16;
        self.message[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The messages, and the number of records that the collector has been sent including these.
    pub fn finish(mut self) -> (Vec<Vec<u8>>, u32) {
        self.end();
        (self.done, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of a message: each with its number and content.
    fn sets(message: &[u8]) -> Vec<(u16, &[u8])> {
        let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        assert_eq!((number(0), usize::from(number(2))), (VERSION, message.len()));
        let mut at = HEADER_BYTES;
        let mut all = Vec::new();
        while at < message.len() {
            let length = usize::from(number(at + 2));
            all.push((number(at), &message[at + SET_HEADER_BYTES..at + length]));
            at += length;
        }
        assert_eq!(at, message.len());
        all
    }

    fn sequence(message: &[u8]) -> u32 {
        u32::from_be_bytes(message[8..12].try_into().unwrap())
    }

    fn flow(packets: u64) -> Record {
        Record::default().with(8, [192, 0, 2, 1]).with(2, packets.to_be_bytes())
    }

    #[test]
    fn a_template_comes_once_and_before_its_first_record() {
        let mut templates = Templates::default();
        let mut messages = Messages::new(&mut templates, 7, 5, 1000, 500, false);
        messages.add(&Record::about(149, 7_u32.to_be_bytes()).with(34, 1_u32.to_be_bytes()));
        messages.add(&flow(1));
        messages.add(&flow(2));
        let (done, next) = messages.finish();
        assert_eq!((done.len(), next), (1, 8), "three records after five");
        assert_eq!(done[0][4..16], [0, 0, 3, 232, 0, 0, 0, 5, 0, 0, 0, 7], "time, sequence, domain");
        let sets = sets(&done[0]);
        assert_eq!(sets[0], (3, &[1, 0, 0, 2, 0, 1, 0, 149, 0, 4, 0, 34, 0, 4][..]));
        assert_eq!(sets[1], (256, &[0, 0, 0, 7, 0, 0, 0, 1][..]));
        assert_eq!(sets[2], (2, &[1, 1, 0, 2, 0, 8, 0, 4, 0, 2, 0, 8][..]));
        assert_eq!(sets[3].0, 257);
        assert_eq!(sets[3].1, [192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(sets.len(), 4);
        // The collector knows both templates now.
        let mut messages = Messages::new(&mut templates, 7, next, 1010, 500, false);
        messages.add(&flow(3));
        assert_eq!(self::sets(&messages.finish().0[0]).len(), 1);
        let mut messages = Messages::new(&mut templates, 7, next, 1010, 500, true);
        messages.add(&flow(3));
        let again = messages.finish().0;
        let again: Vec<u16> = self::sets(&again[0]).into_iter().map(|(id, _)| id).collect();
        assert_eq!(again, [3, 2, 257], "templates are repeated");
    }

    #[test]
    fn messages_have_a_maximum_size_and_count_their_records() {
        let mut templates = Templates::default();
        let mut messages = Messages::new(&mut templates, 1, u32::MAX - 1, 0, 100, false);
        for packets in 0..20 {
            messages.add(&flow(packets));
        }
        let (done, next) = messages.finish();
        assert!(done.iter().all(|message| message.len() <= 100));
        let mut expected = u32::MAX - 1;
        let mut packets = 0_u64;
        for message in &done {
            assert_eq!(sequence(message), expected);
            for (_, records) in sets(message).into_iter().filter(|(id, _)| *id == 256) {
                for record in records.chunks(12) {
                    assert_eq!(record[4..], packets.to_be_bytes());
                    packets += 1;
                    expected = expected.wrapping_add(1);
                }
            }
        }
        assert_eq!((packets, next), (20, 18), "the number wraps");
    }

    #[test]
    fn without_records_there_is_no_message() {
        let mut templates = Templates::default();
        assert_eq!(Messages::new(&mut templates, 1, 3, 0, 100, true).finish(), (Vec::new(), 3));
    }
}
