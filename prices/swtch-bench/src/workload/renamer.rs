//! Threads with names that do harm if they are shown without escaping: on a terminal, in a page, in
//! a table, in a file name.

use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, SleepCounts, WorkloadOutcome};
use crate::process::set_own_name;
use crate::workers::{sleep, start};

/// As in `sleeps`: long enough that a timer rarely expires before its task has blocked.
const NAP: Duration = Duration::from_millis(1);

/// For a terminal, a table, a page, bytes that are no text, SQL, a path, what cannot be seen, and nothing. At most 15 bytes
/// each, the length that the kernel keeps.
const HOSTILE: [&[u8]; 8] = [
    b"\x1b[2J\x1b[1;31mred",
    b"two\nlines\r\n",
    b"<img onerror=x>",
    b"\xff\xfe\xc3(bad",
    b"',\"; DROP x--",
    b"../../etc/pass",
    b"tab\tnul\x7f\x07bell",
    b"",
];

pub(super) const RENAMER: Workload = Workload {
    name: "renamer",
    about: "threads that take hostile names: escape sequences, markup, invalid UTF-8",
    needs: Needs::Nothing,
    default_count: 20,
    count_is: "rounds through all names",
    run,
};

fn run(rounds: u64) -> Result<WorkloadOutcome, Error> {
    thread::scope(|scope| {
        let renamer = |first: usize| {
            start(scope, format!("renamer-{first}"), move || {
                let mut slept = SleepCounts::default();
                for _ in 0..rounds {
                    for name in HOSTILE.iter().cycle().skip(first).take(HOSTILE.len()) {
                        set_own_name(name);
                        slept += sleep(NAP)?;
                    }
                }
                Ok(slept)
            })
        };
        let workers: Vec<_> = (0..HOSTILE.len()).map(renamer).collect::<Result<_, _>>()?;
        let names = rounds * u64::try_from(HOSTILE.len()).unwrap_or(u64::MAX);
        let threads = workers.into_iter().map(|renamer| {
            let renamer = renamer.finish()?;
            let [sleeps, mostly] =
                Expect::sleeps(names, renamer.value, renamer.counted.involuntary);
            let because = "its pages go cold while it sleeps, and the kernel may take them away";
            let faults = Expect::at_least(Reason::Fault, 0, because);
            Ok(renamer.expecting(vec![sleeps, mostly, faults, Expect::balancing()]))
        });
        Ok(WorkloadOutcome {
            threads: threads.collect::<Result<_, Error>>()?,
        })
    })
}
