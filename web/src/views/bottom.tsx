// The panels at the bottom, one behind the other.
import { useAtom } from "../lib/use-atom";
import { useTabs } from "../panels";
import { bottomHeight, bottomOpen, bottomTab } from "../state/frame";
import { Splitter } from "./splitter";

export function Bottom() {
  const open = useAtom(bottomOpen);
  const height = useAtom(bottomHeight);
  const chosen = useAtom(bottomTab);
  const tabs = useTabs();
  const tab = tabs.find(({ id }) => id === chosen) ?? tabs[0];
  const choose = (id: string): void => {
    bottomTab.set(id);
    bottomOpen.set(true);
  };
  const step = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const next = tabs.at((tabs.findIndex((one) => one === tab) + by) % tabs.length);
    if (by !== 0 && next !== undefined) {
      event.preventDefault();
      choose(next.id);
      document.getElementById(`tab-${next.id}`)?.focus();
    }
  };
  return (
    <>
      {open && (
        <Splitter
          label="Height of the panels"
          direction="level"
          size={height}
          least={80}
          most={Math.max(80, Math.round(innerHeight * 0.7))}
          onSize={(size) => bottomHeight.set(size)}
        />
      )}
      <section class="bottom" aria-label="Panels" style={open ? { height: `${height}px` } : {}}>
        <div class="tabs">
          <div role="tablist" aria-label="Panels" style={{ display: "flex" }} onKeyDown={step}>
            {tabs.map(({ id, title }) => (
              <button
                key={id}
                id={`tab-${id}`}
                type="button"
                role="tab"
                class="tab"
                aria-selected={open && tab?.id === id}
                aria-controls="tab-panel"
                tabIndex={tab?.id === id ? 0 : -1}
                onClick={() => choose(id)}
              >
                {title}
              </button>
            ))}
          </div>
          <span class="spring" />
          <button
            type="button"
            class="tab"
            aria-expanded={open}
            onClick={() => bottomOpen.set(!open)}
          >
            {open ? "Close panels" : "Open panels"}
          </button>
        </div>
        {open && tab !== undefined && (
          <div
            class="tab-panel"
            id="tab-panel"
            role="tabpanel"
            tabIndex={0}
            aria-labelledby={`tab-${tab.id}`}
          >
            <tab.view key={tab.id} />
          </div>
        )}
      </section>
    </>
  );
}
