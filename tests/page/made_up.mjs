// The page over a made-up daemon: much, odd, wrong and gone.

import assert from "node:assert/strict";
import { assertAccessible, drive, names, screenshot, until } from "./browser.mjs";
import { ODD_NAMES, startMock } from "./mock.mjs";

let mock = await startMock({ tables: 2000 });
const { world, port } = mock;
const rows = (page) => page.locator("table.fleet tbody tr");
const found = (page) => page.locator(".found").textContent();
const table = (name) => world.tables.find((t) => t.table === name);
const open = (name) => `#/t/${encodeURIComponent(name)}`;
const PLAIN = "lake.web.events_0000";
const HIDDEN = String.fromCharCode(0x202e);

async function signIn(page, token) {
  await page.locator("dialog input").fill(token);
  await page.keyboard.press("Enter");
}

await drive(mock.url, {
  async "the fleet tells what is wrong, in words"(visit) {
    const page = await visit("#/");
    await until(
      "the tables",
      () => found(page),
      (text) => text === `${(2000 + ODD_NAMES.length).toLocaleString("en-US")} tables`,
    );
    const notices = await page.locator("#notices").textContent();
    for (const part of ["Catalog archive is down", "connection refused", "configuration was not reloaded", "evry"])
      assert(notices.includes(part), part);
    const chips = Object.fromEntries(
      await page
        .locator(".chip")
        .evaluateAll((all) => all.map((c) => [c.firstChild.textContent, c.lastChild.textContent])),
    );
    const unhealthy = world.tables.filter((t) => t.health === "unhealthy").length;
    assert.equal(chips.Unhealthy, String(unhealthy));
    assert.match(chips.Running, /^\d+ of 4$/);
    const first = await rows(page).first().textContent();
    assert.match(first, /unhealthy/, "what is unhealthy stands first");
    assert.match(await page.locator(".cards.failed").textContent(), /limits\.memory is 4294967296/);
    assert.match(await page.locator(".cards.running").textContent(), /\d of 12 groups/);
    const share = await page
      .locator(".cards.running progress")
      .first()
      .evaluate((bar) => bar.position);
    assert.equal(share, 0.3, "1200 MiB of 4000 MiB");
    assert.match(await page.locator(".resources").textContent(), /1 of 2 up.*1\.28 GiB of 4 GiB/);
    await assertAccessible(page);
    await screenshot(page, "fleet-made-up-light");
  },

  async "dark, and the choice of a theme is remembered"(visit) {
    const page = await visit("#/", { colorScheme: "dark" });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await rows(page).first().waitFor();
    const dark = await background();
    await assertAccessible(page);
    await screenshot(page, "fleet-made-up-dark");
    await page.locator("#theme").click();
    const light = await background();
    assert.notEqual(light, dark);
    await page.reload();
    await rows(page).first().waitFor();
    assert.equal(await background(), light);
    assert.match(await page.locator("#theme").textContent(), /Light/);
  },

  async "filter, chips and sorting work on all tables and stay in the address"(visit) {
    const page = await visit("#/");
    await rows(page).first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("BILLING 0002");
    assert.deepEqual(
      await until(
        "one row",
        () => names(page),
        (all) => all.length === 1,
      ),
      ["lake.billing.events_0002"],
    );
    await page.keyboard.press("Escape");
    await page.locator(".chip.paused").click();
    const paused = world.tables.filter((t) => t.paused);
    assert.equal(await rows(page).count(), paused.length);
    const data = page.locator("th.c-data");
    await data.locator("button").click();
    assert.equal(await data.getAttribute("aria-sort"), "descending");
    const numbers = await page.locator("tbody td.c-data").allTextContents();
    const wanted = paused.map((t) => t.stats["data-files"]).sort((a, b) => b - a);
    assert.deepEqual(
      numbers,
      wanted.map((n) => n.toLocaleString("en-US")),
    );
    assert.equal(new URL(page.url()).hash, "#/?show=paused&sort=-data");
    await page.reload();
    await until(
      "the same list",
      () => page.locator("tbody td.c-data").allTextContents(),
      (now) => now.join() === numbers.join(),
    );
    await data.locator("button").click();
    assert.equal(await data.getAttribute("aria-sort"), "ascending");
    assert.deepEqual(await page.locator("tbody td.c-data").allTextContents(), [...numbers].reverse());
  },

  async "of two thousand rows only what changed is touched"(visit) {
    const page = await visit("#/?sort=table");
    await rows(page).first().waitFor();
    const made = await rows(page).count();
    assert(made < 400, `${made} rows were made at once`);
    // Going down makes the others.
    await until(
      "more rows",
      async () => {
        await page.mouse.wheel(0, 5000);
        return rows(page).count();
      },
      (count) => count > made,
    );
    await page.evaluate(() => {
      window.touched = new Set();
      const cells = (records) => records.map((record) => record.target.closest("td.c-data")).filter(Boolean);
      const note = (records) =>
        cells(records).forEach((cell) => window.touched.add(cell.closest("tr").querySelector("a.name").title));
      new MutationObserver(note).observe(document.querySelector("table.fleet tbody"), {
        childList: true,
        subtree: true,
        attributes: true,
      });
    });
    const changed = "lake.billing.events_0002";
    table(changed).stats["data-files"] = 7777;
    world.changed();
    const cell = page.locator("tr", { hasText: changed }).locator("td.c-data");
    await until(
      "the change",
      () => cell.textContent(),
      (text) => text === "7,777",
    );
    assert.deepEqual(await page.evaluate(() => [...window.touched]), [changed]);
    const before = world.notModified;
    await until(
      "answers without content",
      () => world.notModified,
      (count) => count > before,
    );
  },

  async "odd names do no harm and lead to their tables"(visit) {
    const page = await visit("#/");
    for (const name of ODD_NAMES) {
      await page.goto(`${mock.url}#/?q=${encodeURIComponent(name)}&sort=table`);
      const shown = name.replace(HIDDEN, "\\u202e");
      const link = page.locator("table.fleet a.name").filter({ hasText: shown });
      await until(
        shown,
        () => link.count(),
        (count) => count === 1,
      );
      await link.click();
      await until(
        `the table ${shown}`,
        () => page.locator("h1").textContent(),
        (text) => text === shown,
      );
      await page.locator(".runs li").first().waitFor();
      await page.keyboard.press("Escape");
      await link.waitFor();
      assert.equal(await rows(page).count(), 1, "Escape leads back to the same list");
    }
    assert.equal(await page.evaluate(() => window.harmed), undefined);
    assert.equal(await page.locator("main img").count(), 0);
  },

  async "the keyboard reaches everything"(visit) {
    const page = await visit("#/?sort=table");
    await rows(page).first().waitFor();
    const focus = () =>
      page.evaluate(
        () => document.activeElement.id || document.activeElement.title || document.activeElement.textContent,
      );
    await page.keyboard.press("Tab");
    assert.equal(await focus(), "skip");
    await page.keyboard.press("/");
    assert.equal(await focus(), "filter");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    const second = await page.locator("table.fleet a.name").nth(1).getAttribute("title");
    assert.equal(await focus(), second);
    // The focus stays on its row when the list changes around it.
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "the focus can be seen");
    table(second).stats["data-files"] += 1;
    world.changed();
    await until(
      "the change",
      () => rows(page).nth(1).locator("td.c-data").textContent(),
      (text) => text === table(second).stats["data-files"].toLocaleString("en-US"),
    );
    assert.equal(await focus(), second);
    await page.keyboard.press("Enter");
    await page.locator(".runs li").first().waitFor();
    const reached = new Set();
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      reached.add(
        await page.evaluate(
          () => document.activeElement.getAttribute("role") ?? document.activeElement.textContent.trim().slice(0, 40),
        ),
      );
    }
    for (const wanted of ["Run now", "Pause", "Plan now", "slider", "‹ All tables"])
      assert(reached.has(wanted), `${wanted} of ${[...reached]}`);
    await page.locator("[role=slider]").focus();
    await page.keyboard.press("Home");
    assert.match(
      await page.locator("[role=slider]").getAttribute("aria-valuetext"),
      /^\d\d:\d\d:\d\d, \d+ data files, \d+ delete files, \d+ manifests/,
    );
    await page.keyboard.press("Escape");
    await rows(page).first().waitFor();
  },

  async "a table's view explains"(visit) {
    const failing = world.tables.find((t) => t.quarantined);
    for (const scheme of ["light", "dark"]) {
      const page = await visit(open(failing.table), { colorScheme: scheme });
      await page.locator(".runs li").first().waitFor();
      const text = await page.locator("main").innerText();
      for (const part of [
        "field 503 is missing",
        "Not compacted until its metadata changes",
        "repair it",
        "target 256 MiB",
        "region=eu-west-1",
        "SlowDown",
        "icewright 0193cafe",
        "8000000000002367781",
      ]) {
        assert(text.includes(part), part);
      }
      assert.match(text, /rewrite-data-files\.rewrite-all\s+true\s+policy "upserts" line 34/);
      await page.locator(".runs summary").first().click();
      await page.getByText("committed groups").first().waitFor();
      await page.getByText("The same as a table").click();
      await until(
        "the samples",
        () => page.locator("table:has(caption:text('Samples')) tbody tr").count(),
        (count) => count === 300,
      );
      await assertAccessible(page);
      await screenshot(page, `table-made-up-${scheme}`, { fullPage: true });
      await page.close();
    }
  },

  async "a table that is not there is said to be so"(visit) {
    const page = await visit("#/t/lake.web.gone", { allow: /404/ });
    await until(
      "the words",
      () => page.locator("[role=alert]").textContent(),
      (text) => /lake.web.gone is not maintained/.test(text),
    );
  },

  async "without a token in the configuration there are no buttons"(visit) {
    world.status.admin = false;
    const page = await visit(open(PLAIN));
    await page.locator(".runs li").first().waitFor();
    for (const name of ["Run now", "Pause", "Plan now", "Pause all", "Sign in"]) {
      assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
    }
    world.status.admin = true;
    await page.getByRole("button", { name: "Run now" }).waitFor();
  },

  async "orders ask for the token and say how they went"(visit) {
    const page = await visit(open(PLAIN), { allow: /40[139]/ });
    const toasts = page.locator("#toasts");
    const said = (pattern) =>
      until(
        String(pattern),
        () => toasts.textContent(),
        (text) => pattern.test(text),
      );
    await page.getByRole("button", { name: "Run now" }).click();
    await signIn(page, "wrong");
    await page.getByText("does not accept this token").waitFor();
    await assertAccessible(page);
    await signIn(page, "secret");
    await said(/Accepted: lake\.web\.events_0000/);
    assert.deepEqual(world.posts.at(-1).path, `/api/v1/tables/${PLAIN}/run`);

    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await signIn(page, "backfill <b>now</b>");
    await said(/Paused/);
    assert.deepEqual(world.posts.at(-1).body, { reason: "backfill <b>now</b>" });
    await page.getByText("backfill <b>now</b>").first().waitFor();
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await said(/Resumed/);
    assert.equal(table(PLAIN).paused, null);

    await page.getByRole("button", { name: "Plan now" }).click();
    await said(/Planned/);
    await page.getByText("Picks 118 files (318 MiB) of 128 looked at, in 5 file groups").waitFor();
    await page.getByText("too_few_files").first().waitFor();
    await assertAccessible(page);

    await page.getByRole("button", { name: "Pause all" }).click();
    await page.keyboard.press("Enter");
    await page.getByText("The daemon is paused").waitFor();
    await page.getByRole("button", { name: "Resume all" }).click();
    await until(
      "no pause",
      () => page.locator("#notices").textContent(),
      (text) => !text.includes("is paused"),
    );

    world.refuse = 409;
    await page.getByRole("button", { name: "Run now" }).click();
    await said(/Not possible now: the table is in quarantine/);
    world.refuse = null;
    world.token = null;
    await page.getByRole("button", { name: "Run now" }).click();
    await said(/Not allowed: no admin token is configured/);
    world.token = "secret";
    const kept = await page.evaluate(() => [sessionStorage.length, JSON.stringify(localStorage).includes("secret")]);
    assert.deepEqual(kept, [1, false], "the token lives as long as the tab");
    const posts = world.posts.length;
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Run now" }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    assert.equal(world.posts.length, posts, "nothing is sent without a token");
  },

  async "a tab that nobody sees asks nothing"(visit) {
    const hidden = await visit("#/");
    const seen = await visit("#/");
    const asked = (page) => {
      const counter = { count: 0 };
      page.on("request", () => (counter.count += 1));
      return counter;
    };
    await rows(hidden).first().waitFor();
    const turn = (value) =>
      hidden.evaluate((is) => {
        Object.defineProperty(document, "hidden", { value: is, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, value);
    await turn(true);
    // What was under way comes to its end while the other tab goes round; then there is nothing more.
    const rounds = async (page) => {
      const counter = asked(page);
      await until(
        "a few rounds",
        () => counter.count,
        (count) => count >= 9,
      );
    };
    await rounds(seen);
    const counter = asked(hidden);
    await rounds(seen);
    assert.equal(counter.count, 0);
    await turn(false);
    await until("it to ask again", () => counter.count);
  },

  async "a standby says that it only watches"(visit) {
    world.status.leader = false;
    const page = await visit("#/");
    await page.getByText("another replica is the leader").waitFor();
    assert.equal(await page.locator("#role").textContent(), "standby");
    world.status.leader = true;
    await until(
      "the leader",
      () => page.locator("#role").textContent(),
      (text) => text === "leader",
    );
  },

  async "nothing waits for a worker while the daemon is paused"(visit) {
    const page = await visit("#/");
    const queued = () => page.locator(".chip.queued .number").textContent();
    await until("tables that wait", queued, (number) => number > 0);
    world.status.paused = { reason: "", "since-ms": Date.now() };
    await until("none to wait", queued, (number) => number === "0");
    world.status.paused = null;
  },

  async "a small screen is enough"(visit) {
    const page = await visit(open(PLAIN));
    await page.setViewportSize({ width: 360, height: 740 });
    const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= 360);
    await page.locator(".runs li").first().waitFor();
    assert(await until("the table view to fit", fits));
    await page.goto(`${mock.url}#/`);
    await rows(page).first().waitFor();
    assert(await until("the fleet to fit", fits));
    await assertAccessible(page);
    await screenshot(page, "fleet-made-up-360");
  },

  async "a daemon that goes away and comes back"(visit) {
    const page = await visit("#/?sort=table", {
      allow: /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|Failed to load resource/,
    });
    const live = page.locator("#live");
    await until(
      "live",
      () => live.textContent(),
      (text) => text === "live",
    );
    await mock.stop();
    await until(
      "the loss to be told",
      () => live.textContent(),
      (text) => /^disconnected since \d\d:\d\d:\d\d$/.test(text),
    );
    assert((await rows(page).count()) > 0, "what was known stays");
    mock = await startMock({ tables: 3, port });
    await until(
      "it to come back",
      () => live.textContent(),
      (text) => text === "live",
    );
    await until(
      "the new list",
      () => names(page),
      (all) => all.length === 3 + ODD_NAMES.length,
    );
    assert.match(await page.locator("#toasts").textContent(), /Connected again/);
  },
});
await mock.stop();
