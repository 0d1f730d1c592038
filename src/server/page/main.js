// The shell: which view is open, when to ask the daemon, and what the header says.

import { allTables, get, setToken, tablePath, token } from "./api.js";
import { actionButton, pause, resume, signIn, toast } from "./actions.js";
import { byId, h, memo, put, setText } from "./dom.js";
import { plural, setNow, tick, time, timeOfDay } from "./format.js";
import { fleetView } from "./fleet.js";
import { tableView } from "./table.js";
import { setDaemonPaused } from "./words.js";

const EVERY_MS = 2000;
/** Asking takes at most one part in so many of the time: far from a large fleet it is asked less often. */
const REST = 4;

const main = byId("main");
/** The open view: `{node, load, update, failed}`. The fleet is kept, as everybody comes back to it. */
let view = null;
let fleet = null;
let fleetScroll = 0;
let status = null;
let lostSince = null;
let timer = 0;
let asking = false;
let askAgain = false;
let fleetHash = "#/";

/** "#/t/a.b.c?x=y" -> path and parameters. */
function route() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", params: new URLSearchParams(query) };
}

function navigate() {
  const { path, params } = route();
  if (path.startsWith("/t/")) {
    let name;
    try {
      name = decodeURIComponent(path.slice(3));
    } catch {
      name = path.slice(3); // A stray percent sign, typed by hand.
    }
    if (view?.name === name) return;
    if (view === fleet) fleetScroll = window.scrollY;
    view = tableView(name, fleetHash, poke);
    view.load = () => get(tablePath(name));
    document.title = `${name} – icewright`;
    show(0);
  } else {
    const left = view?.name;
    fleetHash = location.hash || "#/";
    fleet ??= makeFleet();
    fleet.setParams(params);
    if (view === fleet) return;
    view = fleet;
    document.title = "icewright";
    show(fleetScroll);
    // Whoever comes back goes on where they left.
    if (left) fleet.focusTable(left);
  }
  if (status) view.update(null, status);
  poke();
}

function makeFleet() {
  const made = fleetView((hash) => {
    fleetHash = hash;
    history.replaceState(null, "", hash);
  });
  made.load = allTables;
  return made;
}

function show(scroll) {
  const first = main.contains(byId("loading"));
  put(main, view.node);
  window.scrollTo(0, scroll);
  // Whoever follows a link by keyboard starts at the top of what it leads to.
  if (!first) main.focus({ preventScroll: true });
}

/** Asks the daemon now instead of later. */
function poke() {
  clearTimeout(timer);
  ask();
}

async function ask() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  askAgain = false;
  const asked = view;
  const start = performance.now();
  try {
    const [state, data] = await Promise.all([get("api/v1/status"), asked.load().catch((error) => error)]);
    status = state;
    setNow(state["now-ms"]);
    setDaemonPaused(state.paused !== null);
    connected();
    showHeader();
    if (asked === view) {
      if (data instanceof Error) {
        if (!data.status) throw data;
        view.failed(data);
      } else {
        view.update(data, status);
      }
    }
  } catch (error) {
    if (error.status === undefined) throw error;
    disconnected(error);
  } finally {
    asking = false;
    // A hidden tab asks nothing; it is woken by `visibilitychange`.
    if (!document.hidden)
      timer = setTimeout(ask, askAgain ? 0 : Math.max(EVERY_MS, REST * (performance.now() - start)));
  }
}

function connected() {
  if (lostSince !== null) toast(`Connected again. The daemon was away since ${timeOfDay(lostSince)}.`);
  lostSince = null;
  document.body.classList.remove("lost");
  setText(byId("live"), "live");
  byId("live").title = "";
}

function disconnected(error) {
  lostSince ??= Date.now();
  document.body.classList.add("lost");
  setText(byId("live"), `disconnected since ${timeOfDay(lostSince)}`);
  byId("live").title = error.message;
}

function showHeader() {
  memo(byId("version"), [status.version, status.revision, status["started-at-ms"]], ([version, revision, started]) =>
    h(
      "span",
      { title: revision ? `revision ${revision}` : null },
      version,
      h("span", { class: "wide" }, ", up ", time(started, "since")),
    ),
  );
  setText(byId("role"), status.leader ? "leader" : "standby");
  byId("role").className = status.leader ? "role" : "role standby";
  const notices = [status.leader, status.paused, status.catalogs.filter((c) => !c.up), status.config];
  memo(byId("notices"), notices, ([leader, paused, down, config]) => [
    leader
      ? null
      : notice("warn", "Standby", "another replica is the leader and does the work; this one only watches."),
    paused &&
      notice(
        "warn",
        "The daemon is paused",
        `no new step starts. Since ${timeOfDay(paused["since-ms"])}${paused.reason ? `: ${paused.reason}` : "."}`,
      ),
    down.map((c) =>
      notice("bad", `Catalog ${c.name} is down`, `${c.problem ?? "no answer"} (${plural(c.tables, "table")})`),
    ),
    config["last-load-successful"]
      ? null
      : notice("bad", "The configuration was not reloaded", `${config.problem ?? ""} The earlier one stays in force.`),
    config.warnings.map((warning) => notice("warn", "Configuration", warning)),
  ]);
  byId("pause-all").hidden = byId("sign").hidden = !status.admin;
  setText(byId("pause-all"), status.paused ? "Resume all" : "Pause all");
  showSign();
}

const notice = (kind, title, text) =>
  h(
    "p",
    { class: `notice ${kind}` },
    h("span", { "aria-hidden": "true" }, kind === "bad" ? "✕" : "!"),
    h("span", null, h("strong", null, title), ": ", text),
  );

function showSign() {
  setText(byId("sign"), token() === null ? "Sign in" : "Sign out");
}

function headerButtons() {
  const all = byId("pause-all");
  all.replaceWith(
    actionButton("", () => (status.paused ? resume(null) : pause(null)), poke, { id: "pause-all", hidden: true }),
  );
  byId("sign").addEventListener("click", async () => {
    if (token() === null) await signIn();
    else setToken(null);
    showSign();
  });
}

/** Keys that work wherever nobody is typing. */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    if (view.focusFilter) view.focusFilter();
    else location.hash = fleetHash;
  } else if (event.key === "Escape" && view.name && !typing) {
    location.hash = fleetHash;
  } else {
    view.key?.(event);
  }
}

byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // The hash belongs to the views.
  main.focus();
});
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poke()));
window.addEventListener("hashchange", navigate);
setInterval(() => document.hidden || tick(document), 1000);
headerButtons();
navigate();
