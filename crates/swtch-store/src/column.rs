//! One column: its name, type and meaning, and how a field of a row gets in and out of Arrow.
//!
//! A batch is encoded and decoded column by column over a slice of rows, so that each loop is
//! compiled for one field instead of an indirect call a value.
//!
//! Words (reasons, rules, …) are dictionaries over closed lists. The list is one shared array, so a
//! stream carries it once.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt32Builder};
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, ListArray, PrimitiveArray,
    StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field};

/// One column of a table of rows `R`.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Its name, which ends in the unit where it has one.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whether a value may be missing.
    pub presence: Presence,
    /// The format version that brought it.
    pub since: u32,
    /// What it means, in one line.
    pub meaning: &'static str,
    pub(crate) encode: fn(&[R]) -> ArrayRef,
    pub(crate) decode: fn(&dyn Array, &mut [R]) -> Result<(), Mismatch>,
}

/// The types that columns have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed, 64 bits. The kernel's unsigned numbers keep their bits; SQL engines on the JVM
    /// have no unsigned ones.
    Int64,
    /// Signed, 16 bits.
    Int16,
    /// Unsigned, 64 bits.
    UInt64,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 16 bits.
    UInt16,
    /// Yes or no.
    Boolean,
    /// A word of a closed list.
    Word,
    /// Text.
    Utf8,
    /// Bytes.
    Binary,
    /// A list of unsigned numbers, 32 bits each.
    UInt32List,
}

impl Kind {
    /// The Arrow type.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::Int16 => DataType::Int16,
            Self::UInt64 => DataType::UInt64,
            Self::UInt32 => DataType::UInt32,
            Self::UInt16 => DataType::UInt16,
            Self::Boolean => DataType::Boolean,
            Self::Word => DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)),
            Self::Utf8 => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::UInt32List => DataType::List(list_item()),
        }
    }
}

fn list_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt32, false))
}

/// Whether a value may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every row has one.
    Always,
    /// Null means "not known" or "does not apply"; the meaning says which.
    Optional,
}

/// Why a column of a file does not fit the schema.
#[derive(Debug)]
pub(crate) enum Mismatch {
    /// It is of another type.
    Type(DataType),
    /// A value is missing that every row has.
    Null,
    /// A word is in no list of this version.
    Word(String),
    /// A name is longer than any can be.
    TooLong(usize),
}

/// The longest name of a task: the kernel keeps 15 bytes (`TASK_COMM_LEN`, `include/linux/sched.h`, v6.18), and
/// says at most 63 of a kernel thread (`proc_task_name`, `fs/proc/array.c`). Names are headings and labels.
pub(crate) const MOST_NAME_BYTES: usize = 256;

impl<R> Column<R> {
    pub(crate) fn field(&self) -> Field {
        Field::new(
            self.name,
            self.kind.arrow(),
            self.presence == Presence::Optional,
        )
    }
}

/// Encodes numbers that every row has.
pub(crate) fn numbers<P: ArrowPrimitiveType, R>(
    rows: &[R],
    get: impl Fn(&R) -> P::Native,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<P>::from_iter_values(rows.iter().map(get)))
}

/// Encodes numbers that may be missing.
pub(crate) fn maybe_numbers<P: ArrowPrimitiveType, R>(
    rows: &[R],
    get: impl Fn(&R) -> Option<P::Native>,
) -> ArrayRef {
    let array: PrimitiveArray<P> = rows.iter().map(get).collect();
    Arc::new(array)
}

/// The array as what it should be.
fn typed<A: 'static>(array: &dyn Array) -> Result<&A, Mismatch> {
    array
        .as_any()
        .downcast_ref()
        .ok_or_else(|| Mismatch::Type(array.data_type().clone()))
}

fn without_nulls<A: Array>(array: &A) -> Result<&A, Mismatch> {
    if array.null_count() == 0 {
        Ok(array)
    } else {
        Err(Mismatch::Null)
    }
}

