import assert from "node:assert/strict";
import crypto from "node:crypto";
import test from "node:test";

import { Mask, WebMask } from "../mask.js";

const AGE = {
  mask: "age",
  version: 1,
  period: "life",
  groups: {
    "under-25": ["under-25"],
    "25-44": ["25-44"],
    "45-64": ["45-64"],
    "65-plus": ["65-plus"],
  },
  own: "79b1a4eec500ab94",
  other: "2cc4c905be551c24",
  channel: "0667fca71c1d2778",
};
const KEY = Array.from({ length: 32 }, (_, n) => n.toString(16).padStart(2, "0")).join("");
const VECTOR = [
  ["v-1", "under-25", "~under-25"],
  ["v-1", "65-plus", "~45-64"],
  ["v-1", null, "~45-64"],
  ["v-2", "under-25", "~45-64"],
  ["v-3", "under-25", "~under-25"],
];

test("the published vector, by Node's crypto and by WebCrypto", async () => {
  const mask = new Mask(AGE, KEY, crypto);
  const web = await WebMask.create(AGE, KEY);
  for (const [visitor, segment, label] of VECTOR) {
    assert.equal(mask.label(visitor, segment), label);
    assert.equal(await web.label(visitor, segment), label);
  }
});

test("bad input is refused, and segments are not repeated", () => {
  const mask = new Mask(AGE, KEY, crypto);
  for (const visitor of ["", "v 1", "v-ü", "x".repeat(257), 5, null, "v\n"]) {
    assert.throws(() => mask.label(visitor, "no such segment"), /^TypeError: visitor/);
  }
  assert.throws(() => mask.label("v", "secret"), (error) => !error.message.includes("secret"));
  assert.throws(() => new Mask(AGE, "00", crypto), /64 hex digits/);
  assert.throws(() => new Mask({ ...AGE, own: AGE.other }, KEY, crypto), /without a new version/);
});

test("a browser is refused", () => {
  globalThis.window = {};
  globalThis.document = {};
  try {
    assert.throws(() => new Mask(AGE, KEY, crypto), /never in a browser/);
  } finally {
    delete globalThis.window;
    delete globalThis.document;
  }
});
