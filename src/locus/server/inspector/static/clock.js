// Times in the zone of whoever reads them. The title of each keeps UTC, which pages have without scripts.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "full" });

/** Write the times in an element in the local zone. */
export function toLocal(within) {
  for (const time of within.querySelectorAll("time[data-clock]")) {
    const form = time.dataset.clock === "day" ? moment : clock;
    time.textContent = form.format(new Date(time.dateTime));
  }
}

/** The days of rows as they are here: another zone has other days. */
function regroup() {
  let before = "";
  for (const time of document.querySelectorAll("time[data-day]")) {
    const here = day.format(new Date(time.dateTime));
    if (here !== before) time.textContent = here;
    before = here;
  }
}

export function startClock() {
  toLocal(document);
  regroup();
  if (zone === "UTC") return;
  for (const told of document.querySelectorAll("[data-zone]")) told.textContent = `Times of ${zone}. Point at one for UTC`;
}
