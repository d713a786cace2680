// Light, dark, or as the system has it. The choice is kept for this address.

import { announce, keep, recall } from "./page.js";

const THEMES = ["system", "light", "dark"];
const root = document.documentElement;

let theme;

function apply(chosen) {
  theme = THEMES.includes(chosen) ? chosen : "system";
  if (theme === "system") root.removeAttribute("data-theme");
  else root.dataset.theme = theme;
  // The button says what is chosen: light in a light system looks like nothing has happened.
  for (const button of document.querySelectorAll("[data-theme-button]")) button.textContent = `Theme: ${theme}`;
}

apply(recall("localStorage", "theme"));

export function nextTheme() {
  apply(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  keep("localStorage", "theme", theme === "system" ? null : theme);
  announce(`Theme: ${theme}`);
}

export function startTheme() {
  for (const button of document.querySelectorAll("[data-theme-button]")) {
    button.hidden = false;
    button.addEventListener("click", nextTheme);
  }
  // Other tabs of the inspector change with this one.
  addEventListener("storage", (event) => event.key === "locus.theme" && apply(event.newValue));
}
