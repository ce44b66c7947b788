//! Tests of all structures that have an image: intact, damaged and forged images.

use super::*;
use crate::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountAndSum, CountMin, CountingBloom,
    Cuckoo, Distinct, Estimate, Filter, HeavyLight, HyperLogLog, Keyed, Merge, Quotient, SampleAndHold, ScalableBloom,
    Seen, SharedBloom, Spread, Spreader, TopK, Touch, UltraLogLog, Weight,
    count_min::Plain,
    hash::{Key, WrongKey},
    oracle::{SplitMix64, hash},
};
use core::fmt::Debug;
use std::{boxed::Box, format, string::String, vec};

mod golden;

const KEY: Key = Key([3, 5]);
const PLENTY: usize = crate::test_size::of(1 << 20, 1 << 15);

/// Reads an image with this much memory.
type Read<T> = Box<dyn Fn(&[u8], usize) -> Result<T, ImageError>>;

/// One structure, and some of its sketches.
struct Sample {
    kind: Kind,
    /// The images of the sketches.
    images: Vec<Vec<u8>>,
    /// The debug text of each sketch.
    print: Box<dyn Fn(usize) -> String>,
    /// The debug text of the sketch in an image.
    state: Read<String>,
    /// The image of the sketch that was read, and the memory of that sketch.
    read: Read<(Vec<u8>, usize)>,
    /// Uses a sketch in every possible way. Returns the most memory that it took.
    used: Read<usize>,
    /// The results of a sketch while it is used, as text.
    answers: Read<String>,
    /// Combines an image with a key. Returns the image of the resulting sketch.
    with_key: WithKey,
}

type WithKey = fn(Key, &[u8]) -> Result<Vec<u8>, ImageError>;

/// Receives the results of a sketch.
type Tell<'a> = &'a mut dyn FnMut(&dyn Debug);

/// A structure in several states, and a function that uses it together with a second sketch of the same image.
fn sample<S: Image + Debug + 'static>(sketches: impl IntoIterator<Item = S>, exercise: fn(&mut S, &S, Tell)) -> Sample {
    let sketches: Vec<S> = sketches.into_iter().collect();
    let images = sketches.iter().map(S::to_image).collect();
    let print = Box::new(move |nth: usize| format!("{:?}", sketches[nth]));
    let state = |image: &[u8], memory_max| S::from_image(image, memory_max).map(|sketch| format!("{sketch:?}"));
    let read = |image: &[u8], memory_max| {
        S::from_image(image, memory_max).map(|sketch| (sketch.to_image(), sketch.memory_bytes()))
    };
    let used = move |image: &[u8], memory_max| {
        let (mut sketch, twin) = (S::from_image(image, memory_max)?, S::from_image(image, memory_max)?);
        exercise(&mut sketch, &twin, &mut |_| {});
        let memory = sketch.memory_bytes();
        sketch.clear();
        Ok(memory.max(sketch.memory_bytes()))
    };
    let answers = move |image: &[u8], memory_max| {
        let (mut sketch, twin) = (S::from_image(image, memory_max)?, S::from_image(image, memory_max)?);
        let mut answers = String::new();
        exercise(&mut sketch, &twin, &mut |answer| answers += &format!("{answer:?}\n"));
        Ok(answers)
    };
    let (state, read, used, answers) = (Box::new(state), Box::new(read), Box::new(used), Box::new(answers));
    let with_key = |key, image: &[u8]| Keyed::<S>::from_image_within(key, image, PLENTY).map(|keyed| keyed.to_image());
    Sample { kind: S::KIND, images, print, state, read, used, answers, with_key }
}

/// Keys that are in none of the samples, from the whole range.
fn hashes() -> impl Iterator<Item = u64> {
    (0..crate::test_size::of(10, 1)).map(|item| hash(8, item)).chain([0, u64::MAX])
}