/// Decodes numbers that every row has.
pub(crate) fn set_numbers<P: ArrowPrimitiveType, R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, P::Native),
) -> Result<(), Mismatch> {
    let array = without_nulls(typed::<PrimitiveArray<P>>(array)?)?;
    for (row, &value) in rows.iter_mut().zip(array.values()) {
        set(row, value);
    }
    Ok(())
}

/// Decodes numbers that may be missing.
pub(crate) fn set_maybe_numbers<P: ArrowPrimitiveType, R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Option<P::Native>),
) -> Result<(), Mismatch> {
    let array = typed::<PrimitiveArray<P>>(array)?;
    for (row, value) in rows.iter_mut().zip(array) {
        set(row, value);
    }
    Ok(())
}

/// Encodes yes-or-no.
pub(crate) fn flags<R>(rows: &[R], get: impl Fn(&R) -> bool) -> ArrayRef {
    Arc::new(rows.iter().map(get).map(Some).collect::<BooleanArray>())
}

/// Decodes yes-or-no.
pub(crate) fn set_flags<R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, bool),
) -> Result<(), Mismatch> {
    let array = without_nulls(typed::<BooleanArray>(array)?)?;
    for (row, value) in rows.iter_mut().zip(array.values()) {
        set(row, value);
    }
    Ok(())
}

/// A closed list of words as the values of a dictionary.
pub(crate) fn word_list<'a>(words: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(words))
}

/// Encodes words that every row has, by their places in `list`.
pub(crate) fn words<R>(rows: &[R], list: &ArrayRef, get: impl Fn(&R) -> usize) -> ArrayRef {
    let keys = UInt8Array::from_iter_values(rows.iter().map(|row| place(get(row))));
    dictionary(keys, list)
}

/// Encodes words that may be missing, by their places in `list`.
pub(crate) fn maybe_words<R>(
    rows: &[R],
    list: &ArrayRef,
    get: impl Fn(&R) -> Option<usize>,
) -> ArrayRef {
    let keys: UInt8Array = rows.iter().map(|row| get(row).map(place)).collect();
    dictionary(keys, list)
}

fn place(index: usize) -> u8 {
    u8::try_from(index).expect("a list has at most 256 words")
}

/// Joins places and list.
pub(crate) fn dictionary(keys: UInt8Array, list: &ArrayRef) -> ArrayRef {
    let array = DictionaryArray::try_new(keys, Arc::clone(list));
    Arc::new(array.expect("every place is in the list"))
}

/// Decodes words that every row has.
pub(crate) fn set_words<R, W: Copy>(
    array: &dyn Array,
    rows: &mut [R],
    meaning_of: impl Fn(&str) -> Option<W>,
    set: impl Fn(&mut R, W),
) -> Result<(), Mismatch> {
    let words = Words::new(array, meaning_of)?;
    let keys = without_nulls(words.keys)?;
    for (row, &key) in rows.iter_mut().zip(keys.values()) {
        set(row, words.meaning(key)?);
    }
    Ok(())
}

/// Decodes words that may be missing.
pub(crate) fn set_maybe_words<R, W: Copy>(
    array: &dyn Array,
    rows: &mut [R],
    meaning_of: impl Fn(&str) -> Option<W>,
    set: impl Fn(&mut R, Option<W>),
) -> Result<(), Mismatch> {
    let words = Words::new(array, meaning_of)?;
    for (row, key) in rows.iter_mut().zip(words.keys) {
        let word = key.map(|key| words.meaning(key)).transpose()?;
        set(row, word);
    }
    Ok(())
}

/// A column of words with the meaning of each word looked up once a batch. A word without a
/// meaning is an error only where a row uses it: the list of a newer trace is longer.
struct Words<'a, W> {
    keys: &'a UInt8Array,
    list: &'a StringArray,
    meanings: Vec<Option<W>>,
}

impl<'a, W: Copy> Words<'a, W> {
    fn new(array: &'a dyn Array, meaning_of: impl Fn(&str) -> Option<W>) -> Result<Self, Mismatch> {
        let array = typed::<DictionaryArray<UInt8Type>>(array)?;
        let list = typed::<StringArray>(array.values())?;
        Ok(Self {
            keys: array.keys(),
            list,
            meanings: list.iter().map(|word| meaning_of(word?)).collect(),
        })
    }

