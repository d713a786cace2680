// What the other modules share: the rows of a page, what a browser remembers, and what is said to its user.

export const main = document.querySelector("main");

/** What was kept under a name; null if there is nothing, or if the browser keeps nothing. */
export function recall(storage, name) {
  try {
    return window[storage].getItem(`locus.${name}`);
  } catch {
    return null;
  }
}

/** Keep a text under a name, or forget it with null. */
export function keep(storage, name, text) {
  try {
    if (text === null) window[storage].removeItem(`locus.${name}`);
    else window[storage].setItem(`locus.${name}`, text);
  } catch {
    // A browser that keeps nothing forgets it with this page.
  }
}

/** An element with attributes and children. Children are texts or elements: nothing is ever parsed. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

let region = document.querySelector("[data-live]");

/** Where `announce` speaks. It has to be there before anything is said, or screen readers miss the first text. */
export function prepareToAnnounce() {
  if (region) return;
  region = element("p", { role: "status", "aria-live": "polite", "data-live": "" });
  document.body.append(region);
}

let silence;

/** Show a short text for a while, and let screen readers say it when they have finished what they are saying. */
export function announce(text) {
  clearTimeout(silence);
  region.textContent = text;
  silence = setTimeout(() => (region.textContent = ""), 6000);
}

/** Whether a key or a click is meant for a field that takes text or a choice. */
export function isField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

export function rows() {
  return [...document.querySelectorAll("[data-rows] [data-row]:not([hidden])")];
}

let last = null;
document.addEventListener("focusin", (event) => {
  last = event.target.closest("[data-row]") ?? last;
});

/** The row that has the focus, or had it last. */
export function currentRow() {
  const focused = document.activeElement?.closest("[data-row]");
  return focused ?? (last?.isConnected ? last : null);
}

export function focusRow(row) {
  const target = row.querySelector("a[data-open]") ?? row;
  if (target === row) row.tabIndex = -1;
  target.focus();
  target.scrollIntoView({ block: "nearest" });
}

/** The first of these elements in the current row; else the page's own. */
export function nearest(selector) {
  const inRow = currentRow()?.querySelector(selector);
  if (inRow) return inRow;
  return [...document.querySelectorAll(selector)].find((found) => !found.closest("[data-row]")) ?? null;
}

/** The checkpoint that keys are about: that of the current row, or that of the page. */
export function currentCheckpoint() {
  const { checkpoint, seq, ns = "" } = (currentRow()?.dataset.checkpoint ? currentRow() : main)?.dataset ?? {};
  return checkpoint ? { thread: main.dataset.thread, checkpoint, seq, ns } : null;
}

/** The path of the thread that this page is about, as the server has spelt it. */
export function threadPath() {
  const base = document.body.dataset.base ?? "";
  const [segment] = location.pathname.slice(`${base}/t/`.length).split("/");
  return `${base}/t/${segment}`;
}
