// Charts drawn by hand: file counts over time, snapshots over time, sizes as bars.

import { h, put, s, setText } from "./dom.js";
import { bytes, count, dateTime, timeOfDay } from "./format.js";
import { ACTIONS, runText } from "./words.js";

const LEFT = 52;
const RIGHT = 12;
const STEPS_MS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000,
].map((seconds) => seconds * 1000);

/** Round values from 0 to at least `max`. */
export function niceTicks(max, wanted = 4) {
  const rough = Math.max(1, max) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(
    1,
    [1, 2, 5, 10].map((f) => f * power).find((v) => v >= rough),
  );
  const ticks = [];
  for (let value = 0; value < max + step; value += step) ticks.push(value);
  return ticks;
}

/** Local times that are round, at most `wanted` of them. */
export function timeTicks(from, to, wanted) {
  const step = STEPS_MS.find((ms) => (to - from) / ms <= wanted) ?? (to - from) / wanted;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) ticks.push(t);
  return {
    ticks,
    label:
      step < 60_000
        ? timeOfDay
        : step < 86_400_000
          ? (ms) => timeOfDay(ms).slice(0, 5)
          : (ms) => dateTime(ms).slice(5, 10),
  };
}

/** An SVG that is drawn anew when its data or its width changes: `draw(svg, data, width)`. */
function responsive(height, draw) {
  const svg = s("svg", { class: "chart", height, "aria-hidden": "true" });
  let data = null;
  let width = 0;
  const redraw = () => {
    if (data && width > 0) {
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      draw(svg, data, width);
    }
  };
  new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
    redraw();
  }).observe(svg);
  return {
    svg,
    update(given) {
      data = given;
      redraw();
    },
  };
}

function timeAxis(from, to, x, top, bottom, width) {
  const { ticks, label } = timeTicks(from, to, Math.max(2, Math.floor(width / 110)));
  return ticks.map((t) => [
    s("line", { class: "grid", x1: x(t), x2: x(t), y1: top, y2: bottom }),
    s("text", { class: "tick", x: x(t), y: bottom + 16, "text-anchor": "middle" }, label(t)),
  ]);
}

const scale = (from, to, start, end) => (value) =>
  Math.round((start + ((value - from) / Math.max(1, to - from)) * (end - start)) * 10) / 10;

const SERIES = [
  { key: "data-files", name: "data files", kind: "a" },
  { key: "delete-files", name: "delete files", kind: "b" },
  { key: "manifests", name: "manifests", kind: "c" },
];

