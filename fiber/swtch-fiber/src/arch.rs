//! The items that differ by processor. Each processor has a file, with the same items in the same order.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("swtch-fiber knows the registers of x86_64 and aarch64 only");

#[cfg_attr(target_arch = "aarch64", path = "arch/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64.rs")]
mod processor;

#[cfg(test)]
pub(crate) use processor::PROBE;
use processor::thread_context_offset;
pub(crate) use processor::{
    RSEQ_SIGNATURE, SHADOW_STACK, SHADOW_STACK_REMEDY, SYSTEM_CALL, hit_probe, registers,
    shadow_stack_status, stack_pointer, thread_pointer,
};

// The variable of each thread that readers know by its name. Stable Rust has no such variables. It is weak, so that a
// library of another language in the same program may define it, too.
std::arch::global_asm!(
    ".pushsection .tbss.otel_thread_ctx_v1, \"awT\", %nobits",
    ".weak otel_thread_ctx_v1",
    ".type otel_thread_ctx_v1, %tls_object",
    ".size otel_thread_ctx_v1, 8",
    ".balign 8",
    "otel_thread_ctx_v1: .zero 8",
    ".popsection",
);

/// Where the calling thread has the variable by which it publishes what it serves: a pointer, null at first.
pub(crate) fn thread_context_variable() -> *const u8 {
    thread_pointer().wrapping_add(thread_context_offset())
}

/// The note of the probe at label 990.
macro_rules! probe_note {
    ($name:literal, $places:literal) => {
        concat!(
            ".pushsection .note.stapsdt, \"?\", \"note\"\n",
            ".balign 4\n",
            ".4byte 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b\n",
            ".8byte _.stapsdt.base\n",
            ".8byte {semaphore}\n",
            ".asciz \"swtch\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $places,
            "\"\n",
            "994: .balign 4\n",
            ".popsection\n",
            ".ifndef _.stapsdt.base\n",
            ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n",
            ".weak _.stapsdt.base\n",
            ".hidden _.stapsdt.base\n",
            "_.stapsdt.base: .space 1\n",
            ".size _.stapsdt.base, 1\n",
            ".popsection\n",
            ".endif",
        )
    };
}
pub(crate) use probe_note;
