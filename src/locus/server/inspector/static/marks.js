// One checkpoint can be marked, and others of its thread compared with it. A tab remembers its own mark.

import { announce, currentCheckpoint, keep, main, recall, rows, threadPath } from "./page.js";

function marked() {
  try {
    const mark = JSON.parse(recall("sessionStorage", "mark"));
    return mark && mark.thread === main?.dataset.thread ? mark : null;
  } catch {
    return null;
  }
}

const same = (one, other) => one?.checkpoint === other?.checkpoint && one?.ns === other?.ns;

export function showMark() {
  const mark = marked();
  for (const row of rows()) {
    const { checkpoint, ns = "" } = row.dataset;
    const is = mark !== null && checkpoint === mark.checkpoint && ns === mark.ns;
    row.classList.toggle("marked", is);
    const choice = row.querySelector('input[name="pick"]');
    if (is && choice) choice.checked = true;
  }
}

/** Mark the current checkpoint; the marked one is let go of. */
export function toggleMark() {
  const current = currentCheckpoint();
  if (!current?.thread || !current.seq) return announce("Go to a checkpoint of a thread first: j and k");
  const off = same(marked(), current);
  keep("sessionStorage", "mark", off ? null : JSON.stringify(current));
  showMark();
  announce(off ? "No longer marked" : "Marked. Press d on another checkpoint to compare");
}

/** Open the differences between the marked checkpoint and the current one. */
export function compareWithMark() {
  const [mark, current] = [marked(), currentCheckpoint()];
  if (!mark) return announce("Mark a checkpoint of this thread first: m");
  if (!current?.seq || same(mark, current)) return announce("Go to another checkpoint: j and k");
  const query = new URLSearchParams({ a: mark.seq, b: current.seq });
  location.assign(`${threadPath()}/diff?${query}`);
}

/** Two rows are compared: a third one takes the place of the first, and the button says what it does. */
export function startChoosing() {
  const form = document.querySelector("form[data-compare]");
  const button = form?.querySelector("[data-compare-button]");
  if (!button) return;
  const picked = [...form.querySelectorAll('input[name="pick"]:checked')];
  const tell = () => {
    button.disabled = picked.length !== 2;
    const numbers = picked.map((box) => `#${box.value}`).join(" with ");
    button.textContent = picked.length === 2 ? `Compare ${numbers}` : picked.length ? `Compare ${numbers} with …` : "Compare two rows";
  };
  form.addEventListener("change", ({ target }) => {
    if (target.name !== "pick") return;
    if (target.checked) picked.push(target);
    else picked.splice(picked.indexOf(target), 1);
    if (picked.length > 2) picked.shift().checked = false;
    tell();
  });
  tell();
}
