// The page over a running sandbox: `node sandbox.mjs URL TOKEN`.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { assertAccessible, drive, names, screenshot, until } from "./browser.mjs";

const [url, token] = process.argv.slice(2);
const ORDERS = "sandbox.shop.orders";
const LOGS = "sandbox.shop.server_logs";
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
/** Each commit of the writer adds at least one data file. */
const ENOUGH_FILES = 10;

/** A figure of the table's view, as a number. */
const figure = async (page, title) => {
  const text = await page
    .locator(".figure", { has: page.locator(`dt:text-is("${title}")`) })
    .locator("dd")
    .textContent();
  return Number(text.replaceAll(",", ""));
};

async function order(page, button) {
  await page.getByRole("button", { name: button, exact: true }).click();
}

async function signIn(page) {
  await order(page, "Sign in");
  await page.locator("dialog input").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

const said = (page, pattern) =>
  until(
    String(pattern),
    () => page.locator("#toasts").textContent(),
    (text) => pattern.test(text),
  );

await drive(url, {
  async "every file of the page is served, and may load nothing from elsewhere"() {
    for (const file of readdirSync(new URL("../../src/server/page/", import.meta.url))) {
      const answer = await fetch(url + (file === "index.html" ? "" : file));
      assert.equal(answer.status, 200, file);
      assert(answer.headers.get("content-type").startsWith(TYPES[file.split(".").pop()]), file);
      assert.match(answer.headers.get("content-security-policy"), /default-src 'self'(;|$)/, file);
    }
  },

  async "the fleet shows both tables"(visit) {
    const page = await visit("#/?sort=table");
    await until(
      "both tables",
      () => names(page),
      (all) => all.join() === `${ORDERS},${LOGS}`,
    );
    await until(
      "numbers",
      () => page.locator("tbody td.c-data").allTextContents(),
      (all) => all.every((text) => Number(text) > 0),
    );
    assert.match(await page.locator("#role").textContent(), /leader/);
    assert.match(await page.locator(".resources").textContent(), /1 of 1 up.* of \d+ MiB/);
    await page.locator("#filter").fill("logs");
    await until(
      "the filter",
      () => names(page),
      (all) => all.join() === LOGS,
    );
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await until(
      "the table's view",
      () => page.locator("h1").textContent(),
      (text) => text === LOGS,
    );
    await page.keyboard.press("Escape");
    await until(
      "the same list",
      () => names(page),
      (all) => all.join() === LOGS,
    );
  },

  async "the number of data files falls after a run that was asked for"(visit) {
    const page = await visit(`#/t/${ORDERS}`);
    await signIn(page);
    const before = await until(
      "files",
      () => figure(page, "Data files"),
      (count) => count >= ENOUGH_FILES,
    );
    await order(page, "Run now");
    await said(page, /Accepted: sandbox\.shop\.orders/);
    await until(
      "fewer files",
      () => figure(page, "Data files"),
      (count) => count < before / 2,
    );
    const entry = page
      .locator(".runs summary")
      .filter({ hasText: "rewrite-data-files" })
      .filter({ hasText: "success" })
      .first();
    await entry.waitFor();
    assert.match(await entry.textContent(), /\d+ data files rewritten.*data files added/);
    assert((await page.locator(".chart line.run").count()) > 0, "the run is marked in the chart");
    await page.getByText("◆ icewright").first().waitFor();
    // The chart tells the same: a sample that is much smaller than the one before.
    await page.locator("[role=slider]").focus();
    const values = [];
    for (let i = Number(await page.locator("[role=slider]").getAttribute("aria-valuemax")); i >= 0; i--) {
      values.unshift(
        Number((await page.locator("[role=slider]").getAttribute("aria-valuetext")).match(/([\d,]+) data files/)[1]),
      );
      await page.keyboard.press("ArrowLeft");
    }
    assert(
      values.some((value, i) => i > 0 && value < values[i - 1] / 2),
      `${values}`,
    );
    await entry.click();
    await page.getByText("output rows").first().waitFor();
  },

  async "plan, pause and resume"(visit) {
    const page = await visit(`#/t/${LOGS}`);
    await signIn(page);
    // A run that begins just then shows its own plan, which is of compaction alone.
    await until("a plan of all actions", async () => {
      await order(page, "Plan now");
      await said(page, /Planned/);
      return page.getByRole("heading", { name: "remove-orphan-files" }).count();
    });
    assert.match(
      await page.locator("[aria-label='Policy in force']").innerText(),
      /rewrite-data-files\.rewrite-all\s+true\s+policy "server-logs" line \d+/,
    );
    await order(page, "Pause");
    await page.locator("dialog input").fill("looking at it");
    await page.keyboard.press("Enter");
    await page.getByText("looking at it").first().waitFor();
    await order(page, "Resume");
    await said(page, /Resumed/);
    await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
  },

  async "nothing can be done without the token"(visit) {
    for (const path of [`tables/${ORDERS}/run`, `tables/${ORDERS}/pause`, `tables/${ORDERS}/plan`, "pause"]) {
      assert.equal((await fetch(`${url}api/v1/${path}`, { method: "POST" })).status, 401, path);
    }
    const page = await visit(`#/t/${ORDERS}`, { allow: /401/ });
    await order(page, "Run now");
    await page.locator("dialog input").fill("guess");
    await page.keyboard.press("Enter");
    await page.getByText("does not accept this token").waitFor();
  },

  async "it can be used by everybody, and looks like this"(visit) {
    for (const scheme of ["light", "dark"]) {
      const fleet = await visit("#/", { colorScheme: scheme });
      await until(
        "runs",
        () => fleet.locator("tbody td.c-last").allTextContents(),
        (all) => all.length === 2 && all.every((text) => /success|skipped/.test(text)),
      );
      await assertAccessible(fleet);
      await screenshot(fleet, `fleet-${scheme}`);
      const table = await visit(`#/t/${ORDERS}`, { colorScheme: scheme });
      await table.locator(".runs li").first().waitFor();
      await assertAccessible(table);
      await screenshot(table, `table-${scheme}`, { fullPage: true });
    }
  },
});