/** File counts over time with our runs. Pointer and arrow keys read values; `update({samples, runs})`. */
export function fileChart() {
  const HEIGHT = 250;
  const TOP = 18;
  const BOTTOM = HEIGHT - 34;
  let samples = [];
  let runs = [];
  let x = null;
  let y = null;
  let at = null;
  const cursor = s("g", { class: "cursor" });
  const when = h("span", { class: "when" });
  const values = SERIES.map((series) => h("b", null));
  const event = h("span", { class: "event" });
  const legend = h(
    "p",
    { class: "legend" },
    SERIES.map((series, i) =>
      h(
        "span",
        { class: "key" },
        s(
          "svg",
          { class: "swatch", width: 22, height: 10, "aria-hidden": "true" },
          s("line", { class: `line ${series.kind}`, x1: 0, x2: 22, y1: 5, y2: 5 }),
        ),
        ` ${series.name} `,
        values[i],
      ),
    ),
    when,
  );
  const chart = responsive(HEIGHT, draw);
  const box = h(
    "div",
    {
      class: "read",
      role: "slider",
      tabindex: 0,
      "aria-label": "Files over time; arrow keys go from sample to sample",
      "aria-orientation": "horizontal",
      pointermove: point,
      pointerleave: () => show(null),
      blur: () => show(null),
      focus: () => show(samples.length - 1),
      keydown: arrow,
    },
    chart.svg,
  );

  function draw(svg, data, width) {
    ({ samples, runs } = data);
    if (samples.length === 0)
      return put(
        svg,
        s(
          "text",
          { class: "tick", x: LEFT, y: 60 },
          "No samples yet: the table has not been looked at since the daemon started.",
        ),
      );
    const from = samples[0]["at-ms"];
    const to = Math.max(samples.at(-1)["at-ms"], from + 1000);
    const ticks = niceTicks(Math.max(...samples.flatMap((p) => SERIES.map(({ key }) => p[key]))));
    x = scale(from, to, LEFT, width - RIGHT);
    y = scale(0, ticks.at(-1), BOTTOM, TOP);
    const marks = marked(from, to);
    put(
      svg,
      timeAxis(from, to, x, TOP, BOTTOM, width),
      ticks.map((t) => [
        s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(t), y2: y(t) }),
        s("text", { class: "tick", x: LEFT - 8, y: y(t) + 4, "text-anchor": "end" }, count(t)),
      ]),
      s(
        "text",
        {
          class: "tick",
          x: 12,
          y: (TOP + BOTTOM) / 2,
          transform: `rotate(-90 12 ${(TOP + BOTTOM) / 2})`,
          "text-anchor": "middle",
        },
        "files",
      ),
      marks.map(([run, place, shifted]) => {
        const bad = run.outcome === "success" ? "" : " bad";
        return [
          ACTIONS[run.action].line &&
            s("line", { class: `run${bad}`, x1: place, x2: place, y1: TOP, y2: BOTTOM }),
          s(
            "path",
            { class: `mark${bad}`, d: ACTIONS[run.action].mark, transform: `translate(${shifted} ${TOP - 4})` },
            s("title", null, `${dateTime(run["finished-at-ms"])} ${runText(run)}`),
          ),
        ];
      }),
      SERIES.map(({ key, kind }) =>
        s("path", {
          class: `line ${kind}`,
          d: samples.map((p, i) => `${i ? "L" : "M"}${x(p["at-ms"])},${y(p[key])}`).join(""),
        }),
      ),
      s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: BOTTOM, y2: BOTTOM }),
      cursor,
    );
    box.setAttribute("aria-valuemin", 0);
    box.setAttribute("aria-valuemax", samples.length - 1);
    show(at);
  }

  /** Runs that did something, oldest first, with their place and that of their mark, so that no mark hides another. */
  function marked(from, to) {
    let free = -Infinity;
    return runs
      .filter((r) => r.outcome !== "skipped" && r["finished-at-ms"] >= from && r["finished-at-ms"] <= to)
      .sort((a, b) => a["finished-at-ms"] - b["finished-at-ms"])
      .map((run) => {
        const place = x(run["finished-at-ms"]);
        const shifted = Math.max(place, free);
        free = shifted + 12;
        return [run, place, shifted];
      });
  }

  /** Shows the values of a sample; null: the newest ones, without a cursor. */
  function show(index) {
    at = index === null || samples.length === 0 ? null : Math.max(0, Math.min(samples.length - 1, index));
    const sample = samples[at ?? samples.length - 1];
    if (!sample) return;
    const before = samples[(at ?? 0) - 1]?.["at-ms"] ?? -Infinity;
    const met =
      at === null
        ? []
        : runs.filter(
            (r) => r["finished-at-ms"] > before && r["finished-at-ms"] <= sample["at-ms"] && r.outcome !== "skipped",
          );
    SERIES.forEach(({ key }, i) => setText(values[i], count(sample[key])));
    setText(when, at === null ? "" : `at ${dateTime(sample["at-ms"])}`);
    setText(event, met.map(runText).join("; "));
    box.setAttribute("aria-valuenow", at ?? samples.length - 1);
    box.setAttribute(
      "aria-valuetext",
      [
        timeOfDay(sample["at-ms"]),
        ...SERIES.map(({ key, name }) => `${count(sample[key])} ${name}`),
        ...met.map(runText),
      ].join(", "),
    );
    const place = x?.(sample["at-ms"]);
    put(
      cursor,
      at !== null &&
        x && [
          s("line", { x1: place, x2: place, y1: TOP, y2: BOTTOM }),
          SERIES.map(({ key, kind }) => s("circle", { class: kind, cx: place, cy: y(sample[key]), r: 4 })),
        ],
    );
  }

  function point(pointer) {
    if (!x || samples.length === 0) return;
    const place = pointer.clientX - chart.svg.getBoundingClientRect().left;
    const away = (i) => Math.abs(x(samples[i]["at-ms"]) - place);
    show(samples.reduce((best, _, i) => (away(i) < away(best) ? i : best), 0));
  }

  function arrow(event) {
    const newest = samples.length - 1;
    const to = { ArrowLeft: (at ?? newest) - 1, ArrowRight: (at ?? newest) + 1, Home: 0, End: newest }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  }

  const marks = h(
    "p",
    { class: "legend small" },
    Object.entries(ACTIONS).map(([action, { mark }]) =>
      h(
        "span",
        { class: "key" },
        s(
          "svg",
          { width: 12, height: 12, viewBox: "-6 -11 12 12", "aria-hidden": "true" },
          s("path", { class: "mark", d: mark }),
        ),
        ` ${action}`,
      ),
    ),
    event,
  );
  return { node: h("div", null, legend, box, marks), update: chart.update };
}

