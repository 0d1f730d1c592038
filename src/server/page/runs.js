// The run history: one line per run, and all that its report says.

import { h } from "./dom.js";
import { bytes, count, dateTime, duration, plural, short, time } from "./format.js";
import { badge, runText } from "./words.js";

/** What a run's numbers say; those that are zero say nothing. */
const COUNTS = [
  ["rewritten-data-files", (n) => `${plural(n, "data file")} rewritten`],
  ["rewritten-bytes", (n) => `${bytes(n)} rewritten`],
  ["added-data-files", (n) => `${plural(n, "data file")} added`],
  ["added-bytes", (n) => `${bytes(n)} added`],
  ["removed-delete-files", (n) => `${plural(n, "delete file")} removed`],
  ["expired-snapshots", (n) => `${plural(n, "snapshot")} expired`],
  ["deleted-files", (n) => `${plural(n, "file")} deleted`],
  ["deleted-bytes", (n) => `${bytes(n)} deleted`],
  ["commit-conflicts", (n) => plural(n, "commit conflict")],
  ["commit-unknown", (n) => `${plural(n, "commit")} with a lost answer`],
];

/** A run as an entry that can be opened; runs do not change, so it is made once. */
export function runEntry(run) {
  const counts = COUNTS.filter(([key]) => run.counts[key]).map(([key, say]) => say(run.counts[key]));
  const full = h("div", { class: "full" });
  const fill = (event) => {
    if (event.target.open && !full.firstChild) full.append(...report(run));
  };
  const node = h(
    "li",
    null,
    h(
      "details",
      { toggle: fill },
      h(
        "summary",
        null,
        badge(run.outcome),
        h("span", { class: "action" }, run.action),
        h("span", { class: "did" }, run.reason ?? (counts.join(", ") || "nothing to do")),
        h("span", { class: "took" }, duration(run["duration-ms"])),
        time(run["finished-at-ms"]),
      ),
      full,
    ),
  );
  return { node };
}

function report(run) {
  return [
    h(
      "p",
      null,
      `${dateTime(run["started-at-ms"])} to ${dateTime(run["finished-at-ms"])}, run `,
      h("code", { title: run["run-id"] }, short(run["run-id"])),
      `: ${runText(run)}`,
    ),
    run.reason && h("p", { class: "reason" }, run.reason),
    run.report ? tree(run.report) : h("p", { class: "dim" }, "No report is kept of this run."),
  ].filter(Boolean);
}

/** "rewritten-data-files" -> "rewritten data files". */
const label = (key) => key.replaceAll("-", " ").replaceAll("_", " ");

function leaf(key, value) {
  if (value === null || value === "") return "–";
  if (typeof value === "number") {
    if (/bytes$/.test(key)) return bytes(value);
    if (/duration-ms$/.test(key)) return duration(value);
    return /-ms$/.test(key) ? dateTime(value) : count(value);
  }
  return String(value);
}

/** Any report as nested lists; empty parts are left out. */
export function tree(value) {
  const rows = [];
  for (const [key, item] of Object.entries(value)) {
    const empty = item !== null && typeof item === "object" && Object.keys(item).length === 0;
    if (empty) continue;
    const name = Array.isArray(value) ? null : h("dt", null, label(key));
    rows.push(
      h("div", null, name, h("dd", null, item !== null && typeof item === "object" ? tree(item) : leaf(key, item))),
    );
  }
  return h("dl", { class: "tree" }, rows);
}
