// The timeline on the left, and on the right what the chosen row says: j and k move without loading the page.

import { toLocal } from "./clock.js";
import { announce, element, rows } from "./page.js";

const panes = document.querySelector("[data-panes]");
const pane = panes?.querySelector("[data-pane]");
const scrubber = panes?.querySelector("[data-scrubber]");
const wide = matchMedia("(min-width: 64rem)");
const SOON_MS = 60;

let shown = null;
let asking = null;
let soon;

/** A page of this server as a document. Its scripts do not run, and no text is parsed by this page. */
function load(href, then) {
  asking?.abort();
  asking = new XMLHttpRequest();
  asking.responseType = "document";
  asking.open("GET", href);
  asking.addEventListener("load", () => then(asking.response?.querySelector("main [data-part]")));
  asking.addEventListener("error", () => announce("The server does not answer"));
  asking.send();
}

function show(href) {
  load(href, (part) => {
    if (!part) return announce("This cannot be shown here: open it");
    const made = document.importNode(part, true);
    for (const title of made.querySelectorAll("h1")) title.replaceWith(element("h2", {}, ...title.childNodes));
    toLocal(made);
    pane.replaceChildren(made);
    const place = pane.querySelector("#hit") ?? pane.querySelector("#new");
    pane.scrollTop = 0;
    if (place) {
      const turn = place.closest("article") ?? place;
      const below = turn.getBoundingClientRect().bottom - pane.getBoundingClientRect().bottom;
      const last = pane.scrollHeight - pane.clientHeight;
      // All of what is new is seen, if there is room for it.
      if (below > 0 || last > 0) pane.scrollTop = Math.min(last, turn.offsetTop - pane.offsetTop - 8);
    }
  });
}

/** Show what a row says. */
function choose(row) {
  if (!row || row === shown || !wide.matches) return;
  shown?.removeAttribute("aria-current");
  shown = row;
  row.setAttribute("aria-current", "true");
  tellTurn();
  history.replaceState(history.state, "", `${location.pathname}${location.search}#${row.dataset.seq}`);
  clearTimeout(soon);
  soon = setTimeout(() => show(row.querySelector("a[data-open]").href), SOON_MS);
}

/** The rows with which turns end, oldest first. A turn ends before the next question. */
function turnEnds() {
  const all = rows().reverse();
  return all.filter((row, at) => at === all.length - 1 || all[at + 1].classList.contains("question"));
}

function tellTurn() {
  const ends = turnEnds();
  const order = rows();
  const at = ends.findIndex((row) => order.indexOf(row) <= order.indexOf(shown));
  const number = at < 0 ? ends.length : at + 1;
  const range = scrubber.querySelector("input");
  range.max = ends.length;
  range.value = number;
  scrubber.querySelector("output").textContent = `${number} of ${ends.length}`;
  scrubber.hidden = ends.length < 2;
}

/** The row of a save; if that is folded, the one below it. */
function rowOf(number) {
  return number ? rows().find((row) => Number(row.dataset.seq) <= number) : null;
}

function arrange() {
  panes.style.setProperty("--top", `${panes.offsetTop}px`);
  panes.classList.toggle("two", wide.matches);
  pane.hidden = !wide.matches;
  if (!wide.matches) scrubber.hidden = true;
  else choose(rowOf(Number(location.hash.slice(1))) ?? rows()[0]);
}

/** On a narrow screen the content comes first: forms are behind a button. */
function fold() {
  const narrow = matchMedia("(max-width: 46rem)").matches;
  for (const form of document.querySelectorAll("details[data-fold]")) form.open = !narrow;
}

export function startPanes() {
  fold();
  if (!pane) return;
  arrange();
  wide.addEventListener("change", arrange);
  panes.addEventListener("focusin", ({ target }) => choose(target.closest("[data-rows] [data-row]")));
  panes.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    // Enter opens the page of the row; so do the keys with which a browser opens a tab.
    if (!link || !wide.matches || event.detail === 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const row = link.matches("a[data-open]") ? link.closest("[data-row]") : null;
    const inPane = pane.contains(link) && link.origin === location.origin && /\/(c|diff)\//.test(link.pathname);
    const samePage = link.hash && link.closest("[data-part]") && link.matches(".at");
    if (row) {
      event.preventDefault();
      choose(row);
    } else if (inPane && !samePage && !link.closest("h2")) {
      event.preventDefault();
      show(link.href);
    }
  });
  scrubber.querySelector("input").addEventListener("input", ({ target }) => {
    const row = turnEnds()[target.value - 1];
    if (!row) return;
    row.scrollIntoView({ block: "nearest" });
    choose(row);
  });
}
