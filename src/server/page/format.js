// Numbers, sizes and times as people read them.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234567 -> "1,234,567"; a dash for what is not known. */
export const count = (n) => (n === null || n === undefined ? "–" : grouped.format(n));

/** "1 file", "2,345 files". */
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1536 -> "1.5 KiB": three digits at most before the unit. */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let value = n;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** A ratio as a percentage: 0.0123 -> "1.2 %". */
export function percent(ratio) {
  if (ratio === null || ratio === undefined) return "–";
  const value = ratio * 100;
  return `${value.toFixed(value >= 10 || value === 0 ? 0 : 1)} %`;
}

/** Milliseconds -> "850 ms", "12 s", "4 min", "3 h 20 min", "5 d". */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 100) return ms < 10_000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)} s` : `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** Like `duration`, without parts of a second: for what counts up or down before one's eyes. */
export const span = (ms) =>
  ms < 1000 ? "0 s" : duration(ms < 10_000 ? Math.floor(ms / 1000) * 1000 : ms).replace(".0 s", " s");

const stamp = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const clockOnly = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium" });

/** Local date and time: "2026-11-30 14:03:22". */
export const dateTime = (ms) => stamp.format(ms);

/** Local time of day: "14:03:22". */
export const timeOfDay = (ms) => clockOnly.format(ms);

/** The daemon's clock minus ours, milliseconds; relative times go by the daemon's. */
let skew = 0;
export const setNow = (daemonMs) => {
  skew = daemonMs - Date.now();
};
export const now = () => Date.now() + skew;

/** "12 s ago", "in 4 min", "now". */
export function relative(ms) {
  const away = ms - now();
  if (Math.abs(away) < 1000) return "now";
  return away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
}

/** A `<time>` that `tick` keeps up to date. `kind`: "relative", "due" (a time past means now) or "since" (how long ago). */
export function time(ms, kind = "relative") {
  const node = document.createElement("time");
  node.dateTime = new Date(ms).toISOString();
  node.title = dateTime(ms);
  node.dataset.ms = ms;
  node.dataset.kind = kind;
  refresh(node);
  return node;
}

function refresh(node) {
  const ms = Number(node.dataset.ms);
  const kind = node.dataset.kind;
  const text = kind === "since" ? span(Math.max(0, now() - ms)) : kind === "due" && ms <= now() ? "now" : relative(ms);
  if (node.textContent !== text) node.textContent = text;
}

/** Brings all relative times below `root` up to date. */
export function tick(root) {
  for (const node of root.querySelectorAll("time[data-kind]")) refresh(node);
}

/** A short form of a run's or snapshot's id. */
export const short = (id) => (id.length > 8 ? id.slice(0, 8) : id);
