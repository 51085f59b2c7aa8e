//! The reasons why there is no stack, with advice.

use std::io;

/// The reason why no stack could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The size is less than a worker needs.
    #[error("stacks of {asked} bytes are too small: a worker needs {least} to enter and to panic")]
    TooSmall {
        /// The size in bytes that was asked for.
        asked: usize,
        /// The smallest size in bytes that is accepted.
        least: usize,
    },
    /// The size is more than a stack can have.
    #[error("stacks of {asked} bytes are too large: {most} is the most")]
    TooLarge {
        /// The size in bytes that was asked for.
        asked: usize,
        /// The largest size in bytes that is accepted.
        most: usize,
    },
    /// The kernel reserved no address space.
    #[error(
        "the kernel reserves no {bytes} bytes for another stack ({source}); {stacks} stacks exist{}",
        limit(*.mapping_limit)
    )]
    Reserve {
        /// The smallest reservation that was tried.
        bytes: usize,
        /// Number of stacks of this process.
        stacks: usize,
        /// `vm.max_map_count`; `None` if it cannot be read.
        mapping_limit: Option<u64>,
        /// The error that `mmap` returned.
        source: io::Error,
    },
    /// The kernel did not protect the end of a stack. A stack without a guard is never handed out.
    #[error(
        "the kernel guards no further stack ({source}); {stacks} stacks exist, {}{}",
        if *.splits { "two mappings each" } else { "none with a mapping of its own" },
        limit(*.mapping_limit)
    )]
    Guard {
        /// Number of stacks of this process.
        stacks: usize,
        /// True if guards split mappings, as they do before Linux 6.13.
        splits: bool,
        /// `vm.max_map_count`; `None` if it cannot be read.
        mapping_limit: Option<u64>,
        /// The error that `madvise` or `mprotect` returned.
        source: io::Error,
    },
    /// The processor keeps a second stack of return addresses, which `corosensei` does not switch:
    /// the first return on another stack would end the process.
    #[error(
        "shadow stacks are on ({name}): coroutines would end the process at their first return"
    )]
    ShadowStack {
        /// Name of the processor's feature, such as `x86 CET`.
        name: &'static str,
        /// The way to switch the feature off.
        remedy: &'static str,
    },
}

fn limit(mapping_limit: Option<u64>) -> String {
    mapping_limit
        .map(|limit| format!(", vm.max_map_count is {limit}"))
        .unwrap_or_default()
}

impl StackError {
    /// Says what the user can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => {
                "ask for a larger `stack_size`; only touched pages cost memory"
            }
            Self::TooLarge { .. } => "`stack_size` counts bytes; keep large values on the heap",
            Self::Reserve { .. } => {
                "start fewer workers, ask for a smaller `stack_size`, or raise what limits address \
                 space: `ulimit -v`, vm.overcommit_memory=2, vm.max_map_count"
            }
            Self::Guard { splits: true, .. } => {
                "raise it (`sysctl vm.max_map_count=262144`), start fewer workers, or run Linux \
                 6.13 or later, where guards take no mappings"
            }
            Self::Guard { splits: false, .. } => "start fewer workers, or free memory",
            Self::ShadowStack { remedy, .. } => remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who runs out of mappings must learn how many there were, the limit, and what to
    /// change.
    #[test]
    fn running_out_of_mappings_names_count_limit_and_remedy() {
        let error = StackError::Guard {
            stacks: 32_750,
            splits: true,
            mapping_limit: Some(65_530),
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let text = error.to_string();
        assert!(
            text.contains("32750 stacks exist, two mappings each"),
            "{text}"
        );
        assert!(text.contains("vm.max_map_count is 65530"), "{text}");
        assert!(error.advice().contains("sysctl vm.max_map_count"));
    }
}
