//! Tests that load the eBPF programs into the running kernel. They need root, so they are
//! ignored unless asked for: `cargo test -p swtch-capture --test it -- --ignored`.

mod mixed_load;
mod oracle;
mod share;
mod stack_verdict;
