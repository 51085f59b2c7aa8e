// Light, dark, or as the system has it. Colours themselves are variables of the style sheet.
import { atom } from "../lib/atom";

export type Theme = "auto" | "light" | "dark";
export const THEMES: readonly Theme[] = ["auto", "light", "dark"];

const KEPT_AS = "swtch.theme";

export const theme = atom<Theme>(kept());

/** Grows when colours have changed: who draws on a canvas reads them anew. */
export const themeChanges = atom(0);

function kept(): Theme {
  try {
    const word = localStorage.getItem(KEPT_AS);
    return THEMES.find((one) => one === word) ?? "auto";
  } catch {
    return "auto";
  }
}

/** Puts the choice on the page and keeps it for the next visit. */
export function applyTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = (): void => {
    const chosen = theme.get();
    const dark = chosen === "dark" || (chosen === "auto" && system.matches);
    document.documentElement.dataset["theme"] = dark ? "dark" : "light";
    themeChanges.update((count) => count + 1);
  };
  theme.watch(() => {
    apply();
    try {
      localStorage.setItem(KEPT_AS, theme.get());
    } catch {
      // Storage is refused: the choice lasts as long as the page.
    }
  });
  system.addEventListener("change", apply);
  apply();
}
