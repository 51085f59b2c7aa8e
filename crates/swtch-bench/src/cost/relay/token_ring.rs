//! A token for each member: the member whose token is present has the turn.

use std::sync::Arc;

use super::Relay;
use crate::cost::work::Work;
use crate::error::Error;
use crate::token::Token;

/// Tokens of one kind, and one more that only the leader uses.
pub(super) struct TokenRing<T> {
    tokens: Vec<T>,
    private: T,
}

impl<T: Token + Send + 'static> TokenRing<T> {
    pub(super) fn relay(
        count: u32,
        token: impl Fn() -> Result<T, Error>,
    ) -> Result<Arc<dyn Relay>, Error> {
        Ok(Arc::new(Self {
            tokens: (0..count).map(|_| token()).collect::<Result<_, _>>()?,
            private: token()?,
        }))
    }
}

impl<T: Token + Send> Relay for TokenRing<T> {
    fn lead(&self, work: &mut dyn Work) -> Result<(), Error> {
        self.tokens[1 % self.tokens.len()].pass()?;
        self.tokens[0].take()?;
        work.run();
        Ok(())
    }

    fn follow(&self, me: usize, work: &mut dyn Work) -> Result<(), Error> {
        self.tokens[me].take()?;
        work.run();
        self.tokens[(me + 1) % self.tokens.len()].pass()
    }

    fn alone(&self) -> Result<(), Error> {
        self.private.alone()
    }
}
