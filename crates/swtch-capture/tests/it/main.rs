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

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one test at a time load the CPUs or count what happens on one: the load of another test
/// would be counted, too.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    swtch_test::tell_failures_at_once();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
