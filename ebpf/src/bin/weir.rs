//! The object that ships with weir: the library's programs and maps, and no others.

#![no_std]
#![no_main]

use weir_ebpf as _;
