// Building and updating the document. Data gets in as text nodes and attribute values only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...parts(children));
  return node;
}

/** Characters that nobody sees, or that turn the text around them about: a name must look like what it is. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** The text with such characters written out, as in "\u202e". */
const visible = (text) => String(text).replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Children as nodes and texts: nothing for null, undefined and false. */
const parts = (children) =>
  children
    .flat(Infinity)
    .filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (c instanceof Node ? c : visible(c)));

/** An element. A property that is a function listens to the event of that name; any other is an attribute. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export const byId = (id) => document.getElementById(id);

/** Sets the text only if it differs, so that nothing is laid out anew or read out again without a change. */
export function setText(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/** Replaces what a node holds. */
export function put(node, ...children) {
  node.replaceChildren(...parts(children));
}

const seen = new WeakMap();

/** Fills a node anew if `value`, as JSON, is not what it was filled with; tells whether it was. */
export function memo(node, value, make) {
  const text = JSON.stringify(value) ?? "";
  if (seen.get(node) === text) return false;
  seen.set(node, text);
  put(node, make(value));
  return true;
}

/**
 * Makes `parent`'s children those of `items`, in their order. A child lives as long as its key; `make(item)` gives
 * `{node, update(item)}`. Only what changed is touched, and the focus stays where it is.
 */
export function keyed(parent, items, key, make) {
  const old = parent.entries ?? new Map();
  const now = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let next = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    if (now.has(name)) continue;
    const entry = old.get(name) ?? make(item);
    entry.update?.(item);
    now.set(name, entry);
    if (entry.node === next) next = next.nextSibling;
    else parent.insertBefore(entry.node, next);
  }
  for (const [name, entry] of old) if (!now.has(name)) entry.node.remove();
  parent.entries = now;
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** A table with a caption for screen readers; `columns` are `[heading, class]`, `rows` lists of cells. */
export function grid(caption, columns, rows, props) {
  const cell = (value, i) => h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: columns[i][1] }, value);
  return h(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    h(
      "table",
      props,
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map(([heading, name]) => h("th", { scope: "col", class: name }, heading)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) => h("tr", null, row.map(cell))),
      ),
    ),
  );
}
