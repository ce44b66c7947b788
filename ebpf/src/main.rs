#![no_std]
#![no_main]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! { loop {} }
