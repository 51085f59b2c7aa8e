//! Generates `docs/SCHEMA.md`, the description of a trace's tables for people who query them.

use std::fmt::Write;

use swtch_core::evidence::{Cause, Class, EvidenceBits, WaitObject, WakerKind};
use swtch_core::rules::all_rules;
use swtch_core::{Category, Certainty, Level, Reason, StackEnd, StackKind, TaskEventKind};

use crate::column::{ColumnType, Presence, TraceColumn};
use crate::meta::FORMAT_VERSION;
use crate::schema::{self, Table};

const HEAD: &str = "\
# A trace on disk

<!-- Generated from crates/swtch-store/src/schema.rs. To renew: SWTCH_BLESS=1 cargo test -p swtch-store -->

A trace is a directory `NAME.swtch/`. Nothing in a finished one is a format of our own: what reads
Parquet reads its files (checked with DuckDB 2.0 and pyarrow 26).

| file | what it is |
|---|---|
| `TABLE.parquet` | a table of a finished trace (zstd; `switch` in order of time) |
| `TABLE.arrows` | the same table while it is recorded or imported: an Arrow IPC stream, flushed every second |
| `records.raw` | while it is recorded, in place of `switch`, `task` and `open`: the kernel's records as they came, packed |
| `meta.json` | host, kernel, clocks, command, losses, own overhead, quotas of CPU time, limits of memory, disks |
| `checksums.csv` | which files count, and the CRC-32 of each part: `file,offset,length,crc32` |

```sql
SELECT off_reason, count(*) AS waits, sum(off_ns) / 1e9 AS off_s
FROM 'NAME.swtch/switch.parquet' WHERE level = 'os' GROUP BY off_reason ORDER BY off_s DESC;
```

Rows of `switch` name tasks by number. `task` has a row for each change of a task's identity, so a plain join would multiply rows:
take the last name, or the one at that time. (`swtch export --to parquet` writes one table with the names in it.)

```sql
-- switches by thread, under the last name of each
SELECT t.comm, t.pid, count(*) AS switches FROM 'NAME.swtch/switch.parquet'
JOIN (SELECT task, arg_max(comm, ts_ns) AS comm, arg_max(pid, ts_ns) AS pid
      FROM 'NAME.swtch/task.parquet' WHERE in_scope GROUP BY task) t USING (task)
WHERE level = 'os' GROUP BY task, t.comm, t.pid ORDER BY switches DESC;

-- each switch with the name that its task had then
SELECT s.ts_ns, t.comm, s.reason FROM 'NAME.swtch/switch.parquet' s
ASOF LEFT JOIN 'NAME.swtch/task.parquet' t ON s.task = t.task AND s.ts_ns >= t.ts_ns;

-- the last command line of each process
SELECT pid, arg_max(command, ts_ns) AS command FROM 'NAME.swtch/command.parquet' GROUP BY pid;
```

- A trace is finished when `checksums.csv` lists its Parquet files. Until then the streams count, up
  to the last batch that is listed and whole. A stream may hold late rows out of order.
- `records.raw` is private to the swtch that recorded: only its verbs (`report`, `view`, `export`, …) read a
  recording that goes on or was cut off, and they leave it as it is. Its first line names the version
  of the records; a swtch with another version refuses them. After it follow blocks of one CPU's
  records each: a head (kind, stream, number of records, length of each, length of all, stored length,
  CRC-32 of what is stored; seven 32-bit numbers, little-endian) and the records, each word of 8
  bytes as its difference to the same word of the record before, without leading zero bytes.
- The recorder does not wait for the disk at each flush. What was flushed survives the end of the
  recorder at once, a power cut after the kernel has written it (about 30 s by default).
- Names end in the unit. Moments are on the trace clock, `CLOCK_MONOTONIC`; `clock` in `meta.json`
  has the same moment on the wall clock. 64-bit numbers but
  `frame.address` are signed and keep the kernel's bits.
- Null is \"not known\" or \"does not apply\"; it is never 0.
- Versions only add; once, in format 4, a column was renamed (`frame.symbol_offset`), and readers of ours
  know both names. A reader takes what an older trace lacks as null, and tells apart a word that
  a newer one has.
";

