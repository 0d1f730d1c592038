// The list of tables: columns, rows, order, filter. Nothing here keeps state.

import { h, memo } from "./dom.js";
import { bytes, count, now, percent, time } from "./format.js";
import {
  badge,
  deleteFiles,
  isFailure,
  isQueued,
  isRunning,
  lastRun,
  manifests,
  meanBytes,
  reasonText,
} from "./words.js";

const HEALTH_ORDER = { unhealthy: 0, unknown: 1, healthy: 2 };

const of = (get) => (table) => (table.stats ? get(table.stats) : null);
const lastEnd = (table) => lastRun(table)?.["finished-at-ms"] ?? null;

/**
 * Columns: `sort` gives what to sort by (null comes last), `show` the cell's content. A cell is made anew when the value of
 * `sees` changes. `first` is the direction of the first click: -1 where much is what one looks for.
 */
export const COLUMNS = [
  { key: "table", title: "Table", first: 1, sort: (t) => t.table, sees: () => 0, show: tableName },
  {
    key: "health",
    title: "Health",
    first: 1,
    sort: (t) => HEALTH_ORDER[t.health],
    sees: (t) => [t.health, t.reasons],
    show: health,
  },
  {
    key: "step",
    title: "Step",
    first: -1,
    sort: stepOrder,
    sees: (t) => [t.step, t.paused, t.quarantined, queued(t)],
    show: step,
  },
  number(
    "data",
    "Data files",
    "data files",
    of((s) => s["data-files"]),
  ),
  number(
    "small",
    "Small",
    "data files below the policy's minimum size",
    of((s) => s["small-data-files"]),
  ),
  number("deletes", "Deletes", "delete files and deletion vectors", of(deleteFiles)),
  number("manifests", "Manif.", "manifests of the current snapshot", of(manifests)),
  number("mean", "Mean size", "mean size of a data file", of(meanBytes), bytes),
  number(
    "rsd",
    "RSD",
    "relative standard deviation of bytes per partition",
    of((s) => s["partition-bytes-rsd-ratio"]),
    percent,
  ),
  {
    key: "last",
    title: "Last run",
    first: -1,
    sort: lastEnd,
    sees: (t) => [lastEnd(t), lastRun(t)?.outcome],
    show: last,
  },
  {
    key: "next",
    title: "Next step",
    first: 1,
    sort: (t) => t["next-step"]?.["at-ms"] ?? null,
    sees: (t) => [t["next-step"], t.paused, t.step],
    show: next,
  },
];

function number(key, title, hint, value, format = count) {
  return { key, title, hint, first: -1, numeric: true, sort: value, sees: value, show: (t) => format(value(t)) };
}

/** The last runs of its actions that failed. */
export const failures = (table) => Object.values(table["last-runs"]).filter((run) => isFailure(run.outcome));

const queued = (table) => isQueued(table, now());

/** The chips: which tables each one leaves. */
export const CHIPS = [
  ["all", "All", () => true],
  ["unhealthy", "Unhealthy", (t) => t.health === "unhealthy"],
  ["unknown", "Unknown", (t) => t.health === "unknown"],
  ["healthy", "Healthy", (t) => t.health === "healthy"],
  ["running", "Running", isRunning],
  ["queued", "Queued", queued],
  ["paused", "Paused", (t) => t.paused !== null],
  ["failed", "Failed last", (t) => failures(t).length > 0],
];

export const link = (table) => `#/t/${encodeURIComponent(table)}`;

function tableName(t) {
  const prefix = t.table.endsWith(t.name) ? t.table.slice(0, t.table.length - t.name.length) : "";
  return h(
    "a",
    { href: link(t.table), class: "name", title: t.table },
    prefix && h("span", { class: "dim" }, prefix),
    h("span", null, t.table.slice(prefix.length)),
  );
}

/** The reasons say more than the word that they stand for; who cannot see the sign hears it. */
function health(t) {
  if (t.reasons.length === 0) return badge(t.health);
  const reasons = t.reasons.map((r) => reasonText(r.reason)).join(", ");
  const details = t.reasons.map((r) => `${reasonText(r.reason)}: ${r.detail}`).join("\n");
  return badge(t.health, [h("span", { class: "unseen" }, `${t.health}: `), reasons], details);
}

function stepOrder(t) {
  return isRunning(t) ? 4 : queued(t) ? 3 : t.step === "delay" ? 2 : t.paused ? 1 : 0;
}

function step(t) {
  if (isRunning(t)) return badge("running", t.step);
  if (t.paused) return badge("paused", "paused", t.paused.reason || null);
  if (t.quarantined) return badge("failed", "quarantined");
  if (queued(t)) return badge("queued", "queued");
  return t.step === "delay" ? badge("delay", "delay") : h("span", { class: "dim" }, "idle");
}

function last(t) {
  const run = lastRun(t);
  if (!run) return h("span", { class: "dim" }, "none yet");
  const word = run.outcome === "success" ? h("span", { class: "unseen" }, run.outcome) : run.outcome;
  const title = `${run.action}${run.reason ? `: ${run.reason}` : ""}`;
  return [badge(run.outcome, word, title), " ", time(run["finished-at-ms"])];
}

function next(t) {
  const due = t["next-step"];
  if (!due || t.paused || isRunning(t)) return h("span", { class: "dim" }, "–");
  return h("span", { title: due.why }, `${due.step} `, time(due["at-ms"], "due"));
}

/** Unhealthy first, unless asked otherwise; equals by name, so that no row jumps about. */
export function sorted(tables, key, direction) {
  const value = (COLUMNS.find((c) => c.key === key) ?? COLUMNS[1]).sort;
  const rows = tables.map((table) => ({ table, value: value(table) }));
  const compare = (a, b) => {
    if (a.value !== b.value) {
      if (a.value === null) return 1;
      if (b.value === null) return -1;
      return (a.value < b.value ? -1 : 1) * direction;
    }
    return a.table.table < b.table.table ? -1 : 1;
  };
  return rows.sort(compare).map((row) => row.table);
}

const texts = new WeakMap();

/** What the filter looks at; made once for each answer of the daemon. */
export function haystack(t) {
  let text = texts.get(t);
  if (text === undefined) {
    text = [t.table, t.health, t.step, ...t.policies, ...t.reasons.map((r) => `${reasonText(r.reason)} ${r.detail}`)]
      .join(" ")
      .toLowerCase();
    texts.set(t, text);
  }
  return text;
}

/** A row whose cells are filled anew only when what they show changes. */
export function makeRow() {
  const cells = COLUMNS.map((column, i) =>
    h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: `c-${column.key}${column.numeric ? " n" : ""}` }),
  );
  const node = h("tr", null, cells);
  return {
    node,
    update(t) {
      if (node.dataset.health !== t.health) node.dataset.health = t.health;
      COLUMNS.forEach((column, i) => memo(cells[i], column.sees(t) ?? null, () => column.show(t)));
    },
  };
}
