//! Compares the kernel's parser with the same parser in userspace, packet by packet, and both with the generator's own
//! data.
//!
//! With `busy` set, each packet with a key makes a separate record at once.

use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use weir_common::{
    ledger::{Counters, Skip, Tally},
    packet::{Beginning, Link, Parsed, TUNNELS_MAX, Tunnels, parse, walk},
    record::Record,
    size::size_class,
};
use weir_datapath::capture::Capture;
use weir_tests::{
    captures,
    object::{FRAME_MIN, Object, PLAN},
    traffic::{Mix, Packet, Plan, Traffic, random::Random, tunnel::Tunnel},
};

use crate::frame::{IPV4, IPV6, chain, ethernet, ipv4, ipv6, ports, tcp};

/// Frames of three seeds together.
const FRAMES: u64 = 30_000;
const SEEDS: [u64; 3] = [3, 5, 8];
/// Numbers of frames that are cut at every offset, and of frames with flipped bits.
const CUT: u64 = 300;
const FLIPPED: u64 = 5_000;
/// The parser does not read beyond this length, so cutting later changes nothing.
const CUT_MAX: usize = 530;
/// Metadata and packet have to fit a page.
const CAPTURED_MAX: usize = 2048;

pub fn generated_frames() -> Result<()> {
    Comparison::run(|comparison| {
        for seed in SEEDS {
            for Packet { frame, truth } in odd(seed, FRAMES / SEEDS.len() as u64)? {
                let parsed = comparison.found(&frame)?;
                let (found, expected) = (parsed.map_err(|skip| skip.name()), truth.parsed());
                ensure!(found == expected, "{found:?}\nshould be {expected:?}: {frame:02x?}");
            }
        }
        Ok(())
    })
}

pub fn frames_cut_at_every_offset() -> Result<()> {
    Comparison::run(|comparison| {
        for Packet { frame, .. } in odd(13, CUT)? {
            for end in 0..=frame.len().min(CUT_MAX) {
                comparison.captured(Link::Ethernet, frame.len() as u32, &frame[..end])?;
                if end >= FRAME_MIN {
                    comparison.frame(&frame[..end])?;
                }
            }
        }
        Ok(())
    })
}

