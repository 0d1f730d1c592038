// The daemon's API. Nothing here knows how anything looks.

/** An answer that says no, or no answer at all (`status` 0). `message` is for people. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const TIMEOUT_MS = 15_000;
/** An order may take longer: a plan reads manifests and lists directories. */
const ORDER_TIMEOUT_MS = 310_000;
const TOKEN = "icewright-admin-token";
const cache = new Map();

/** The path of a table, or of something below it. */
export const tablePath = (name, rest = "") => `api/v1/tables/${encodeURIComponent(name)}${rest}`;

/** GETs JSON. Asks only for what changed: the very same object comes back if nothing did. */
export async function get(path) {
  const known = cache.get(path);
  const headers = known?.etag ? { "If-None-Match": known.etag } : {};
  const response = await send(path, { headers, cache: "no-store" }, TIMEOUT_MS);
  if (response.status === 304 && known) return known.body;
  const body = await json(response, path);
  // A view or two and their pages; whatever was looked at before goes.
  if (cache.size > 50) cache.clear();
  cache.set(path, { etag: response.headers.get("ETag"), body });
  return body;
}

let joined = { pages: [], tables: [] };

/** All tables, over as many answers as it takes. The same array comes back if nothing changed. */
export async function allTables() {
  const pages = [];
  let after = "";
  for (;;) {
    const page = await get(`api/v1/tables?limit=1000${after && `&after=${encodeURIComponent(after)}`}`);
    pages.push(page);
    // A next that does not advance would never end.
    if (!page.next || page.next === after) break;
    after = page.next;
  }
  if (pages.length !== joined.pages.length || pages.some((page, i) => page !== joined.pages[i])) {
    joined = { pages, tables: pages.flatMap((page) => page.tables) };
  }
  return joined.tables;
}

/** POSTs with the admin token; the answer's JSON, or null if it has none. */
export async function post(path, body) {
  const headers = { Authorization: `Bearer ${token() ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method: "POST", headers, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await send(path, options, ORDER_TIMEOUT_MS);
  return json(response, path);
}

async function send(path, options, timeoutMs) {
  try {
    return await fetch(path, { ...options, signal: AbortSignal.timeout(timeoutMs) });
  } catch {
    throw new ApiError(0, "The daemon does not answer.");
  }
}

async function json(response, path) {
  let body = null;
  try {
    const text = await response.text();
    body = text && JSON.parse(text);
  } catch {
    if (response.ok) throw new ApiError(0, `${path} answered with something else than JSON.`);
  }
  if (response.ok) return body || null;
  const said = body?.detail || body?.title || `HTTP ${response.status}`;
  throw new ApiError(response.status, said);
}

let memory = null;

/** The admin token of this browser tab, or null. */
export function token() {
  try {
    return sessionStorage.getItem(TOKEN) ?? memory;
  } catch {
    return memory;
  }
}

/** Remembers the admin token until the tab is closed; null forgets it. */
export function setToken(value) {
  memory = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // Storage may be forbidden; then it is remembered as long as the page is open.
  }
}
