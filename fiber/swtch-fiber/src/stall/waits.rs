//! Which worker waits for which, from the records in the shared page and the words of
//! `sync::owners`.
//!
//! No worker is stopped while this is read, so the order of the reads must prove the result. A wait
//! has a ticket that is never reused. If a worker is in the same wait before and after another's
//! owner was read, it waited the whole time, and still holds what it held. So a cycle is accepted
//! when its owners were read between two readings of the tickets of all its members.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use swtch_observe::layout::{WAIT_TYPES, WorkerRecord, worker_state};
use swtch_observe::names;

use super::deadlock::{BlockedOn, Blocker, Deadlock, WaitingWorker, cycles};
use super::memory;
use crate::page::WritablePage;
use crate::scheduler::addresses;
use crate::scheduler::worker::WorkerCell;
use crate::sync::owners::{NAMED, SEVERAL};
use crate::wait_type::WaitType;

#[derive(Clone, Copy, Debug)]
struct Suspended {
    worker: u32,
    record: &'static WorkerRecord,
    cell: &'static WorkerCell,
    /// Ticket of its wait; `None` when the wait has a deadline.
    ticket: Option<u64>,
    task: u64,
    wait_type: u32,
    resource: u64,
    /// The moment at which the wait began, ticks; 0 if no times are measured.
    since: u64,
}

/// The words at a resource: the first, and the named holders after it.
type Words = [u64; 1 + NAMED];

/// All waiting workers of some schedulers, at one moment.
#[derive(Debug)]
pub(crate) struct WaitGraph {
    page: &'static WritablePage,
    all: Vec<Suspended>,
    /// Indices in `all`, by the id of the task.
    tasks: HashMap<u64, usize>,
    /// Indices of the writers that wait without a deadline, by their wait object.
    writers: HashMap<u64, Vec<usize>>,
}

