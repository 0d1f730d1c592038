// What an administrator can do: asking for the token, for reasons, and saying how it went.

import { ApiError, post, setToken, tablePath, token } from "./api.js";
import { byId, h } from "./dom.js";

const TOLD_MS = 8000;

/** Tells how something went. Failures stay until they are closed. */
export function toast(text, bad = false) {
  const close = h("button", { type: "button", "aria-label": "Close this message", click: () => box.remove() }, "✕");
  const box = h(
    "div",
    { class: bad ? "toast bad" : "toast good" },
    h("span", { "aria-hidden": "true" }, bad ? "✕" : "✓"),
    h("span", null, text),
    close,
  );
  byId("toasts").append(box);
  if (!bad) setTimeout(() => box.remove(), TOLD_MS);
}

/** Asks for one line of text; null if the person thinks better of it. */
function ask(title, text, label, confirm, secret) {
  return new Promise((resolve) => {
    let answer = null;
    const input = h("input", {
      id: "asked",
      type: secret ? "password" : "text",
      autocomplete: "off",
      spellcheck: "false",
      required: secret,
      // What a header can carry.
      pattern: secret ? "[!-~]+" : null,
    });
    const submit = (event) => {
      event.preventDefault();
      answer = input.value.trim();
      dialog.close();
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "asking", close: () => (dialog.remove(), resolve(answer)) },
      h(
        "form",
        { submit },
        h("h2", { id: "asking" }, title),
        h("p", null, text),
        h("label", { for: "asked" }, label),
        input,
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", click: () => dialog.close() }, "Cancel"),
          h("button", { class: "primary" }, confirm),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}

/** Asks for the admin token and keeps it for this tab. False if none was given. */
export async function signIn(problem) {
  const text =
    problem ??
    "It is the value of server.admin-token in the daemon's configuration. This tab keeps it until it is closed.";
  const given = await ask("Admin token", text, "Token", "Use it", true);
  if (given) setToken(given);
  return Boolean(given);
}

/** POSTs; asks for the token when there is none or it is wrong. Undefined if the person gave up or it failed. */
async function send(path, body) {
  if (token() === null && !(await signIn())) return undefined;
  for (;;) {
    try {
      return await post(path, body);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 401) {
        toast(inWords(error), true);
        return undefined;
      }
      setToken(null);
      if (!(await signIn("The daemon does not accept this token. Try again."))) return undefined;
    }
  }
}

function inWords({ status, message }) {
  switch (status) {
    case 0:
      return `Nothing was done: ${message}`;
    case 403:
      return `Not allowed: ${message}`;
    case 404:
      return `Not found: ${message}`;
    case 409:
      return `Not possible now: ${message}`;
    case 503:
      return `The daemon cannot do this now: ${message}`;
    default:
      return `Refused (${status}): ${message}`;
  }
}

/** Runs the table's next compaction now. */
export async function runNow(table) {
  if ((await send(tablePath(table, "/run"))) !== undefined)
    toast(`Accepted: ${table} runs as soon as a worker is free.`);
}

/** Pauses a table, or with null the whole daemon. */
export async function pause(table) {
  const what = table ?? "the whole daemon";
  const text =
    "No new step starts until it is resumed; what runs now comes to its end. A restart of the daemon forgets the pause.";
  const reason = await ask(`Pause ${what}`, text, "Reason (shown to everybody)", "Pause", false);
  if (reason === null) return;
  const path = table === null ? "api/v1/pause" : tablePath(table, "/pause");
  if ((await send(path, reason ? { reason } : {})) !== undefined) toast(`Paused: ${what}.`);
}

/** Resumes a table, or with null the whole daemon. */
export async function resume(table) {
  const path = table === null ? "api/v1/resume" : tablePath(table, "/resume");
  if ((await send(path)) !== undefined) toast(`Resumed: ${table ?? "the whole daemon"}.`);
}

/** Plans the table anew. */
export async function planNow(table) {
  if ((await send(tablePath(table, "/plan"))) !== undefined) toast(`Planned: ${table}. Nothing was changed.`);
}

/** A button that can be pressed once at a time; `poke` is called when its work is done. */
export function actionButton(text, work, poke, props) {
  const press = async () => {
    button.disabled = true;
    try {
      await work();
    } finally {
      button.disabled = false;
      // A button that is switched off loses the focus; nobody who has gone on is called back.
      if (document.activeElement === document.body) button.focus({ preventScroll: true });
      poke();
    }
  };
  const button = h("button", { type: "button", ...props, click: press }, text);
  return button;
}
