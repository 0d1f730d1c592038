// All tables: how they are, what runs, what failed last.

import { CHIPS, COLUMNS, failures, haystack, link, makeRow, sorted } from "./columns.js";
import { byId, h, keyed, memo, put, setText } from "./dom.js";
import { bytes, count, plural, time } from "./format.js";
import { progressBar } from "./progress.js";
import { badge, isRunning } from "./words.js";

/** Rows made at once: what nobody has scrolled to costs nothing. */
const PAGE = 80;
const FAILURES_SHOWN = 4;

/** The view. `remember(hash)` keeps its state in the address. */
export function fleetView(remember) {
  const ask = { q: "", show: "all", sort: "health", shown: PAGE };
  let tables = null;
  let status = null;
  const told = new Map();

  const input = h("input", {
    type: "search",
    id: "filter",
    placeholder: "Filter tables  ( / )",
    "aria-label": "Filter tables by name, reason or policy",
    autocomplete: "off",
    spellcheck: "false",
    input: () => change({ q: input.value }),
    keydown: leaveFilter,
  });
  const chips = CHIPS.map(([key, title]) => {
    const number = h("span", { class: "number" });
    const button = h(
      "button",
      {
        type: "button",
        class: `chip ${key}`,
        "aria-pressed": "false",
        click: () => change({ show: ask.show === key ? "all" : key }),
      },
      h("span", null, title),
      number,
    );
    return { key, button, number };
  });
  const heads = COLUMNS.map((column) => {
    const button = h("button", { type: "button", title: column.hint, click: () => sortBy(column) }, column.title);
    return { column, node: h("th", { scope: "col", class: `c-${column.key}${column.numeric ? " n" : ""}` }, button) };
  });
  const body = h("tbody", { click: openRow });
  const more = h("button", { type: "button", class: "more", hidden: true, click: () => showMore() });
  const found = h("p", { class: "found", role: "status" });
  const resources = h("div", { class: "resources" });
  const running = section("Running now", "running");
  const failing = section("Failed last", "failed");
  const node = h(
    "div",
    null,
    h("h1", { class: "unseen" }, "Tables"),
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "Show tables by state" },
      chips.map((chip) => chip.button),
      resources,
    ),
    h("div", { class: "beside" }, running.node, failing.node),
    h("div", { class: "tools" }, input, found),
    h(
      "div",
      { class: "scroll tables", role: "region", "aria-label": "Tables", tabindex: 0 },
      h(
        "table",
        { class: "fleet", "aria-rowcount": -1 },
        h("caption", { class: "unseen" }, "Maintained tables. Buttons in the headings sort."),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            heads.map((head) => head.node),
          ),
        ),
        body,
      ),
    ),
    more,
  );
  // Rows are added before their reader gets to the end.
  new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && showMore(), {
    rootMargin: "600px",
  }).observe(more);

  function setParams(given) {
    const before = JSON.stringify(ask);
    ask.q = given.get("q") ?? "";
    ask.show = CHIPS.some(([key]) => key === given.get("show")) ? given.get("show") : "all";
    ask.sort = given.get("sort") ?? "health";
    if (JSON.stringify(ask) !== before) ask.shown = PAGE;
    if (input.value !== ask.q) input.value = ask.q;
    draw();
  }

  function change(what) {
    Object.assign(ask, { shown: PAGE }, what);
    const query = new URLSearchParams();
    if (ask.q) query.set("q", ask.q);
    if (ask.show !== "all") query.set("show", ask.show);
    if (ask.sort !== "health") query.set("sort", ask.sort);
    remember(query.size ? `#/?${query}` : "#/");
    draw();
  }

  function showMore() {
    if (more.hidden) return;
    ask.shown += PAGE;
    draw();
  }

  function sortBy(column) {
    const ascending = column.key;
    const descending = `-${column.key}`;
    const first = column.first === 1 ? ascending : descending;
    change({ sort: ask.sort === first ? (first === ascending ? descending : ascending) : first });
  }

  function draw() {
    if (!tables) return;
    for (const { key, button, number } of chips) {
      const accepts = CHIPS.find(([name]) => name === key)[2];
      const total = tables.reduce((sum, table) => sum + (accepts(table) ? 1 : 0), 0);
      setText(number, key === "running" && status ? `${Math.max(total, status.queue.running)} of ${status.queue.limit}` : count(total));
      button.setAttribute("aria-pressed", String(ask.show === key));
      button.classList.toggle("zero", total === 0);
    }
    const direction = ask.sort.startsWith("-") ? -1 : 1;
    const key = ask.sort.replace(/^-/, "");
    for (const { column, node } of heads) {
      const order = column.key !== key ? "none" : direction === 1 ? "ascending" : "descending";
      if (node.getAttribute("aria-sort") !== order) node.setAttribute("aria-sort", order);
    }
    const words = ask.q.toLowerCase().split(/\s+/).filter(Boolean);
    const accepts = CHIPS.find(([name]) => name === ask.show)[2];
    const matches = tables.filter((t) => accepts(t) && words.every((word) => haystack(t).includes(word)));
    const rows = sorted(matches, key, direction);
    keyed(body, rows.slice(0, ask.shown), (t) => t.table, makeRow);
    more.hidden = rows.length <= ask.shown;
    setText(more, `Show more (${count(rows.length - ask.shown)} left)`);
    const none = tables.length === 0 ? "No table is maintained: no policy's pattern matches one." : "No table matches.";
    setText(
      found,
      rows.length === 0
        ? none
        : rows.length === tables.length
          ? plural(rows.length, "table")
          : `${count(rows.length)} of ${plural(tables.length, "table")}`,
    );
    drawRunning(tables.filter(isRunning));
    drawFailures();
  }

  function drawRunning(busy) {
    setText(running.number, busy.length ? String(busy.length) : "");
    // Workers that have begun and not got as far as a step.
    const waiting = Math.max(0, (status?.queue.running ?? 0) - busy.length);
    running.empty.hidden = busy.length > 0 && waiting === 0;
    setText(running.empty, waiting ? `${plural(waiting, "table")} being looked at.` : "Nothing runs at the moment.");
    const started = (t) => t.progress?.["started-at-ms"] ?? 0;
    const order = [...busy].sort((a, b) => started(a) - started(b) || (a.table < b.table ? -1 : 1));
    keyed(
      running.list,
      order,
      (t) => t.table,
      (t) => {
        const bar = progressBar(h("a", { href: link(t.table) }, t.table));
        return { node: h("li", null, bar.node), update: bar.update };
      },
    );
  }

  function drawFailures() {
    const failed = tables
      .flatMap((t) => failures(t).map((run) => ({ table: t.table, run })))
      .sort((a, b) => b.run["finished-at-ms"] - a.run["finished-at-ms"]);
    setText(failing.number, failed.length ? String(failed.length) : "");
    failing.empty.hidden = failed.length > 0;
    setText(failing.empty, "No table's last run failed.");
    const id = ({ table, run }) => `${table} ${run.action} ${run["run-id"]} ${run["finished-at-ms"]}`;
    keyed(failing.list, failed.slice(0, FAILURES_SHOWN), id, ({ table, run }) => ({
      node: h(
        "li",
        null,
        h("a", { href: link(table) }, table),
        h("div", { class: "how" }, badge(run.outcome), ` ${run.action} `, time(run["finished-at-ms"])),
        h("p", { class: "reason", title: run.reason }, run.reason ?? "no reason given"),
      ),
    }));
    failing.rest.hidden = failed.length <= FAILURES_SHOWN;
    setText(failing.rest, `and ${count(failed.length - FAILURES_SHOWN)} more`);
    announce(failed);
  }

  /** New failures are read out; those that were there when the page was opened are not. */
  function announce(failed) {
    const first = told.size === 0;
    for (const { table, run } of failed) {
      const key = `${table} ${run.action}`;
      if (told.get(key) === run["finished-at-ms"]) continue;
      told.set(key, run["finished-at-ms"]);
      if (!first) setText(byId("announce"), `${table}: ${run.action} ${run.outcome}. ${run.reason ?? ""}`);
    }
    told.set("", 0);
  }

  function drawResources() {
    const { memory, catalogs } = status;
    memo(resources, [memory, catalogs], () => [
      h(
        "span",
        { class: "resource" },
        "Catalogs ",
        h("b", null, `${catalogs.filter((c) => c.up).length} of ${catalogs.length} up`),
      ),
      h(
        "span",
        { class: "resource", title: `${bytes(memory["manifest-cache-bytes"])} of summaries of manifests beside it` },
        h("label", { for: "memory" }, "Memory "),
        h("b", null, `${bytes(memory["reserved-bytes"])} of ${bytes(memory["budget-bytes"])}`),
        h("progress", { id: "memory", max: Math.max(1, memory["budget-bytes"]), value: memory["reserved-bytes"] }),
      ),
    ]);
  }

  /** Arrow keys go from row to row; Enter follows the link that has the focus. */
  function key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.closest("button, select, textarea")) return;
    const links = [...body.querySelectorAll("a.name")];
    const at = links.indexOf(document.activeElement);
    if (
      at < 0 &&
      event.target !== input &&
      !event.target.closest(".tables") &&
      event.target !== document.body &&
      event.target.id !== "main"
    )
      return;
    event.preventDefault();
    if (at === 0 && step === -1) input.focus();
    else links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
  }

  function leaveFilter(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (input.value) {
      input.value = "";
      change({ q: "" });
    } else {
      input.blur();
    }
  }

  function openRow(event) {
    // A link is followed by itself; a selection is being made to be copied.
    if (event.target.closest("a") || String(getSelection())) return;
    event.target.closest("tr")?.querySelector("a.name")?.click();
  }

  return {
    node,
    focusTable(name) {
      body.querySelector(`a.name[href="${CSS.escape(link(name))}"]`)?.focus({ preventScroll: true });
    },
    setParams,
    key,
    focusFilter: () => (input.focus(), input.select()),
    failed: (error) => setText(found, `The list of tables cannot be had: ${error.message}`),
    update(given, state) {
      tables = given ?? tables;
      status = state;
      drawResources();
      draw();
    },
  };
}

function section(title, kind) {
  const number = h("span", { class: "number" });
  const list = h("ul", { class: `cards ${kind}` });
  const empty = h("p", { class: "dim" }, "Loading …");
  const rest = h("a", { href: "#/?show=failed&sort=-last", class: "rest", hidden: true });
  return {
    number,
    list,
    empty,
    rest,
    node: h("section", { class: "panel", "aria-label": title }, h("h2", null, title, " ", number), empty, list, rest),
  };
}
