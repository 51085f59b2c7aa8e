//! Tests that load the eBPF programs into the running kernel. They need root, so they are
//! ignored unless asked for: `cargo test -p swtch-capture --test it -- --ignored`. Those of
//! `objects`, how the programs are compiled, need none.

mod interrupt_load;
mod interrupts;
mod missed;
mod mixed_load;
mod objects;
mod oracle;
mod share;
mod stack_verdict;
mod tree;
mod watched;

// One test at a time loads the CPUs or counts what happens on one: the load of another test would
// be counted, too.
use swtch_test::alone;
