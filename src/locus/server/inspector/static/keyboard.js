// Keys for everything that is done often. They can be switched off, which this browser remembers.

import { copyCurrent } from "./copy.js";
import { compareWithMark, toggleMark } from "./marks.js";
import { announce, currentCheckpoint, currentRow, focusRow, isField } from "./page.js";
import { keep, main, nearest, recall, rows, threadPath } from "./page.js";
import { nextTheme } from "./theme.js";

const help = document.querySelector("dialog#help");

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => {
    const filter = document.querySelector("#filter");
    const fold = filter?.closest("details");
    if (fold) fold.open = true;
    filter?.focus();
    filter?.select?.();
  },
  "[": () => open("a[data-parent]", "There is no parent here"),
  "]": () => open("a[data-child]", "There is no child here"),
  m: toggleMark,
  d: compareWithMark,
  f: fork,
  b: bisect,
  F: () => open("a[data-follow]", "There is no thread to follow here"),
  y: copyCurrent,
  t: nextTheme,
  "?": () => help?.showModal(),
};

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(currentRow());
  const to = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
  focusRow(all[to]);
}

function open(selector, otherwise) {
  const link = nearest(selector);
  if (link) link.click();
  else announce(otherwise);
}

function bisect() {
  if (main?.dataset.thread) location.assign(`${threadPath()}/bisect`);
  else announce("There is no thread to bisect here");
}

/** Open the page that forks the current checkpoint. */
function fork() {
  const link = nearest("a[data-fork]");
  if (!link) return announce("Nothing can be forked here");
  const url = new URL(link.href);
  const { checkpoint, ns } = currentCheckpoint() ?? {};
  if (checkpoint && !url.searchParams.has("checkpoint")) {
    url.searchParams.set("checkpoint", checkpoint);
    url.searchParams.set("ns", ns);
  }
  location.assign(url);
}

const isOn = () => recall("localStorage", "keys") !== "off";

function onKey(event) {
  if (!isOn() || event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  if (isField(event.target)) {
    if (event.key === "Escape") event.target.blur();
    // A choice or a box takes no letters, so the keys go on working there.
    if (!event.target.matches('input[type="radio"], input[type="checkbox"]')) return;
  }
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (!act) return;
  event.preventDefault();
  act();
}

function prepareHelp() {
  for (const button of document.querySelectorAll("[data-help-button]")) {
    button.hidden = !help;
    button.addEventListener("click", () => help.showModal());
  }
  if (!help) return;
  const off = help.querySelector("[data-keys-off]");
  if (off) {
    off.checked = !isOn();
    off.addEventListener("change", () => keep("localStorage", "keys", off.checked ? "off" : null));
  }
  // A click beside the dialog closes it, as its button and Escape do.
  help.addEventListener("click", (event) => event.target === help && help.close());
}

export function startKeyboard() {
  prepareHelp();
  document.addEventListener("keydown", onKey);
}