pub fn frames_with_flipped_bits() -> Result<()> {
    Comparison::run(|comparison| {
        let mut random = Random::new(21);
        for Packet { mut frame, .. } in odd(21, FLIPPED)? {
            for _ in 0..random.between(1, 8) {
                // Most flips are in the headers, where they matter.
                let bits = if random.chance(0.9) { frame.len().min(100) } else { frame.len() } * 8;
                let bit = random.between(0, bits - 1);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            comparison.frame(&frame)?;
        }
        Ok(())
    })
}

/// Every value of each byte that a header's length or type depends on.
pub fn every_length_and_type() -> Result<()> {
    let hop = chain(0, 2, 17, &ports(64)).1;
    let v6 = ethernet(&[], IPV6, &ipv6(0, &hop));
    let v4 = ethernet(&[0x8100], IPV4, &ipv4(6, 0, 8, &tcp(0x12)));
    Comparison::run(|comparison| {
        for (frame, bytes) in [(&v4, [12, 13, 16, 17, 18, 24, 25, 27]), (&v6, [12, 13, 14, 20, 54, 55, 62, 63])] {
            for at in bytes {
                for value in 0..=u8::MAX {
                    let mut changed = frame.clone();
                    changed[at] = value;
                    comparison.frame(&changed)?;
                }
            }
        }
        for bytes in [14, 15, 1514, 3500, 4096, 9018, 40_000, 60_000] {
            for frame in [&v4, &v6] {
                let mut frame = frame.clone();
                frame.resize(bytes, 0x45);
                comparison.frame(&frame)?;
            }
        }
        Ok(())
    })
}

pub fn stacks_of_tags_and_chains_of_headers() -> Result<()> {
    const TYPES: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    const KINDS: [u8; 7] = [0, 43, 44, 51, 60, 135, 140];
    Comparison::run(|comparison| {
        let mut random = Random::new(34);
        for tags in 0..=8 {
            for depth in 0..=64 {
                let stack: Vec<_> = (0..tags).map(|_| random.pick(&TYPES)).collect();
                let (first, payload) = chain(random.pick(&KINDS), depth, 17, &ports(20));
                let frame = ethernet(&stack, IPV6, &ipv6(first, &payload));
                comparison.frame(&frame)?;
                // Also compare a frame whose headers have any kind and length.
                let mut wild = frame;
                for at in (54 + 4 * tags..wild.len() - 20).step_by(8) {
                    wild[at] = random.pick(&KINDS);
                    wild[at + 1] = if random.chance(0.9) { 0 } else { random.bits() as u8 };
                }
                comparison.frame(&wild)?;
            }
        }
        Ok(())
    })
}

/// Every tag with every content of its first bytes, on which its length depends, whole and cut.
pub fn tags_of_all_kinds() -> Result<()> {
    const TYPES: [u16; 14] = [
        0x0040, 0x6558, 0x8870, 0x8100, 0x88e5, 0x88e7, 0x8903, 0x8909, 0x8926, 0x892f, 0x893f, 0x894f, 0x22f3, 0xdada,
    ];
    let next = [IPV4, IPV6].map(|kind| kind.to_be_bytes());
    let packets = [ipv4(6, 0, 0, &tcp(2)), ipv6(17, &ports(8))];
    Comparison::run(|comparison| {
        let mut random = Random::new(144);
        for tag in TYPES {
            for nth in 0..2_000 {
                let mut content: Vec<_> = (0..random.between(1, 5))
                    .flat_map(|_| {
                        // The content is often a typical one, and the next type is often one of these again.
                        let wild = random.bits().to_be_bytes();
                        let known: [&[u8]; 6] = [
                            &[0xaa, 0xaa, 3, 0, 0, 0],
                            &[1, 1, 0, 1, 0, 9],
                            &[0x0f, 0xc2, 1, 3],
                            &[0; 8],
                            &[2; 12],
                            &wild,
                        ];
                        let mut some = random.pick(&known).to_vec();
                        some.extend(random.pick(&TYPES).to_be_bytes());
                        some
                    })
                    .collect();
                content.extend_from_slice(&next[nth % 2]);
                content.extend_from_slice(&packets[nth % 2]);
                let frame = ethernet(&[], tag, &content);
                comparison.frame(&frame)?;
                comparison.frame(&frame[..random.between(FRAME_MIN, frame.len())])?;
            }
        }
        Ok(())
    })
}

/// MPLS stacks with different payloads.
pub fn stacks_of_labels() -> Result<()> {
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(2)), ipv6(17, &ports(8)));
    let mut wrong = ipv4(6, 0, 40, &tcp(2));
    let options = wrong.clone();
    wrong[11] ^= 1;
    let pseudowire = |tags: &[u16], control: usize| [vec![0; control], ethernet(tags, IPV4, &v4)].concat();
    let payloads = [
        pseudowire(&[], 0),
        pseudowire(&[0x8100, 0x8100], 4),
        pseudowire(&[0x88a8, 0x8100, 0x8100], 4),
        ethernet(&[0x8100], IPV6, &v6),
        v4,
        v6,
        options,
        wrong,
        vec![0; 24],
        vec![0x5a; 24],
        vec![0x45; 60],
        vec![0x60; 60],
        Vec::new(),
    ];
    Comparison::run(|comparison| {
        for labels in 0..=8 {
            for payload in &payloads {
                let mut stack = [0, 1, 0, 64].repeat(labels);
                for bottom in 0..=labels {
                    // The bottom of the stack is at any label, or missing.
                    for (nth, label) in stack.chunks_exact_mut(4).enumerate() {
                        label[2] = u8::from(nth == bottom);
                    }
                    let packet = [&stack[..], payload].concat();
                    comparison.frame(&ethernet(&[], 0x8847, &packet))?;
                    comparison.frame(&ethernet(&[0x88a8, 0x8100], 0x8848, &packet))?;
                    let session = [&[0x11, 0, 0, 7, 0, 99, 0x02, 0x81], &packet[..]].concat();
                    comparison.frame(&ethernet(&[], 0x8864, &session))?;
                }
            }
        }
        Ok(())
    })
}

