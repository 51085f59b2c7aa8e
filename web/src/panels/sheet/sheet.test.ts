import { expect, test } from "vitest";
import { cellText, columnsOf, headOf, isNumeric, type Row } from "./columns";
import { csvOf } from "./csv";
import { nextOrder, ordered } from "./order";

const rows: readonly Row[] = [
  { comm: 'a\u001b[31m,"b"', switches: 1500, share_pct: 75, off_ns: 1_234_567, tid: 12345 },
  { comm: "idle\n", switches: 500, share_pct: 25, off_ns: null, tid: 1 },
];

/** Heads and cells are those of the command line's table (`sheet.rs` has the same example). */
test("a table shows what the command line shows", () => {
  const shown = rows.map((row) => Object.keys(row).map((key) => cellText(key, row[key])));
  expect(shown).toEqual([
    ['a\\x1b[31m,"b"', "1,500", "75.0", "1.23 ms", "12345"],
    ["idle\\x0a", "500", "25.0", "-", "1"],
  ]);
  expect(["run_p99_9_ns", "share_pct", "off_ns", "main_reason"].map(headOf)).toEqual([
    "run p99.9",
    "share %",
    "off",
    "main reason",
  ]);
});

/** What is pasted into a spreadsheet equals `--format csv`, and no name can break its line. */
test("csv holds every column in raw units", () => {
  expect(csvOf(rows)).toBe(
    "comm,switches,share_pct,off_ns,tid\r\n" +
      '"a\\x1b[31m,""b""",1500,75.0000,1234567,12345\r\n' +
      "idle\\x0a,500,25.0000,,1\r\n",
  );
});

/** A row whose value is not known is neither the smallest nor the largest. */
test("rows without a value come last in both directions", () => {
  const tids = (direction: "ascending" | "descending") =>
    ordered(rows, { key: "off_ns", direction }).map((row) => row.tid);
  expect(tids("ascending")).toEqual([12345, 1]);
  expect(tids("descending")).toEqual([12345, 1]);
});

/** The first click on a number's head is for "the largest", on a name's for "from A on". */
test("numbers begin with the largest and words with A", () => {
  expect(nextOrder(null, "switches", true).direction).toBe("descending");
  expect(nextOrder(null, "comm", false).direction).toBe("ascending");
  const again = nextOrder({ key: "comm", direction: "ascending" }, "comm", false);
  expect(again.direction).toBe("descending");
});

/** An empty column is noise; the command line leaves it out, too. */
test("columns without any value are left out", () => {
  const sparse: readonly Row[] = [{ a: 1, b: null, c: [] }];
  expect(columnsOf(sparse)).toEqual(["a"]);
  expect(isNumeric("key", [{ key: null }, { key: "0x7f" }])).toBe(true);
});
