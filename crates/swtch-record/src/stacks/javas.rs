//! Methods of Java in the place of code without a file.

use swtch_capture::LookedThread;
use swtch_runtimes::SourcePlace;
use swtch_runtimes::java::{Java, JavaFrame, JavaPlaces};
use swtch_unwind::RuntimeFrame;

use super::memory::{MemoryFile, watched};

/// The virtual machine of a process.
#[derive(Debug)]
pub struct JavaProcess {
    /// Of which address space.
    memory: u64,
    /// `None` if its layout is not known.
    read: Option<(Java, MemoryFile)>,
}

impl JavaProcess {
    /// That of the process of a thread, whose symbols are at these places; `None` if the thread has run on meanwhile.
    pub fn meet(thread: &LookedThread<'_>, places: JavaPlaces) -> Option<Self> {
        let memory = MemoryFile::of_thread(thread)?;
        let java = watched(|| Java::at(places, &memory));
        // Where there was no time to read its layout, it is met again.
        (java.is_some() || memory.is_in_time()).then_some(())?;
        Some(Self {
            memory: thread.memory,
            read: java.map(|java| (java, memory)),
        })
    }

    /// True for the program with this address space.
    pub const fn is_of(&self, memory: u64) -> bool {
        self.memory == memory
    }

    /// True if its layout is known.
    pub const fn is_known(&self) -> bool {
        self.read.is_some()
    }

    /// How the frame of the code at an address leads to its caller.
    pub fn frame_at(&self, address: u64) -> Option<RuntimeFrame> {
        let (java, memory) = self.read.as_ref()?;
        let frame = watched(|| java.frame_at(address, memory))?;
        Some(match frame {
            JavaFrame::Sized(bytes) => RuntimeFrame::Sized(bytes),
            JavaFrame::Interpreted => RuntimeFrame::Interpreted,
        })
    }

    /// The methods of the code at an address, the innermost first; `word` reads the stack.
    pub fn methods_at(
        &self,
        address: u64,
        frame_pointer: Option<u64>,
        word: impl Fn(u64) -> Option<u64>,
    ) -> Vec<SourcePlace> {
        let Some((java, memory)) = &self.read else {
            return Vec::new();
        };
        watched(|| java.methods_at(address, frame_pointer, word, memory))
    }

    /// Begins the time anew for which its memory is read.
    pub fn begin(&self) {
        if let Some((_, memory)) = &self.read {
            memory.begin();
        }
    }
}
