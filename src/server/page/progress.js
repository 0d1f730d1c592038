// A running step: phase, groups finished of planned, bytes.

import { h, put, setText } from "./dom.js";
import { bytes, count, time } from "./format.js";

/**
 * A progress bar below its text; `update(table)` brings it up to date. Without a plan it has no end yet. `heading`
 * stands before the text.
 */
export function progressBar(heading) {
  const bar = h("progress", { max: 1 });
  const text = h("span");
  const since = h("span");
  let started = null;
  const node = h("div", { class: "progress" }, h("p", null, heading, h("span", { class: "dim" }, text, since)), bar);
  function update(table) {
    const p = table.progress;
    bar.setAttribute("aria-label", `${table.step} of ${table.table}`);
    const planned = p?.["planned-groups"] ?? 0;
    if (p?.["planned-bytes"]) {
      bar.max = p["planned-bytes"];
      bar.value = Math.min(bar.max, p["read-bytes"]);
    } else {
      bar.removeAttribute("value");
    }
    const said = [p ? `${table.step}: ${p.phase}` : table.step];
    if (planned > 0) said.push(`${count(p["finished-groups"])} of ${count(planned)} groups`);
    if (p?.["read-bytes"]) {
      const of = p["planned-bytes"] ? ` of ${bytes(p["planned-bytes"])}` : "";
      said.push(`read ${bytes(p["read-bytes"])}${of}`);
      if (!heading) said.push(`written ${bytes(p["written-bytes"])}`, `${count(p.rows)} rows`);
    }
    setText(text, said.join(", "));
    if (p && p["started-at-ms"] !== started) {
      started = p["started-at-ms"];
      put(since, heading ? ", " : ", for ", time(started, "since"));
    }
  }
  return { node, update };
}
