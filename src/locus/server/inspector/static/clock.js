// Times in the zone of whoever reads them. The title of each keeps UTC, which pages have without scripts.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "full" });

/** Write the times in an element in the local zone; where there is room for both, UTC stays beside it. */
export function toLocal(within) {
  for (const time of within.querySelectorAll("time[data-clock]")) {
    const here = new Date(time.dateTime);
    if (time.dataset.clock !== "both") time.textContent = clock.format(here);
    else if (zone !== "UTC") time.textContent = `${moment.format(here)} (${time.textContent})`;
  }
}

const utcOf = (here) => here.toISOString().slice(0, 19);

/** What a field of a local time means to the server; a day is its first or its last second. */
function asUtc(field) {
  const time = { begin: "T00:00:00", end: "T23:59:59" }[field.dataset.utc] ?? "";
  const here = new Date(field.value + time);
  return Number.isNaN(here.getTime()) ? field.value : utcOf(here);
}

/** The local time of a moment as a field writes it. */
function asLocal(field) {
  const moment = field.dataset.moment ?? field.value;
  if (field.type === "date" && !moment.includes("T")) return moment;
  const here = new Date(`${moment}Z`);
  if (Number.isNaN(here.getTime())) return field.value;
  const local = utcOf(new Date(here.getTime() - here.getTimezoneOffset() * 60_000));
  return field.type === "date" ? local.slice(0, 10) : local;
}

/** Fields take local times, and say what these are in UTC, which is what the server is asked for. */
function localFields() {
  for (const field of document.querySelectorAll("input[data-utc]")) {
    if (field.value) field.value = asLocal(field);
    const told = document.querySelector(`[data-zone-of="${field.id}"]`);
    const tell = () => {
      if (told) told.textContent = field.value ? `(${zone}; ${asUtc(field).slice(11)} UTC)` : `(${zone})`;
    };
    field.addEventListener("input", tell);
    tell();
  }
  addEventListener("formdata", ({ target, formData }) => {
    for (const field of target.querySelectorAll("input[data-utc]")) if (field.value) formData.set(field.name, asUtc(field));
  });
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
  localFields();
  for (const told of document.querySelectorAll("[data-zone]")) told.textContent = `Times of ${zone}. Point at one for UTC`;
}
