//! Leaves weir's eBPF object at `$OUT_DIR/weir-ebpf`.

fn main() {
    weir_ebpf_build::leave(weir_ebpf_build::Object::Shipped);
}