impl WaitGraph {
    /// Reads the workers of the schedulers with these records.
    pub(crate) fn look(page: &'static WritablePage, schedulers: impl Iterator<Item = u32>) -> Self {
        let own: Vec<u32> = schedulers.map(|index| index + 1).collect();
        let used = page.header().workers.used.load(Ordering::Acquire);
        let all: Vec<_> = (0..used)
            .filter_map(|worker| Suspended::look(page, worker, &own))
            .collect();
        let tasks = all.iter().enumerate().map(|(place, one)| (one.task, place));
        let mut writers: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, one) in all.iter().enumerate() {
            if one.ticket.is_some() && one.is(WaitType::RWLOCK_EXCLUSIVE) {
                writers.entry(one.resource).or_default().push(place);
            }
        }
        Self {
            page,
            tasks: tasks.collect(),
            writers,
            all,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The cycles. The number of each stays the same while none of its members moves.
    pub(crate) fn cycles(&self) -> Vec<(u64, Deadlock)> {
        let mut known = HashMap::new();
        let edges: Vec<Vec<usize>> = (0..self.all.len())
            .map(|place| {
                self.edges(place, |resource, holds| {
                    *known
                        .entry(resource)
                        .or_insert_with(|| words_at(resource, holds))
                })
                .map(|(blocker, _)| blocker)
                .collect()
            })
            .collect();
        cycles(&edges)
            .into_iter()
            .filter_map(|cycle| Some((self.number_of(&cycle), self.proved(&cycle)?)))
            .collect()
    }

    /// All waiting workers; of the `tasks` tasks the others wait for a worker.
    pub(crate) fn all(&self, tasks: u64) -> (u64, Deadlock) {
        let queued = tasks.saturating_sub(self.all.len() as u64);
        let places: Vec<usize> = (0..self.all.len()).collect();
        let waiting = places
            .iter()
            .map(|place| {
                let blocker = self.edges(*place, words_at).next();
                self.waiting(*place, blocker)
            })
            .collect();
        (
            self.number_of(&places),
            Deadlock::AllWait { waiting, queued },
        )
    }

    /// The cycle, if its members waited the whole time while its edges were read.
    fn proved(&self, cycle: &[usize]) -> Option<Deadlock> {
        let next = cycle.iter().cycle().skip(1);
        let waiting: Option<Vec<_>> = cycle
            .iter()
            .zip(next)
            .map(|(place, next)| {
                let edge = self.edges(*place, words_at).find(|(to, _)| to == next)?;
                Some(self.waiting(*place, Some(edge)))
            })
            .collect();
        let all_wait = cycle.iter().all(|place| self.all[*place].waits_still());
        waiting.filter(|_| all_wait).map(Deadlock::Cycle)
    }

    /// The workers that have to act before this one can continue, as far as they wait as well.
    fn edges(
        &self,
        place: usize,
        mut words: impl FnMut(u64, bool) -> Words,
    ) -> impl Iterator<Item = (usize, BlockedOn)> {
        let one = self.all[place];
        let mut edges = Vec::new();
        // A wait with a deadline ends by itself, so it has no edges.
        if one.ticket.is_some() {
            let (writes, reads) = (
                one.is(WaitType::RWLOCK_EXCLUSIVE),
                one.is(WaitType::RWLOCK_SHARED),
            );
            let ends = one.is(WaitType::JOIN);
            if one.is(WaitType::MUTEX) || ends || writes || reads {
                let has_to = if ends {
                    BlockedOn::End
                } else {
                    BlockedOn::Unlock
                };
                let [first, named @ ..] = words(one.resource, writes || reads);
                // A reader waits for the present readers only if a writer stands before it.
                let named = if first == SEVERAL || writes {
                    named
                } else {
                    [0; NAMED]
                };
                let tasks = [first].into_iter().chain(named);
                let holders = tasks.filter_map(|task| self.tasks.get(&task).copied());
                edges.extend(holders.map(|holder| (holder, has_to)));
            }
            if reads {
                let before = |writer: &usize| {
                    let since = self.all[*writer].since;
                    since != 0 && since < one.since
                };
                let writers = self.writers.get(&one.resource).into_iter().flatten();
                let writers = writers.copied().filter(before);
                edges.extend(writers.map(|writer| (writer, BlockedOn::GoFirst)));
            }
        }
        edges.into_iter()
    }

    fn waiting(&self, place: usize, edge: Option<(usize, BlockedOn)>) -> WaitingWorker {
        let one = &self.all[place];
        let wait_type = (one.wait_type as usize).min(WAIT_TYPES - 1);
        WaitingWorker {
            worker: one.worker,
            task: self.task_name(one),
            wait_type: names::load(&self.page.wait_type_name(wait_type).bytes),
            resource: one.resource,
            blocker: edge.map(|(blocker, has_to)| {
                let blocker = &self.all[blocker];
                Blocker {
                    worker: blocker.worker,
                    task: self.task_name(blocker),
                    has_to,
                }
            }),
        }
    }

    fn task_name(&self, one: &Suspended) -> String {
        let name = names::load(&self.page.worker_name(one.worker).bytes);
        if name.is_empty() {
            return format!("#{}", one.task);
        }
        name
    }

    /// A number that identifies these waits.
    fn number_of(&self, places: &[usize]) -> u64 {
        let mut waits: Vec<_> = places
            .iter()
            .map(|place| (self.all[*place].worker, self.all[*place].ticket))
            .collect();
        waits.sort_unstable();
        let mut hasher = DefaultHasher::new();
        waits.hash(&mut hasher);
        hasher.finish()
    }
}

impl Suspended {
    fn look(page: &'static WritablePage, worker: u32, own: &[u32]) -> Option<Self> {
        let record = page.worker(worker);
        // The wait type and object were written before the state.
        let waits = record.state.load(Ordering::Acquire) == worker_state::SUSPENDED;
        if !waits || !own.contains(&record.scheduler_plus_one.load(Ordering::Relaxed)) {
            return None;
        }
        let cell = addresses::cell(worker)?;
        let ticket = cell.wait.endless_ticket();
        let one = Self {
            worker,
            record,
            cell,
            ticket,
            task: record.task_id.load(Ordering::Relaxed),
            wait_type: record.wait_type.load(Ordering::Relaxed),
            resource: record.wait_resource.load(Ordering::Relaxed),
            since: record.state_since_ticks.load(Ordering::Relaxed),
        };
        // Either all values belong to the present wait, or the worker has moved and is skipped.
        (ticket.is_none() || one.waits_still()).then_some(one)
    }

    /// Returns true if it is still in the wait that was seen first.
    fn waits_still(&self) -> bool {
        std::sync::atomic::fence(Ordering::Acquire);
        self.ticket.is_some()
            && self.cell.wait.endless_ticket() == self.ticket
            && self.record.state.load(Ordering::Acquire) == worker_state::SUSPENDED
    }

    fn is(&self, wait_type: WaitType) -> bool {
        self.wait_type == u32::from(wait_type.number())
    }
}

/// The words at a resource, 0 where nothing can be read. The resource may be freed meanwhile, so
/// the kernel reads it for us. `holds` tells that it is a lock, which has all of the words.
fn words_at(address: u64, holds: bool) -> Words {
    let mut words = [0; 1 + NAMED];
    words[0] = word_at(address);
    if holds || words[0] == SEVERAL {
        for (place, word) in words.iter_mut().enumerate().skip(1) {
            *word = word_at(address.saturating_add(8 * place as u64));
        }
    }
    words
}

fn word_at(address: u64) -> u64 {
    let mut bytes = [0; 8];
    let address = usize::try_from(address).unwrap_or(usize::MAX);
    if memory::read(address, &mut bytes) == bytes.len() {
        u64::from_ne_bytes(bytes)
    } else {
        0
    }
}
