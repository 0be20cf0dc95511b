"""How a site calls one experiment: the calls with its names filled in, ready to be copied.

Names come from people and are quoted for the language that they stand in.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from deniable.storage.records import Experiment


@dataclass(frozen=True)
class Snippet:
    """Code to copy.

    Attributes:
        name: short, for an id.
        title: the language, for people.
        code: with all names filled in; the API key is taken from the environment.
    """

    name: str
    title: str
    code: str


def snippets(experiment: Experiment, here: str) -> list[Snippet]:
    """The two calls, decide and reward, in several languages.

    Args:
        experiment: which is called.
        here: the address of the service.
    """
    return [
        Snippet("curl", "curl", _curl(experiment, here)),
        Snippet("python", "Python", _python(experiment, here)),
        Snippet("javascript", "JavaScript, on the server", _javascript(experiment, here)),
        Snippet("openfeature", "OpenFeature", _openfeature(experiment, here)),
    ]


def _curl(experiment: Experiment, here: str) -> str:
    body = json.dumps({"visitor": "visitor-1", "segment": experiment.segments[0]})
    address = shlex.quote(f"{here}/v1/experiments/{experiment.key}/decisions")
    return f"""curl -s {address} \\
  -H "Authorization: Bearer $DENIABLE_API_KEY" \\
  --json {shlex.quote(body)}
# {{"decision": "…", "arm": "{experiment.default_arm}"}}: show the arm; later, if the visitor responds:
curl -s {shlex.quote(here + "/v1/rewards")} \\
  -H "Authorization: Bearer $DENIABLE_API_KEY" \\
  --json '{{"decision": "…", "value": 1}}'"""


def _python(experiment: Experiment, here: str) -> str:
    return f"""import os
from deniable.client import Client

with Client({here!r}, os.environ["DENIABLE_API_KEY"]) as client:
    decision = client.decide({experiment.key!r}, visitor="visitor-1", segment={experiment.segments[0]!r})
    print(decision.arm)  # show it
    client.reward(decision.id, 1)  # later, if the visitor responds"""


def _javascript(experiment: Experiment, here: str) -> str:
    body = json.dumps({"visitor": "visitor-1", "segment": experiment.segments[0]})
    return f"""const headers = {{
  Authorization: `Bearer ${{process.env.DENIABLE_API_KEY}}`,
  "Content-Type": "application/json",
}};
const call = (path, body) =>
  fetch({json.dumps(here)} + path, {{ method: "POST", headers, body: JSON.stringify(body) }});

const answer = await call("/v1/experiments/{experiment.key}/decisions", {body});
const {{ decision, arm }} = await answer.json(); // show the arm
await call("/v1/rewards", {{ decision, value: 1 }}); // later, if the visitor responds"""


def _openfeature(experiment: Experiment, here: str) -> str:
    key, segment = experiment.key, experiment.segments[0]
    return f"""import os
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from deniable.client import Client
from deniable.client.openfeature import DeniableProvider

client = Client({here!r}, os.environ["DENIABLE_API_KEY"])
api.set_provider(DeniableProvider(client, events={{"response": [{key!r}]}}))
visitor = EvaluationContext("visitor-1", {{"segment": {segment!r}}})
arm = api.get_client().get_string_value({key!r}, {experiment.default_arm!r}, visitor)
api.get_client().track("response", visitor)  # later, if the visitor responds"""
