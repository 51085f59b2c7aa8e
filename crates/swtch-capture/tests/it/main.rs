//! Tests that load the eBPF programs into the running kernel. They need root, so they are ignored
//! unless asked for: `cargo test -p swtch-capture --test it -- --ignored`. Those of `objects` (how
//! the programs are compiled) and of `stack_verdict` need none; `interrupt_load` and `mixed_load`
//! are loads that other tests use.

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

// Tests that load the CPUs, or count what happens there, run one at a time: the load of another
// test would be counted, too.
use swtch_test::alone;
