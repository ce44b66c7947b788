//! Libraries that the C library loads when it first needs them. The sandbox forbids mapping code, so weir loads them
//! before.
#![expect(unsafe_code, reason = "a library runs code of its own when it is loaded")]

use std::ffi::CStr;

/// To look up names, with glibc before 2.34, and to end threads. A system without one of them does not need it.
const LIBRARIES: [&CStr; 4] = [c"libnss_files.so.2", c"libnss_dns.so.2", c"libresolv.so.2", c"libgcc_s.so.1"];

/// Loads them, for as long as the process lives.
pub(super) fn load() {
    for library in LIBRARIES {
        // SAFETY: these are parts of the system's C library and compiler, which it loads itself when it needs them.
        let _ = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    }
}
