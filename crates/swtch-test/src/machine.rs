//! A lock on the machine, which all test programs of one build folder share, so that programs can
//! run side by side although some of their tests need the CPUs for themselves.
//!
//! ```text
//! alone            gate: taken, held    lock: exclusive
//! beside_others    gate: passed         lock: shared
//! ```
//!
//! `flock` prefers nobody: tests beside others would keep coming, and one that wants to be alone
//! would wait until the last of them is over. Whoever waits to be alone therefore closes the gate,
//! through which the others must pass.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A turn on the machine, until it is dropped. The kernel ends it when the process is killed.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct MachineTurn {
    /// The machine first and the gate last, so that whoever comes through finds it free.
    _machine: File,
    _gate: Option<File>,
}

/// For tests that load the CPUs, or whose result other load would change: no other test that asks
/// for the machine runs at the same time, in this program or in another one of the build folder.
pub fn alone() -> MachineTurn {
    crate::tell_failures_at_once();
    let gate = locked("gate", FlockOperation::LockExclusive);
    let machine = locked("machine", FlockOperation::LockExclusive);
    MachineTurn {
        _machine: machine,
        _gate: Some(gate),
    }
}

/// For tests that do little and are hardly affected by other work.
pub fn beside_others() -> MachineTurn {
    crate::tell_failures_at_once();
    drop(locked("gate", FlockOperation::LockShared));
    MachineTurn {
        _machine: locked("machine", FlockOperation::LockShared),
        _gate: None,
    }
}

/// Each call opens the file anew, so that threads of one program exclude each other, too. Root and
/// other users take the same locks: the file of one is only read by the other.
fn locked(name: &str, how: FlockOperation) -> File {
    let path = build_folder().join(format!(".tests-{name}.lock"));
    let file = File::open(&path)
        .or_else(|_| File::create(&path))
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    while let Err(error) = flock(&file, how) {
        let again = error == rustix::io::Errno::INTR;
        assert!(again, "cannot lock {}: {error}", path.display());
    }
    file
}

/// The folder above `deps`, in which cargo puts test programs.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    let folder = program.parent().and_then(Path::parent);
    folder.expect("a test program lies in a folder").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::{alone, beside_others};

    /// Whoever is alone sees nobody inside, and those beside others are let in together.
    #[test]
    fn nobody_runs_beside_a_test_that_is_alone() {
        let inside = AtomicU32::new(0);
        let round = |is_alone: bool| {
            for _ in 0..50 {
                let turn = if is_alone { alone() } else { beside_others() };
                let before = inside.fetch_add(1, Ordering::SeqCst);
                assert!(!is_alone || before == 0, "{before} others ran");
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(turn);
            }
        };
        thread::scope(|scope| {
            for is_alone in [true, true, false, false, false] {
                scope.spawn(move || round(is_alone));
            }
        });
        let first = beside_others();
        let second = beside_others();
        drop((first, second));
    }
}
