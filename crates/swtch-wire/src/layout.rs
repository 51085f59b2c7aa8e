//! The records of the eBPF programs, field by field as `bpf/record.h` of the crate that records has them;
//! what the fields mean is said there.
//!
//! They are written here once more so that reading them needs neither clang nor libbpf. A test of that
//! crate compares both sides, field by field.
#![allow(
    missing_debug_implementations,
    reason = "of types that the derives of zerocopy define for themselves"
)]

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Value of [`SwitchRecord::kind`].
pub const RECORD_SWITCH: u32 = 1;

/// Value of [`TaskRecord::kind`].
pub const RECORD_TASK: u32 = 2;

/// Defines a record of plain numbers. It has no padding (`IntoBytes`), and any bytes of its size are one
/// (`FromBytes`).
macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "bpf/record.h says what each field means")]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
        #[repr(C)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $name {
            /// Name and size of each field, in the order in which they lie.
            pub const FIELDS: &[(&str, usize)] = &[$((stringify!($field), size_of::<$type>())),*];
        }
    };
}

/// The record at the start of these bytes; `None` if they are too few.
pub(crate) fn first<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    Some(T::read_from_prefix(bytes).ok()?.0)
}

record! {
    /// A switch-out: the run of the task that leaves, and the wait that came before that run.
    SwitchRecord {
        kind: u32,
        cpu: u16,
        wake_cpu: u16,
        ts: u64,
        run_start: u64,
        charged_ns: u64,
        out_ts: u64,
        wake_ts: u64,
        moved_ts: u64,
        cause_ts: u64,
        wait_key: u64,
        args: [u64; 3],
        cgroup: u64,
        kernel_count: u64,
        user_word: u64,
        task: u32,
        next_task: u32,
        waker: u32,
        nominator: u32,
        state: u32,
        evidence: u32,
        irq_ns: u32,
        syscall: i32,
        kernel_stack: i32,
        user_stack: i32,
        waker_kernel_stack: i32,
        waker_user_stack: i32,
        prio: i16,
        next_prio: i16,
        class: u8,
        next_class: u8,
        cause: u8,
        wait_object: u8,
        waker_kind: u8,
        was_runnable: u8,
        in_scope: u8,
        has_user_word: u8,
        pad: [u8; 4],
    }
}

record! {
    /// Identity of a task: when it was first named, and at each change.
    TaskRecord {
        kind: u32,
        event: u32,
        ts: u64,
        start_boottime_ns: u64,
        cgroup: u64,
        nvcsw: u64,
        nivcsw: u64,
        task: u32,
        tid: u32,
        pid: u32,
        parent_pid: u32,
        prio: i16,
        class: u8,
        is_kthread: u8,
        in_scope: u8,
        pad: [u8; 3],
        comm: [u8; 16],
    }
}
