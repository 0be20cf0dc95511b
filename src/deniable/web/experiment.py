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
from deniable.charts.experiments import ARM_COLOURS, arm_colours
from deniable.errors import NANO, DeniableError
from deniable.privacy.serving import SPACE
from deniable.privacy.tables import decoded_table
from deniable.service.evidence import SMALLEST_CELL
from deniable.service.http.auth import Service
from deniable.service.result_figures import ResultFigures, figures_of
from deniable.service.result_records import Results
from deniable.service.results import results_of
from deniable.service.service import Deniable
from deniable.storage.records import Commitment, Experiment, PublishedTable
from deniable.strategies import table_rules
from deniable.web import answers
from deniable.web.access import DraftSubmission, Reader, Viewer
from deniable.web.actions import possible
from deniable.web.alerts import SILENT_AFTER
from deniable.web.experiment_charts import PageChart, live_charts, result_charts
from deniable.web.overview import current_firm
from deniable.web.risks import (
    random_share,
    regret_bound,
    segment_risks,
    told_segments,
    waiting_words,
)
from deniable.web.standing import Standing
from deniable.web.watcher import Watcher, sample_of

router = APIRouter(include_in_schema=False)

PRIVACY_OF = {
    "keep": "As it is",
    "promote": "One arm for everybody",
    "within": "Best arms within the promise",
    "winners": "Best arms without a promise",
}

MOST_EVENTS = 100
"""Of the timeline, newest first; the ledger has all of them."""

MOST_LEARNED = 64
"""Experiments whose results are kept between two looks."""

MOST_ROWS = 40
"""Segments of the table in force that are shown."""

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
    typed: answers.Typed = answers.NOTHING_TYPED,
) -> Response:
    """The page; after a refusal with the note, or owner and tags, as they were typed."""
    found = service.experiments.get(key)
    values = _values(request, service, found)
    charts = _charts(values)
    return answers.show_form(
        request,
        "experiment.html",
        viewer,
        typed,
        parts=PARTS,
        charts=charts,
        lift_charts=[one.name for one in charts if one.name.startswith("lift-")],
        actions=possible(found),
        firm=current_firm(service),
        cost=found.cost_nano / NANO,
        labels=service.experiments.labels(key),
        snippets=snippets(found, str(request.base_url).rstrip("/")),
        **values,
    )


@router.get("/experiments/{key}/live")
def live(request: Request, _viewer: Reader, service: Service, key: str) -> Response:
    """What changes on the page: its parts as HTML, the data of its charts."""
    answers.seen(request)
    found = service.experiments.get(key)
    values = _values(request, service, found)
    charts = _charts(values)
    return JSONResponse(
        {
            "state": [found.status, found.revision],
            "parts": {name: answers.rendered(f"parts/{name}.html", **values) for name in PARTS},
            "charts": {
                one.name: {
                    "datasets": one.datasets,
                    "summary": one.summary,
                    "rows": answers.rendered("parts/rows.html", table=one.table),
                }
                for one in charts
            },
        },
        headers=answers.HEADERS,
    )


