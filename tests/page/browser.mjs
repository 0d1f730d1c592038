// A real Chromium, and what every page opened in it must keep to: no error in its console, no request to another host.
// Environment: ICEWRIGHT_PAGE_MODULES, the folder with node_modules; ICEWRIGHT_PAGE_OUTPUT, where screenshots go.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const need = (name) => process.env[name] ?? assert.fail(`${name} is not set`);
const require = createRequire(join(need("ICEWRIGHT_PAGE_MODULES"), "package.json"));
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;
const output = need("ICEWRIGHT_PAGE_OUTPUT");

/** Longest wait for anything; a busy machine is no failure. */
export const PATIENCE_MS = 120_000;

// Without the network's background work: the browser shall talk to the daemon alone.
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
];

/** Runs `steps`, an object of named functions, each in a browser context of its own; all failures are told. */
export async function drive(url, steps) {
  mkdirSync(output, { recursive: true });
  const profile = mkdtempSync(join(tmpdir(), "icewright-page-"));
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [...FLAGS, `--disk-cache-dir=${profile}`],
  });
  let failed = 0;
  try {
    for (const [name, step] of Object.entries(steps)) {
      const context = await browser.newContext({
        viewport: { width: 1440, height: 900 },
        colorScheme: "light",
        reducedMotion: "reduce",
      });
      context.setDefaultTimeout(PATIENCE_MS);
      const visit = visitor(context, url);
      try {
        await step(visit);
        visit.assertClean();
        console.log(`ok      ${name}`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED  ${name}\n${error.stack}`);
        for (const [i, page] of context.pages().entries()) {
          await page
            .screenshot({ path: join(output, `failed-${name.replaceAll(/\W+/g, "-")}-${i}.png`) })
            .catch(() => {});
        }
      }
      await context.close();
    }
  } finally {
    await browser.close();
    rmSync(profile, { recursive: true, force: true });
  }
  console.log(`${Object.keys(steps).length} steps, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

/** Opens pages; what they complain about is collected. `allow` is what a step expects in the console. */
function visitor(context, base) {
  const complaints = [];
  const origin = new URL(base).origin;
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) complaints.push(`request to another host: ${request.url()}`);
  });
  const visit = async (hash, options = {}) => {
    const page = await context.newPage();
    page.on("console", (message) => {
      const text = `${message.text()} ${message.location().url}`;
      if (["error", "warning"].includes(message.type()) && !options.allow?.test(text))
        complaints.push(`console: ${text}`);
    });
    page.on("pageerror", (error) => complaints.push(`uncaught: ${error.stack}`));
    if (options.colorScheme) await page.emulateMedia({ colorScheme: options.colorScheme, reducedMotion: "reduce" });
    await page.goto(base + hash);
    return page;
  };
  visit.assertClean = () => assert.deepEqual(complaints, []);
  return visit;
}

/** Scans the page with axe-core; nothing serious may be found. */
export async function assertAccessible(page) {
  // The protocol's own evaluation, as the page's content security policy rightly forbids a script element with text.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(
    grave.map(
      (v) =>
        `${v.id}: ${v.help}: ${v.nodes
          .slice(0, 3)
          .map((n) => n.html)
          .join(" | ")}`,
    ),
    [],
  );
}

export const screenshot = (page, name, options = {}) =>
  page.screenshot({ path: join(output, `${name}.png`), ...options });

/** Waits until `read()` gives something for which `accept` is true, and gives it. */
export async function until(what, read, accept = Boolean) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await read();
    if (accept(value)) return value;
    if (Date.now() > end) assert.fail(`gave up waiting for ${what}; at last: ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** The names in the list of tables, from top to bottom. */
export const names = (page) => page.locator("table.fleet tbody a.name").allTextContents();
