import assert from "node:assert/strict";
import test from "node:test";

import { DeniableProvider, ServiceError } from "../index.js";

/** A client that decides `new` for everybody and notes what it is asked. */
function fake(stored = {}) {
  const asked = [];
  return {
    asked,
    async decide(experiment, visitor, { segment }) {
      asked.push(["decide", experiment, visitor, segment]);
      return { decision: `${experiment}-${visitor}`, arm: "new" };
    },
    async stored(visitor) {
      asked.push(["stored", visitor]);
      return stored;
    },
    async reward(decision, value, { metric }) {
      asked.push(["reward", decision, value, metric]);
    },
    async flush() {
      asked.push(["flush"]);
    },
  };
}

/** Let `track` finish: it is not awaited by whoever calls it. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("an evaluation", async () => {
  const client = fake();
  const provider = new DeniableProvider(client);
  const context = { targetingKey: "v", segment: "s" };
  assert.deepEqual(await provider.resolveStringEvaluation("e", "old", context), {
    value: "new",
    variant: "new",
    reason: "SPLIT",
    flagMetadata: { decision: "e-v" },
  });
  assert.deepEqual(client.asked, [["decide", "e", "v", "s"]]);
});

test("track rewards the decision that is remembered", async () => {
  const client = fake();
  const provider = new DeniableProvider(client, { events: { purchase: ["e", "f"] } });
  for (const flag of ["e", "f"]) {
    await provider.resolveStringEvaluation(flag, "old", { targetingKey: "v" });
  }
  provider.track("purchase", { targetingKey: "v" }, { value: 3, metric: "revenue" });
  provider.track("e", { targetingKey: "v" });
  await settled();
  assert.deepEqual(client.asked.slice(2), [
    ["reward", "e-v", 3, "revenue"],
    ["reward", "f-v", 3, "revenue"],
    ["reward", "e-v", 1, undefined],
  ]);
});

test("an event enrols nobody", async () => {
  const client = fake({ other: { decision: "o", arm: "x" } });
  new DeniableProvider(client).track("e", { targetingKey: "v" });
  await settled();
  assert.deepEqual(client.asked, [["stored", "v"]]);
});

test("another process's decision is asked for", async () => {
  const client = fake({ e: { decision: "theirs", arm: "x" } });
  new DeniableProvider(client).track("e", { targetingKey: "v" }, { value: 0 });
  await settled();
  assert.deepEqual(client.asked.at(-1), ["reward", "theirs", 0, undefined]);
});

test("errors as OpenFeature knows them", async () => {
  const provider = new DeniableProvider({
    decide: async () => {
      throw new ServiceError(404, "not-found", "no such experiment");
    },
  });
  const failing = (context) => provider.resolveStringEvaluation("e", "old", context);
  await assert.rejects(failing({}), { code: "TARGETING_KEY_MISSING" });
  await assert.rejects(failing({ targetingKey: "v", segment: 7 }), { code: "INVALID_CONTEXT" });
  await assert.rejects(failing({ targetingKey: "v" }), { code: "FLAG_NOT_FOUND" });
  for (const kind of ["Boolean", "Number", "Object"]) {
    await assert.rejects(provider[`resolve${kind}Evaluation`](), { code: "TYPE_MISMATCH" });
  }
});

test("a reward that fails is told, never thrown", async () => {
  const told = [];
  const provider = new DeniableProvider(fake(), { onError: (error) => told.push(error.code) });
  provider.track("e", {});
  await settled();
  assert.deepEqual(told, ["TARGETING_KEY_MISSING"]);
});

test("closing sends what waits", async () => {
  const client = fake();
  await new DeniableProvider(client).onClose();
  assert.deepEqual(client.asked, [["flush"]]);
});
