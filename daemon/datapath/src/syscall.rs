//! Calls bpf(2) for descriptors that another process has opened. aya accepts only programs and links that it created
//! itself, or that are pinned in a file system that a service may not write to.
//!
//! The commands and their structures come from the kernel's `include/uapi/linux/bpf.h`. The kernel treats missing
//! fields at the end of a structure as zero.

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper for these commands")]

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    ptr, thread,
    time::Duration,
};

use weir_config::interface::Way;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const PROG_QUERY: u32 = 16;
const LINK_CREATE: u32 = 28;
const LINK_UPDATE: u32 = 29;
const LINK_DETACH: u32 = 34;

const TEST_RUN_ON_CPU: u32 = 1;
/// The flag to attach before all other programs of the hook.
const BEFORE: u32 = 1 << 3;
const XDP_GENERIC: u32 = 1 << 1;
const XDP_NATIVE: u32 = 1 << 2;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const ATTACH_TCX_EGRESS: u32 = 47;
/// `BPF_PROG_TYPE_SCHED_CLS`: a program of the tc hook.
const CLASSIFIER: u32 = 3;
/// The most programs that the kernel allows at a TCX hook (`BPF_MPROG_MAX`).
const CHAIN_MAX: usize = 64;
/// The size of a program's name, including the zero at the end (`BPF_OBJ_NAME_LEN`).
const NAME_BYTES: usize = 16;

/// The hook at which a link runs its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// XDP, in the driver.
    XdpNative,
    /// XDP, after the driver.
    XdpGeneric,
    /// TCX ingress, first in the chain.
    TcxIngress,
    /// TCX egress, first in the chain.
    TcxEgress,
}

impl Hook {
    /// The link type, and the flags that attach a program at this hook.
    const fn kernel(self) -> (u32, u32) {
        match self {
            Self::XdpNative => (ATTACH_XDP, XDP_NATIVE),
            Self::XdpGeneric => (ATTACH_XDP, XDP_GENERIC),
            Self::TcxIngress => (ATTACH_TCX_INGRESS, BEFORE),
            Self::TcxEgress => (ATTACH_TCX_EGRESS, BEFORE),
        }
    }

    /// The direction of the packets at this hook.
    pub const fn way(self) -> Way {
        if matches!(self, Self::TcxEgress) { Way::Egress } else { Way::Ingress }
    }

    /// Returns true if several programs can run in a chain at this hook.
    pub const fn is_chain(self) -> bool {
        matches!(self, Self::TcxIngress | Self::TcxEgress)
    }
}

#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Element {
    map: u64,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct GetInfo {
    of: u32,
    bytes: u32,
    info: u64,
}

/// `struct bpf_link_info`, for an XDP or TCX link.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    ifindex: u32,
    attach_type: u32,
}

/// The kernel's information about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The kernel's id of the link.
    pub id: u32,
    /// The ID of its program.
    pub program: u32,
    /// The index of its interface; 0 if the interface is gone or the link was detached.
    pub ifindex: u32,
}

/// A program in the chain of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained {
    /// The kernel's id of the program.
    pub program: u32,
    /// The id of the program's link; 0 if it has none.
    pub link: u32,
}

/// The fields of `struct bpf_prog_info` that weir reads.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    code_bytes: [u32; 2],
    code: [u64; 2],
    load_time: u64,
    user: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(FromZeros, IntoBytes, Immutable)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(FromZeros, IntoBytes, Immutable)]
