//! Turns the end of a command into an exit code.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The exit code as a shell gives it: the command's own, or 128 plus the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_command_gives_128_and_the_signal() {
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
    }
}
