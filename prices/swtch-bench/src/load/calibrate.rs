//! Measures how long one iteration of the loops takes in which loads use the CPU.

use std::time::Duration;

use crate::arch::ChainOperation;
use crate::clock;

/// Long enough that reading the clock does not count, short enough that most blocks see no
/// interrupt.
const BLOCK: Duration = Duration::from_micros(400);

/// Number of blocks, of which the quickest counts: every disturbance makes a block longer.
const BLOCKS: u32 = 25;

/// Time of one iteration alone on an idle CPU, in ns of CPU time, from the quickest of several
/// short blocks. This CPU must have the operation.
pub fn calibrate(operation: ChainOperation) -> f64 {
    let iterations = iterations_of_a_block(operation);
    let quickest = (0..BLOCKS).fold(Duration::MAX, |best, _| {
        best.min(block(operation, iterations))
    });
    #[expect(
        clippy::cast_precision_loss,
        reason = "a block has less than 2⁵³ iterations"
    )]
    let per_iteration = quickest.as_nanos() as f64 / iterations as f64;
    per_iteration
}

fn iterations_of_a_block(operation: ChainOperation) -> u64 {
    let mut iterations = 1000;
    while block(operation, iterations) < BLOCK {
        iterations *= 2;
    }
    iterations
}

fn block(operation: ChainOperation, iterations: u64) -> Duration {
    let before = clock::cpu_time();
    operation.run(iterations);
    clock::cpu_time() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if iterations were left out or overlapped: a multiplication takes three times an
    /// addition on every CPU since 2008, and no dependent operation takes less than a third of a
    /// ns.
    #[test]
    fn iterations_wait_for_each_other() {
        let operations = [
            ChainOperation::Add,
            ChainOperation::Multiply,
            ChainOperation::Divide,
        ];
        // In turns, and more often if others disturb: the least times approach the true ones.
        let mut least = [f64::INFINITY; 3];
        for _ in 0..10 {
            let times = operations.map(calibrate);
            least = std::array::from_fn(|nth| times[nth].min(least[nth]));
            if least[1] > 1.5 * least[0] && least[2] > least[1] {
                break;
            }
        }
        let [add, multiply, divide] = least;
        assert!(add > 0.1 && add < 5.0, "{add}");
        assert!(multiply > 1.5 * add, "{multiply} {add}");
        assert!(divide > multiply, "{divide} {multiply}");
    }

    #[test]
    fn twice_as_many_iterations_take_twice_as_long() {
        for operation in ChainOperation::ALL
            .iter()
            .copied()
            .filter(|one| one.is_supported())
        {
            let iterations = iterations_of_a_block(operation);
            // Alternating, and for longer if others disturb: the least times approach the true
            // ones.
            let (mut once, mut twice) = (Duration::MAX, Duration::MAX);
            let mut ratio = 0.0;
            for round in 1..=600 {
                once = once.min(block(operation, iterations));
                twice = twice.min(block(operation, 2 * iterations));
                ratio = twice.as_secs_f64() / once.as_secs_f64();
                if round >= 40 && (1.7..2.3).contains(&ratio) {
                    break;
                }
            }
            assert!((1.7..2.3).contains(&ratio), "{operation:?}: {ratio}");
        }
    }
}
