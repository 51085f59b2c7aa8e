// What the switches of the range cost: each figure with its interval, and how much of it rests on a
// measured price. Without a price list, how to get one.
import { useState } from "preact/hooks";
import * as api from "../api/client";
import type { Bill, Tariff } from "../api/types";
import { escaped } from "../lib/escape";
import { estimate, fixed, grouped, lengthOf } from "../lib/format";
import { useAtom } from "../lib/use-atom";
import { lookForPrices, trace } from "../state/trace";
import { Answered, RangeLine, inCode } from "./answered";
import { Choice } from "./choice";
import { linkedCell } from "./sheet/cells";
import { columnsOf, type Row } from "./sheet/columns";
import { SheetTable } from "./sheet/sheet-table";
import { useRangeAnswer } from "./use-answer";

const GROUPINGS = ["reason", "process", "thread", "stack", "pair"] as const;

export function BillPanel() {
  const hasPrices = useAtom(trace)?.has_prices ?? true;
  return hasPrices ? <PricedBill /> : <NoPrices />;
}

/** Without prices there is nothing to ask the server for, but how to get some. */
function NoPrices() {
  const [asking, setAsking] = useState(false);
  const look = async (): Promise<void> => {
    setAsking(true);
    await lookForPrices();
    setAsking(false);
  };
  return (
    <section class="panel" aria-label="The bill">
      <div class="refused is-no-fault">
        <p>There are no prices to make a bill with.</p>
        <p class="advice">
          {inCode(
            "`swtch cost --save` measures those of this machine; `swtch view TRACE --prices FILE.json` takes others.",
          )}
        </p>
        <button type="button" class="button" disabled={asking} onClick={() => void look()}>
          Look again
        </button>
      </div>
    </section>
  );
}

function PricedBill() {
  const [by, setBy] = useState<(typeof GROUPINGS)[number]>("reason");
  const answer = useRangeAnswer(`bill ${by}`, (range, signal) => api.bill(by, range, signal));
  return (
    <section class="panel" aria-label="The bill">
      <RangeLine answer={answer}>
        <Choice
          label="By"
          options={GROUPINGS.map((value) => ({ value, word: value }))}
          chosen={by}
          onChoose={setBy}
        />
      </RangeLine>
      <Answered answer={answer}>{({ value }) => <BillTable bill={value} by={by} />}</Answered>
    </section>
  );
}

function BillTable({ bill, by }: { readonly bill: Bill; readonly by: string }) {
  const { origin, effort, warnings, tariffs } = bill.prices;
  return (
    <>
      {bill.total !== null && <BillSum total={bill.total} />}
      <SheetTable
        label={`What the switches cost, by ${by}`}
        rows={bill.rows}
        columns={columnsOf(bill)}
        all={bill.columns}
        total={bill.total}
        cell={linkedCell}
        notes={[...warnings, ...bill.notes]}
      >
        <details class="tariffs">
          <summary>
            Prices: {escaped(origin.hostname)}, {escaped(origin.measured_at)}, {escaped(effort)}
          </summary>
          <Tariffs tariffs={tariffs} />
        </details>
      </SheetTable>
    </>
  );
}

/** The sum as a sentence: the figure, how sure it is, and what it is measured in. */
function BillSum({ total }: { readonly total: Row }) {
  const [direct, low, high, indirect, measured] = [
    total["direct_ns"],
    total["direct_low_ns"],
    total["direct_high_ns"],
    total["indirect_high_ns"],
    total["measured_pct"],
  ];
  if (typeof direct !== "number" || typeof low !== "number" || typeof high !== "number")
    return null;
  return (
    <p class="bill-sum">
      <b>{lengthOf(direct)}</b> of switching ({lengthOf(low)} to {lengthOf(high)})
      {typeof indirect === "number" && <>, and at most {lengthOf(indirect)} lost afterwards</>}
      {typeof measured === "number" && (
        <span class="measured">
          <span class="share-track" aria-hidden="true">
            <span style={{ width: `${measured}%` }} />
          </span>
          {fixed(measured, 1)} % at measured prices, the rest estimated
        </span>
      )}
    </p>
  );
}

function Tariffs({ tariffs }: { readonly tariffs: readonly Tariff[] }) {
  return (
    <ul class="tariff-list">
      {tariffs.map((one) => (
        <li key={`${one.reason} ${one.successor}`}>
          <b>{escaped(one.reason)}</b> to {escaped(one.successor)}: {grouped(one.switches)} at{" "}
          {estimate(one.direct_ns)} ({estimate(one.direct_low_ns)} to {estimate(one.direct_high_ns)}
          ), {escaped(one.source)}
          {one.estimated_because === null ? " · measured" : " · estimated: "}
          {escaped((one.estimated_because ?? []).join("; "))}
        </li>
      ))}
    </ul>
  );
}
