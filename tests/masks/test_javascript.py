"""JavaScript computes the same labels as Python, by Node's crypto and by WebCrypto."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.masks.test_sql import KEY, MASKS, expected, visitors
from tests.node import JS_CLIENT, needs_node

from deniable.masks.definition import definition
from deniable.masks.mask import Mask

NUMBERED = Mask(
    segments=["10", "9", "b"],
    budget=1,
    key=KEY,
    name="numbered",
    groups={"2": ["9"], "1": ["10", "b"]},
)
"""JavaScript sorts members of objects that look like numbers: the order of labels must survive."""

LABELS = """
import crypto from "node:crypto";
import fs from "node:fs";
import { Mask, WebMask } from "MODULE";
const { definition, key, rows } = JSON.parse(fs.readFileSync(0, "utf8"));
const mask = new Mask(definition, key, crypto);
const web = await WebMask.create(definition, key);
const refused = (error) => {
  if (!(error instanceof TypeError)) throw error;
  return null;
};
const labelled = [];
for (const [visitor, segment] of rows) {
  let label = null;
  try {
    label = mask.label(visitor, segment);
  } catch (error) {
    refused(error);
  }
  labelled.push([label, await web.label(visitor, segment).catch(refused)]);
}
console.log(JSON.stringify(labelled));
""".replace("MODULE", (JS_CLIENT / "mask.js").as_uri())


@needs_node
@pytest.mark.parametrize("mask", [*MASKS, NUMBERED], ids=lambda mask: mask.name)
def test_javascript_gives_the_same_labels(mask: Mask, tmp_path: Path) -> None:
    rows = visitors(mask)
    script = tmp_path / "labels.mjs"
    script.write_text(LABELS)
    given = json.dumps({"definition": definition(mask), "key": KEY.hex(), "rows": rows})
    done = subprocess.run(["node", script], input=given, capture_output=True, text=True, check=True)
    labels = expected(mask, rows)
    assert json.loads(done.stdout) == [[label, label] for label in labels]
