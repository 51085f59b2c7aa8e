//! A token for each member: the member whose token is present has the turn.

use std::sync::Arc;

use super::Relay;
use crate::cost::work::Work;
use crate::error::Error;
use crate::token::Token;

/// Tokens of one kind, and one more for the baseline, in which the leader passes to itself.
pub(super) struct TokenRing<T> {
    tokens: Vec<T>,
    baseline_token: T,
}

impl<T: Token + Send + 'static> TokenRing<T> {
    pub(super) fn new_relay(
        count: u32,
        new_token: impl Fn() -> Result<T, Error>,
    ) -> Result<Arc<dyn Relay>, Error> {
        Ok(Arc::new(Self {
            tokens: (0..count).map(|_| new_token()).collect::<Result<_, _>>()?,
            baseline_token: new_token()?,
        }))
    }
}

impl<T: Token + Send> Relay for TokenRing<T> {
    fn lead(&self, work: &mut dyn Work) -> Result<(), Error> {
        // The remainder as in `follow`, so that a lap is the same work for every member.
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

    fn hand_over_alone(&self) -> Result<(), Error> {
        self.baseline_token.hand_over_alone()
    }
}
