//! Integration tests: the program is started as a user starts it, and judged by its output and
//! traces.
//!
//! ```text
//! workload ─▶ swtch record ─▶ trace ─▶ judged by the construction, the kernel, the rules
//!             └─ killed, starved of disk, refused, lied to by names
//! ```
//!
//! - `agents`: metrics are those of a recording beside them; Prometheus reads them.
//! - `containers`: those of Podman are named, and the one that another waits for.
//! - `truth`: every workload's switches have the reasons that follow from how it is built.
//! - `counts`: rows are as many as the kernel counted, in every scope.
//! - `endings`: exit codes, signals, kills, time limits.
//! - `refusals`: what cannot be done is refused, with the remedy.
//! - `damage`: full disks, torn files, flipped bytes.
//! - `output`: what is printed: formats, hostile names, closed pipes.
//! - `callers`: through sudo, from a home directory that is closed to everybody else.
//! - `surroundings`: ignored signals, closed descriptors, broken pipes, resource limits.
//! - `attackers`: what a lesser user does to files, links and answers, root does not act on.
//! - `mishaps`: a trace that is removed, moved or replaced while it is recorded; no /proc, no
//!   /dev/null.
//! - `claims`: what the lab lists, and what it refuses before it spends minutes.
//! - `doctor`: programs of others that make a recording dearer are named.
//! - `cost`: prices and bills: what is measured, kept, refused, and left behind.
//! - `front`: the first answer of explain, on one screen of any width; command lines.
//! - `exports`: other tools' formats have the sums of the reports; no incomplete file is left.
//! - `peers`: exports, read by the programs whose formats they are, if `make test-peers` installed
//!   them.
//! - `imports`: perf's recordings give perf's own numbers; damage is reported.
//! - `forged`: the small perf.data that `imports` damages.
//! - `hostile`: hostile input, paths that are no files, and what every format says of a damaged
//!   trace.
//! - `diff`: traces are compared: exit codes, what is refused, every format, the page to send.
//! - `fiber`: the schedulers of another process: views, rates, refusals, and a target that dies.
//! - `lab`: loads that are described in a file: run, refused, ended early.
//! - `lasting`: threads that were blocked all the time make no switch, and are named.
//! - `levels`: switches of a user-mode scheduler, counted apart from the kernel's.
//! - `view`: the viewer's server: access, answers, and the page to send.
//! - `spans`: between two places of a program, counted and divided by what the switches say.
//! - `servers`: all processes below a running one are recorded with it.
//! - `summaries`: what is counted in the kernel is what a recording beside it holds.
//! - `tiers`: what is recorded without root is what root records of the same run.
//! - `coming_from`: other tools count what swtch records of the same load, where the docs say so.
//! - `tops`: rates of `swtch top` add up to what the kernel counted; its table does not fill.
//! - `quotas`: the cgroup whose quota is used up is named, and cgroups in the hierarchy of their ids.
//! - `rings`: a flight recorder keeps the end of what it records, and its dumps are parts of it.
//! - `realtime`: the recorder is not starved by real-time tasks that it records.
//! - `plays`: the lab's experiments: every claim is answered, and results of an early end are kept.
//!
//! Tests named `root_…` record, so they need root and are ignored by default:
//!
//! ```text
//! sudo -E cargo test -p swtch -- --include-ignored
//! sudo -E cargo test -p swtch -- --include-ignored --nocapture truth     prints the table
//! ```
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod attackers;
mod callers;
mod claims;
mod coming_from;
mod containers;
mod contexts;
mod cost;
mod counts;
mod damage;
mod diff;
mod doctor;
mod endings;
mod exports;
mod fiber;
mod forged;
mod front;
mod hostile;
mod imports;
mod lab;
mod lasting;
mod levels;
mod looks;
mod machine;
mod mishaps;
mod names;
mod output;
mod peers;
mod plays;
mod python;
mod quotas;
mod realtime;
mod recording;
mod refusals;
mod rings;
mod runtimes;
mod servers;
mod spans;
mod stranger;
mod summaries;
mod surroundings;
mod tiers;
mod tops;
mod truth;
mod view;