struct Query {
    ifindex: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// The fields of `struct bpf_map_info` that weir reads.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(FromZeros, IntoBytes, Immutable)]
struct TestRun {
    program: u32,
    result: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
}

/// Attaches a program to an interface until the last descriptor of the link is closed.
///
/// # Errors
///
/// The kernel refused.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> io::Result<OwnedFd> {
    let (attach_type, flags) = hook.kernel();
    let mut create = LinkCreate { program: number(program), ifindex, attach_type, flags };
    // SAFETY: this is the structure of this command.
    let link = unsafe { bpf(LINK_CREATE, &mut create) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Replaces a link's program with another one of the same type. Each packet is processed by exactly one of the two.
///
/// # Errors
///
/// The kernel refused, for instance because the interface is gone.
pub fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut update = LinkUpdate { link: number(link), program: number(program), flags: 0, old_program: 0 };
    // SAFETY: this is the structure of this command.
    unsafe { bpf(LINK_UPDATE, &mut update) }.map(drop)
}

/// Detaches a link, even if other processes hold descriptors of it.
///
/// # Errors
///
/// The kernel refused.
pub fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut link = number(link);
    // SAFETY: this word is the structure of this command.
    unsafe { bpf(LINK_DETACH, &mut link) }.map(drop)
}

/// Reads the kernel's information about a link. This needs no capability.
///
/// # Errors
///
/// The descriptor is not a link.
pub fn state_of(link: BorrowedFd<'_>) -> io::Result<LinkState> {
    let mut info = LinkInfo::default();
    // SAFETY: this structure starts like the kernel's and has only plain words.
    unsafe { get_info(link, &mut info) }?;
    Ok(LinkState { id: info.id, program: info.program, ifindex: info.ifindex })
}

/// The id and the name of a program.
///
/// # Errors
///
/// The descriptor is not a program.
pub fn program_of(program: BorrowedFd<'_>) -> io::Result<(u32, String)> {
    let mut info = ProgramInfo::default();
    // SAFETY: this structure starts like the kernel's and has only plain words. The data that it points to is not
    // requested.
    unsafe { get_info(program, &mut info) }?;
    let name = info.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok((info.id, String::from_utf8_lossy(name).into_owned()))
}

