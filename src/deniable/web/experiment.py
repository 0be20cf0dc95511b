"""One experiment while it runs: its page, and the same parts again as JSON every few seconds.

And what people write about it: notes for the ledger, its owner, tags to find it by. The page also shows
how a site calls the experiment: the calls with its names filled in, ready to be copied. Names come from
people and are quoted for the language that they stand in.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from deniable._types import JsonObject
from deniable.analysis.alerts import SILENT_AFTER
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_history import ResultHistory, result_history
from deniable.analysis.result_records import Results
from deniable.analysis.results import results_of
from deniable.analysis.summary import summarize
from deniable.analysis.table_in_force import grade_now, table_in_force
from deniable.charts.experiments import ARM_COLOURS, arm_colours
from deniable.errors import NANO, DeniableError
from deniable.service.http.auth import Service
from deniable.service.service import Deniable
from deniable.storage.records import Experiment
from deniable.web import responses
from deniable.web.access import DraftSubmission, Reader, Viewer
from deniable.web.actions import ACTIONS, possible
from deniable.web.experiment_charts import PageChart, live_charts, result_charts
from deniable.web.monitor import Monitor
from deniable.web.overview import current_firm, requests_for

router = APIRouter(include_in_schema=False)

PRIVACY_OF = {
    "keep": "As it is",
    "promote": "One variant for everybody",
    "within": "Best table within the guarantee",
    "winners": "Best variants without a guarantee",
}

MOST_EVENTS = 100
"""Of the timeline, newest first; the ledger has all of them."""

MOST_LEARNED = 64
"""Experiments whose results are kept between two looks."""

PARTS = (
    "verdict",
    "figures",
    "leaderboard",
    "risks",
    "table",
    "segments",
    "health",
    "arrival",
    "timeline",
)
"""Templates `parts/<name>.html`, each the content of the element with this id."""


@router.get("/experiments/{key}")
def experiment(request: Request, viewer: Reader, service: Service, key: str) -> Response:
    """The page."""
    return page(request, viewer, service, key)


def page(
    request: Request,
    viewer: Viewer,
    service: Deniable,
    key: str,
    typed: responses.Typed = responses.NOTHING_TYPED,
) -> Response:
    """The page; after a refusal with the note, or owner and tags, as they were typed."""
    found = service.experiments.get(key)
    values = _values(request, viewer, service, found)
    charts = _charts(values)
    return responses.show_form(
        request,
        "experiment.html",
        viewer,
        typed,
        parts=PARTS,
        charts=charts,
        lift_charts=[one.name for one in charts if one.name.startswith("lift-")],
        actions=possible(found),
        requests=requests_for(service, viewer, key),
        firm=current_firm(service),
        cost=found.budget_nano / NANO,
        labels=service.experiments.labels(key),
        snippets=snippets(found, str(request.base_url).rstrip("/")),
        **values,
    )


@router.get("/experiments/{key}/live")
def live(request: Request, viewer: Reader, service: Service, key: str) -> Response:
    """What changes on the page: its parts as HTML, the data of its charts."""
    responses.mark_active(request)
    found = service.experiments.get(key)
    values = _values(request, viewer, service, found)
    charts = _charts(values)
    return JSONResponse(
        {
            "state": [found.status, found.revision],
            "parts": {name: responses.rendered(f"parts/{name}.html", **values) for name in PARTS},
            "charts": {
                one.name: {
                    "datasets": one.datasets,
                    "summary": one.summary,
                    "rows": responses.rendered("parts/rows.html", table=one.table),
                }
                for one in charts
            },
        },
        headers=responses.HEADERS,
    )


def _values(request: Request, viewer: Viewer, service: Deniable, found: Experiment) -> JsonObject:
    """Everything that the parts fill in."""
    now = datetime.now(UTC)
    board = Leaderboard(found, service.experiments.released_counts(found.key))
    monitor: Monitor = request.app.state.monitor
    published = service.experiments.tables_in_force([found]).get(found.key)
    before = None
    if published is not None and published.number > 1:
        before = next(iter(service.experiments.tables(found.key, published.number - 1)), None)
    learned = _learned(request, service, board)
    results = learned.results
    events = service.experiments.events(found.key)
    return {
        "results": results,
        "learned": learned,
        "privacy_of_choices": [
            (PRIVACY_OF[one.what], one.privacy)
            for one in {one.what: one for one in results.choices}.values()
        ],
        "may_promote": viewer.may("run") and found.status in ACTIONS["promote"].states,
        "experiment": found,
        "board": board,
        "summary": summarize(board, published, service.experiments.samples(found.key), now),
        "table": None if published is None else table_in_force(found, published, before),
        "arm_classes": arm_classes([arm.key for arm in found.arms]),
        "grade": grade_now(found),
        "silent_after": SILENT_AFTER,
        "stored": service.experiments.stored(found.key),
        "health": monitor.health.get(found.key),
        "events": events[: -MOST_EVENTS - 1 : -1],
    }


@dataclass(frozen=True)
class Learned:
    """What inference made of an experiment, and what it was made from.

    Attributes:
        state: revision, table, shows and clicks.
        results: the verdict.
        figures: what is drawn of it.
    """

    state: tuple[int, int, bytes, bytes]
    results: Results
    figures: ResultHistory


def _learned(request: Request, service: Deniable, board: Leaderboard) -> Learned:
    """The results now; not made again while nothing was decided or rewarded.

    With an attribution window a table enters when its window closes, so time alone changes results.
    """
    found = board.experiment
    kept: dict[str, Learned] = request.app.state.learned
    numbers = (board.shows.tobytes(), board.clicks.tobytes())
    state = (found.revision, found.table_number, *numbers)
    known = kept.get(found.id)
    if known is not None and known.state == state and found.attribution_seconds is None:
        return known
    evidence = service.experiments.evidence(found.key)
    results = results_of(evidence)
    made = Learned(state, results, result_history(evidence, results))
    kept[found.id] = made
    while len(kept) > MOST_LEARNED:
        kept.pop(next(iter(kept)), None)
    return made


def arm_classes(arms: Sequence[str]) -> list[str]:
    """The class of each arm's colour in the style sheet: the same colour as in the charts.

    >>> arm_classes(["grey", "green", "large"])
    ['c6', 'c2', 'c0']
    """
    return [f"c{ARM_COLOURS.index(colour)}" for colour in arm_colours(arms)]


def _charts(values: JsonObject) -> list[PageChart]:
    """What was learned first, then what happened."""
    checked = None if values["health"] is None else values["health"].learned
    learned = result_charts(values["learned"].figures, checked)
    return learned + live_charts(values["board"], values["summary"])


@router.post("/experiments/{key}/notes")
def note(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Enter a note; it stays in the ledger."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {"text": form.text("text").replace("\r\n", "\n")}
    try:
        service.experiments.note(key, given["text"])
    except DeniableError as error:
        wrong = responses.field_errors(error, {"text": "text"}, "text")
        return page(request, form.viewer, service, key, responses.Typed(given, wrong))
    return responses.redirect(request, place, "The note is in the audit log.")


@router.post("/experiments/{key}/labels")
def label(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Set owner and tags."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {name: form.text(name) for name in ("owner", "tags")}
    try:
        tags = given["tags"].replace(",", " ").split()
        service.experiments.label(key, owner=given["owner"], tags=tags)
    except DeniableError as error:
        wrong = responses.field_errors(error, {"owner": "owner", "tags": "tags"}, "owner")
        return page(request, form.viewer, service, key, responses.Typed(given, wrong))
    return responses.redirect(request, place, "Owner and tags are saved.")


# -- how a site calls it ---------------------------------------------------------------------------


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
    found = [
        Snippet("curl", "curl", _curl(experiment, here)),
        Snippet("python", "Python", _python(experiment, here)),
        Snippet("javascript", "JavaScript, on the server", _javascript(experiment, here)),
    ]
    if experiment.observed:  # others are no flags
        found.append(Snippet("openfeature", "OpenFeature", _openfeature(experiment, here)))
    return found


def _path(experiment: Experiment) -> str:
    kind = "experiments" if experiment.observed else "unobserved"
    return f"/v1/{kind}/{experiment.key}/decisions"


def _group(experiment: Experiment) -> dict[str, str]:
    """What a call says of the visitor: the segment or the context, where there are any."""
    if experiment.segments:
        return {"segment": experiment.segments[0]}
    return {"context": experiment.contexts[1]} if experiment.contexts[1:] else {}


def _curl(experiment: Experiment, here: str) -> str:
    body = json.dumps({"visitor": "visitor-1", **_group(experiment)})
    address = shlex.quote(f"{here}{_path(experiment)}")
    return f"""curl -s {address} \\
  -H "Authorization: Bearer $DENIABLE_API_KEY" \\
  --json {shlex.quote(body)}
