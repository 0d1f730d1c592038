// The parts of a table's view that are tables themselves: partitions, the last plan, the policy.

import { bar } from "./chart.js";
import { grid, h } from "./dom.js";
import { bytes, count, percent, plural, time } from "./format.js";
import { tree } from "./runs.js";
import { ACTIONS } from "./words.js";

/** Partitions by size, with how far each is from the mean. */
export function partitions(list, stats) {
  if (list.length === 0) return h("p", { class: "dim" }, "No partition has data files.");
  const most = Math.max(1, ...list.map((p) => p["data-file-bytes"]));
  const mean = stats?.["partition-bytes-mean"] || null;
  const away = (p) => {
    const ratio = p["data-file-bytes"] / mean - 1;
    return `${ratio >= 0 ? "+" : "−"}${percent(Math.abs(ratio))}`;
  };
  const columns = [["Partition"], ["Files", "n"], ["Rows", "n"], ["Bytes", "n"], ["", "wide-bar"], ["To mean", "n"]];
  const rows = list.map((p) => [
    p.partition || "(unpartitioned)",
    count(p["data-files"]),
    count(p["data-records"]),
    bytes(p["data-file-bytes"]),
    bar(p["data-file-bytes"] / most),
    mean ? away(p) : "–",
  ]);
  columns[4][0] = h("span", { class: "unseen" }, "Share of the largest");
  const rsd =
    stats &&
    h(
      "p",
      null,
      `RSD ${percent(stats["partition-bytes-rsd-ratio"])} of bytes, ${percent(stats["partition-records-rsd-ratio"])} of rows over ${plural(stats.partitions, "partition")}; mean ${bytes(Math.round(stats["partition-bytes-mean"]))}.`,
    );
  const rest =
    stats && stats.partitions > list.length && h("p", { class: "dim" }, `The largest ${count(list.length)} are shown.`);
  return [rsd, grid("Partitions, the largest first", columns, rows), rest];
}

/** A table below a heading of its own; nothing if it has no rows. */
const titled = (title, columns, rows) =>
  rows.length > 0 && [h("h4", null, title), grid(title, columns, rows, { class: "tight" })];

/** What was left alone or kept, one line per reason. */
function skips(title, list = []) {
  const rows = list.map((s) => [s.reason, count(s.files), bytes(s.bytes), s.detail]);
  return titled(title, [["Reason"], ["Files", "n"], ["Bytes", "n"], ["What and why"]], rows);
}

/** A map of reason to tally. */
function tallies(title, map = {}) {
  const rows = Object.entries(map).map(([reason, t]) => [reason, count(t.files), bytes(t.bytes)]);
  return titled(title, [["Reason"], ["Files", "n"], ["Bytes", "n"]], rows);
}

/** How the plan of an action is shown, if not as it is. */
const PLANS = {
  "rewrite-data-files": (would) => [
    h(
      "p",
      null,
      `Picks ${plural(would["input-files"], "file")} (${bytes(would["input-bytes"])}) of ${count(would["considered-data-files"])} looked at, in ${plural(would["file-groups"], "file group")}; expects about ${plural(would["expected-output-files"], "file")}.`,
    ),
    skips("Not picked", would.skipped),
  ],
  "expire-snapshots": (would) => [
    h(
      "p",
      null,
      would.snapshots || would.refs.length
        ? `Expires ${plural(would.snapshots, "snapshot")}${would.refs.length ? ` and the refs ${would.refs.join(", ")}` : ""}.`
        : "Nothing to expire now.",
    ),
    skips("Kept", would.kept),
  ],
  "remove-orphan-files": (would) => [
    would.refused && h("p", null, h("strong", null, `Refused: ${would.refused.reason}. `), would.refused.detail),
    would.error && h("p", null, h("strong", null, "Failed: "), would.error),
    h(
      "p",
      null,
      `${plural(would.listed.files, "file")} listed (${bytes(would.listed.bytes)}), ${count(would.referenced.files)} referenced, ${plural(would.orphans.files, "orphan")} (${bytes(would.orphans.bytes)}).`,
    ),
    tallies("Removable, by proof", would.removable),
    tallies("Kept", would.kept),
  ],
};

/** The last plan: what would happen, and why not. */
export function plan(made, admin) {
  if (!made)
    return h(
      "p",
      { class: "dim" },
      admin ? "Not planned yet. Plan now looks at the table and changes nothing." : "Not planned yet.",
    );
  const said = made.plan;
  const sections = Object.keys(ACTIONS).map((action) => {
    const part = said[action];
    if (!part) return null;
    return [
      h("h3", null, action),
      part.nothing !== undefined ? h("p", null, "Nothing: ", part.nothing) : (PLANS[action] ?? tree)(part.would),
    ];
  });
  return [
    h(
      "p",
      { class: "dim" },
      "Planned ",
      time(made["planned-at-ms"]),
      said["next-step"] ? `; next step: ${said["next-step"]}` : "",
      ".",
    ),
    said.error ? h("p", null, h("strong", null, "Could not be planned: "), said.error) : sections,
    h("details", null, h("summary", null, "The whole plan"), tree(said)),
  ];
}

/** Every setting with its value and where it was said. */
export function policy(settings) {
  if (settings.length === 0) return h("p", { class: "dim" }, "Not known yet.");
  const dim = (text) => h("span", { class: "dim" }, text);
  const value = (text) => (text === null ? dim("not set") : h("code", { class: "value" }, text));
  const origin = (text) => (text === "built-in default" ? dim(text) : text);
  const rows = settings.map((s) => [h("code", null, s.key), value(s.value), origin(s.origin)]);
  return grid("Settings", [["Setting"], ["Value"], ["Said by"]], rows, { class: "tight" });
}