/// The name of the program with this id. This needs `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// There is no such program, or this process lacks permission.
pub fn program_name(id: u32) -> io::Result<String> {
    let mut order = [id, 0, 0];
    // SAFETY: these words are the structure of this command.
    let program = unsafe { bpf(PROG_GET_FD_BY_ID, &mut order) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    program_of(program.as_fd()).map(|(_, name)| name)
}

/// The programs at a TCX hook of an interface in this network namespace, in the order in which they run. This needs
/// `CAP_NET_ADMIN`. The kernel holds its interface lock while it copies them.
///
/// # Errors
///
/// There is no such interface, this process lacks permission, or the kernel has no such hooks.
pub fn chain(ifindex: u32, hook: Hook) -> io::Result<Vec<Chained>> {
    let (mut programs, mut links) = ([0_u32; CHAIN_MAX], [0_u32; CHAIN_MAX]);
    let mut query = Query {
        ifindex,
        attach_type: hook.kernel().0,
        programs: programs.as_mut_ptr().expose_provenance() as u64,
        count: CHAIN_MAX as u32,
        links: links.as_mut_ptr().expose_provenance() as u64,
        ..Query::new_zeroed()
    };
    // SAFETY: this is the structure of this command; the kernel writes at most `count` words to each of the two arrays,
    // which are large enough and live until then.
    let asked = unsafe { bpf(PROG_QUERY, &mut query) };
    match asked {
        Ok(_) => {}
        // The hook has never had a program.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let both = programs.into_iter().zip(links).take(query.count as usize);
    Ok(both.map(|(program, link)| Chained { program, link }).collect())
}

/// Loads a tc program that passes every packet to the next program.
///
/// # Errors
///
/// The kernel refused, for instance because `CAP_BPF` is missing.
pub fn load_passing() -> io::Result<OwnedFd> {
    /// `r0 = TCX_NEXT`, which is `TC_ACT_UNSPEC`, then exit.
    const CODE: [u64; 2] = [0xffff_ffff_0000_00b7_u64.to_le(), 0x95_u64.to_le()];
    const LICENSE: &[u8] = b"GPL\0";
    let mut load = ProgramLoad {
        kind: CLASSIFIER,
        instructions: CODE.len() as u32,
        code: CODE.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        name: *b"weir_pass\0\0\0\0\0\0\0",
        ..ProgramLoad::new_zeroed()
    };
    // SAFETY: this is the structure of this command; the kernel only reads the two constants.
    let program = unsafe { bpf(PROG_LOAD, &mut load) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// # Safety
///
/// `info` must start like the kernel's structure for this kind of descriptor, and any bytes must be valid in it.
unsafe fn get_info<T>(of: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let info = ptr::from_mut(info).expose_provenance() as u64;
    let mut get = GetInfo { of: number(of), bytes: size_of::<T>() as u32, info };
    // SAFETY: this is the structure of this command; the kernel writes at most this many bytes into `info`, which lives
    // until then. The caller guarantees the rest.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut get) }.map(drop)
}

/// Runs a raw tracepoint program with these arguments, on this CPU or, if `None`, on the thread's own. Returns its
/// return value.
///
/// # Errors
///
/// The kernel refused, for instance because that CPU is offline.
pub fn run(program: BorrowedFd<'_>, cpu: Option<u32>, arguments: [u64; 2]) -> io::Result<u32> {
    let mut order = TestRun {
        program: number(program),
        context_in_bytes: size_of_val(&arguments) as u32,
        context_in: ptr::from_ref(&arguments).expose_provenance() as u64,
        flags: if cpu.is_some() { TEST_RUN_ON_CPU } else { 0 },
        cpu: cpu.unwrap_or_default(),
        ..TestRun::new_zeroed()
    };
    // SAFETY: this is the structure of this command; the kernel only reads the arguments, which live until then.
    unsafe { bpf(PROG_TEST_RUN, &mut order) }?;
    Ok(order.result)
}

/// Reads an element of an array map whose elements have the size of this type. aya passes elements by value, but a
/// thread's stack has no room for several large ones.
///
/// # Errors
///
/// The kernel refused: there is no such element, or the map's elements have another size.
pub fn look_up<T: FromBytes + IntoBytes + KnownLayout>(map: BorrowedFd<'_>, index: u32) -> io::Result<Box<T>> {
    check_size::<T>(map)?;
    let mut value = T::new_box_zeroed().map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut element = Element {
        map: number(map).into(),
        key: ptr::from_ref(&index).expose_provenance() as u64,
        value: ptr::from_mut(&mut *value).expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: this is the structure of this command; the kernel reads the index and writes one element into `value`, in
    // which any bytes are valid. Both live until then.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut element) }?;
    Ok(value)
}

/// Writes an element of such a map.
///
/// # Errors
///
/// See [`look_up`].
pub fn update<T: IntoBytes + Immutable>(map: BorrowedFd<'_>, index: u32, value: &T) -> io::Result<()> {
    check_size::<T>(map)?;
    let mut element = Element {
        map: number(map).into(),
        key: ptr::from_ref(&index).expose_provenance() as u64,
        value: ptr::from_ref(value).expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: this is the structure of this command; the kernel only reads the index and one element, which has the
    // size of `value`. Both live until then.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Checks that the elements of an array map have the size of this type, and that the index is the only key.
fn check_size<T>(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut info = MapInfo::default();
    // SAFETY: this structure starts like the kernel's and has only plain words.
    unsafe { get_info(map, &mut info) }?;
    let is_such = info.key_bytes == 4 && info.value_bytes as usize == size_of::<T>();
    if is_such { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

/// Waits until no CPU still runs a program that was replaced or detached earlier.
pub fn wait_for_programs() {
    /// `MEMBARRIER_CMD_GLOBAL` of membarrier(2): the kernel waits as it does before it frees a program.
    const GLOBAL: libc::c_int = 1;
    /// A longer wait is worth a log message: a program needs only microseconds per packet.
    const LONG: Duration = Duration::from_millis(50);
    // SAFETY: this system call takes three numbers and touches no memory.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } < 0 {
        thread::sleep(LONG);
    }
}

/// # Safety
///
/// `attribute` must start like the structure of this command, and its pointers must be valid for it.
unsafe fn bpf<T>(command: u32, attribute: &mut T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes this many bytes at this address; the caller guarantees the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attribute), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}