fn filters<F: Filter>(filter: &mut F, _: &F, tell: Tell) {
    for hash in hashes() {
        tell(&filter.contains(hash));
        assert!(filter.insert(hash).is_err() || filter.contains(hash));
    }
    let shares = [filter.fill(), filter.false_positive_rate()];
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    tell(&(shares, filter.is_saturated()));
}

fn filters_and_merges<F: Filter + Merge>(filter: &mut F, twin: &F, tell: Tell) {
    // A quotient filter may have no room for the content of both.
    _ = filter.merge(twin);
    filters(filter, twin, tell);
}

fn counts_distinct<D: Distinct + Merge>(sketch: &mut D, twin: &D, tell: Tell) {
    hashes().for_each(|hash| sketch.insert(hash));
    sketch.merge(twin).unwrap();
    let Estimate { value, lower, upper } = sketch.bounds();
    tell(&[value, lower, upper]);
    assert!(lower <= value && value <= upper);
}

/// This makes no survey, which would take longer than all other uses together.
fn finds_spreaders(sketch: &mut Spread<u64>, twin: &Spread<u64>, tell: Tell) {
    hashes().for_each(|hash| sketch.insert(touch(hash)));
    sketch.merge(twin).unwrap();
    tell(&sketch.to_image().last_chunk::<4>());
}

fn lists_in_buckets(
    sketch: &mut CandidateBuckets<u64, CountAndSum>,
    twin: &CandidateBuckets<u64, CountAndSum>,
    tell: Tell,
) {
    for hash in hashes() {
        sketch.add(hash, !hash, CountAndSum::new(1, 100));
        tell(&sketch.bounds(hash));
    }
    sketch.merge(twin).unwrap();
    for listed in sketch.iter() {
        assert_ordered([listed.lower, listed.value, listed.upper]);
        tell(&listed);
    }
    sketch.light().for_each(|light| tell(&light));
}

fn holds_spreaders(sketch: &mut SampleAndHold<u64>, twin: &SampleAndHold<u64>, tell: Tell) {
    hashes().for_each(|hash| sketch.insert(touch(hash)));
    sketch.merge(twin).unwrap();
    let margin = sketch.margin(0, 0.01);
    for Spreader { key, touched: Estimate { value, lower, upper }, .. } in sketch.held(&margin) {
        assert!(lower <= value && value <= upper);
        tell(&(key, [value, lower, upper]));
    }
    tell(&sketch.estimate_unheld(99, &margin).upper);
}

fn lists<K: ImageKey + Eq + Default + Debug, W: Weight>(
    table: &mut TopK<K, W>,
    twin: &TopK<K, W>,
    weight: W,
    key: fn(u64) -> K,
    tell: Tell,
) {
    for hash in hashes() {
        table.add(hash, key(hash), weight);
        tell(&table.bounds(hash, &key(hash)));
    }
    table.merge(twin).unwrap();
    table.iter().for_each(|candidate| assert_ordered([candidate.lower(), candidate.value(), candidate.upper()]));
    tell(&table.top(5));
    hashes().for_each(|hash| tell(&table.bounds(hash, &key(hash))));
}

fn text(hash: u64) -> String {
    format!("{}", hash >> (hash % 64))
}

/// Checks each number of a weight: a value is within its bounds.
fn assert_ordered<W: Weight>([lower, value, upper]: [W; 3]) {
    assert!(lower.least(value) == lower && value.least(upper) == value, "{lower:?} <= {value:?} <= {upper:?}");
}

/// Seven keys share the items.
const fn touch(hash: u64) -> Touch<u64> {
    Touch { key: hash % 7, key_hash: hash % 7, item_hash: hash }
}

/// Adds a weight for each key, and reads its bounds.
macro_rules! weighs {
    ($weight:expr, |$sketch:ident, $hash:ident| $bounds:expr) => {
        |$sketch, twin, tell| {
            for $hash in hashes() {
                $sketch.add($hash, $weight);
                tell(&($sketch.estimate($hash), $bounds));
            }
            $sketch.merge(twin).unwrap();
            hashes().for_each(|$hash| tell(&($sketch.estimate($hash), $bounds)));
        }
    };
}

