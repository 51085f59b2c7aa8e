//! Events of user-mode schedulers as bytes of `records.raw`. Unlike the kernel's records they are
//! written here and read here: numbers of 8 bytes, little-endian, then the names of wait types.

use std::collections::HashMap;
use std::sync::Arc;

use swtch_core::{
    CpuId, Tid, Timestamp, UserDeparture, UserSwitchEvent, UserWait, UserWaitType, UserWord,
};

/// Stands for a number that is not known.
const NONE: u64 = u64::MAX;

const DEPARTURES: [UserDeparture; 4] = [
    UserDeparture::Yield,
    UserDeparture::Wait,
    UserDeparture::Preemptive,
    UserDeparture::Done,
];

/// Bits of the last number: a wait type follows, of the wait that begins, and of the one before the run.
const HAS_WAIT_TYPE: u64 = 1;
const HAS_WAIT_TYPE_BEFORE: u64 = 2;

/// The count of the numbers of one event.
const NUMBERS: usize = 11;

/// Appends an event to `bytes`.
pub fn encode_user_event(event: &UserSwitchEvent, bytes: &mut Vec<u8>) {
    let departure = DEPARTURES.iter().position(|kind| *kind == event.departure);
    let numbers: [u64; NUMBERS] = [
        event.ts.as_ns(),
        u64::from(event.tid.get()),
        event.cpu.map_or(NONE, |cpu| u64::from(cpu.get())),
        event.word.to_raw(),
        event.next_task.unwrap_or(NONE),
        event.run_start.as_ns(),
        departure.map_or(NONE, length),
        event.before.out.map_or(NONE, Timestamp::as_ns),
        event.before.woken.as_ns(),
        event.before.waker.unwrap_or(NONE),
        u64::from(event.wait_type.is_some()) | u64::from(event.before.wait_type.is_some()) << 1,
    ];
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for wait_type in [&event.wait_type, &event.before.wait_type]
        .into_iter()
        .flatten()
    {
        let number = wait_type.number.map_or(NONE, u64::from);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&length(wait_type.name.len()).to_le_bytes());
        bytes.extend_from_slice(wait_type.name.as_bytes());
    }
}

fn length(count: usize) -> u64 {
    u64::try_from(count).expect("a length fits 64 bits")
}

/// Reads events from the blocks of one stream.
#[derive(Debug, Default)]
pub struct UserEventDecoder {
    /// Wait types by name: all events of one type share it.
    wait_types: HashMap<(u64, String), Arc<UserWaitType>>,
}

impl UserEventDecoder {
    /// Passes on the events in the bytes of a block. Returns the number of places where they are unreadable: 1 if they
    /// end with something else than an event, and 0 otherwise.
    pub fn decode(&mut self, mut bytes: &[u8], mut sink: impl FnMut(UserSwitchEvent)) -> u64 {
        while !bytes.is_empty() {
            match self.event(&mut bytes) {
                Some(event) => sink(event),
                None => return 1,
            }
        }
        0
    }

    fn event(&mut self, bytes: &mut &[u8]) -> Option<UserSwitchEvent> {
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers {
            *number = take_number(bytes)?;
        }
        let [
            ts,
            tid,
            cpu,
            word,
            next_task,
            run_start,
            departure,
            out,
            woken,
            waker,
            flags,
        ] = numbers;
        let known = |number: u64| (number != NONE).then_some(number);
        let cpu = match known(cpu) {
            Some(cpu) => Some(CpuId::new(u16::try_from(cpu).ok()?)),
            None => None,
        };
        let departure = *DEPARTURES.get(usize::try_from(departure).ok()?)?;
        let wait_type = match flags & HAS_WAIT_TYPE {
            0 => None,
            _ => Some(self.wait_type(bytes)?),
        };
        let wait_type_before = match flags & HAS_WAIT_TYPE_BEFORE {
            0 => None,
            _ => Some(self.wait_type(bytes)?),
        };
        Some(UserSwitchEvent {
            ts: Timestamp::from_ns(ts),
            tid: Tid::new(u32::try_from(tid).ok()?),
            cpu,
            word: UserWord::from_raw(word),
            next_task: known(next_task),
            run_start: Timestamp::from_ns(run_start),
            departure,
            wait_type,
            before: UserWait {
                out: known(out).map(Timestamp::from_ns),
                woken: Timestamp::from_ns(woken),
                wait_type: wait_type_before,
                waker: known(waker),
            },
        })
    }

    fn wait_type(&mut self, bytes: &mut &[u8]) -> Option<Arc<UserWaitType>> {
        let number = take_number(bytes)?;
        let length = usize::try_from(take_number(bytes)?).ok()?;
        let name = bytes.get(..length)?;
        *bytes = bytes.get(length..)?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let known = self.wait_types.entry((number, name.clone()));
        let known = known.or_insert_with(|| {
            let number = u16::try_from(number).ok();
            Arc::new(UserWaitType { number, name })
        });
        Some(Arc::clone(known))
    }
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ts: u64, wait_type: Option<&str>) -> UserSwitchEvent {
        let wait_type = wait_type.map(|name| {
            Arc::new(UserWaitType {
                number: Some(3),
                name: name.to_owned(),
            })
        });
        UserSwitchEvent {
            ts: Timestamp::from_ns(ts),
            tid: Tid::new(7),
            cpu: Some(CpuId::new(5)),
            word: UserWord::new(9, 2),
            next_task: None,
            run_start: Timestamp::from_ns(ts - 4),
            departure: UserDeparture::Preemptive,
            wait_type: wait_type.clone(),
            before: UserWait {
                out: None,
                woken: Timestamp::from_ns(ts - 6),
                wait_type,
                waker: Some(11),
            },
        }
    }

    fn decoded(bytes: &[u8]) -> (Vec<String>, u64) {
        let mut events = Vec::new();
        let odd = UserEventDecoder::default().decode(bytes, |event| {
            events.push(format!("{event:?}"));
        });
        (events, odd)
    }

    #[test]
    fn events_survive_their_bytes_and_a_torn_one_is_counted() {
        let events = [event(100, Some("CHANNEL")), event(200, None)];
        let mut bytes = Vec::new();
        for event in &events {
            encode_user_event(event, &mut bytes);
        }
        let expected: Vec<_> = events.iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(decoded(&bytes), (expected.clone(), 0));
        let mut first = Vec::new();
        encode_user_event(&events[0], &mut first);
        for cut in 1..bytes.len() {
            let (read, odd) = decoded(&bytes[..cut]);
            assert!(expected.starts_with(&read), "{cut}");
            assert_eq!(odd, u64::from(cut != first.len()), "{cut}");
        }
    }
}
