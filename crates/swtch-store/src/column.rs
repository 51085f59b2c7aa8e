//! One column: its name, type and meaning, and how a field of a row is converted to and from Arrow.
//!
//! A batch is encoded and decoded column by column over a slice of rows, so that each loop is
//! compiled for one field and needs no indirect call per value.
//!
//! Words (reasons, rules, …) are dictionaries over closed lists. The list is one shared array, so a
//! stream contains it once.

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
pub struct TraceColumn<R: 'static> {
    /// Name of the column, which ends in the unit where there is one.
    pub name: &'static str,
    /// Type of the column's values.
    pub kind: ColumnType,
    /// [`Presence::Optional`] if the column may hold null.
    pub presence: Presence,
    /// The format version that added the column.
    pub since: u32,
    /// Meaning of the column, in one line.
    pub meaning: &'static str,
    pub(crate) encode: fn(&[R]) -> ArrayRef,
    pub(crate) decode: fn(&dyn Array, &mut [R]) -> Result<(), Mismatch>,
}

/// The types that columns have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Signed integer, 64 bits. The kernel's unsigned numbers keep their bits; SQL engines on the
    /// JVM have no unsigned types.
    Int64,
    /// Signed integer of 16 bits.
    Int16,
    /// Unsigned integer of 64 bits.
    UInt64,
    /// Unsigned integer of 32 bits.
    UInt32,
    /// Unsigned integer of 16 bits.
    UInt16,
    /// Yes or no, as one bit.
    Boolean,
    /// A word of a closed list, as a dictionary.
    Word,
    /// Text in UTF-8 of any length.
    Utf8,
    /// Bytes that need not be UTF-8.
    Binary,
    /// A list of unsigned numbers, 32 bits each.
    UInt32List,
}

impl ColumnType {
    /// The Arrow data type of such a column.
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

/// The presence of a column's values: in every row, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every row has a value; there are no nulls.
    Always,
    /// Null means "not known" or "does not apply"; the meaning says which.
    Optional,
}

/// The reason why a column of a file does not fit the schema.
#[derive(Debug)]
pub(crate) enum Mismatch {
    /// The column is of another type.
    Type(DataType),
    /// A value is null in a column that has no nulls.
    Null,
    /// A word is in no list of this version.
    Word(String),
    /// A name of this many bytes is longer than [`MOST_NAME_BYTES`].
    TooLong(usize),
}

/// The longest name of a task that is read. The kernel keeps 15 bytes (`TASK_COMM_LEN`,
/// `include/linux/sched.h`, v6.18) and reports at most 63 for a kernel thread (`proc_task_name`,
/// `fs/proc/array.c`). Names are headings and labels.
pub(crate) const MOST_NAME_BYTES: usize = 256;

impl<R> TraceColumn<R> {
    pub(crate) fn field(&self) -> Field {
        Field::new(
            self.name,
            self.kind.arrow(),
            self.presence == Presence::Optional,
        )
    }
}

/// Encodes numbers of a column without nulls.
pub(crate) fn numbers<P: ArrowPrimitiveType, R>(
    rows: &[R],
    get: impl Fn(&R) -> P::Native,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<P>::from_iter_values(rows.iter().map(get)))
}

/// Encodes numbers of a column with nulls.
pub(crate) fn maybe_numbers<P: ArrowPrimitiveType, R>(
    rows: &[R],
    get: impl Fn(&R) -> Option<P::Native>,
) -> ArrayRef {
    let array: PrimitiveArray<P> = rows.iter().map(get).collect();
    Arc::new(array)
}

/// The array as its concrete type, or a mismatch.
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

/// Decodes numbers of a column without nulls.
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

/// Decodes numbers of a column with nulls.
pub(crate) fn set_maybe_numbers<P: ArrowPrimitiveType, R>(
    array: &dyn Array,
    rows: &mut [R],
    set: impl Fn(&mut R, Option<P::Native>),
) -> Result<(), Mismatch> {
    let array = typed::<PrimitiveArray<P>>(array)?;
    if array.null_count() == 0 {
        for (row, &value) in rows.iter_mut().zip(array.values()) {
            set(row, Some(value));
        }
        return Ok(());
    }
    for (row, value) in rows.iter_mut().zip(array) {
        set(row, value);
    }
    Ok(())
}

