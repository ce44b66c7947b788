//! Libraries that the C library loads when it first needs them. The sandbox forbids mapping code, so weir loads them
//! before.
#![expect(unsafe_code, reason = "a library runs code of its own when it is loaded")]

use std::ffi::CStr;

/// The libraries for looking up names, with glibc before 2.34, and for ending threads. A system that lacks one of them
/// does not need it.
const LIBRARIES: [&CStr; 4] = [c"libnss_files.so.2", c"libnss_dns.so.2", c"libresolv.so.2", c"libgcc_s.so.1"];

/// Loads the libraries for the life of the process.
pub(super) fn load() {
    for library in LIBRARIES {
        // SAFETY: these are parts of the system's C library and compiler, which it loads itself when it needs them.
        let _ = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    }
}
