//! A packet socket and its ring (packet(7), `TPACKET_V3`): shared memory that the kernel fills with the beginnings of
//! packets, one block at a time.
//!
//! `pnet` binds the socket to its interface, but does not read it. Its receiver needs a system call per packet, does
//! not report the direction, loses the VLAN tag that the kernel removed, truncates long packets silently, and does not
//! report dropped packets. A ring has none of these defects, and gives weir hundreds of packets at a time. Its size
//! needs no `CAP_NET_ADMIN`; that of a socket's receive buffer does.
//!
//! The kernel counts a packet and assigns its place in the ring under one lock. So when weir reads the socket's
//! statistics, it knows exactly how many of the earlier packets are still in the ring. The kernel counts drops after it
//! has released that lock, so the next reading may include the last few. No drop is counted twice, and none is missed.
#![expect(unsafe_code, reason = "the socket's statistics, and memory that is shared with the kernel")]

use std::{
    io,
    mem::{self, MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

use libc::{c_int, c_uint, socklen_t};
use pnet_datalink::{Config, NetworkInterface, channel};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt::socket_error},
    param::page_size,
};
use weir_common::{
    packet::{self, REACH_MAX},
    proto,
};
use weir_config::interface::Way;
use weir_system::sockopt::{self, instruction};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::frame::Frame;

/// The number of blocks per ring, or its number of pages if that is less. The kernel fills one block while weir reads
/// others.
const BLOCKS: usize = 32;
/// The kernel hands over a partly filled block after this many milliseconds. This bounds how late a packet is read, and
/// how late a window closes.
const RETIRE_MS: c_uint = 20;
/// The most bytes that the kernel adds around the beginning of a packet in the ring.
const FRAME_ROOM: usize = 256;

/// The interface that a tap captures.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of the interface.
    pub name: &'a str,
    /// The index of the interface.
    pub ifindex: u32,
    /// The link layer of its packets.
    pub link: packet::Link,
    /// The longest packet after the link layer's header, in bytes.
    pub mtu: u32,
    /// The direction to capture.
    pub way: Way,
}

/// A packet socket on one interface, for one direction.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    blocks: Blocks,
    /// The block that is read next. It may be partly read.
    block: usize,
    cursor: Option<Cursor>,
    /// How many packets had entered the ring at the last reading of the statistics.
    queued: u64,
    /// How many packets were read or given up.
    read: u64,
    /// How many packets were counted as lost but may still arrive.
    late: u64,
    /// How many packets in an unreadable block are not counted as lost yet.
    unreadable: u64,
}

/// How far a block has been read.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    left: u32,
    at: usize,
}

