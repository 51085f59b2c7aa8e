//! The trial: the smallest tracing program, loaded, attached to `sched_switch`, and unloaded. It also serves to measure
//! what a program costs that does nothing.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::libbpf_sys;

use super::VMLINUX_BTF;
use super::hook::typedef_of;
use crate::error::Error;
use crate::refusal;

/// What came of the trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It was loaded, attached, and unloaded again.
    Works,
    /// The kernel refused one of the steps.
    Refused {
        /// The step that was refused.
        step: TrialStep,
        /// The error number of the kernel.
        errno: i32,
    },
    /// The trial could not be made.
    NotTried {
        /// The thing that was missing for the trial, in words.
        why: String,
    },
}

/// The steps of the trial, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialStep {
    /// Loading the program with `BPF_PROG_LOAD`.
    Load,
    /// Attaching the program with `BPF_RAW_TRACEPOINT_OPEN`.
    Attach,
}

impl TrialStep {
    /// The step in words, as an infinitive.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Load => "load a BPF program",
            Self::Attach => "attach a BPF program to sched_switch",
        }
    }
}

/// A program that does nothing, attached to `sched_switch` for as long as this lives.
#[derive(Debug)]
pub struct EmptyProgram {
    _link: OwnedFd,
}

impl EmptyProgram {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// When this process may not, or the kernel does not describe the tracepoint.
    pub fn attach() -> Result<Self, Error> {
        refusal::listen();
        let btf = Btf::from_path(VMLINUX_BTF).map_err(Error::Load)?;
        let sched_switch = typedef_of(&btf, "sched_switch");
        let sched_switch = sched_switch.ok_or(Error::MissingHook("sched_switch"))?;
        let program = load_return_zero(sched_switch, c"swtch_empty")
            .map_err(|error| Error::of_load(error.into()))?;
        let link = attach(&program).map_err(|source| Error::Attach {
            program: "swtch_empty".to_owned(),
            source: source.into(),
        })?;
        Ok(Self { _link: link })
    }
}

/// Loads `return 0` as a tracing program of `sched_switch`, attaches it, and closes both.
pub(super) fn try_tracing(btf: Option<&Btf<'_>>) -> Trial {
    let Some(btf) = btf else {
        return Trial::NotTried {
            why: format!("no kernel types in {VMLINUX_BTF}"),
        };
    };
    let Some(sched_switch) = typedef_of(btf, "sched_switch") else {
        return Trial::NotTried {
            why: "the kernel's types do not name sched_switch".to_owned(),
        };
    };
    let outcome = load_return_zero(sched_switch, c"swtch_trial")
        .map_err(|error| (TrialStep::Load, error))
        .and_then(|program| attach(&program).map_err(|error| (TrialStep::Attach, error)));
    match outcome {
        Ok(_link) => Trial::Works,
        Err((step, error)) => Trial::Refused {
            step,
            errno: error.raw_os_error().unwrap_or_default(),
        },
    }
}

/// Loads the program `r0 = 0; exit` for the tracepoint whose typedef is `tracepoint`.
pub(super) fn load_return_zero(tracepoint: u32, name: &CStr) -> io::Result<OwnedFd> {
    const LICENSE: &CStr = c"Dual BSD/GPL";
    // BPF_ALU64 | BPF_MOV | BPF_K, and BPF_JMP | BPF_EXIT (`include/uapi/linux/bpf.h`).
    const MOVE_IMMEDIATE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let program = [MOVE_IMMEDIATE, EXIT].map(|code| libbpf_sys::bpf_insn {
        code,
        ..Default::default()
    });
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: libbpf_sys::BPF_TRACE_RAW_TP,
        attach_btf_id: tracepoint,
        ..Default::default()
    };
    // SAFETY: name, licence, instructions and options live until the call returns, the count is
    // that of the array, and `sz` is the size of the structure as this libbpf was built with it.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            name.as_ptr(),
            LICENSE.as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    own(fd)
}

/// Attaches a program to its tracepoint, until the descriptor is closed.
pub(super) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a null name is what tracing programs take; the descriptor is open for the call.
    let fd = unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    own(fd)
}

/// Turns the result of libbpf into a descriptor or an error: it is negative for an error number.
pub(super) fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