    fn meaning(&self, key: u8) -> Result<W, Mismatch> {
        let index = usize::from(key);
        match self.meanings.get(index) {
            Some(Some(meaning)) => Ok(*meaning),
            Some(None) if self.list.is_valid(index) => {
                Err(Mismatch::Word(self.list.value(index).to_owned()))
            }
            _ => Err(Mismatch::Null),
        }
    }
}

/// Calls `set` with each row, its word, and the word's place in this batch's list.
pub(crate) fn for_each_word<R>(
    array: &dyn Array,
    rows: &mut [R],
    mut set: impl FnMut(&mut R, &str, u8),
) -> Result<(), Mismatch> {
    let words = Words::new(array, |_| Some(()))?;
    let keys = without_nulls(words.keys)?;
    for (row, &key) in rows.iter_mut().zip(keys.values()) {
        words.meaning(key)?;
        set(row, words.list.value(usize::from(key)), key);
    }
    Ok(())
}

/// Encodes text that every row has.
pub(crate) fn texts<R>(rows: &[R], get: impl Fn(&R) -> Cow<'_, str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.iter().map(get)))
}

/// Encodes text that may be missing.
pub(crate) fn maybe_texts<R>(rows: &[R], get: impl Fn(&R) -> Option<&str>) -> ArrayRef {
    Arc::new(rows.iter().map(get).collect::<StringArray>())
}

/// Decodes text; null where it is missing.
pub(crate) fn set_texts<R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Option<&str>),
) -> Result<(), Mismatch> {
    for (row, text) in rows.iter_mut().zip(typed::<StringArray>(array)?) {
        set(row, text);
    }
    Ok(())
}

/// As [`set_texts`], for names of at most [`MOST_NAME_BYTES`].
pub(crate) fn set_names<R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Option<&str>),
) -> Result<(), Mismatch> {
    for (row, name) in rows.iter_mut().zip(typed::<StringArray>(array)?) {
        check_length(name.map_or(0, str::len))?;
        set(row, name);
    }
    Ok(())
}

fn check_length(bytes: usize) -> Result<(), Mismatch> {
    match bytes <= MOST_NAME_BYTES {
        true => Ok(()),
        false => Err(Mismatch::TooLong(bytes)),
    }
}

/// Encodes bytes that may be missing.
pub(crate) fn maybe_bytes<R>(rows: &[R], get: impl Fn(&R) -> Option<&[u8]>) -> ArrayRef {
    Arc::new(rows.iter().map(get).collect::<BinaryArray>())
}

/// Decodes names as bytes, of at most [`MOST_NAME_BYTES`]; null where they are missing.
pub(crate) fn set_name_bytes<R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Option<&[u8]>),
) -> Result<(), Mismatch> {
    for (row, bytes) in rows.iter_mut().zip(typed::<BinaryArray>(array)?) {
        check_length(bytes.map_or(0, <[u8]>::len))?;
        set(row, bytes);
    }
    Ok(())
}

/// Encodes lists of numbers.
pub(crate) fn number_lists<R>(rows: &[R], get: impl Fn(&R) -> &[u32]) -> ArrayRef {
    let mut lists = ListBuilder::new(UInt32Builder::new()).with_field(list_item());
    for row in rows {
        lists.values().append_slice(get(row));
        lists.append(true);
    }
    Arc::new(lists.finish())
}

/// Decodes lists of numbers.
pub(crate) fn set_number_lists<R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Vec<u32>),
) -> Result<(), Mismatch> {
    for (row, list) in rows.iter_mut().zip(typed::<ListArray>(array)?.iter()) {
        let list = list.ok_or(Mismatch::Null)?;
        let numbers = without_nulls(typed::<PrimitiveArray<UInt32Type>>(&list)?)?;
        set(row, numbers.values().to_vec());
    }
    Ok(())
}