/// The numbers of keys in each structure's sketches: empty, slightly filled and well filled.
const FILLS: &[u64] = crate::test_size::of(&[0, 3, 25, 100], &[0, 3, 25]);

/// The hashes of so many keys.
fn keys(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|item| hash(7, item))
}

/// A sketch for each of [`FILLS`], to which a key is added with random numbers.
fn filled<S>(make: impl Fn() -> S, add: impl Fn(&mut S, u64, &mut SplitMix64)) -> impl Iterator<Item = S> {
    FILLS.iter().map(move |&count| {
        let (mut made, mut random) = (make(), SplitMix64(1));
        for hash in keys(count) {
            add(&mut made, hash, &mut random);
        }
        made
    })
}

/// All structures, with [`FILLS`]. Add new structures here.
fn samples() -> Vec<Sample> {
    let id = KEY.id();
    let parts = [distinct_counts, frequencies, filters_of_keys, largest];
    parts.into_iter().flat_map(|part: fn(u64) -> Vec<Sample>| part(id)).collect()
}

/// Sketches that count different keys.
fn distinct_counts(id: u64) -> Vec<Sample> {
    vec![
        sample(
            filled(|| HyperLogLog::with_precision(6, id).unwrap(), |sketch, hash, _| sketch.insert(hash)),
            counts_distinct,
        ),
        sample(
            filled(|| CompactHyperLogLog::with_precision(14, id).unwrap(), |sketch, hash, _| sketch.insert(hash)),
            counts_distinct,
        ),
        sample(
            filled(|| CompactHyperLogLog::with_precision(5, id).unwrap(), |sketch, hash, _| sketch.insert(hash)),
            counts_distinct,
        ),
        sample(
            filled(|| UltraLogLog::with_precision(6, id).unwrap(), |sketch, hash, _| sketch.insert(hash)),
            counts_distinct,
        ),
    ]
}

/// Sketches that add up weights of keys.
fn frequencies(id: u64) -> Vec<Sample> {
    vec![
        sample(
            filled(
                || CountMin::with_error(0.1, 0.1, id).unwrap(),
                |sketch, hash, random| _ = sketch.add(hash, random.weight()),
            ),
            weighs!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))),
        ),
        sample(
            filled(
                || CountMin::<u64, Plain>::plain_with_error(0.1, 0.1, id).unwrap(),
                |sketch, hash, _| _ = sketch.add(hash, hash >> 50),
            ),
            weighs!(100, |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))),
        ),
        sample(
            filled(
                || BlockedCountMin::<CountAndSum>::with_error(0.1, id).unwrap(),
                |sketch, hash, random| _ = sketch.add(hash, random.weight()),
            ),
            weighs!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))),
        ),
        sample(
            filled(
                || HeavyLight::<CountAndSum>::with_error(0.1, id).unwrap(),
                |sketch, hash, random| _ = sketch.add(hash, random.weight()),
            ),
            weighs!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash)),
        ),
        sample(
            filled(
                || HeavyLight::<u32>::with_error(0.5, id).unwrap(),
                |sketch, hash, random| _ = sketch.add(hash, random.word() as u32 >> 12),
            ),
            weighs!(100, |sketch, hash| sketch.bounds(hash)),
        ),
        sample(
            filled(
                || CandidateBuckets::<u64, CountAndSum>::with_capacity(40, id).unwrap(),
                |sketch, hash, random| sketch.add(hash, !hash, random.weight()),
            ),
            lists_in_buckets,
        ),
    ]
}

