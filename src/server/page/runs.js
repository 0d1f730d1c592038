// The run history: one line per run, and all that its report says.

import { h } from "./dom.js";
import { bytes, count, dateTime, duration, short, time } from "./format.js";
import { badge, runText } from "./words.js";

const COUNTS = [
  ["rewritten-data-files", "data files rewritten", count],
  ["rewritten-bytes", "rewritten", bytes],
  ["added-data-files", "data files added", count],
  ["added-bytes", "added", bytes],
  ["removed-delete-files", "delete files removed", count],
  ["expired-snapshots", "snapshots expired", count],
  ["deleted-files", "files deleted", count],
  ["deleted-bytes", "deleted", bytes],
  ["commit-conflicts", "commit conflicts", count],
  ["commit-unknown", "commits with a lost answer", count],
];

/** A run as an entry that can be opened; runs do not change, so it is made once. */
export function runEntry(run) {
  const counts = COUNTS.filter(([key]) => run.counts?.[key]).map(
    ([key, noun, format]) => `${format(run.counts[key])} ${noun}`,
  );
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