impl PacketSocket {
    /// Opens a socket that captures the packets of `target` from now on, with a ring of `bytes` bytes: a power of two,
    /// at least a page.
    ///
    /// # Errors
    ///
    /// This process lacks permission (`CAP_NET_RAW`), there is no memory, or the interface is gone.
    pub fn open(target: &Target<'_>, bytes: usize) -> io::Result<Self> {
        let socket = unbound()?;
        let version = libc::tpacket_versions::TPACKET_V3 as c_int;
        sockopt::set_number(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        sockopt::set_number(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        see_only(&socket, target.way)?;
        let blocks = Blocks::new(&socket, bytes)?;
        // Bind last: until then the socket receives nothing.
        bind(&socket, target)?;
        Ok(Self { socket, blocks, block: 0, cursor: None, queued: 0, read: 0, late: 0, unreadable: 0 })
    }

    /// Returns true if this process may open packet sockets.
    pub fn is_permitted() -> bool {
        unbound().is_ok()
    }

    /// Passes on at most `most` packets of the next block, in order, except those already counted as lost. Returns how
    /// many, or `None` if no block is ready.
    pub fn read(&mut self, most: u64, mut take: impl FnMut(&Frame<'_>)) -> Option<u64> {
        let block = self.blocks.get(self.block)?;
        let (header, _) = BlockHeader::read_from_prefix(block).ok()?;
        let begin = Cursor { left: header.packets, at: header.first_at as usize };
        let Cursor { mut left, mut at } = self.cursor.take().unwrap_or(begin);
        let mut read = 0;
        while left > 0 && read < most {
            let Some((next, frame)) = frame(block, at) else {
                // The kernel writes no such block. If it did, the packets would count as lost.
                self.unreadable += u64::from(left);
                self.read += u64::from(left);
                left = 0;
                break;
            };
            match frame {
                Some(_) if self.late > 0 => self.late -= 1,
                Some(frame) => {
                    take(&frame);
                    read += 1;
                }
                None => {}
            }
            left -= 1;
            at += next;
        }
        self.read += read;
        if left > 0 {
            self.cursor = Some(Cursor { left, at });
        } else {
            self.blocks.release(self.block, header.used as usize);
            self.block = (self.block + 1) % self.blocks.count;
        }
        Some(read)
    }

    /// Reads the socket's statistics and returns how many packets were dropped since the last call. Packets that
    /// arrived before are in the ring: see [`PacketSocket::unread`].
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn drops(&mut self) -> io::Result<u64> {
        let mut statistics = MaybeUninit::<libc::tpacket_stats_v3>::zeroed();
        let mut length = size_of::<libc::tpacket_stats_v3>() as socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of the pointer's target.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                statistics.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        checked(result)?;
        // SAFETY: it has only numbers, either zero or written by the kernel.
        let libc::tpacket_stats_v3 { tp_packets, tp_drops, .. } = unsafe { statistics.assume_init() };
        // The kernel includes the drops in `tp_packets`.
        self.queued += u64::from(tp_packets.wrapping_sub(tp_drops));
        Ok(u64::from(tp_drops) + mem::take(&mut self.unreadable))
    }

    /// How many packets had arrived at the last reading of the statistics and are still unread.
    pub const fn unread(&self) -> u64 {
        self.queued.saturating_sub(self.read)
    }

    /// Gives up the unread packets and returns how many there are. If they arrive after all, they are skipped.
    pub const fn give_up(&mut self) -> u64 {
        let unread = self.unread();
        self.read += unread;
        self.late += unread;
        unread
    }

    /// Takes the socket's pending error, for example that its interface went down. While it is pending, each wait for
    /// packets reports it again.
    pub fn take_error(&self) -> Option<io::Error> {
        socket_error(&self.socket).ok()?.err().map(Into::into)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a packet socket that receives nothing yet.
fn unbound() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

fn bind(socket: &OwnedFd, target: &Target<'_>) -> io::Result<()> {
    let interface = NetworkInterface {
        name: target.name.to_owned(),
        description: String::new(),
        index: target.ifindex,
        mac: None,
        ips: Vec::new(),
        flags: 0,
    };
    // pnet owns this copy of the descriptor, and closes it in every case.
    let copy = socket.try_clone()?.into_raw_fd();
    channel(&interface, Config { promiscuous: false, socket_fd: Some(copy), ..Config::default() }).map(drop)
}

/// Restricts the socket to one direction, and to as many bytes of each packet as the parser reads.
fn see_only(socket: &OwnedFd, way: Way) -> io::Result<()> {
    const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let (if_sent, if_received) = match way {
        Way::Ingress => (1, 0),
        Way::Egress => (0, 1),
    };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, PACKET_TYPE),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, if_sent, if_received, libc::PACKET_OUTGOING.into()),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, REACH_MAX as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    sockopt::attach_filter(socket, &mut filter)
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The memory that the ring shares with the kernel.
#[derive(Debug)]
struct Blocks {
    memory: NonNull<u8>,
    bytes: usize,
    count: usize,
}

// SAFETY: this value is the only owner of the memory, whatever thread it is on.
unsafe impl Send for Blocks {}

impl Blocks {
    /// Makes the kernel create the ring, and maps it into memory.
    fn new(socket: &OwnedFd, ring: usize) -> io::Result<Self> {
        let bytes = (ring / BLOCKS).max(page_size());
        let count = (ring / bytes).max(1);
        let frame = REACH_MAX + FRAME_ROOM;
        let request = libc::tpacket_req3 {
            tp_block_size: bytes as c_uint,
            tp_block_nr: count as c_uint,
            // Frames are as long as their packets. The kernel only checks that the numbers are consistent.
            tp_frame_size: frame as c_uint,
            tp_frame_nr: (bytes / frame * count) as c_uint,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        sockopt::set_ring(socket, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), bytes * count, access, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("the kernel mapped nothing"))?;
        Ok(Self { memory, bytes, count })
    }

    /// A block, if weir may read it.
    fn get(&self, nth: usize) -> Option<&[u8]> {
        if self.status(nth).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: within the mapping. The kernel does not touch a block until its status is given back, which needs
        // this value mutably.
        Some(unsafe { slice::from_raw_parts(self.start(nth).as_ptr(), self.bytes) })
    }

    /// Returns a block to the kernel and clears the `used` part. If the kernel gives up on a packet halfway, it leaves
    /// the memory unchanged, and weir must be able to detect that.
    fn release(&mut self, nth: usize, used: usize) {
        let wiped = size_of::<BlockHeader>()..used.clamp(size_of::<BlockHeader>(), self.bytes);
        // SAFETY: within the mapping, and the block belongs to weir until the store below.
        unsafe { self.start(nth).add(wiped.start).write_bytes(0, wiped.len()) };
        self.status(nth).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    fn status(&self, nth: usize) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as the block and the word in it are; it is only used as an atomic
        // while the block may belong to the kernel.
        unsafe { AtomicU32::from_ptr(self.start(nth).add(offset_of!(BlockHeader, status)).cast().as_ptr()) }
    }

    fn start(&self, nth: usize) -> NonNull<u8> {
        debug_assert!(nth < self.count);
        // SAFETY: within the mapping, because `nth` is always taken modulo `count`.
        unsafe { self.memory.add(nth * self.bytes) }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes * self.count) };
    }
}

/// The start of a block: `struct tpacket_block_desc`.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
struct BlockHeader {
    version: u32,
    private_at: u32,
    status: u32,
    packets: u32,
    first_at: u32,
    used: u32,
}

/// The header of each packet: `struct tpacket3_hdr`.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
struct FrameHeader {
    next: u32,
    seconds: u32,
    nanoseconds: u32,
    captured: u32,
    length: u32,
    status: u32,
    packet_at: u16,
    network_at: u16,
    hash: u32,
    vlan_control: u32,
    vlan_protocol: u16,
    padding: u16,
}

/// The header directly before the packet: `struct virtio_net_hdr`.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
struct OffloadHeader {
    flags: u8,
    kind: u8,
    headers: u16,
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

const _: () = assert!(size_of::<FrameHeader>() == 40 && size_of::<OffloadHeader>() == 10);
const _: () = assert!(FRAME_ROOM >= 48 + 20 + 16 + size_of::<OffloadHeader>() + 64);

/// The packet at `at` in a block, and the distance to the next one. There is no packet if the kernel gave up halfway;
/// then the kernel has counted it as dropped.
fn frame(block: &[u8], at: usize) -> Option<(usize, Option<Frame<'_>>)> {
    let whole = block.get(at..)?;
    let (header, _) = FrameHeader::read_from_prefix(whole).ok()?;
    let next = header.next as usize;
    if header.length == 0 {
        return Some((next, None));
    }
    let begin = usize::from(header.packet_at);
    let bytes = whole.get(begin..begin.checked_add(header.captured as usize)?)?;
    let offload = whole.get(begin.checked_sub(size_of::<OffloadHeader>())?..)?;
    let (offload, _) = OffloadHeader::read_from_prefix(offload).ok()?;
    Some((
        next,
        Some(Frame {
            bytes,
            length: header.length,
            vlan: vlan(&header),
            segment: offload.segment(),
            fragments: offload.kind & !OffloadHeader::MARKS == OffloadHeader::FRAGMENTS,
            transport: offload.transport(),
            tick: tick(&header),
            second: header.seconds.into(),
        }),
    ))
}

/// The VLAN tag that the kernel stores separately, in its form on the wire.
fn vlan(header: &FrameHeader) -> Option<[u8; 4]> {
    const CUSTOMER: u16 = 0x8100;
    if header.status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = header.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { header.vlan_protocol } else { CUSTOMER }.to_be_bytes();
    let [c, d] = (header.vlan_control as u16).to_be_bytes();
    Some([a, b, c, d])
}

/// The arrival time in milliseconds, modulo 2^32.
const fn tick(header: &FrameHeader) -> u32 {
    header.seconds.wrapping_mul(1000).wrapping_add(header.nanoseconds / 1_000_000)
}

impl OffloadHeader {
    /// The type of a UDP packet to be fragmented (`VIRTIO_NET_HDR_GSO_UDP`).
    const FRAGMENTS: u8 = 3;
    /// Flags in a type: UDP tunnel and ECN.
    const MARKS: u8 = 0x20 | 0x40 | 0x80;

    /// Payload bytes of each packet that an offload merged; 0 for a single packet.
    const fn segment(self) -> u16 {
        if self.kind == 0 { 0 } else { self.segment }
    }

    /// The protocol and the offset of the innermost transport header, if its checksum is left to an offload. This is so
    /// for everything that the kernel merged. The position of the checksum identifies the protocol.
    const fn transport(self) -> Option<(u8, usize)> {
        const NEEDS_CHECKSUM: u8 = 1;
        if self.flags & NEEDS_CHECKSUM == 0 {
            return None;
        }
        let protocol = match self.checksum_offset {
            16 => proto::TCP,
            6 => proto::UDP,
            _ => return None,
        };
        Some((protocol, self.checksum_start as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a packet at `at` with its header as the kernel writes it, and with the offload header before the packet.
    fn put(block: &mut [u8], at: usize, header: &[u32; 7], packet: &[u8], offload: [u8; 10]) {
        const PACKET_AT: usize = 92;
        for (nth, word) in header.iter().enumerate() {
            // The offset of the packet shares a word with another field.
            let word = if nth == 6 { PACKET_AT as u32 } else { *word };
            block[at + nth * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        block[at + PACKET_AT - 10..][..10].copy_from_slice(&offload);
        block[at + PACKET_AT..][..packet.len()].copy_from_slice(packet);
    }

    #[test]
    fn packets_are_read_as_the_kernel_wrote_them() {
        let mut block = vec![0; 1024];
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        put(&mut block, 48, &[256, 7, 5_000_000, 3, 1500, status, 0], &[1, 2, 3], [0, 1, 0, 0, 0xa8, 5, 0, 0, 0, 0]);
        block[48 + 32..][..4].copy_from_slice(&0x2007_u32.to_ne_bytes());
        block[48 + 36..][..2].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        let (next, first) = frame(&block, 48).unwrap();
        let first = first.unwrap();
        assert_eq!((next, first.bytes, first.length), (256, &[1, 2, 3][..], 1500));
        assert_eq!((first.tick, first.segment, first.vlan), (7_005, 1448, Some([0x88, 0xa8, 0x20, 0x07])));

        let given_up = frame(&block, 48 + 256).unwrap();
        assert!(given_up.1.is_none(), "the kernel left the memory unchanged");
        put(&mut block, 48, &[0, 7, 0, 3, 60, 0, 0], &[1, 2, 3], [0, 0, 0, 0, 0xa8, 5, 0, 0, 0, 0]);
        let plain = frame(&block, 48).unwrap().1.unwrap();
        assert_eq!((plain.segment, plain.transport, plain.vlan), (0, None, None));
    }

    /// A socket without packets, with one block in its ring that holds `packets` of them, `room` bytes apart.
    fn with_block(packets: u32, room: u32) -> PacketSocket {
        let (bytes, count) = (page_size(), 1);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let mut block = vec![0; bytes];
        for (nth, word) in [0, 0, libc::TP_STATUS_USER, packets, 48, bytes as u32].into_iter().enumerate() {
            block[nth * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        for nth in 0..packets {
            put(&mut block, (48 + nth * room) as usize, &[room, nth, 0, 3, 60, 0, 0], &[1, 2, 3], [0; 10]);
        }
        // SAFETY: the mapping is as large as the block, and nothing else refers to it.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), memory.cast(), bytes) };
        let blocks = Blocks { memory: NonNull::new(memory.cast()).unwrap(), bytes, count };
        let socket = std::fs::File::open("/dev/null").unwrap().into();
        PacketSocket { socket, blocks, block: 0, cursor: None, queued: 0, read: 0, late: 0, unreadable: 0 }
    }

    #[test]
    fn packets_that_were_given_up_are_skipped_if_they_arrive() {
        let mut socket = with_block(10, 256);
        socket.queued = 4;
        assert_eq!((socket.give_up(), socket.unread()), (4, 0));
        // At the next edge, six more packets have arrived.
        socket.queued = 10;
        let mut ticks = Vec::new();
        assert_eq!(socket.read(socket.unread(), |frame| ticks.push(frame.tick / 1000)), Some(6));
        assert_eq!((ticks, socket.unread()), ((4..10).collect(), 0));
        assert_eq!(socket.read(u64::MAX, |_| ()), None, "the block was given back");
    }

    #[test]
    fn unreadable_packets_are_not_waited_for() {
        let mut socket = with_block(10, 256);
        socket.queued = 10;
        // Make the third packet claim to be longer than any block.
        let third = 48 + 2 * 256 + offset_of!(FrameHeader, captured);
        // SAFETY: within the mapping, and nothing borrows from it.
        unsafe { socket.blocks.start(0).add(third).cast::<u32>().write(u32::MAX) };
        assert_eq!(socket.read(u64::MAX, |_| ()), Some(2));
        assert_eq!((socket.unread(), socket.unreadable), (0, 8));
    }

    #[test]
    fn the_transport_header_is_where_its_checksum_is() {
        let offload = |flags, checksum_offset| {
            let (kind, headers, segment, checksum_start) = (1, 0, 1348, 84);
            OffloadHeader { flags, kind, headers, segment, checksum_start, checksum_offset }.transport()
        };
        for (flags, offset, expected) in [
            (1, 16, Some((proto::TCP, 84))),
            (1, 6, Some((proto::UDP, 84))),
            (1, 8, None),
            // The card has checked the checksum and does not report its position.
            (2, 16, None),
            (0, 0, None),
        ] {
            assert_eq!(offload(flags, offset), expected, "flags {flags}, offset {offset}");
        }
    }

    #[test]
    fn an_invalid_header_is_not_a_packet() {
        let mut block = vec![0xff; 512];
        assert!(frame(&block, 0).is_none() && frame(&block, 500).is_none() && frame(&block, usize::MAX).is_none());
        put(&mut block, 0, &[0, 0, 0, 421, 421, 0, 0], &[], [0; 10]);
        assert!(frame(&block, 0).is_none(), "the packet ends one byte behind the block");
        put(&mut block, 0, &[0, 0, 0, 420, 420, 0, 0], &[], [0; 10]);
        assert!(frame(&block, 0).is_some());
    }
}
