//! The object that ships with weir: only the library's programs and maps.

#![no_std]
#![no_main]

use weir_ebpf as _;
