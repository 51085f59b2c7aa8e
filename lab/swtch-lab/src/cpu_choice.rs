//! The CPUs on which an experiment lets its threads or processes run.

/// One CPU for all of them, or wherever the kernel puts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuChoice {
    One,
    All,
}

impl CpuChoice {
    /// The name in tables and figures.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One => "one CPU",
            Self::All => "all CPUs",
        }
    }
}
