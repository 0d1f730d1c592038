// One table: how it is and why, what was done about it, and what comes next.

import { actionButton, pause, planNow, resume, runNow } from "./actions.js";
import { fileChart, histogram, snapshotChart } from "./chart.js";
import { byId, grid, h, keyed, memo, put, setText } from "./dom.js";
import { bytes, count, dateTime, now, percent, short, time } from "./format.js";
import { partitions, plan, policy } from "./details.js";
import { progressBar } from "./progress.js";
import { runEntry } from "./runs.js";
import {
  ACTIONS,
  badge,
  deleteFiles,
  doneText,
  isQueued,
  isRunning,
  manifests,
  meanBytes,
  reasonCure,
  reasonText,
  stepText,
} from "./words.js";

const SNAPSHOTS_SHOWN = 15;

const panel = (title, ...children) =>
  h("section", { class: "panel", "aria-label": title }, h("h2", null, title), ...children);

const figure = (title, value, hint) =>
  h("div", { class: "figure", title: hint }, h("dt", null, title), h("dd", null, value));

/** The view of the table `name`; `home` is where the list is, `poke` asks the daemon at once. */
export function tableView(name, home, poke) {
  let table = null;
  let status = null;
  const back = h("a", { href: home, class: "back" }, "‹ All tables");
  const title = h("h1", null, name);
  const badges = h("span", { class: "badges" });
  const pauseButton = actionButton("Pause", () => (table?.paused ? resume(name) : pause(name)), poke);
  const buttons = h(
    "div",
    { class: "buttons", hidden: true },
    actionButton("Run now", () => runNow(name), poke, { class: "primary" }),
    pauseButton,
    actionButton("Plan now", () => planNow(name), poke),
  );
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
  const loading = h("p", { class: "loading" }, "Loading …");
  const why = h("div");
  const doing = h("div");
  const bar = progressBar();
  const figures = h("dl", { class: "figures" });
  const chart = fileChart();
  const samples = h("tbody");
  const sizes = h("div");
  const parts = h("div");
  const timeline = snapshotChart();
  const snapshots = h("div");
  const runs = h("ul", { class: "runs" });
  const noRuns = h("p", { class: "dim" }, "No run since the daemon started.");
  const planned = h("div");
  const settings = h("div");
  let allSnapshots = false;

  const sampleTable = h(
    "details",
    { toggle: drawSamples },
    h("summary", null, "The same as a table"),
    sampleGrid(samples),
  );
  const all = h(
    "div",
    { class: "table-view", hidden: true },
    h("div", { class: "beside" }, panel("Health", why), panel("Now and last", doing)),
    figures,
    panel("Files over time", chart.node, sampleTable),
    panel("Run history", noRuns, runs),
    h("div", { class: "beside" }, panel("File sizes", sizes), panel("Partitions", parts)),
    panel("Snapshots", timeline.node, snapshots),
    panel("Last plan", planned),
    panel("Policy in force", settings),
  );
  const node = h(
    "div",
    null,
    h("nav", { "aria-label": "Breadcrumb" }, back),
    h("div", { class: "title" }, title, badges, buttons),
    problem,
    loading,
    all,
  );

  function update(given, state) {
    const news = given !== null && given !== table;
    status = state;
    table = given ?? table;
    buttons.hidden = !status.admin;
    if (!table) return;
    problem.hidden = loading.hidden = true;
    all.hidden = false;
    drawState();
    if (!news) return;
    drawFigures();
    chart.update({ samples: table.samples, runs: table.runs });
    drawSamples();
    memo(sizes, table["size-histogram"], (sized) =>
      sized ? histogram(sized) : h("p", { class: "dim" }, "Not known yet."),
    );
    memo(parts, [table.partitions, table.stats], () => partitions(table.partitions, table.stats));
    timeline.update(table.snapshots);
    drawSnapshots();
    announceRuns();
    noRuns.hidden = table.runs.length > 0;
    keyed(runs, table.runs, (run) => `${run["run-id"]} ${run.action} ${run["finished-at-ms"]}`, runEntry);
    memo(planned, table.plan, (made) => plan(made, status.admin));
    memo(settings, table.policy, policy);
  }

  function drawState() {
    const states = [
      badge(table.health),
      isRunning(table) ? badge("running", table.step) : null,
      table.paused ? badge("paused") : null,
    ];
    memo(badges, [table.health, table.step, table.paused], () => states);
    setText(pauseButton, table.paused ? "Resume" : "Pause");
    memo(why, [table.health, table.reasons, table["consecutive-failures"], table["collected-at-ms"]], health);
    const queued = isQueued(table, now());
    memo(
      doing,
      [table.step, table["next-step"], table.paused, queued, table.quarantined, status.paused, table["last-runs"]],
      () => state(queued),
    );
    bar.update(table);
  }

  function health([is, reasons, failures, collected]) {
    const looked = h(
      "p",
      { class: "dim" },
      collected === null ? "Not looked at yet." : ["Looked at ", time(collected), "."],
    );
    const well = {
      healthy: "Nothing to do.",
      unknown: "It has not been looked at yet.",
      unhealthy: "",
    }[is];
    return [
      reasons.map((r) =>
        h(
          "div",
          { class: "cause" },
          h("p", null, badge("unhealthy", reasonText(r.reason)), " ", r.detail),
          h("p", { class: "cure" }, reasonCure(r.reason)),
        ),
      ),
      reasons.length === 0 && h("p", null, badge(is), ` ${well}`),
      failures > 0 && h("p", null, `${count(failures)} failed ${failures === 1 ? "run" : "runs"} in a row.`),
      looked,
    ];
  }

  function state(queued) {
    const next = table["next-step"];
    return [
      table.paused &&
        h(
          "p",
          null,
          badge("paused"),
          " since ",
          time(table.paused["since-ms"]),
          table.paused.reason ? `: ${table.paused.reason}` : ".",
        ),
      status.paused && h("p", null, badge("paused", "daemon paused"), " No table starts a new step."),
      table.quarantined && h("p", null, badge("failed", "quarantined"), " Not compacted until its metadata changes."),
      isRunning(table) && bar.node,
      queued && h("p", null, badge("queued"), " Due; waits for one of ", count(status.queue.limit), " workers."),
      table.step === "delay" &&
        h("p", null, badge("delay"), " Compacted; the clean-ups wait until what was replaced is old enough."),
      !isRunning(table) &&
        !table.paused &&
        next &&
        h(
          "p",
          null,
          "Next: ",
          h("strong", null, stepText(next.step)),
          " ",
          h("strong", null, time(next["at-ms"], "due")),
          h("span", { class: "dim" }, ` (${next.why})`),
        ),
      lastRuns(table["last-runs"]),
      table.step === "idle" && !next && h("p", { class: "dim" }, "Idle; nothing is due."),
    ];
  }

  function drawFigures() {
    memo(figures, table.stats, (stats) => {
      if (!stats) return h("div", { class: "figure" }, h("dt", null, "Numbers"), h("dd", null, "–"));
      return [
        figure("Data files", count(stats["data-files"]), "live data files of the current snapshot"),
        figure("of these small", count(stats["small-data-files"]), "smaller than the policy's min-file-size"),
        figure(
          "Delete files",
          count(deleteFiles(stats)),
          `${count(stats["position-delete-files"])} position, ${count(stats["equality-delete-files"])} equality, ${count(stats["deletion-vectors"])} deletion vectors`,
        ),
        figure("Manifests", count(manifests(stats)), `${bytes(stats["manifest-bytes"])}`),
        figure("Size", bytes(stats["data-file-bytes"]), "live data files"),
        figure("Mean file size", bytes(meanBytes(stats))),
        figure("Rows", count(stats["data-records"]), "before deletes"),
        figure("Snapshots", count(stats.snapshots), "retained"),
        figure(
          "All files",
          count(stats["all-files"]),
          `${bytes(stats["all-file-bytes"])} reachable from any retained snapshot`,
        ),
        figure(
          "RSD of bytes",
          percent(stats["partition-bytes-rsd-ratio"]),
          `over ${count(stats.partitions)} partitions: standard deviation / mean`,
        ),
      ];
    });
  }

  function drawSamples() {
    if (!sampleTable.open || !table) return;
    const newestFirst = [...table.samples].reverse();
    keyed(
      samples,
      newestFirst,
      (p) => p["at-ms"],
      (p) => ({
        node: h(
          "tr",
          null,
          h("th", { scope: "row" }, dateTime(p["at-ms"])),
          ["data-files", "small-data-files", "delete-files", "manifests", "all-files"].map((key) =>
            h("td", { class: "n" }, count(p[key])),
          ),
          h("td", { class: "n" }, bytes(p["data-file-bytes"])),
        ),
      }),
    );
  }

  function drawSnapshots() {
    memo(snapshots, [table.snapshots, allSnapshots], () => {
      const shown = allSnapshots ? table.snapshots : table.snapshots.slice(0, SNAPSHOTS_SHOWN);
      const columns = [
        ["Time"],
        ["Operation"],
        ["By"],
        ["Snapshot"],
        ["Data files", "n"],
        ["Delete files", "n"],
        ["Added", "n"],
        ["Removed", "n"],
        ["Refs"],
      ];
      const rows = shown.map((snapshot) => {
        const of = (key) => (snapshot.summary?.[key] === undefined ? "–" : count(Number(snapshot.summary[key])));
        const refs = [...(snapshot.current ? ["current"] : []), ...snapshot.refs];
        const by =
          snapshot["run-id"] === null
            ? h("span", { class: "dim" }, "writer")
            : h(
                "span",
                { class: "ours", title: `run ${snapshot["run-id"]}` },
                `◆ icewright ${short(snapshot["run-id"])}`,
              );
        return [
          h("span", { class: "when" }, dateTime(snapshot["timestamp-ms"])),
          snapshot.operation,
          by,
          h("code", null, snapshot["snapshot-id"]),
          count(snapshot["total-data-files"]),
          count(snapshot["total-delete-files"]),
          of("added-data-files"),
          of("deleted-data-files"),
          refs.join(", "),
        ];
      });
      const rest = table.snapshots.length - shown.length;
      const more =
        rest > 0 &&
        h(
          "button",
          { type: "button", click: () => ((allSnapshots = true), drawSnapshots()) },
          `Show ${count(rest)} more`,
        );
      return [rows.length > 0 && grid("Snapshots, newest first", columns, rows), more];
    });
  }

  let told = null;
  function announceRuns() {
    const newest = table.runs[0];
    const id = newest ? `${newest["run-id"]} ${newest.action} ${newest["finished-at-ms"]}` : "";
    if (told !== null && told !== id && newest)
      setText(byId("announce"), `${newest.action} ended: ${newest.outcome}. ${newest.reason ?? ""}`);
    told = id;
  }

  return {
    name,
    node,
    update,
    failed(error) {
      loading.hidden = true;
      problem.hidden = false;
      setText(problem, error.message);
    },
  };
}

/** What was done last, by action. */
function lastRuns(byAction) {
  const runs = Object.keys(ACTIONS).map((action) => byAction[action]).filter(Boolean);
  const line = (run) =>
    h(
      "li",
      null,
      badge(run.outcome),
      h("span", null, [run.action, run.reason ?? doneText(run)].filter(Boolean).join(": ")),
      time(run["finished-at-ms"]),
    );
  return runs.length > 0 && h("ul", { class: "lasts", "aria-label": "Last runs" }, runs.map(line));
}

function sampleGrid(body) {
  const columns = ["Time", "Data files", "Small", "Delete files", "Manifests", "All files", "Bytes"];
  return h(
    "div",
    { class: "scroll short", role: "region", "aria-label": "Samples, newest first", tabindex: 0 },
    h(
      "table",
      null,
      h("caption", { class: "unseen" }, "Samples, newest first"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((c, i) => h("th", { scope: "col", class: i ? "n" : null }, c)),
        ),
      ),
      body,
    ),
  );
}
