//! Measurements of this machine: what a context switch costs, and the classic experiments about it.
//!
//! - [`cost`] makes a price list: what each kind of switch costs here.
//! - [`lab`] runs the experiments in `lab/`, and says which claims of the textbooks hold here.
//!
//! Both time arms side by side, as `swtch-bench` does; experiments also play loads and record them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cost;
pub mod lab;
