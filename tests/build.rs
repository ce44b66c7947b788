//! Puts the benchmark's eBPF object into `$OUT_DIR/weir-ebpf-benchmark` if the benchmark is built.

fn main() {
    if std::env::var_os("CARGO_FEATURE_BENCHMARK").is_some() {
        weir_ebpf_build::leave(weir_ebpf_build::Object::Benchmark);
    }
}
