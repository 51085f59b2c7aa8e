//! A coroutine of the crate `corosensei`, the reference that others are compared with.

use corosensei::stack::DefaultStack;

use super::stack::MappedStack;
use super::{CoroutineBody, Stackful};
use crate::error::Error;

/// A coroutine that passes no values in either direction.
pub(super) struct Corosensei(corosensei::Coroutine<(), (), ()>);

impl Stackful for Corosensei {
    fn start(body: CoroutineBody) -> Result<Self, Error> {
        let stack = DefaultStack::new(MappedStack::SIZE).map_err(Error::calling("mmap"))?;
        let mut coroutine = Self(corosensei::Coroutine::with_stack(
            stack,
            move |yielder, ()| body.run(|| yielder.suspend(())),
        ));
        coroutine.resume();
        Ok(coroutine)
    }

    #[inline]
    fn resume(&mut self) {
        let _never_returns = self.0.resume(());
    }
}