/// The whole text of `docs/SCHEMA.md`.
pub fn schema_markdown() -> String {
    let mut page = format!("{HEAD}\nFormat version {FORMAT_VERSION}.\n\n## Tables\n");
    table(&mut page, &schema::SWITCH);
    table(&mut page, &schema::TASK);
    table(&mut page, &schema::GAP);
    table(&mut page, &schema::OPEN);
    table(&mut page, &schema::CGROUP);
    table(&mut page, &schema::STACK);
    table(&mut page, &schema::FRAME);
    table(&mut page, &schema::WAIT_TYPE);
    table(&mut page, &schema::COMMAND);
    table(&mut page, &schema::WORKER);
    table(&mut page, &schema::SPAN);
    line(&mut page, "\n## Words");
    reasons(&mut page);
    words_of(&mut page);
    bits(&mut page);
    rules(&mut page);
    page
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// Appends a row of a table, with bars inside cells escaped.
fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let cell = cell.replace('|', "\\|");
        write!(page, "| {cell} ").expect("a string takes all that is written to it");
    }
    line(page, "|");
}

fn head(page: &mut String, titles: &[&str]) {
    line(page, "");
    row(page, titles);
    line(page, &"|---".repeat(titles.len()));
    page.insert(page.len() - 1, '|');
}

fn table<R>(page: &mut String, table: &Table<R>) {
    line(page, &format!("\n### `{}`\n", table.name));
    line(page, &format!("{}.", capitalised(table.meaning)));
    head(page, &["column", "type", "since", "meaning"]);
    for column in table.columns {
        let name = format!("`{}`", column.name);
        let since = column.since.to_string();
        row(page, &[&name, &type_of(column), &since, column.meaning]);
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn type_of<R>(column: &TraceColumn<R>) -> String {
    let name = match column.kind {
        ColumnType::Int64 => "Int64",
        ColumnType::Int16 => "Int16",
        ColumnType::UInt64 => "UInt64",
        ColumnType::UInt32 => "UInt32",
        ColumnType::UInt16 => "UInt16",
        ColumnType::Boolean => "Boolean",
        ColumnType::Word => "word",
        ColumnType::Utf8 => "Utf8",
        ColumnType::Binary => "Binary",
        ColumnType::UInt32List => "List of UInt32",
    };
    match column.presence {
        Presence::Always => name.to_owned(),
        Presence::Optional => format!("{name}, null"),
    }
}

fn reasons(page: &mut String) {
    line(
        page,
        "\nA word is `Dictionary<UInt8, Utf8>`: every tool reads it as text.",
    );
    line(page, "\n### `reason`, `off_reason`, `open.reason`");
    head(page, &["reason", "category", "meaning"]);
    for reason in Reason::ALL {
        let category = reason.category();
        row(page, &[reason.as_str(), category.as_str(), reason.help()]);
    }
}

fn words_of(page: &mut String) {
    macro_rules! list {
        ($title:literal, $list:ident) => {
            line(page, concat!("\n### ", $title));
            head(page, &["word", "meaning"]);
            for word in $list::ALL {
                row(page, &[word.as_str(), word.help()]);
            }
        };
    }
    list!("`category`", Category);
    list!("`certainty`", Certainty);
    list!("`cause`", Cause);
    list!("`class`, `next_class`", Class);
    list!("`wait_object`", WaitObject);
    list!("`waker_kind`", WakerKind);
    list!("`task.kind`", TaskEventKind);
    list!("`stack.kind`", StackKind);
    list!("`stack.ended`", StackEnd);
    list!("`level`, `gap.level`", Level);
}

fn bits(page: &mut String) {
    line(page, "\n## Bits of `evidence_bits`");
    head(page, &["bit", "value", "word", "meaning"]);
    for (bit, word, meaning) in EvidenceBits::TABLE {
        let value = format!("{:#x}", 1u64 << bit);
        row(page, &[&bit.to_string(), &value, word, meaning]);
    }
}

fn rules(page: &mut String) {
    line(page, "\n## Rules\n");
    line(
        page,
        &format!(
            "Values of `rule`, in the order in which they are asked (`rules_version` {}).",
            swtch_core::RULES_VERSION
        ),
    );
    head(page, &["rule", "reason", "certainty", "stands on"]);
    for rule in all_rules() {
        let (reason, certainty) = (rule.reason.as_str(), rule.certainty.as_str());
        row(page, &[rule.name, reason, certainty, rule.help]);
    }
}
