// A daemon that is not there: serves the page and the API's answers, made up, for what a real daemon does not show on
// demand: thousands of tables, failures, odd names, refusals. `node mock.mjs PORT [TABLES]` to look at it by hand.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";

const PAGE = new URL("../../src/server/page/", import.meta.url);
const TYPES = { html: "text/html; charset=utf-8", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
const MIB = 1 << 20;
const MINUTE = 60_000;

/** Names that must do no harm, wherever they are shown. */
export const ODD_NAMES = [
  'lake.web.<img src=x onerror="window.harmed=1">',
  "lake.web.a b%20c/d?e#f",
  "lake.web.quote\"s & 'more'",
  "lake.web.‮evil",
  "lake.web.주문",
];

/** Always the same numbers for the same seed, from 0 to 1. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

const ZERO = {
  "rewritten-data-files": 0,
  "rewritten-bytes": 0,
  "added-data-files": 0,
  "added-bytes": 0,
  "removed-delete-files": 0,
  "expired-snapshots": 0,
  "deleted-files": 0,
  "deleted-bytes": 0,
  "commit-conflicts": 0,
  "commit-unknown": 0,
};

function run(action, outcome, at, reason, counts, id) {
  const took = 4200;
  return {
    "run-id": id ?? `0193${at.toString(16)}-0000-7000-8000-000000000000`,
    action,
    outcome,
    "started-at-ms": at - took,
    "finished-at-ms": at,
    "duration-ms": took,
    reason,
    counts: { ...ZERO, ...counts },
  };
}

function stats(files, rand) {
  const small = Math.floor(files * rand() * 0.6);
  const bytes = files * Math.floor(40 * MIB + rand() * 200 * MIB);
  return {
    "data-files": files,
    "data-file-bytes": bytes,
    "data-records": files * 120_000,
    "small-data-files": small,
    "position-delete-files": Math.floor(rand() * 40),
    "equality-delete-files": Math.floor(rand() * 90),
    "deletion-vectors": 0,
    "data-manifests": 2 + Math.floor(rand() * 60),
    "delete-manifests": Math.floor(rand() * 20),
    "manifest-bytes": 812_345,
    snapshots: 3 + Math.floor(rand() * 60),
    partitions: 5,
    "partition-records-rsd-ratio": rand() * 0.03,
    "partition-bytes-rsd-ratio": rand() * 0.05,
    "partition-bytes-mean": bytes / 5,
    "all-files": files * 3,
    "all-file-bytes": bytes * 3,
  };
}

function summary(name, i, now) {
  const rand = random(i + 7);
  const [catalog, namespace] = name.split(".");
  const table = {
    table: name,
    catalog,
    namespace,
    name: name.slice(catalog.length + namespace.length + 2),
    health: "healthy",
    reasons: [],
    step: "idle",
    paused: null,
    "next-step": {
      step: "rewrite-data-files",
      "at-ms": now + 90_000 + Math.floor(rand() * 3_000_000),
      why: "schedule",
    },
    "consecutive-failures": 0,
    quarantined: false,
    policies: ["everything", namespace],
    "collected-at-ms": now - Math.floor(rand() * 200_000),
    stats: stats(3 + Math.floor(rand() * 900), rand),
    progress: null,
    "last-runs": {
      "rewrite-data-files": run("rewrite-data-files", "success", now - 20 * MINUTE - i * 1000, null, {
        "rewritten-data-files": 118,
        "rewritten-bytes": 318 * MIB,
        "added-data-files": 5,
        "added-bytes": 301 * MIB,
      }),
      "expire-snapshots": run("expire-snapshots", "success", now - 15 * MINUTE - i * 1000, null, {
        "expired-snapshots": 11,
        "deleted-files": 240,
        "deleted-bytes": 640 * MIB,
      }),
    },
  };
  const failed = (reason, outcome = "failed") => {
    table["last-runs"]["rewrite-data-files"] = run(
      "rewrite-data-files",
      outcome,
      now - 3 * MINUTE - i * 1000,
      reason,
      {},
    );
    table["consecutive-failures"] = 4;
  };
  const unhealthy = (...reasons) =>
    Object.assign(table, { health: "unhealthy", reasons: reasons.map(([reason, detail]) => ({ reason, detail })) });
  switch (i % 40) {
    case 3:
      unhealthy(
        ["failing", "4 runs in a row failed; the last one: a file group needs 5,242,880,000 bytes"],
        ["small_files", "1,204 small data files, 96 % of all"],
      );
      failed(
        "rewrite file group 3: a file group needs 5242880000 bytes, and limits.memory is 4294967296; raise it, or set max-file-group-size lower",
      );
      break;
    case 9:
      unhealthy(["delete_files", "3.1 delete files per data file, more than 1.0"]);
      break;
    case 14:
      unhealthy(["quarantined", "manifest list snap-42.avro: field 503 is missing"]);
      table.quarantined = true;
      failed(
        "read manifest list s3://lake/metadata/snap-42.avro: field 503 (added_snapshot_id) is missing; the table is left alone until its metadata changes",
      );
      break;
    case 17:
      failed("position deletes arrived on 12 inputs while they were rewritten; the next run plans anew", "conflict");
      break;
    case 21:
      Object.assign(table, {
        health: "unknown",
        stats: null,
        "collected-at-ms": null,
        "last-runs": {},
        "next-step": null,
      });
      break;
    case 5:
      if (i > 50) break;
      table.step = "rewrite-data-files";
      table.progress = {
        phase: "rewrite",
        "planned-groups": 12,
        "finished-groups": 3 + (i % 7),
        "planned-bytes": 4000 * MIB,
        rows: 12_345_678,
        "read-bytes": 1200 * MIB,
        "written-bytes": 801 * MIB,
        "started-at-ms": now - 74_000,
      };
      break;
    case 6:
      if (i > 50) break;
      table.step = "expire-snapshots";
      table.progress = {
        phase: "commit",
        "planned-groups": 0,
        "finished-groups": 0,
        "planned-bytes": 0,
        rows: 0,
        "read-bytes": 0,
        "written-bytes": 0,
        "started-at-ms": now - 3_000,
      };
      break;
    case 11:
      table.paused = { reason: "backfill until noon", "since-ms": now - 40 * MINUTE };
      break;
    case 25:
      table.step = "delay";
      table["next-step"] = {
        step: "clean-up",
        "at-ms": now + 8 * MINUTE,
        why: "delay after the last commit of the last run",
      };
      break;
    case 30:
      table["next-step"]["at-ms"] = now - 4000;
      break;
  }
  return table;
}

function detail(table, now) {
  const rand = random(99);
  const samples = [];
  const runs = [];
  const snapshots = [];
  let files = 20;
  let deletes = 4;
  for (let i = 0; i < 300; i++) {
    const at = now - (300 - i) * MINUTE;
    files += Math.floor(1 + rand() * 5);
    deletes += Math.floor(rand() * 4);
    if (i % 60 === 59) {
      const id = `0193cafe-${i}`;
      runs.unshift(
        run(
          "rewrite-data-files",
          "success",
          at - 20_000,
          null,
          {
            "rewritten-data-files": files - 5,
            "rewritten-bytes": 318 * MIB,
            "added-data-files": 5,
            "added-bytes": 301 * MIB,
            "removed-delete-files": deletes,
          },
          id,
        ),
      );
      runs.unshift(
        run(
          "expire-snapshots",
          "success",
          at + 5 * MINUTE,
          null,
          { "expired-snapshots": 60, "deleted-files": 240, "deleted-bytes": 640 * MIB },
          id,
        ),
      );
      runs.unshift(
        run(
          "remove-orphan-files",
          i === 179 ? "failed" : "success",
          at + 6 * MINUTE,
          i === 179 ? "list s3://lake/web/orders/data: the store answered 503 SlowDown" : null,
          { "deleted-files": 2, "deleted-bytes": 3 * MIB },
          id,
        ),
      );
      files = 5;
      deletes = 0;
    }
    const total = { "total-data-files": files, "total-delete-files": deletes };
    if (i > 200) {
      const ours = i % 60 === 59;
      snapshots.unshift({
        "snapshot-id": String(8_000_000_000_000_000_000n + BigInt(i) * 7919n),
        "parent-id": String(8_000_000_000_000_000_000n + BigInt(i - 1) * 7919n),
        "sequence-number": i,
        "timestamp-ms": at,
        operation: ours ? "replace" : "overwrite",
        "run-id": ours ? `0193cafe-${i}` : null,
        current: i === 299,
        refs: i === 299 ? ["main"] : i === 250 ? ["audit"] : [],
        ...total,
        summary: { operation: "overwrite", "added-data-files": "4", "deleted-data-files": ours ? "118" : "0" },
      });
    }
    samples.push({
      "at-ms": at,
      "data-files": files,
      "small-data-files": Math.floor(files * 0.9),
      "delete-files": deletes,
      manifests: 3 + Math.floor((files + deletes) / 4),
      "data-file-bytes": files * 8 * MIB,
      "all-files": files * 3,
    });
  }
  for (const entry of runs) {
    entry.report = {
      outcome: entry.outcome,
      "metadata-invalid": false,
      reason: entry.reason,
      "planned-groups": 5,
      "committed-groups": 5,
      "rewritten-bytes": 318 * MIB,
      "last-commit-ms": entry["finished-at-ms"],
      "duration-ms": 4200,
      skipped: [
        {
          reason: "right_size",
          detail: "between min-file-size and max-file-size, few deletes",
          files: 3,
          bytes: 700 * MIB,
        },
      ],
      errors: [],
    };
  }
  const sizes = [1, 4, 16, 32, 64, 128, 192, 256, 384, 512, 1024].map((mib) => mib * MIB);
  const policy = [
    ["commit-interval", "10m", 'policy "upserts" line 31'],
    ["schedule", "0 6,18 * * *", 'policy "upserts" line 32'],
    ["time-zone", "Asia/Seoul", "[defaults] line 12"],
    ["delay", "3x", "built-in default"],
    ["rewrite-data-files.enabled", true, "built-in default"],
    ["rewrite-data-files.rewrite-all", true, 'policy "upserts" line 34'],
    ["rewrite-data-files.target-file-size", "256MiB", 'policy "everything" line 20'],
    ["rewrite-data-files.min-input-files", 5, "built-in default"],
    ["expire-snapshots.older-than", "2x", "built-in default"],
    ["remove-orphan-files.unproven-min-age", "24h", "built-in default"],
  ].map(([key, value, origin]) => ({ key, value: JSON.stringify(value), origin }));
  return {
    ...table,
    runs,
    samples,
    snapshots,
    policy,
    partitions: ["ap-northeast-2", "eu-west-1", "us-east-1", "us-west-2", "sa-east-1"].map((region, i) => ({
      partition: `region=${region}`,
      "spec-id": 0,
      "data-files": 40 - i * 3,
      "data-file-bytes": (900 - i * 31) * MIB,
      "data-records": 1_200_000 - i * 40_000,
    })),
    "size-histogram": {
      "target-bytes": 256 * MIB,
      buckets: [...sizes, null].map((le, i) => ({
        "le-bytes": le,
        files: [12, 30, 44, 18, 9, 4, 2, 7, 1, 0, 0, 1][i],
        bytes: [6, 80, 500, 420, 500, 400, 300, 1700, 300, 0, 0, 1300][i] * MIB,
      })),
    },
    plan: null,
  };
}

const tally = (files, bytes) => ({ files, bytes });

function plan(table) {
  return {
    table,
    policies: ["everything"],
    "commit-interval-s": 600,
    "delay-s": 1800,
    origins: {},
    "next-step": "rewrite-data-files in 240 s (schedule)",
    "rewrite-data-files": {
      would: {
        "considered-data-files": 128,
        "file-groups": 5,
        "input-files": 118,
        "input-bytes": 318 * MIB,
        "expected-output-files": 5,
        skipped: [
          {
            reason: "right_size",
            detail:
              "201326592 to 483183820 bytes and few deletes; rewrite-all, or a lower delete threshold, includes them",
            files: 7,
            bytes: 1700 * MIB,
          },
          {
            reason: "too_few_files",
            detail: "fewer than min-input-files (5) in their group, and together not above the target size",
            files: 3,
            bytes: 90 * MIB,
          },
        ],
      },
    },
    "expire-snapshots": {
      would: {
        snapshots: 11,
        refs: ["old-audit"],
        kept: [{ reason: "branch", detail: "main keeps its last snapshot", files: 1, bytes: 0 }],
      },
    },
    "remove-orphan-files": {
      would: {
        refused: null,
        listed: tally(640, 4000 * MIB),
        referenced: tally(600, 3900 * MIB),
        orphans: tally(40, 100 * MIB),
        removable: { "run-over": tally(2, 3 * MIB) },
        kept: { "too-young": tally(38, 97 * MIB) },
        deleted: {},
        failed: {},
        failures: [],
        error: null,
      },
    },
  };
}

/**
 * Starts the server. `world` may be changed while it runs: `tables` (summaries), `status`, `token` (null: none configured),
 * `refuse` (a status for every POST), `posts` (what was posted). `world.changed()` gives the list a new ETag.
 */
export function startMock({ tables: wanted = 60, odd = true, port = 0 } = {}) {
  const now = Date.now();
  const names = [
    ...(odd ? ODD_NAMES : []),
    ...Array.from(
      { length: wanted },
      (_, i) => `lake.${["web", "shop", "billing"][i % 3]}.events_${String(i).padStart(4, "0")}`,
    ),
  ];
  let version = 1;
  const plans = new Map();
  const world = {
    token: "secret",
    refuse: null,
    posts: [],
    notModified: 0,
    tables: names.map((name, i) => summary(name, i, now)),
    status: {
      version: "0.1.0",
      revision: "abcdef1",
      "started-at-ms": now - 5_000_000,
      leader: true,
      paused: null,
      admin: true,
      catalogs: [
        { name: "lake", up: true, problem: null, tables: names.length },
        {
          name: "archive",
          up: false,
          problem: "GET https://archive.example.com/v1/config: connection refused",
          tables: 4,
        },
      ],
      memory: { "budget-bytes": 4096 * MIB, "reserved-bytes": 1311 * MIB, "manifest-cache-bytes": 12 * MIB },
      queue: { running: 3, queued: 2, limit: 4 },
      config: {
        "loaded-at-ms": now - 5_000_000,
        "last-load-successful": false,
        problem: 'line 12: unknown key "evry"; known here: every, schedule.',
        warnings: ['policy "old": its pattern matches no table'],
      },
    },
    changed: () => (version += 1),
  };
  const problem = (status, title, detail) => [status, { type: "about:blank", title, status, detail }];

  function tablePage(query) {
    const from = query.get("after") ? world.tables.findIndex((t) => t.table === query.get("after")) + 1 : 0;
    const end = from + Number(query.get("limit") ?? 1000);
    return {
      "now-ms": Date.now(),
      tables: world.tables.slice(from, end),
      next: end < world.tables.length ? world.tables[end - 1].table : null,
    };
  }

  function post(request, path, body) {
    world.posts.push({ path, body });
    if (world.token === null) return problem(403, "Forbidden", "no admin token is configured; set server.admin-token");
    if (request.headers.authorization !== `Bearer ${world.token}`)
      return problem(401, "Unauthorized", "the token is missing or wrong");
    if (world.refuse) return problem(world.refuse, "Refused", "the table is in quarantine; repair its metadata first");
    const [, name, what] = path.match(/^\/api\/v1\/(?:tables\/([^/]+)\/)?(\w+)$/) ?? [];
    const target = name === undefined ? world.status : world.tables.find((t) => t.table === decodeURIComponent(name));
    if (!target) return problem(404, "Not Found", "no policy names this table");
    world.changed();
    if (what === "pause") target.paused = { reason: body.reason ?? "", "since-ms": Date.now() };
    if (what === "resume") target.paused = null;
    if (what === "plan") {
      plans.set(target.table, { "planned-at-ms": Date.now(), plan: plan(target.table) });
      return [200, plan(target.table)];
    }
    return [what === "run" ? 202 : 200, {}];
  }

  function api(request, url, body) {
    const path = url.pathname;
    if (request.method === "POST") return post(request, path, body ? JSON.parse(body) : {});
    if (path === "/api/v1/status") return [200, { ...world.status, "now-ms": Date.now() }];
    if (path === "/api/v1/tables") return [200, tablePage(url.searchParams)];
    const name = decodeURIComponent(path.slice("/api/v1/tables/".length));
    const table = world.tables.find((t) => t.table === name);
    return table
      ? [200, { ...detail(table, now), plan: plans.get(name) ?? null }]
      : problem(404, "Not Found", `${name} is not maintained.`);
  }

  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    let text = "";
    for await (const chunk of request) text += chunk;
    if (url.pathname.startsWith("/api/")) {
      const etag = `"${version}"`;
      if (request.method === "GET" && url.pathname !== "/api/v1/status" && request.headers["if-none-match"] === etag) {
        world.notModified += 1;
        return response.writeHead(304, { ETag: etag }).end();
      }
      const [status, body] = api(request, url, text);
      return response.writeHead(status, { "Content-Type": "application/json", ETag: etag }).end(JSON.stringify(body));
    }
    const file = url.pathname === "/" ? "index.html" : url.pathname.slice(1);
    const content = await readFile(new URL(file, PAGE)).catch(() => null);
    response.writeHead(content ? 200 : 404, {
      "Content-Type": TYPES[file.split(".").pop()] ?? "text/plain",
      "Content-Security-Policy": "default-src 'self'",
    });
    response.end(content ?? "no such file\n");
  });
  return new Promise((resolve) =>
    server.listen(port, "127.0.0.1", () => {
      const stop = () => new Promise((done) => (server.close(done), server.closeAllConnections()));
      resolve({ world, stop, port: server.address().port, url: `http://127.0.0.1:${server.address().port}/` });
    }),
  );
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { url } = await startMock({ port: Number(process.argv[2] ?? 0), tables: Number(process.argv[3] ?? 60) });
  console.log(url);
}
