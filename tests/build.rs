//! Leaves the benchmark's eBPF object at `$OUT_DIR/weir-ebpf-benchmark`, where the benchmark is built.

fn main() {
    if std::env::var_os("CARGO_FEATURE_BENCHMARK").is_some() {
        weir_ebpf_build::leave(weir_ebpf_build::Object::Benchmark);
    }
}