pub(crate) fn flags<R>(rows: &[R], get: impl Fn(&R) -> bool) -> ArrayRef {
    Arc::new(rows.iter().map(get).map(Some).collect::<BooleanArray>())
}

/// Decodes yes-or-no values of a column without nulls.
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

/// Encodes words of a column without nulls, by their indices in `list`.
pub(crate) fn words<R>(rows: &[R], list: &ArrayRef, get: impl Fn(&R) -> usize) -> ArrayRef {
    let keys = UInt8Array::from_iter_values(rows.iter().map(|row| place(get(row))));
    dictionary(keys, list)
}

/// Encodes words of a column with nulls, by their indices in `list`.
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

/// A dictionary array from indices and the list they point into.
pub(crate) fn dictionary(keys: UInt8Array, list: &ArrayRef) -> ArrayRef {
    let array = DictionaryArray::try_new(keys, Arc::clone(list));
    Arc::new(array.expect("every place is in the list"))
}

/// Decodes words of a column without nulls.
pub(crate) fn set_words<R, W: Copy>(
    array: &dyn Array,
    rows: &mut [R],
    meaning_of: impl Fn(&str) -> Option<W>,
    set: impl Fn(&mut R, W),
) -> Result<(), Mismatch> {
    let words = WordColumn::new(array, meaning_of)?;
    let keys = without_nulls(words.keys)?;
    for (row, &key) in rows.iter_mut().zip(keys.values()) {
        set(row, words.meaning(key)?);
    }
    Ok(())
}

/// Decodes words of a column with nulls.
pub(crate) fn set_maybe_words<R, W: Copy>(
    array: &dyn Array,
    rows: &mut [R],
    meaning_of: impl Fn(&str) -> Option<W>,
    set: impl Fn(&mut R, Option<W>),
) -> Result<(), Mismatch> {
    let words = WordColumn::new(array, meaning_of)?;
    for (row, key) in rows.iter_mut().zip(words.keys) {
        let word = key.map(|key| words.meaning(key)).transpose()?;
        set(row, word);
    }
    Ok(())
}

/// A column of words. The meaning of each word is looked up once per batch. A word without a
/// meaning is an error only where a row uses it: the list of a newer trace is longer.
struct WordColumn<'a, W> {
    keys: &'a UInt8Array,
    list: &'a StringArray,
    meanings: Vec<Option<W>>,
}

impl<'a, W: Copy> WordColumn<'a, W> {
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

/// Calls `set` with each row, its word, and the index of the word in this batch's list.
pub(crate) fn for_each_word<R>(
    array: &dyn Array,
    rows: &mut [R],
    mut set: impl FnMut(&mut R, &str, u8),
) -> Result<(), Mismatch> {
    let words = WordColumn::new(array, |_| Some(()))?;
    let keys = without_nulls(words.keys)?;
    for (row, &key) in rows.iter_mut().zip(keys.values()) {
        words.meaning(key)?;
        set(row, words.list.value(usize::from(key)), key);
    }
    Ok(())
}

/// Encodes text of a column without nulls.
pub(crate) fn texts<R>(rows: &[R], get: impl Fn(&R) -> Cow<'_, str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.iter().map(get)))
}

/// Encodes text of a column with nulls.
pub(crate) fn maybe_texts<R>(rows: &[R], get: impl Fn(&R) -> Option<&str>) -> ArrayRef {
    Arc::new(rows.iter().map(get).collect::<StringArray>())
}

/// Decodes text; `set` gets `None` for null.
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
    if bytes <= MOST_NAME_BYTES {
        Ok(())
    } else {
        Err(Mismatch::TooLong(bytes))
    }
}

/// Encodes bytes of a column with nulls.
pub(crate) fn maybe_bytes<R>(rows: &[R], get: impl Fn(&R) -> Option<&[u8]>) -> ArrayRef {
    Arc::new(rows.iter().map(get).collect::<BinaryArray>())
}

/// Decodes names as bytes, of at most [`MOST_NAME_BYTES`]; `set` gets `None` for null.
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

pub(crate) fn number_lists<R>(rows: &[R], get: impl Fn(&R) -> &[u32]) -> ArrayRef {
    let mut lists = ListBuilder::new(UInt32Builder::new()).with_field(list_item());
    for row in rows {
        lists.values().append_slice(get(row));
        lists.append(true);
    }
    Arc::new(lists.finish())
}

/// Decodes lists of numbers of a column without nulls.
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
