import assert from "node:assert/strict";
import test from "node:test";

import { DeniableClient, ServiceError } from "../index.js";

/** A client whose requests are answered by `answers`, one after the other; all are kept in `asked`. */
function answered(answers, options = {}) {
  const asked = [];
  const fetch = async (url, request) => {
    asked.push({ url, ...request, body: JSON.parse(request.body) });
    const next = answers.shift();
    if (next === "hang") {
      return new Promise((_, reject) => {
        const open = setInterval(() => {}, 1000); // as a real connection keeps the process alive
        request.signal.addEventListener("abort", () => {
          clearInterval(open);
          reject(request.signal.reason);
        });
      });
    }
    if (next instanceof Error) throw next;
    const [status, body, headers] = next;
    return new Response(body === null ? null : JSON.stringify(body), { status, headers });
  };
  const client = new DeniableClient({ url: "http://h/", apiKey: "k", timeoutMs: 60_000, ...options, fetch });
  return { client, asked };
}

const drawn = { decision: "d1", arm: "new" };
const soon = { "retry-after": "0" };

test("a decision: path, key and body", async () => {
  const { client, asked } = answered([[200, { ...drawn, padding: " " }]]);
  assert.deepEqual(await client.decide("a/b", "v", { segment: "s" }), drawn);
  assert.equal(asked[0].url, "http://h/v1/experiments/a%2Fb/decisions");
  assert.equal(asked[0].headers.Authorization, "Bearer k");
  assert.deepEqual(asked[0].body, { visitor: "v", segment: "s" });
});

test("a batch keeps its order", async () => {
  const decisions = ["x", "y", "z"].map((arm, at) => ({ decision: `d${at}`, arm }));
  const { client, asked } = answered([[200, { decisions }]]);
  const visitors = [{ visitor: "3" }, { visitor: "1", segment: "s" }, { visitor: "2" }];
  assert.deepEqual(await client.decideBatch("e", visitors), decisions);
  assert.deepEqual(
    asked[0].body.visitors.map((item) => [item.visitor, item.segment]),
    [["3", null], ["1", "s"], ["2", null]],
  );
});

test("what was not answered is tried again, with the same body", async () => {
  const { client, asked } = answered([[503, {}, soon], new TypeError("reset"), [200, drawn]]);
  assert.deepEqual(await client.decide("e", "v"), drawn);
  assert.equal(asked.length, 3);
  assert.deepEqual(asked[0].body, asked[2].body);
});

test("a refusal is told at once", async () => {
  const problem = { type: "urn:deniable:not-found", detail: "no experiment 'e'" };
  const { client, asked } = answered([[404, problem]]);
  await assert.rejects(client.decide("e", "v"), (error) => {
    assert.ok(error instanceof ServiceError);
    assert.deepEqual([error.status, error.code], [404, "not-found"]);
    return true;
  });
  assert.equal(asked.length, 1);
});

test("a refusal gives the fallback too", async () => {
  for (const status of [400, 401, 403, 404, 422, 500]) {
    const { client, asked } = answered([[status, {}]]);
    assert.deepEqual(await client.decide("e", "v", { fallback: "old" }), { decision: null, arm: "old" });
    assert.equal(asked.length, 1);
  }
});

test("attempts end, and the fallback answers", async () => {
  const failing = () => [503, {}, soon];
  const { client, asked } = answered([failing(), failing()], { retries: 1 });
  assert.deepEqual(await client.decide("e", "v", { fallback: "old" }), { decision: null, arm: "old" });
  assert.equal(asked.length, 2);
  const plain = answered([failing()], { retries: 0 }).client;
  await assert.rejects(plain.decide("e", "v"), { status: 503 });
});

test("a service that hangs gives the fallback at the time-out", async () => {
  const { client } = answered(["hang"], { timeoutMs: 1 });
  assert.deepEqual(await client.decide("e", "v", { fallback: "old" }), { decision: null, arm: "old" });
  const waiting = answered([[503, {}, { "retry-after": "3600" }]], { timeoutMs: 1 }).client;
  await assert.rejects(waiting.decide("e", "v"), { status: null, code: "timeout" });
});

test("rewards are sent together", async () => {
  const { client, asked } = answered([[204, null]]);
  const all = Promise.all([client.reward("a"), client.reward("b", 0), client.reward("c", 2, { metric: "m" })]);
  await client.flush();
  await all;
  assert.equal(asked.length, 1);
  assert.deepEqual(asked[0].body.rewards, [
    { decision: "a", value: 1 },
    { decision: "b", value: 0 },
    { decision: "c", value: 2, metric: "m" },
  ]);
});

test("a full batch does not wait", async () => {
  const { client, asked } = answered([[204, null]], { rewards: { largest: 2, waitMs: 1_000_000 } });
  await Promise.all([client.reward("a"), client.reward("b")]);
  assert.equal(asked.length, 1);
});

test("one bad reward does not take the others with it", async () => {
  const bad = [422, { type: "urn:deniable:invalid-argument", detail: "value" }];
  const { client, asked } = answered([bad, [204, null], bad, [204, null]]);
  const sent = Promise.allSettled([client.reward("a"), client.reward("b", 7), client.reward("c")]);
  await client.flush();
  assert.deepEqual((await sent).map((one) => one.status), ["fulfilled", "rejected", "fulfilled"]);
  assert.deepEqual(asked.map((request) => request.body.rewards.length), [3, 1, 1, 1]);
});

test("a fallback has no reward", async () => {
  const { client, asked } = answered([]);
  await client.reward(null);
  await client.flush();
  assert.equal(asked.length, 0);
});

test("stored decisions by experiment", async () => {
  const flags = [{ key: "e", variant: "new", metadata: { decision: "d1" } }];
  const { client, asked } = answered([[200, { flags }]]);
  assert.deepEqual(await client.stored("v"), { e: drawn });
  assert.deepEqual(asked[0].body, { context: { targetingKey: "v" } });
});

test("bad options are named", () => {
  const good = { url: "http://h", apiKey: "k" };
  for (const [wrong, name] of [
    [{ url: "h" }, "url"],
    [{ apiKey: "" }, "apiKey"],
    [{ timeoutMs: 0 }, "timeoutMs"],
    [{ retries: -1 }, "retries"],
    [{ rewards: { largest: 0 } }, "rewards.largest"],
  ]) {
    assert.throws(() => new DeniableClient({ ...good, ...wrong }), new RegExp(`^\\w+: ${name}: expected`));
  }
  assert.throws(() => new DeniableClient(), /url: expected/);
});

test("it does not run in a browser", () => {
  globalThis.window = globalThis.document = {};
  try {
    assert.throws(() => new DeniableClient({ url: "http://h", apiKey: "k" }), /never in a browser/);
  } finally {
    delete globalThis.window;
    delete globalThis.document;
  }
});
