//! Programs that publish the requests of their fibers export the variable by which readers find them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-examples=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
}