/// Filters.
fn filters_of_keys(id: u64) -> Vec<Sample> {
    vec![
        sample(
            filled(|| BlockedBloom::with_capacity(100, 0.01, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(
            filled(|| SharedBloom::with_capacity(100, 0.01, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(
            filled(|| Bloom::with_capacity(100, 0.01, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(
            filled(|| CountingBloom::with_capacity(100, 0.1, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(
            filled(|| ScalableBloom::with_capacity(20, 0.1, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(
            filled(|| Quotient::with_capacity(80, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)),
            filters_and_merges,
        ),
        sample(filled(|| Cuckoo::with_capacity(80, id).unwrap(), |filter, hash, _| _ = filter.insert(hash)), filters),
    ]
}

/// Sketches that keep the largest keys, and the filter of two generations.
fn largest(id: u64) -> Vec<Sample> {
    vec![
        sample(
            filled(
                || Spread::with_resolution(500, 100, 0.06, id).unwrap(),
                |sketch, hash, _| sketch.insert(touch(hash)),
            ),
            finds_spreaders,
        ),
        sample(
            filled(|| SampleAndHold::with_room(3, 0.1, id).unwrap(), |sketch, hash, _| sketch.insert(touch(hash))),
            holds_spreaders,
        ),
        sample(
            FILLS.iter().map(|&count| {
                let mut sketch = SampleAndHold::with_room(5, 0.04, id).unwrap();
                keys(2 * count).for_each(|hash| sketch.insert(touch(hash)));
                sketch
            }),
            holds_spreaders,
        ),
        sample(
            filled(
                || TopK::with_capacity(16, id).unwrap(),
                |sketch, hash, random| sketch.add(hash, hash, random.weight()),
            ),
            |sketch, twin, tell| lists(sketch, twin, CountAndSum::new(1, 100), |hash| hash, tell),
        ),
        sample(
            filled(
                || TopK::<String>::with_capacity(16, id).unwrap(),
                |sketch, hash, _| sketch.add(hash, text(hash), hash >> 50),
            ),
            |sketch, twin, tell| lists(sketch, twin, 100, text, tell),
        ),
        sample(
            FILLS.iter().map(|&count| {
                let [current, previous] = [(); 2].map(|()| SharedBloom::with_capacity(100, 0.01, id).unwrap());
                keys(count).for_each(|hash| _ = previous.insert(hash));
                keys(count / 2).for_each(|hash| _ = current.insert(!hash));
                Seen::from_generations([current, previous]).unwrap()
            }),
            |seen, _, tell| {
                for hash in hashes() {
                    tell(&(seen.contains(hash), seen.insert(hash)));
                    assert!(seen.contains(hash));
                }
                tell(&(seen.rotate(), seen.false_positive_rate(), seen.fill(), seen.key_ids()));
            },
        ),
    ]
}

#[test]
fn every_kind_is_read_as_it_was_written() {
    let samples = samples();
    assert!(Kind::ALL.iter().all(|kind| samples.iter().any(|sample| sample.kind == *kind)));
    for Sample { kind, images, print, state, read, .. } in samples {
        for (nth, image) in images.iter().enumerate() {
            assert_eq!(state(image, PLENTY), Ok(print(nth)), "{kind:?}");
            assert_eq!(&read(image, PLENTY).unwrap().0, image, "{kind:?}");
        }
        assert!(images[0].len() < 64, "an empty {kind:?} takes {} bytes", images[0].len());
    }
}

#[test]
fn no_image_is_read_with_another_key() {
    for Sample { kind, images, with_key, .. } in samples() {
        for image in &images {
            assert_eq!(with_key(KEY, image).as_ref(), Ok(image), "{kind:?}");
            for key in [Key([3, 4]), Key([5, 3]), Key([0, 0])] {
                let wrong = WrongKey::Other { key: key.id(), sketch: KEY.id() };
                assert_eq!(with_key(key, image), Err(ImageError::Key(wrong)), "{kind:?}");
            }
            let public = sealed([&image[..8], &[0; 8], &image[16..image.len() - 4]].concat());
            assert_eq!(with_key(KEY, &public), Err(ImageError::Key(WrongKey::Public)), "{kind:?}");
        }
    }
}

#[test]
fn all_damage_is_detected() {
    for Sample { kind, images, read, .. } in samples() {
        for image in &images {
            for length in (0..image.len()).step_by(crate::test_size::of(1, 101)) {
                assert!(read(&image[..length], PLENTY).is_err(), "{kind:?} of {length} bytes");
            }
            let mut turned = image.clone();
            for bit in (0..8 * image.len()).step_by(crate::test_size::of(1, 999)) {
                turned[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&turned, PLENTY).is_err(), "{kind:?} with bit {bit} turned");
                turned[bit / 8] ^= 1 << (bit % 8);
            }
            let longer = [image.as_slice(), &[0]].concat();
            let error =
                ImageError::Value { field: "the number of bytes left over", at: image.len(), found: 1, expected: "0" };
            assert_eq!(read(&longer, PLENTY).err(), Some(error));
        }
    }
}

/// Seals a payload as a forger would, with the correct length and checksum.
fn sealed(mut image: Vec<u8>) -> Vec<u8> {
    let length = (image.len() - HEADER) as u64;
    image[16..HEADER].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&image);
    image.extend(checksum.to_le_bytes());
    image
}

#[test]
fn no_forgery_does_harm() {
    for Sample { kind, images, read, used, .. } in samples() {
        for image in images.iter().skip(crate::test_size::of(0, 2)) {
            let body = &image[..image.len() - 4];
            damage::survived(body, |body| {
                if body.len() < HEADER {
                    return read(body, PLENTY);
                }
                // A sketch that was read can be used, and written again.
                let forged = sealed(body.to_vec());
                let (image, memory) = read(&forged, PLENTY)?;
                assert!(memory <= PLENTY + 256, "{kind:?} of {memory} bytes");
                // A filter that grows may do so once, at most by its growth and tightening factors.
                let memory = used(&forged, PLENTY)?;
                assert!(memory <= 40 * PLENTY, "{kind:?} of {memory} bytes");
                read(&image, PLENTY)
            });
        }
    }
}

/// Numbers at which arithmetic may go wrong.
const EXTREMES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    u32::MAX as u64,
    1 << 32,
    1 << 56,
    (1 << 62) + (1 << 61),
    1 << 63,
    u64::MAX >> 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Replaces some bytes of a payload, as a forger would: a number in groups of seven bits by another one, or a byte or a
/// word by an extreme one.
fn change_a_field(body: &mut Vec<u8>, random: &mut SplitMix64) {
    let at = HEADER + (random.word() % (body.len() - HEADER) as u64) as usize;
    let number = match random.word() % 4 {
        0 => random.word() >> (random.word() % 64),
        _ => EXTREMES[(random.word() % EXTREMES.len() as u64) as usize],
    };
    match random.word() % 4 {
        0 => body[at] = number as u8,
        1 if at + 8 <= body.len() => body[at..at + 8].copy_from_slice(&number.to_le_bytes()),
        _ => {
            let groups = body[at..].iter().take_while(|byte| **byte & 0x80 != 0).count();
            let end = (at + groups + 1).min(body.len());
            let mut writer = Writer::default();
            writer.varint(number);
            body.splice(at..end, writer.0);
        }
    }
}

#[test]
fn no_forged_field_does_harm() {
    const TRIES: u64 = crate::test_size::of(500, 1);
    let (mut accepted, mut wrong) = (0, Vec::new());
    for (nth, Sample { kind, images, used, .. }) in (0..).zip(samples()) {
        for (image, of) in (0..).zip(&images) {
            for round in 0..TRIES {
                let seed = (nth << 40) + (image << 32) + round;
                let (mut random, mut body) = (SplitMix64(seed), of[..of.len() - 4].to_vec());
                (0..=random.word() % 3).for_each(|_| change_a_field(&mut body, &mut random));
                let forged = sealed(body);
                let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| used(&forged, PLENTY).is_ok()));
                match survived {
                    Ok(is_accepted) => accepted += u64::from(is_accepted),
                    Err(_) => wrong.push(format!("{kind:?}, seed {seed}: {forged:02x?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Otherwise hardly any forgery would be used at all.
    assert!(accepted > 10 * TRIES || cfg!(miri), "only {accepted} were accepted");
}

#[test]
fn memory_is_limited_before_it_is_allocated() {
    for Sample { kind, images, read, .. } in samples() {
        let error = read(&images[2], 16).err().unwrap();
        assert!(matches!(error, ImageError::TooLarge { allowed: 16, .. }), "{kind:?}: {error}");
    }
    // Eight rows of 2^26 cells of 16 bytes fit into some 20 bytes.
    let mut bomb = Writer(sealed_header(Kind::CountMin));
    [1, 8, 1 << 26, 1, 0, 1, 0, 8 << 26, 0, 8 << 26, 0].into_iter().for_each(|number| bomb.varint(number));
    let error = CountMin::<CountAndSum>::from_image(&sealed(bomb.0), 1 << 20).unwrap_err();
    assert_eq!(
        format!("{error}"),
        "byte 34: the cells would take 8589934592 bytes of memory, but only 1048576 are allowed: raise the limit if \
         you trust the sender"
    );
}

fn sealed_header(kind: Kind) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend([VERSION, kind as u8]);
    header.resize(HEADER, 0);
    header
}

#[test]
fn errors_say_what_and_where() {
    let mut sketch = HyperLogLog::with_precision(6, KEY.id()).unwrap();
    (0..100).for_each(|item| sketch.insert(hash(7, item)));
    let image = sketch.to_image();
    let with = |at: usize, byte| {
        let mut image = image.clone();
        image[at] = byte;
        format!("{}", HyperLogLog::from_image(&image, PLENTY).unwrap_err())
    };
    assert!(with(0, b'W').ends_with("must be \"weir\""));
    assert_eq!(with(4, 2), "byte 4: the format's version is 2, but must be 1");
    assert_eq!(with(5, 2), "byte 5: the kind of sketch is 2, but must be 1 (`HyperLogLog`)");
    assert_eq!(with(19, 1), "byte 24: 16777281 bytes of the payload expected, but only 69 are left");
    assert!(with(30, 99).starts_with("the checksum is "));
}

#[test]
fn images_of_older_kinds_are_refused() {
    let image = Bloom::with_capacity(100, 0.01, KEY.id()).unwrap().to_image();
    for kind in OLDER {
        let mut older = image[..image.len() - 4].to_vec();
        older[5] = kind;
        let error = Bloom::from_image(&sealed(older), PLENTY).unwrap_err();
        assert_eq!(error, ImageError::Older { at: 5, kind });
        assert!(format!("{error}").ends_with("fill a new sketch"), "{error}");
        assert!(Kind::ALL.iter().all(|known| *known as u8 != kind), "{kind} was used again");
    }
}

#[test]
fn numbers_of_all_sizes_come_back() {
    let numbers = [0, 1, 127, 128, 0, 0, 0, 0, 300, u64::MAX, 0, 0, 5, 0, 0, 0];
    let mut writer = Writer::default();
    writer.numbers(Literal::Varint, numbers);
    let mut read = [0; 16];
    let mut reader = Reader::new(writer.as_slice(), 0);
    let put = |at: usize, number| {
        read[at] = number;
        Ok(())
    };
    reader.numbers("a number", Literal::Varint, 16, put).unwrap();
    reader.end().unwrap();
    assert_eq!(read, numbers);
    // One has an eleventh group, and the other has a tenth group with more than the last bit.
    for bytes in [[0xff; 11], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0]] {
        assert!(Reader::new(&bytes, 0).varint("a number").is_err());
    }
}
