// The detail of what is selected: a row, which is a run, why it ended, and the wait that came before it.
import { useEffect, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Detail, Thread } from "../../api/types";
import { escaped } from "../../lib/escape";
import { useAtom } from "../../lib/use-atom";
import { goToRow } from "../../state/navigate";
import { selectedPiece, selectedTask, type Piece } from "../../state/selection";
import { placeOfTask, threads, trace } from "../../state/trace";
import { Answered } from "../answered";
import { ThreadLink } from "../names";
import { useAnswer } from "../use-answer";
import { ChainPart } from "./chain-part";
import { CriticalPart } from "./critical-part";
import { RowBar } from "./row-bar";
import { RunPart } from "./run-part";
import { StatesPart } from "./states-part";
import { WaitPart } from "./wait-part";

export function SidePanel() {
  const piece = useAtom(selectedPiece);
  const generation = useAtom(trace)?.generation ?? 0;
  const answer = useAnswer(
    piece === null ? null : `detail ${piece.row} ${piece.level} ${generation}`,
    (signal) => api.detail(piece?.row ?? 0, piece?.level ?? "os", signal),
  );
  const thread = useSelectedThread();
  if (piece === null) {
    return (
      <div class="detail">
        {thread !== null && (
          <header class="detail-head">
            <h2>
              <ThreadLink thread={thread} />
            </h2>
          </header>
        )}
        <p class="muted">
          Choose a run or a wait in the time line: by a click, or with Tab, the arrows and Enter.
        </p>
        <CriticalPart thread={thread} />
      </div>
    );
  }
  return (
    <div class="detail">
      <Answered answer={answer}>{(detail) => <RowDetail detail={detail} piece={piece} />}</Answered>
    </div>
  );
}

/** The thread whose lane was selected. */
function useSelectedThread(): Thread | null {
  const task = useAtom(selectedTask);
  const columns = useAtom(threads);
  const place = useAtom(placeOfTask).get(task ?? -1);
  if (task === null || columns === null || place === undefined) return null;
  const [tid, pid] = [columns.tid[place] ?? null, columns.pid[place] ?? null];
  return { task, tid, pid, name: columns.name[place] ?? "" };
}

function RowDetail({ detail, piece }: { readonly detail: Detail; readonly piece: Piece }) {
  const isWait = piece.part !== "run" && piece.part !== null;
  const run = <RunPart key="run" detail={detail} />;
  const wait = <WaitPart key="wait" detail={detail} />;
  return (
    <>
      <header class="detail-head">
        <h2>
          <ThreadLink thread={detail.thread} />
        </h2>
        <p class="muted">
          process {detail.thread.pid}
          {detail.cpu !== null && `, CPU ${detail.cpu}`}
          {detail.level === "user" && ", a worker's switch"}
        </p>
        <Neighbours detail={detail} part={piece.part} />
      </header>
      <RowBar detail={detail} />
      {/* What was clicked comes first. */}
      {isWait ? [wait, run] : [run, wait]}
      {detail.level === "os" && (
        <>
          <StatesPart thread={detail.thread} />
          <ChainPart detail={detail} />
          <CriticalPart thread={detail.thread} />
        </>
      )}
    </>
  );
}

function Neighbours({ detail, part }: { readonly detail: Detail; readonly part: Piece["part"] }) {
  return (
    <div class="neighbours">
      <NeighbourButton row={detail.previous_row} detail={detail} part={part} word="◀ Previous" />
      <NeighbourButton row={detail.next_row} detail={detail} part={part} word="Next ▶" />
    </div>
  );
}

function NeighbourButton({
  row,
  detail,
  part,
  word,
}: {
  readonly row: number | null;
  readonly detail: Detail;
  readonly part: Piece["part"];
  readonly word: string;
}) {
  const [failed, setFailed] = useState(false);
  useEffect(() => setFailed(false), [row]);
  return (
    <button
      type="button"
      class="button"
      disabled={row === null}
      aria-label={`${word.replace(/[^a-zA-Z]/g, "")} row of ${escaped(detail.thread.name)}`}
      onClick={() => {
        if (row !== null) goToRow(row, detail.level, part).catch(() => setFailed(true));
      }}
    >
      {failed ? "not answered" : word}
    </button>
  );
}
