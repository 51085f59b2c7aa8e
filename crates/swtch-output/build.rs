//! Tells the program how much it is optimised.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").expect("cargo sets it");
    println!("cargo:rustc-env=SWTCH_OPT_LEVEL={level}");
}