/// Up to four nested tunnels; whole, cut and damaged. The keys of whole ones are known.
pub fn nested_tunnels() -> Result<()> {
    const FRAMES: u64 = 20_000;
    Comparison::run(|comparison| {
        let mut random = Random::new(89);
        let mix = Mix { vlan: 0.0, qinq: 0.0, shims: 0.0, non_ip: 0.0, damaged: 0.0, ..Mix::odd() };
        let mut inside = 0;
        for Packet { frame, truth } in Traffic::new(Plan { seed: 89, packets: FRAMES, mix, ..Plan::default() })? {
            let mut frame = frame;
            // The outermost flow comes last.
            let innermost = truth.parsed().map_err(anyhow::Error::msg)?;
            let mut packets: Vec<Parsed> = vec![innermost];
            for _ in 0..random.between(0, 4) {
                let (wrapped, key) = random.pick(&Tunnel::ALL).wrap(&mut random, &frame);
                frame = wrapped;
                packets.push(Parsed::new(key.into()));
            }
            let depth = if comparison.tunnels == Tunnels::Inner { TUNNELS_MAX } else { 0 };
            let visible = packets.len().saturating_sub(1 + depth);
            inside += usize::from(packets.len() > 1 && visible == 0);
            let found = comparison.found(&frame)?;
            let expected = packets[visible];
            ensure!(found == Ok(expected), "{found:?}\nshould be {expected:?} of {packets:?}: {frame:02x?}");
            let end = random.between(FRAME_MIN, frame.len());
            comparison.frame(&frame[..end])?;
            for _ in 0..4 {
                let bit = random.between(0, frame.len().min(300) * 8 - 1);
                frame[bit / 8] ^= 1 << (bit % 8);
                comparison.frame(&frame)?;
            }
        }
        let least = if comparison.tunnels == Tunnels::Inner { FRAMES as usize / 4 } else { 0 };
        ensure!(inside >= least, "only {inside} were read inside a tunnel");
        Ok(())
    })
}

/// Packets with the other link types of captures.
pub fn every_link_type() -> Result<()> {
    const ETHERNET: usize = 14;
    const BEGINNINGS: [&[u8]; 11] = [
        &[0x21],
        &[0xff, 0x03, 0x57],
        &[1, 0x03, 0x21],
        &[0x0f, 0, 8, 0],
        &[0x11, 0, 0, 7, 0, 42, 0x21],
        &[0, 0, 0, 2],
        &[30, 0, 0, 0],
        &[0xff, 0x03, 0, 0x21],
        &[0, 0x57],
        &[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 0],
        &[0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0],
    ];
    Comparison::run(|comparison| {
        let mut random = Random::new(55);
        for Packet { frame, .. } in odd(55, 2_000)? {
            for link in Link::ALL {
                comparison.captured(link, frame.len() as u32, &frame)?;
                comparison.captured(link, u32::MAX, &frame[ETHERNET..])?;
                // An IP packet behind whatever this link type may begin with.
                let begin = random.pick(&BEGINNINGS);
                let captured = [begin, &frame[ETHERNET..]].concat();
                comparison.captured(link, 0, &captured[..random.between(0, captured.len())])?;
            }
        }
        Ok(())
    })
}

/// Every packet of the captures that are present.
pub fn captured_packets() -> Result<()> {
    Comparison::run(|comparison| {
        for file in captures::all().map_err(anyhow::Error::msg)? {
            let Ok(mut capture) = Capture::open(&file) else { continue };
            while let Ok(Some(packet)) = capture.next_packet() {
                let captured = &packet.captured[..packet.captured.len().min(CAPTURED_MAX)];
                comparison
                    .captured(packet.link, packet.wire_bytes, captured)
                    .with_context(|| file.display().to_string())?;
            }
        }
        Ok(())
    })
}

