//! Expressions in the tables: a small stack machine that says where a frame is, for code whose stack pointer moves
//! within a few instructions (the stubs that call functions of other files) and for frames that the kernel makes
//! (handlers of signals).

use gimli::{Encoding, EvaluationResult, Location, Reader, UnwindExpression, UnwindSection, Value};

use crate::registers::Registers;

/// What an expression may ask for.
#[derive(Clone, Copy)]
pub struct KnownOfFrame<'a> {
    pub frame: &'a Registers,
    /// Reads a word of the stack.
    pub word: &'a dyn Fn(u64) -> Option<u64>,
}

/// The most operations of an expression; a damaged one may go in circles.
const MOST_OPERATIONS: u32 = 1000;

/// The value of an expression, which finds `first` on its stack if that is given.
pub fn value_of<R, S>(
    expression: &UnwindExpression<R::Offset>,
    section: &S,
    encoding: Encoding,
    first: Option<u64>,
    known: KnownOfFrame<'_>,
) -> Option<u64>
where
    R: Reader,
    S: UnwindSection<R>,
{
    let mut evaluation = expression.get(section).ok()?.evaluation(encoding);
    evaluation.set_max_iterations(MOST_OPERATIONS);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = known.frame.get_or_pc(register)?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => evaluation.resume_with_memory(Value::Generic((known.word)(address)?)),
            _ => return None,
        }
        .ok()?;
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Some(address),
            _ => None,
        },
        _ => None,
    }
}
