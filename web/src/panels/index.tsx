// The slots of the frame that panels fill: the panel at the side, the tabs at the bottom, the search box.
import type { ComponentType } from "preact";
import { BillPanel } from "./bill-panel";
import { FlamePanel } from "./flame/flame-panel";
import { LengthsPanel } from "./lengths/lengths-panel";
import { LocksPanel } from "./locks-panel";
import { RatePanel } from "./rate/rate-panel";
import { trace } from "../state/trace";
import { useAtom } from "../lib/use-atom";
import { PreemptorsPanel, ReasonsPanel, SpansPanel, ThreadsPanel } from "./sheet/report-panels";
import { VerdictPanel } from "./verdict-panel";
import "./panels.css";

export { SearchBox } from "./search-box";
export { SidePanel } from "./detail/side-panel";

export interface Tab {
  readonly id: string;
  readonly title: string;
  readonly view: ComponentType;
}

/** In the order of the questions: what stands out, how many, why, whose, how long, at what cost, for what, where, by whom. */
const TABS: readonly Tab[] = [
  { id: "verdict", title: "Verdict", view: VerdictPanel },
  { id: "rate", title: "Rate", view: RatePanel },
  { id: "reasons", title: "Reasons", view: ReasonsPanel },
  { id: "threads", title: "Threads", view: ThreadsPanel },
  { id: "spans", title: "Spans", view: SpansPanel },
  { id: "lengths", title: "Distributions", view: LengthsPanel },
  { id: "bill", title: "Bill", view: BillPanel },
  { id: "locks", title: "Locks", view: LocksPanel },
  { id: "flame", title: "Off-CPU", view: FlamePanel },
  { id: "preemptors", title: "Who took my CPU", view: PreemptorsPanel },
];

/** The tabs of this trace: that of spans, where it has some. */
export function useTabs(): readonly Tab[] {
  const hasSpans = useAtom(trace)?.has_spans ?? false;
  return hasSpans ? TABS : TABS.filter(({ id }) => id !== "spans");
}
