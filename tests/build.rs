//! Leaves the benchmark's eBPF object at `$OUT_DIR/weir-ebpf-benchmark`.

fn main() {
    weir_ebpf_build::leave(weir_ebpf_build::Object::Benchmark);
}
