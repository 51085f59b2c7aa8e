//! Detects shadow stacks: the processor keeps return addresses twice, so switching stacks fails.
//!
//! With Intel's and AMD's CET and with Arm's guarded control stack, `call` writes the return
//! address to a second stack as well, and `ret` compares the two. A switch of stacks must switch
//! both. `corosensei` does not, so the first `ret` after a switch would end the process with an
//! unhelpful fault. Whether they are on is checked once, before the first stack is made.
//!
//! Sources: `Documentation/arch/x86/shstk.rst` and `Documentation/arch/arm64/gcs.rst` (Linux 6.18).

use crate::arch::{SHADOW_STACK, SHADOW_STACK_REMEDY, shadow_stack_status};
use crate::error::StackError;

/// Refuses if the calling thread has a shadow stack. glibc enables them for all threads or none.
pub(super) fn refuse_when_on() -> Result<(), StackError> {
    judge(shadow_stack_status())
}

/// Bit 0 of the status is "enabled" on both processors (`ARCH_SHSTK_SHSTK`,
/// `PR_SHADOW_STACK_ENABLE`). A kernel or a processor without shadow stacks answers with an error,
/// which means off.
fn judge(status: Option<u64>) -> Result<(), StackError> {
    match status {
        Some(bits) if bits & 1 == 1 => Err(StackError::ShadowStack {
            name: SHADOW_STACK,
            remedy: SHADOW_STACK_REMEDY,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An old kernel answers EINVAL, which means that they are off.
    #[test]
    fn unknown_to_the_kernel_means_off() {
        assert!(judge(None).is_ok());
        assert!(judge(Some(0)).is_ok());
    }

    /// Bit 1 alone (writes to the shadow stack are allowed) does not mean that one is in use.
    #[test]
    fn other_bits_do_not_refuse() {
        assert!(judge(Some(0b10)).is_ok());
    }

    /// The refusal names the remedy; the fault that it prevents would not.
    #[test]
    fn enabled_is_refused_with_the_remedy() {
        let error = judge(Some(0b11)).unwrap_err();
        assert!(error.to_string().contains("shadow stacks are on"));
        assert!(error.advice().contains("GLIBC_TUNABLES"));
    }

    /// The other tests switch stacks, so that this machine has to answer "off".
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn machine_of_the_tests_has_none() {
        assert!(refuse_when_on().is_ok());
    }
}
