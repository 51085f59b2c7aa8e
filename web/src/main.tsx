// Starts the page.
import { render } from "preact";
import "./style/colours.css";
import "./style/frame.css";
import "./style/bars.css";
import "./style/legend.css";
import "./style/timeline.css";
import { escaped } from "./lib/escape";
import { countVisible } from "./state/counts";
import { applyTheme } from "./state/theme";
import { suitLanes } from "./state/filter";
import { followTrace, trace } from "./state/trace";
import { keepUp } from "./state/view";
import { App } from "./views/app";

const page = document.getElementById("page");
if (page !== null) {
  applyTheme();
  followTrace();
  keepUp();
  countVisible();
  const once = trace.watch(() => {
    once();
    const known = trace.get();
    if (known !== null) suitLanes(known);
  });
  trace.watch(() => {
    document.title = `${escaped(trace.get()?.name ?? "")} · swtch`;
  });
  render(<App />, page);
}
