//! Frames of a trace, named anew from files that have the build ids of its programs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use rustc_hash::FxHashMap;
use swtch_core::{Frame, Stack};

use super::{FilesById, NamedPlace, PlaceInFile, SymbolReader};

/// Frames and stacks that name them, after the frames were looked up again.
#[derive(Debug)]
pub struct NamedByFiles {
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// Their frames.
    pub frames: Vec<Frame>,
    /// How many places have a name that they had not before.
    pub named: usize,
    /// Files of which places have no name, with their build ids: no file has these.
    pub missing: BTreeSet<(String, String)>,
}

/// Looks up the frames of a trace that lack the function or a source file, in files with the same build ids.
pub fn named_by(files: &FilesById, stacks: Vec<Stack>, frames: Vec<Frame>) -> NamedByFiles {
    let reader = SymbolReader::new();
    let mut named = NamedByFiles {
        stacks,
        frames: Vec::with_capacity(frames.len()),
        named: 0,
        missing: BTreeSet::new(),
    };
    let mut paths: FxHashMap<String, Option<PathBuf>> = FxHashMap::default();
    let mut frames_at: FxHashMap<u32, Range<u32>> = FxHashMap::default();
    for frame in frames {
        let (number, first) = (frame.id, named.frames.len());
        match (frame.build_id.clone(), frame.file_address) {
            (Some(id), Some(address)) if is_incomplete(&frame) => {
                let path = paths.entry(id).or_insert_with_key(|id| files.path_of(id));
                let place = path.as_deref().map(|path| {
                    let place = PlaceInFile::Address(address);
                    let debug = reader.by_debug_information(path, place);
                    debug.with_symbol_of(reader.by_symbols(path, place))
                });
                named.add(frame, place);
            }
            _ => named.frames.push(frame),
        }
        frames_at.insert(number, number_of(first)..number_of(named.frames.len()));
    }
    put_frames(&mut named.stacks, &mut named.frames, |number| {
        frames_at.get(&number).cloned()
    });
    named
}

/// Whether a frame lacks its function or a source file. One of a function that was inlined is complete without a source
/// file: debug information has named it before. It has no distance from a start of its own.
const fn is_incomplete(frame: &Frame) -> bool {
    frame.symbol.is_none() || (frame.file.is_none() && frame.offset.is_some())
}

impl NamedByFiles {
    /// Adds the frames of a place; `place` is `None` if no file has the build id.
    fn add(&mut self, frame: Frame, place: Option<NamedPlace>) {
        let was_named = frame.symbol.is_some();
        match place {
            Some(place) => {
                self.named += usize::from(!was_named && place.symbol.is_some());
                self.frames.extend(place.into_frames(frame));
            }
            None => {
                if let (false, Some(module), Some(id)) = (was_named, &frame.module, &frame.build_id)
                {
                    self.missing.insert((module.clone(), id.clone()));
                }
                self.frames.push(frame);
            }
        }
    }
}

/// Stands for a frame that is in no table.
const LOST: u32 = u32::MAX;

/// Numbers the frames as they lie there, and puts those of each place into the stacks, which have numbers of places.
pub(crate) fn put_frames(
    stacks: &mut [Stack],
    frames: &mut [Frame],
    at_place: impl Fn(u32) -> Option<Range<u32>>,
) {
    for (index, frame) in frames.iter_mut().enumerate() {
        frame.id = number_of(index);
    }
    for stack in stacks {
        let places = std::mem::take(&mut stack.frames);
        for place in places {
            match at_place(place) {
                Some(frames) => stack.frames.extend(frames),
                None => stack.frames.push(LOST),
            }
        }
    }
}

pub(crate) fn number_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
