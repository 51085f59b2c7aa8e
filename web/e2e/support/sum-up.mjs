// Sums a run of vitest up in cargo's words, which scripts/test.sh adds up: sum-up.mjs ANSWERS.json STATUS NAME
import { readFileSync } from "node:fs";

const [file, status, name] = process.argv.slice(2);

function read() {
  try {
    return JSON.parse(readFileSync(file, "utf8")).testResults;
  } catch {
    // vitest ended before it wrote anything: its own words are above.
    return [];
  }
}

const files = read();
const tests = files.flatMap((one) => one.assertionResults);
const count = (wanted) => tests.filter((test) => wanted.includes(test.status)).length;
// A file whose preparation failed has no failed test, and none that ran.
const broken = files.filter(
  (one) =>
    one.status === "failed" && one.assertionResults.every((test) => test.status !== "failed"),
);
let failed = count(["failed"]) + broken.length;
if (failed === 0 && (status !== "0" || tests.length === 0)) failed = 1;

const skipped = tests.filter((test) => !["passed", "failed"].includes(test.status));
// The only reason there is: traces that are recorded are made as root only (traces.ts).
const why = "not root, so that its trace cannot be recorded";
for (const test of skipped) console.log(`test ${test.fullName} ... skipped: ${why}`);
const firstLine = (text) => (text ?? "").split("\n")[0];
for (const test of tests.filter((test) => test.status === "failed"))
  console.log(`test ${test.fullName} ... FAILED: ${firstLine(test.failureMessages[0])}`);
for (const file of broken) console.log(`test ${file.name} ... FAILED: ${firstLine(file.message)}`);
const verdict = failed === 0 ? "ok" : "FAILED";
console.log(
  `test result: ${verdict}. ${count(["passed"])} passed; ${failed} failed; ${skipped.length} skipped; ${name}`,
);
process.exitCode = failed === 0 ? 0 : 1;