def _values(request: Request, service: Deniable, found: Experiment) -> JsonObject:
    """Everything that the parts fill in."""
    now = datetime.now(UTC)
    standing = Standing(found, service.experiments.counts(found.key))
    watcher: Watcher = request.app.state.watcher
    published = service.experiments.tables_in_force([found]).get(found.key)
    before = None
    if published is not None and published.number > 1:
        before = next(iter(service.experiments.tables(found.key, published.number - 1)), None)
    risks = [] if published is None else segment_risks(standing, published, now)
    told = told_segments(standing)
    learned = _learned(request, service, standing)
    results = learned.results
    events = service.experiments.events(found.key)
    return {
        "results": results,
        "learned": learned,
        "privacy_of_choices": [
            (PRIVACY_OF[one.what], one.privacy)
            for one in {one.what: one for one in results.choices}.values()
        ],
        "experiment": found,
        "standing": standing,
        "leaderboard": standing.leaderboard(),
        "random_share": random_share(standing, published),
        "table": None if published is None else _table(found, published, before),
        "arm_classes": arm_classes([arm.key for arm in found.arms]),
        "grade": _grade(found, events),
        "risks": [(risk, waiting_words(risk, now)) for risk in risks],
        "segments": [_segment(standing, position) for position in told],
        "untold": len(found.segments) - len(told),
        "smallest_cell": SMALLEST_CELL,
        "bound": regret_bound(found, standing.visitors),
        "silent_after": SILENT_AFTER,
        "health": watcher.health.get(found.key),
        "events": events[: -MOST_EVENTS - 1 : -1],
        "samples": [*service.experiments.samples(found.key), sample_of(standing, now)],
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
    figures: ResultFigures


def _learned(request: Request, service: Deniable, standing: Standing) -> Learned:
    """The results now; not made again while nothing was decided or rewarded.

    With an attribution window a table enters when its window closes, so time alone changes results.
    """
    found = standing.experiment
    kept: dict[str, Learned] = request.app.state.learned
    numbers = (standing.shows.tobytes(), standing.clicks.tobytes())
    state = (found.revision, found.table_number, *numbers)
    known = kept.get(found.id)
    if known is not None and known.state == state and found.attribution_seconds is None:
        return known
    evidence = service.experiments.evidence(found.key)
    results = results_of(evidence)
    made = Learned(state, results, figures_of(evidence, results))
    kept[found.id] = made
    while len(kept) > MOST_LEARNED:
        kept.pop(next(iter(kept)), None)
    return made


def _table(
    found: Experiment, published: PublishedTable, before: PublishedTable | None
) -> JsonObject:
    """The table in force as chances, the zero row last: what all rows share, and what is tailored."""
    table = decoded_table(published.rows, len(found.arms))
    rows = [*zip(found.segments, table.rows, strict=True)][:MOST_ROWS]
    rows.append(("anybody else", table.zero))
    shared = [min(column) / SPACE for column in zip(*table.rows, table.zero, strict=True)]
    settled = json.loads(published.counts).get("floors") is not None
    return {
        "number": published.number,
        "version": published.version,
        "published_at": published.published_at,
        "why": _why(published, before),
        "rows": [
            (name, [(entry / SPACE, share) for entry, share in zip(row, shared, strict=True)])
            for name, row in rows
        ],
        "shared": sum(shared),
        "lottery": found.across_time and not settled and _offers_across_time(found),
        "settled": settled,
        "more": max(0, len(found.segments) - MOST_ROWS),
    }


def arm_classes(arms: Sequence[str]) -> list[str]:
    """The class of each arm's colour in the style sheet: the same colour as in the charts.

    >>> arm_classes(["grey", "green", "large"])
    ['c6', 'c2', 'c0']
    """
    return [f"c{ARM_COLOURS.index(colour)}" for colour in arm_colours(arms)]


def _why(published: PublishedTable, before: PublishedTable | None) -> str:
    """Why a table was published when it was: never because of one visitor."""
    if before is None:
        return "before the first visitor"
    if before.version != published.version:
        more = _arms_of(published) > _arms_of(before)
        return f"because an arm was {'added' if more else 'switched off'}"
    return f"because decisions had grown from {before.decisions:,} to {published.decisions:,}"


def _arms_of(published: PublishedTable) -> int:
    """How many arms there were when a table was made, on or off."""
    return len(json.loads(published.counts)["shows"][0])


def _grade(found: Experiment, events: Sequence[Commitment]) -> str:
    """What is promised over all versions: weaker where a change of arms made it so."""
    for event in events:
        detail = json.loads(event.detail)
        if detail.get("grade") == "given the time" or detail.get("off"):
            return "given the time"
    return table_rules()[found.strategy].grade_of(found.across_time)


def _offers_across_time(found: Experiment) -> bool:
    return table_rules()[found.strategy].offers_across_time


def _segment(standing: Standing, position: int) -> JsonObject:
    """One segment that may be told apart: its visitors and the rate of each arm that is on."""
    shows, clicks = standing.shows[position], standing.clicks[position]
    arms = [(i, arm) for i, arm in enumerate(standing.experiment.arms) if arm.active]
    rates = {arm.key: clicks[i] / shows[i] for i, arm in arms}
    return {
        "name": standing.experiment.segments[position],
        "visitors": int(shows.sum()),
        "rates": rates,
        "best": max(rates, key=lambda key: rates[key]),
    }


def _charts(values: JsonObject) -> list[PageChart]:
    """What was learned first, then what happened."""
    wanted = ("experiment", "standing", "samples", "risks", "bound")
    checked = None if values["health"] is None else values["health"].learned
    learned = result_charts(values["learned"].figures, checked)
    return learned + live_charts(**{name: values[name] for name in wanted})


@router.post("/experiments/{key}/notes")
def note(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Enter a note; it stays in the ledger."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {"text": form.text("text").replace("\r\n", "\n")}
    try:
        service.experiments.note(key, given["text"])
    except DeniableError as error:
        wrong = answers.beside(error, {"text": "text"}, "text")
        return page(request, form.viewer, service, key, answers.Typed(given, wrong))
    return answers.redirect(request, place, "The note is in the ledger.")


@router.post("/experiments/{key}/labels")
def label(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Set owner and tags."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {name: form.text(name) for name in ("owner", "tags")}
    try:
        tags = given["tags"].replace(",", " ").split()
        service.experiments.label(key, owner=given["owner"], tags=tags)
    except DeniableError as error:
        wrong = answers.beside(error, {"owner": "owner", "tags": "tags"}, "owner")
        return page(request, form.viewer, service, key, answers.Typed(given, wrong))
    return answers.redirect(request, place, "Owner and tags are saved.")


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
