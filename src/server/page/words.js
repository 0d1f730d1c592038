// What the API's words mean, for people. One place, so that both views say the same.

import { h } from "./dom.js";
import { count, plural } from "./format.js";

/** The actions in the order of a run, each with its mark in the chart; `line` draws one through the whole chart. */
export const ACTIONS = {
  "rewrite-data-files": { mark: "M-5,-9h10l-5,9z", line: true },
  "expire-snapshots": { mark: "M0,-10l5,5l-5,5l-5,-5z" },
  "remove-orphan-files": { mark: "M-4,-9h8v8h-8z" },
};

/** The steps whose name is not that of an action. */
const STEPS = { "clean-up": ["expire-snapshots", "remove-orphan-files"] };

/** What a step does. */
export const stepText = (step) => (STEPS[step] ?? [step]).join(" and ");

/** Health, outcomes and states with a sign each: colour alone tells nobody anything. */
const SIGNS = {
  healthy: "✓",
  unhealthy: "✕",
  unknown: "?",
  success: "✓",
  failed: "✕",
  conflict: "⇄",
  skipped: "–",
  cancelled: "■",
  running: "▶",
  queued: "…",
  paused: "‖",
  delay: "◷",
};

const KINDS = {
  failed: "bad",
  unhealthy: "bad",
  conflict: "warn",
  unknown: "warn",
  paused: "warn",
  success: "good",
  healthy: "good",
  running: "busy",
};

/** A coloured badge with sign and word. */
export const badge = (word, text = word, title = null) =>
  h(
    "span",
    { class: `badge ${KINDS[word] ?? "plain"}`, title },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[word] ?? "·"),
    text,
  );

/** The reasons of a table being unhealthy: a short form for the list, and what to do. */
const REASONS = {
  failing: [
    "failing",
    "Read the reason of the last failed run in the run history. It is tried again by itself, later each time; once the cause is gone, Run now tries at once.",
  ],
  quarantined: [
    "quarantined",
    "The table's metadata or data contradicts the specification. It is not compacted until its metadata changes: repair it, or roll it back to an older snapshot.",
  ],
  overdue: [
    "overdue",
    "The next step is due and has waited longer than one period. See below whether it fails and is tried again later, or waits for a worker (limits.concurrent-tables).",
  ],
  refused: [
    "refused",
    "The last clean-up left files alone, since deleting them was not safe. The reason says why, for instance which table or catalog cannot be read or shares the place, and what to do.",
  ],
  unreadable: [
    "unreadable",
    "The table could not be looked at. Check that catalog and store can be reached, and that the credentials may read it.",
  ],
  small_files: [
    "small files",
    "Compaction does not keep up. Plan tells which files are left alone and why; let it run more often, or take more files per run.",
  ],
  delete_files: [
    "delete files",
    "Deletes pile up and slow readers down. With upserts set rewrite-all = true, or a delete-file-threshold.",
  ],
};

export const reasonText = (reason) => REASONS[reason]?.[0] ?? reason.replaceAll("_", " ");
export const reasonCure = (reason) => REASONS[reason]?.[1] ?? "";

/** Whether somebody may have to look. */
export const isFailure = (outcome) => outcome === "failed" || outcome === "conflict" || outcome === "unknown";

/** Whether a worker is busy with the table. */
export const isRunning = (table) => table.step !== "idle" && table.step !== "delay";

let daemonPaused = false;
/** Whether the whole daemon is paused, as it said last. */
export const setDaemonPaused = (paused) => (daemonPaused = paused);

/** Whether the table's next step is due and waits for a worker. What is paused waits for somebody. */
export const isQueued = (table, nowMs) =>
  !daemonPaused &&
  !isRunning(table) &&
  !table.paused &&
  table["next-step"] !== null &&
  table["next-step"]["at-ms"] <= nowMs;

/** The run that ended last, of whichever action; of an action that failed first, since another's success does not mend it. */
export function lastRun(table) {
  const runs = Object.values(table["last-runs"] ?? {});
  const failed = runs.filter((run) => isFailure(run.outcome));
  const newest = (last, run) => (last && last["finished-at-ms"] >= run["finished-at-ms"] ? last : run);
  return (failed.length ? failed : runs).reduce(newest, null);
}

export const deleteFiles = (stats) =>
  stats["position-delete-files"] + stats["equality-delete-files"] + stats["deletion-vectors"];
export const manifests = (stats) => stats["data-manifests"] + stats["delete-manifests"];
export const meanBytes = (stats) => (stats["data-files"] ? stats["data-file-bytes"] / stats["data-files"] : null);

/** What a run did, in few words; nothing if it did nothing. */
export function doneText({ counts }) {
  const said = [];
  if (counts["rewritten-data-files"]) {
    said.push(`${plural(counts["rewritten-data-files"], "data file")} into ${count(counts["added-data-files"])}`);
  }
  if (counts["expired-snapshots"]) said.push(`${plural(counts["expired-snapshots"], "snapshot")} expired`);
  if (counts["deleted-files"]) said.push(`${plural(counts["deleted-files"], "file")} deleted`);
  return said.join(", ");
}

/** A run in a line. */
export const runText = (run) => [`${run.action} ${run.outcome}`, doneText(run)].filter(Boolean).join(", ");
