//! Switches from one stack to another in user mode, in assembly for each architecture.

#[cfg(target_arch = "aarch64")]
#[path = "arch/switch_aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "arch/switch_x86_64.rs"]
mod arch;

pub(crate) use arch::{
    Entry, init_stack_frame, init_stack_frame_with_float_control, switch_registers,
    switch_registers_and_float_control,
};
