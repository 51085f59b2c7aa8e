//! Which instructions are calls.

/// The most bytes before a return address that [`is_call`] looks at.
pub const CALL_BYTES: usize = 8;

/// Returns true if these bytes, as they lie before an address, may end with a call.
///
/// x86-64: `E8 rel32` and `FF /2` (Intel SDM, volume 2A, CALL); arm64: `BL` and `BLR` (Arm ARM, C4.1).
pub fn is_call(before: &[u8]) -> bool {
    #[cfg(target_arch = "aarch64")]
    {
        let word = before
            .last_chunk::<4>()
            .map(|bytes| u32::from_le_bytes(*bytes));
        // BLR also with an authentication of the address (BLRAA and others).
        word.is_some_and(|word| word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000)
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        let back = |bytes: usize| {
            before
                .len()
                .checked_sub(bytes)
                .and_then(|at| before.get(at))
        };
        back(5) == Some(&0xe8)
            || (2..=7_usize).any(|length| {
                let base = back(length.saturating_sub(2)).filter(|_| length > 2);
                back(length) == Some(&0xff)
                    && back(length - 1).is_some_and(|form| indirect_length(*form, base) == length)
            })
    }
}

/// The length of a call through a register or memory, by the byte that says what it goes through and the one that
/// follows; 0 if it is another instruction.
#[cfg(not(target_arch = "aarch64"))]
fn indirect_length(form: u8, base: Option<&u8>) -> usize {
    if form >> 3 & 7 != 2 {
        return 0;
    }
    let has_scale = form & 7 == 4 && form >> 6 != 3;
    let scale = usize::from(has_scale);
    let is_displaced = match has_scale {
        true => base.is_some_and(|base| base & 7 == 5),
        false => form & 7 == 5,
    };
    match form >> 6 {
        0 if is_displaced => 2 + scale + 4,
        1 => 2 + scale + 1,
        2 => 2 + scale + 4,
        _ => 2 + scale,
    }
}

#[cfg(all(test, not(target_arch = "aarch64")))]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_instructions() {
        for (bytes, is) in [
            (&[0x90, 0xe8, 1, 2, 3, 4][..], true),
            (&[0xff, 0xd0], true),                   // call *%rax
            (&[0x41, 0xff, 0xd4], true),             // call *%r12
            (&[0xff, 0x15, 1, 2, 3, 4], true),       // call *x(%rip)
            (&[0xff, 0x53, 0x18], true),             // call *24(%rbx)
            (&[0xff, 0x54, 0xc8, 0x08], true),       // call *8(%rax,%rcx,8)
            (&[0xff, 0x14, 0x24], true),             // call *(%rsp)
            (&[0xff, 0x14, 0xc5, 1, 2, 3, 4], true), // call *x(,%rax,8)
            (&[0xff, 0x94, 0x24, 1, 2, 3, 4], true), // call *x(%rsp)
            (&[0xff, 0xe0], false),                  // jmp *%rax
            (&[0x0f, 0x05], false),                  // syscall
            (&[0x90, 0x90, 0x90, 0x90, 0x90, 0x90], false),
            (&[], false),
        ] {
            assert_eq!(is_call(bytes), is, "{bytes:x?}");
        }
    }
}