fn odd(seed: u64, packets: u64) -> Result<Traffic> {
    Traffic::new(Plan { seed, packets, flows: 20_000, zipf: 0.8, mix: Mix::odd(), ..Plan::default() })
}

/// The counts of userspace, kept beside those of the kernel.
struct Comparison<'a, 'b> {
    object: &'a mut Object<'b>,
    tunnels: Tunnels,
    counters: Counters,
    attributed: Tally,
}

impl Comparison<'_, '_> {
    /// Compares the results of both parsers for each packet of `test`, and in the end their counters, with and without
    /// looking into tunnels.
    fn run(test: impl Fn(&mut Comparison<'_, '_>) -> Result<()> + Send + Sync) -> Result<()> {
        Self::run_with(Tunnels::Outer, &test)?;
        Self::run_with(Tunnels::Inner, &test).context("inside tunnels")
    }

    fn run_with(tunnels: Tunnels, test: &(impl Fn(&mut Comparison<'_, '_>) -> Result<()> + Sync)) -> Result<()> {
        Object::load(weir_datapath::Plan { tunnels, ..PLAN }, |object| {
            object.change(|cpu| cpu.busy = 1)?;
            let (counters, attributed) = Default::default();
            let mut comparison = Comparison { object, tunnels, counters, attributed };
            test(&mut comparison)?;
            let Comparison { object, counters, attributed, .. } = comparison;
            ensure!(!attributed.is_zero(), "nothing had a key");
            let (window, _) = object.close()?;
            ensure!(window.records.is_empty(), "left in the cache: {:?}", window.records);
            ensure!(window.edge.counters[0] == counters, "{:?}\nshould be {counters:?}", window.edge.counters[0]);
            Ok(())
        })
    }

    /// A frame that comes in on an interface.
    fn frame(&mut self, frame: &[u8]) -> Result<()> {
        self.found(frame).map(drop)
    }

    /// Parses with both parsers, and returns their result.
    fn found(&mut self, frame: &[u8]) -> Result<Result<Parsed, Skip>> {
        self.object.pass(frame)?;
        self.compare(Link::Ethernet, frame.len() as u64, frame)
    }

    /// A packet out of a capture.
    fn captured(&mut self, link: Link, wire_bytes: u32, captured: &[u8]) -> Result<()> {
        self.object.pass_captured(link, wire_bytes, captured)?;
        self.compare(link, wire_bytes.into(), captured).map(drop)
    }

    fn compare(&mut self, link: Link, bytes: u64, packet: &[u8]) -> Result<Result<Parsed, Skip>> {
        let beginning = Beginning { bytes: packet, length: bytes as usize };
        let parsed = parse(&beginning, link, self.tunnels);
        let walked = walk(&beginning, link, self.tunnels);
        ensure!(parsed == walked, "the fast path has {parsed:?}\ninstead of {walked:?}: {packet:02x?}");
        let one = Tally::new(1, bytes);
        self.counters.seen.add(one);
        self.counters.sizes.count(size_class(bytes), 1);
        match parsed {
            Ok(Parsed { tcp_flags, .. }) => {
                self.attributed.add(one);
                self.counters.tcp.count(tcp_flags, 1);
            }
            Err(skip) => self.counters.skipped[skip as usize].add(one),
        }
        let records = self.object.records()?;
        let found: Vec<_> = records
            .iter()
            .map(|&Record { key, tcp_flags, tos, vlan, .. }| Parsed { key, tcp_flags, tos, vlan })
            .zip(records.iter().map(Record::tally))
            .collect();
        let expected = parsed.ok().map(|parsed| (parsed, one));
        same(&found, expected.as_slice()).with_context(|| format!("{link:?}, {bytes} bytes: {packet:02x?}"))?;
        Ok(parsed)
    }
}

fn same<T: PartialEq + Debug>(kernel: &[T], userspace: &[T]) -> Result<()> {
    ensure!(kernel == userspace, "the kernel says {kernel:?}\nuserspace says {userspace:?}");
    Ok(())
}
