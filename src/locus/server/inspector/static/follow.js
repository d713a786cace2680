// New checkpoints of the thread appear as they come. The browser reconnects by itself, and goes on after the last one.

import { toLocal } from "./clock.js";
import { showMark } from "./marks.js";
import { announce, element, keep, main, recall, threadPath } from "./page.js";

const MOST_ROWS = 500;
const SAY_MS = 2000;
const RETRY_MS = 10_000;

const link = document.querySelector("a[data-follow]");
const timeline = document.querySelector("form[data-compare] .timeline");
const told = element("span", { role: "status", class: "faint", "data-follow-told": "" });
/** The new rows have a list of their own: the drawing beside the others was made for those. */
const fresh = element("ol", { class: "rows fresh", "data-rows": "", "aria-label": "New checkpoints" });

let source = null;
let after = null;
let wanted = false;
let retry;
let unsaid = 0;
let saying;

function say(state, text) {
  // A button that says what it does next is not one that is pressed.
  if (state === "off") link.setAttribute("aria-pressed", "false");
  else link.removeAttribute("aria-pressed");
  link.textContent = state === "off" ? "Follow" : "Stop following";
  link.dataset.follow = state;
  told.textContent = text;
}

function start() {
  wanted = true;
  keep("sessionStorage", "follow", main.dataset.thread);
  connect();
}

function stop(why = "Following is off") {
  wanted = false;
  keep("sessionStorage", "follow", null);
  disconnect();
  say("off", why);
}

function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function connect() {
  disconnect();
  const query = new URLSearchParams({ after });
  const namespace = new URLSearchParams(location.search).get("ns");
  if (namespace !== null) query.set("ns", namespace);
  say("waiting", "Connecting…");
  source = new EventSource(`${threadPath()}/follow?${query}`);
  const on = () => say("on", "Following: new checkpoints appear here");
  source.addEventListener("open", on);
  source.addEventListener("fine", on);
  source.addEventListener("trouble", () => say("waiting", "The store does not answer; it is asked again"));
  source.addEventListener("checkpoint", (event) => {
    after = event.lastEventId;
    add(JSON.parse(event.data));
  });
  source.addEventListener("missed", () => stop("More came than is shown: load the page again to see all"));
  source.addEventListener("shortened", () => stop("Checkpoints were deleted: load the page again"));
  source.addEventListener("error", () => {
    if (source?.readyState !== EventSource.CLOSED) return say("waiting", "Disconnected; connecting again…");
    // The server has refused. It may have too many streams, or want a new login.
    say("waiting", "The server refuses; it is asked again. You may have to load the page again");
    retry = setTimeout(connect, RETRY_MS);
  });
}

function add(facts) {
  for (const row of timeline.parentElement.querySelectorAll("[data-row]")) {
    // A checkpoint that was saved again moves up.
    if (row.dataset.checkpoint === facts.checkpoint && row.dataset.ns === facts.ns) row.hidden = true;
    row.querySelector("[data-latest]")?.remove();
  }
  fresh.prepend(made(facts));
  fresh.hidden = false;
  showMark();
  unsaid += 1;
  // Each on its own would talk without an end.
  saying ??= setTimeout(tell, SAY_MS);
  if (fresh.childElementCount >= MOST_ROWS) stop("The page is long by now: load it again to go on");
}

function made({ checkpoint, ns, seq, name, href, changes, at, clock, time, ago, lines, facts, said, chips }) {
  const pick = element("input", { type: "checkbox", name: "pick", value: seq, "aria-label": `Choose ${seq} to compare` });
  const words = element("div", { class: "lines" });
  for (const [kind, who, text] of lines) {
    const line = element("p", { class: `line ${kind}`, dir: "auto" });
    if (who) line.append(element("span", { class: "who" }, who), " ");
    line.append(text);
    words.append(line);
  }
  if (!lines.length) words.append(element("p", { class: "faint", dir: "auto" }, said || "nothing was said"));
  const what = element("span", { class: "what" });
  if (facts) what.append(element("span", { class: "facts-line" }, facts), " ");
  what.append(element("b", { class: "chip ok", "data-latest": "" }, "latest"), " ");
  for (const text of chips) what.append(element("span", { class: "chip", dir: "auto" }, text), " ");
  if (changes) what.append(element("a", { class: "over changes-link", "data-changes": "", href: changes }, "changes"));
  const attributes = { "data-row": "", "data-checkpoint": checkpoint, "data-ns": ns, "data-seq": seq };
  const shown = element("time", { "data-clock": "", datetime: at, title: `${clock}, ${ago}` }, time);
  const row = element(
    "li",
    { class: `arrived n${lines.length}`, ...attributes },
    pick,
    element("a", { "data-open": "", href, "aria-label": name }, `#${seq}`),
    shown,
    words,
    what,
  );
  toLocal(row);
  return row;
}

function tell() {
  announce(unsaid === 1 ? "1 new checkpoint" : `${unsaid} new checkpoints`);
  [unsaid, saying] = [0, undefined];
}

export function startFollowing() {
  if (!link || !timeline || !window.EventSource) return;
  // Only the newest page is followed. On it, the first row is the newest.
  if (new URLSearchParams(location.search).get("before")) return;
  after = timeline.querySelector("[data-row]")?.dataset.seq ?? "0";
  link.hidden = false;
  link.after(" ", told);
  fresh.hidden = true;
  timeline.before(fresh);
  link.setAttribute("role", "button");
  link.setAttribute("aria-pressed", "false");
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (wanted) stop();
    else start();
  });
  link.addEventListener("keydown", (event) => {
    if (event.key !== " ") return;
    event.preventDefault();
    link.click();
  });
  // A page that is left lets go of its stream. Only one that is loaded again takes it up.
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && wanted && stop());
  if (recall("sessionStorage", "follow") !== main.dataset.thread) return;
  if (performance.getEntriesByType("navigation")[0]?.type === "reload") start();
  else keep("sessionStorage", "follow", null);
}
