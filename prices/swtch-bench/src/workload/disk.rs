//! Waiting for the disk: reads that bypass the page cache, and writes that must reach the disk.
//!
//! The device decides whether a call blocks: one that answers at once spares the block. So the
//! reader continues until enough reads have blocked, as the kernel counts them. Only the kernel's
//! count tells how often the writer blocks (for data, journal, flush); nothing else can block it. The first
//! call of each is counted apart: its code may have to be read from disk, and that is a fault (seen in a test:
//! 99 reads and a fault had blocked, and 100 reads were expected).

use std::os::unix::fs::FileExt;
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::scratch::{AlignedBlock, Scratch, offset_of_block};
use crate::workers::{blocks_in, start};

/// Length of the file, in blocks.
const BLOCKS: u64 = 64;

pub(super) const DIRECT_READ: Workload = Workload {
    name: "direct-read",
    about: "a thread reads blocks from disk with O_DIRECT",
    needs: Needs::Disk,
    default_count: 100,
    count_is: "blocking reads",
    run: direct_read,
};

pub(super) const FSYNC: Workload = Workload {
    name: "fsync",
    about: "a thread writes a block and makes it reach the disk",
    needs: Needs::Disk,
    default_count: 50,
    count_is: "writes",
    run: fsync,
};

/// Attempts per requested block; after these the disk is taken for one that always answers at once.
const TRIES: u64 = 50;

/// Reads until `wanted` reads have blocked.
fn direct_read(wanted: u64) -> Result<WorkloadOutcome, Error> {
    let file = Scratch::with_blocks(BLOCKS)?.reopen_direct()?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let mut block = AlignedBlock::new();
    thread::scope(|scope| {
        let reader = start(scope, "disk-reader", || {
            let mut read = |number: u64| {
                let offset = offset_of_block(number % BLOCKS);
                blocks_in(|| {
                    file.read_exact_at(&mut block.0, offset)
                        .map_err(Error::calling("pread64"))
                })
            };
            let first = read(0)?;
            let mut blocked = 0;
            for number in 1..wanted * TRIES {
                if blocked >= wanted {
                    break;
                }
                blocked += read(number)?;
            }
            Ok((first, blocked))
        })?;
        let reader = reader.finish()?;
        let (first, blocked) = reader.value;
        let because = "only the reads can block it, and it goes on until enough have";
        let reads = Expect::between(Reason::Io, wanted, first + blocked.max(wanted), because);
        Ok(WorkloadOutcome {
            threads: vec![reader.expecting(vec![reads])],
        })
    })
}

fn fsync(writes: u64) -> Result<WorkloadOutcome, Error> {
    let file = Scratch::with_blocks(BLOCKS)?.file;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let block = AlignedBlock::new();
    let write = |number: u64| {
        let offset = offset_of_block(number % BLOCKS);
        file.write_all_at(&block.0, offset)
            .map_err(Error::calling("pwrite64"))?;
        file.sync_all().map_err(Error::calling("fsync"))
    };
    thread::scope(|scope| {
        let writer = start(scope, "disk-writer", || {
            let first = blocks_in(|| write(0))?;
            Ok((first, blocks_in(|| (1..writes).try_for_each(write))?))
        })?;
        let writer = writer.finish()?;
        let (first, blocked) = writer.value;
        let because = "nothing else in that time can block it, and the kernel counted that often";
        let counted = Expect::between(Reason::Io, blocked, first + blocked, because);
        let because = "data, journal and flush do not all answer at once";
        let mostly = Expect::at_least(Reason::Io, writes / 2, because);
        Ok(WorkloadOutcome {
            threads: vec![writer.expecting(vec![counted, mostly])],
        })
    })
}
