//! Who waits for whom, as the records in the shared page show it.
//!
//! A mutex begins with the number of the task that holds it, and its address is what the record of
//! a waiting worker names; so the edges of a circle can be read without asking any worker. The
//! mutex may be gone by then: the kernel reads it for us.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::deadlock::Waiting;
use super::memory;
use super::records::Records;
use crate::wait_type::WaitType;

/// All workers of these schedulers that wait, and who owns what they wait for.
pub(crate) fn waiting(schedulers: impl Iterator<Item = Records>) -> Vec<Waiting> {
    let mut workers = HashMap::new();
    let mut all = Vec::new();
    for records in schedulers {
        for (worker, record) in records.suspended() {
            workers.insert(record.task_id.load(Ordering::Relaxed), worker);
            let resource = record.wait_resource.load(Ordering::Relaxed);
            let wait_type = record.wait_type.load(Ordering::Relaxed);
            let is_mutex = wait_type == u32::from(WaitType::MUTEX.number());
            let owner = is_mutex.then(|| task_at(resource)).flatten();
            let name = records.wait_type_name(wait_type);
            let waiting = Waiting::new(worker, records.task_name(worker), name, resource, None);
            all.push((waiting, owner));
        }
    }
    let owned = all.into_iter().map(|(mut waiting, owner)| {
        waiting.owner = owner.and_then(|task| workers.get(&task).copied());
        waiting
    });
    owned.collect()
}

/// The number of a task that stands at an address.
fn task_at(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let address = usize::try_from(address).ok()?;
    (memory::read(address, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}
