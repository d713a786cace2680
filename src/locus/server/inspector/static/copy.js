// Buttons that copy an id.

import { announce, currentCheckpoint, element, main, nearest } from "./page.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS a browser has a clipboard on this machine only. The old way still works.
    const field = element("textarea", { "aria-hidden": "true", class: "offscreen" });
    field.value = text;
    document.body.append(field);
    const focused = document.activeElement;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    if (!done) return announce("This browser does not let the page copy");
  }
  announce("Copied");
}

/** Copy the id of the current row, or the one that the page is about. */
export function copyCurrent() {
  const text = currentCheckpoint()?.checkpoint ?? nearest("[data-copy]")?.dataset.copy ?? main?.dataset.thread;
  if (text) copy(text);
}

export function startCopying() {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
}
