//! The program as a person meets it: started, watched from outside, judged by what it leaves.
//!
//! ```text
//! workload ─▶ swtch record ─▶ trace ─▶ judged here, against the construction, the kernel, the rules
//!             └─ killed, starved of disk, refused, lied to by names
//! ```
//!
//! - `truth`: every workload's switches have the reasons that follow from how it is built.
//! - `counts`: rows are as many as the kernel counted, in every scope.
//! - `endings`: exit codes, signals, kills, limits of time.
//! - `refusals`: what cannot be done is said, with the remedy.
//! - `damage`: full disks, torn files, flipped bytes.
//! - `output`: what is printed: formats, names from outside, closed pipes.
//! - `callers`: through sudo, from a home directory that is closed to everybody else.
//! - `surroundings`: ignored signals, closed descriptors, broken pipes.
//! - `mishaps`: a trace that is removed, moved or replaced while it is recorded; no /proc, no /dev/null.
//! - `claims`: what the lab lists, and what it refuses before minutes are spent.
//! - `cost`: prices and bills: what is measured, kept, refused, and left behind.
//! - `front`: the first answer of explain, on one screen of any width; command lines.
//! - `exports`: other tools' formats come to the sums of the reports; half a file is never left.
//! - `peers`: exports, read by the programs whose formats they are, where `make test-peers` has brought them.
//! - `imports`: what perf recorded comes to perf's own numbers, and says no more than it knows; damage is said.
//! - `forged`: the small perf.data that `imports` damages.
//! - `hostile`: input that was made to do harm, files that are none, and what every way out says of a torn trace.
//! - `fiber`: the schedulers of another process: views, rates, refusals, and a target that dies.
//! - `lab`: loads that are described in a file: played, refused, ended early.
//! - `levels`: switches of a user-mode scheduler, beside the kernel's and never among them.
//! - `view`: the server of the viewer: who is let in, what is answered; the page to send.
//! - `servers`: the processes below a running one belong to it, whatever happens while they are looked for.
//! - `realtime`: what is recorded does not starve its recorder.
//! - `plays`: the experiments that play loads: every claim is answered, and what is done is kept.
//!
//! Tests named `root_…` record, so they need root and are ignored by default:
//!
//! ```text
//! sudo -E cargo test -p swtch -- --include-ignored
//! sudo -E cargo test -p swtch -- --include-ignored --nocapture truth     prints the table
//! ```
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod callers;
mod claims;
mod cost;
mod counts;
mod damage;
mod endings;
mod exports;
mod fiber;
mod forged;
mod front;
mod hostile;
mod imports;
mod lab;
mod levels;
mod machine;
mod mishaps;
mod output;
mod peers;
mod plays;
mod realtime;
mod recording;
mod refusals;
mod servers;
mod surroundings;
mod truth;
mod view;
