// A running step: phase, groups finished of planned, bytes.

import { h, put, setText } from "./dom.js";
import { bytes, count, time } from "./format.js";

/** A progress bar with its text; `update(table)` brings it up to date. Without planned groups it has no end yet. */
export function progressBar() {
  const bar = h("progress", { max: 1 });
  const text = h("span");
  const since = h("span");
  let started = null;
  const node = h("div", { class: "progress" }, bar, h("p", null, text, since));
  function update(table) {
    const p = table.progress;
    bar.setAttribute("aria-label", `${table.step} of ${table.table}`);
    const planned = p?.["planned-groups"] ?? 0;
    if (planned > 0) {
      bar.max = planned;
      bar.value = Math.min(planned, p["finished-groups"]);
    } else {
      bar.removeAttribute("value");
    }
    const said = [p ? `${table.step}: ${p.phase}` : table.step];
    if (planned > 0) said.push(`${count(p["finished-groups"])} of ${count(planned)} groups`);
    if (p?.["written-bytes"] || p?.["read-bytes"]) {
      const of = p["planned-bytes"] ? ` of ${bytes(p["planned-bytes"])}` : "";
      said.push(`read ${bytes(p["read-bytes"])}${of}`, `written ${bytes(p["written-bytes"])}`);
    }
    if (p?.rows) said.push(`${count(p.rows)} rows`);
    setText(text, said.join(", "));
    if (p && p["started-at-ms"] !== started) {
      started = p["started-at-ms"];
      put(since, ", for ", time(started, "since"));
    }
  }
  return { node, update };
}