# {{"decision": "…", "arm": "{experiment.default_arm}"}}: show the arm; later, if the visitor responds:
curl -s {shlex.quote(here + "/v1/rewards")} \\
  -H "Authorization: Bearer $DENIABLE_API_KEY" \\
  --json '{{"decision": "…", "value": 1}}'"""


def _python(experiment: Experiment, here: str) -> str:
    given = {"visitor": "visitor-1", **_group(experiment)}
    arguments = [repr(experiment.key), *(f"{name}={value!r}" for name, value in given.items())]
    if not experiment.observed:
        arguments.append("observed=False")
    return f"""import os
from deniable.client import Client

with Client({here!r}, os.environ["DENIABLE_API_KEY"]) as client:
    decision = client.decide({", ".join(arguments)})
    print(decision.arm)  # show it
    client.reward(decision.id, 1)  # later, if the visitor responds"""


def _javascript(experiment: Experiment, here: str) -> str:
    body = json.dumps({"visitor": "visitor-1", **_group(experiment)})
    return f"""const headers = {{
  Authorization: `Bearer ${{process.env.DENIABLE_API_KEY}}`,
  "Content-Type": "application/json",
}};
const call = (path, body) =>
  fetch({json.dumps(here)} + path, {{ method: "POST", headers, body: JSON.stringify(body) }});

const answer = await call("{_path(experiment)}", {body});
const {{ decision, arm }} = await answer.json(); // show the arm
await call("/v1/rewards", {{ decision, value: 1 }}); // later, if the visitor responds"""


def _openfeature(experiment: Experiment, here: str) -> str:
    key = experiment.key
    return f"""import os
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from deniable.client import Client
from deniable.client.openfeature import DeniableProvider

client = Client({here!r}, os.environ["DENIABLE_API_KEY"])
api.set_provider(DeniableProvider(client, events={{"response": [{key!r}]}}))
visitor = EvaluationContext("visitor-1", {_group(experiment)!r})
arm = api.get_client().get_string_value({key!r}, {experiment.default_arm!r}, visitor)
api.get_client().track("response", visitor)  # later, if the visitor responds"""
