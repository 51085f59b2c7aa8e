import { expect, test } from "vitest";
import type { Cell } from "../../api/decode";
import { cellText, type Column, columnsOf, isNumeric, type Row } from "./columns";
import { csvOf } from "./csv";
import { nextOrder, ordered } from "./order";

const rows: readonly Row[] = [
  { comm: 'a\u001b[31m,"b"', switches: 1500, share_pct: 75, off_ns: 1_234_567, tid: 12345 },
  { comm: "idle\n", switches: 500, share_pct: 25, off_ns: null, tid: 1 },
];

const column = (key: string, holds: string): Column => ({ key, head: key, holds, help: "" });
const columns = [
  column("comm", "text"),
  column("switches", "count"),
  column("share_pct", "percent"),
  column("off_ns", "time"),
  column("tid", "id"),
];

/** Cells are those of the command line's table (`sheet.rs` has the same example). */
test("a table shows what the command line shows", () => {
  const shown = rows.map((row) => columns.map((one) => cellText(one, row[one.key])));
  expect(shown).toEqual([
    ['a\\x1b[31m,"b"', "1,500", "75.0", "1.23 ms", "12345"],
    ["idle\\x0a", "500", "25.0", "-", "1"],
  ]);
});

/** What is pasted into a spreadsheet equals `--format csv`, and no name can break its line. */
test("csv holds every column in raw units", () => {
  expect(csvOf(columns, rows)).toBe(
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
  const sparse: Record<string, Cell>[] = [{ a: 1, b: null, c: [], d: 2 }];
  const shown = (key: string, tables: string[]) => ({ ...column(key, "count"), tables });
  const report = { columns: [..."abc"].map((key) => shown(key, [""])), rows: sparse };
  report.columns.push(shown("d", ["another table"]), shown("e", []));
  const keys = (table?: string) => columnsOf(report, table).map(({ key }) => key);
  expect(keys()).toEqual(["a", "d"]);
  expect(keys("")).toEqual(["a"]);
  expect(isNumeric(column("key", "address"))).toBe(true);
});
