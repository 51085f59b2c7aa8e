//! The kinds of locks that a ring of locks can be made of, and their words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a lock is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// `pthread_mutex_t` of the C library.
    Mutex,
    /// A futex word, used without any library in between.
    Futex,
    /// A flag behind a `pthread_mutex_t` and a `pthread_cond_t`.
    Condvar,
}

impl LockKind {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[Self::Mutex, Self::Futex, Self::Condvar];

    /// The word for this kind, which `Display` prints too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Futex => "futex",
            Self::Condvar => "condvar",
        }
    }

    /// The kind with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.as_str() == word)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_leads_back_to_its_lock() {
        for kind in LockKind::ALL {
            assert_eq!(LockKind::from_word(kind.as_str()), Some(*kind));
        }
        assert_eq!(LockKind::from_word("latch"), None);
    }
}