/** Snapshots on a line of time: the writers' above, ours below. `update(snapshots)`. */
export function snapshotChart() {
  const HEIGHT = 96;
  const LANES = [24, 52];
  const chart = responsive(HEIGHT, (svg, snapshots, width) => {
    if (snapshots.length === 0)
      return put(svg, s("text", { class: "tick", x: 0, y: 40 }, "The table has no snapshot yet."));
    const left = 76;
    const times = snapshots.map((snapshot) => snapshot["timestamp-ms"]);
    const from = Math.min(...times);
    const to = Math.max(...times, from + 1000);
    const x = scale(from, to, left + 8, width - RIGHT - 8);
    put(
      svg,
      timeAxis(from, to, x, 8, 66, width - left),
      ["writers", "icewright"].map((name, i) => [
        s("text", { class: "tick", x: 0, y: LANES[i] + 4 }, name),
        s("line", { class: "axis", x1: left, x2: width - RIGHT, y1: LANES[i], y2: LANES[i] }),
      ]),
      snapshots.map((snapshot) => {
        const ours = snapshot["run-id"] !== null;
        const at = `translate(${x(snapshot["timestamp-ms"])} ${LANES[ours ? 1 : 0]})`;
        const said = s(
          "title",
          null,
          `${dateTime(snapshot["timestamp-ms"])} ${snapshot.operation} ${snapshot["snapshot-id"]}`,
        );
        const named = snapshot.current || snapshot.refs.length > 0 ? " named" : "";
        return ours
          ? s("path", { class: `dot ours${named}`, d: "M0,-7l6,7l-6,7l-6,-7z", transform: at }, said)
          : s("circle", { class: `dot ${snapshot.operation}${named}`, r: 4.5, transform: at }, said);
      }),
    );
  });
  return { node: chart.svg, update: chart.update };
}

/** A bar for a table cell, `share` of its column's width. */
export function bar(share, kind = "") {
  return s(
    "svg",
    {
      class: `bar ${kind}`,
      width: "100%",
      height: 10,
      preserveAspectRatio: "none",
      viewBox: "0 0 100 10",
      "aria-hidden": "true",
    },
    s("rect", { width: Math.max(share > 0 ? 0.7 : 0, Math.min(1, share) * 100), height: 10 }),
  );
}

/** File sizes as a table with bars; the target is marked in words, too. */
export function histogram({ buckets, "target-bytes": target }) {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.files));
  let below = 0;
  return h(
    "table",
    { class: "histogram" },
    h("caption", { class: "unseen" }, "Data files by size"),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        ["Size", "Files", "", "Bytes"].map((title, i) =>
          h(
            "th",
            { scope: "col", class: i === 1 || i === 3 ? "n" : null },
            title || h("span", { class: "unseen" }, "Share"),
          ),
        ),
      ),
    ),
    h(
      "tbody",
      null,
      buckets.map((bucket) => {
        const le = bucket["le-bytes"];
        const name = le === null ? `over ${bytes(below)}` : `to ${bytes(le)}`;
        const hit = target > below && (le === null || target <= le);
        below = le ?? below;
        return h(
          "tr",
          { class: hit ? "target" : null },
          h("th", { scope: "row" }, name, hit && h("span", { class: "mark" }, ` ◂ target ${bytes(target)}`)),
          h("td", { class: "n" }, count(bucket.files)),
          h("td", { class: "wide-bar" }, bar(bucket.files / most, le !== null && le < target ? "low" : "")),
          h("td", { class: "n dim" }, bucket.files ? bytes(bucket.bytes) : ""),
        );
      }),
    ),
  );
}
