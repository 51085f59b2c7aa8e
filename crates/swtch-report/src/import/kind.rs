//! Tells by its first bytes what wrote a file.

use super::ftrace_text::TextEvent;
use super::perfetto_file;

/// The first bytes of a file of perf, in both byte orders.
const MAGICS: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];

/// The first bytes of a `trace.dat` (`trace-cmd.dat.v7(5)`).
const TRACE_CMD_MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Sizes of `struct perf_pipe_file_header`, which marks a pipe, in both byte orders.
const PIPE_HEADS: [[u8; 8]; 2] = [16_u64.to_le_bytes(), 16_u64.to_be_bytes()];

/// The formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `perf.data`.
    Perf,
    /// What perf writes into a pipe.
    PerfPipe,
    /// Text of ftrace, of `trace-cmd report` or `perf script`.
    Text,
    /// `trace.dat`.
    TraceCmd,
    /// A trace of Perfetto.
    Perfetto,
}

impl FileKind {
    /// The program that writes such files.
    pub const fn maker(self) -> &'static str {
        match self {
            Self::Perf | Self::PerfPipe => "perf",
            Self::Text | Self::TraceCmd => "ftrace",
            Self::Perfetto => "Perfetto",
        }
    }

    /// The kind of a file that begins with these bytes.
    pub fn of_bytes(head: &[u8]) -> Option<Self> {
        if let Some(rest) = MAGICS.iter().find_map(|magic| head.strip_prefix(*magic)) {
            return Some(match PIPE_HEADS.iter().any(|size| rest.starts_with(size)) {
                true => Self::PerfPipe,
                false => Self::Perf,
            });
        }
        if head.starts_with(TRACE_CMD_MAGIC) {
            return Some(Self::TraceCmd);
        }
        if perfetto_file::is_first_packet(head) {
            return Some(Self::Perfetto);
        }
        let text = String::from_utf8_lossy(head);
        let has_event = || text.lines().any(|line| TextEvent::parse(line).is_some());
        (text.starts_with("# tracer:") || has_event()).then_some(Self::Text)
    }
}
