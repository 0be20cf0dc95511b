"""Start, pause, stop, switch off, add and so on: each asks first, and says what it does to privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable import _numbers
from deniable._formatting import in_nats, nats
from deniable.analysis.leaderboard import Leaderboard
from deniable.errors import NANO, DeniableError, UnknownNameError
from deniable.service.http.auth import Service
from deniable.service.http.messages import Problem
from deniable.service.service import Deniable
from deniable.storage.records import Experiment, Firm, Status
from deniable.web import responses
from deniable.web.access import Runner, RunSubmission, Viewer
from deniable.web.overview import current_firm
from deniable.web.wording import belief_words, factor

router = APIRouter(include_in_schema=False)

FIELDS = ("share", "name", "budget", "arm")
"""What can be typed or chosen before something is done."""

FIELD_OF = {"share": "share", "budget": "budget", "arm": "name", "segment": "name"}
"""The field of an argument that was refused."""


@dataclass(frozen=True)
class Action:
    """Something that can be done to an experiment.

    Attributes:
        title: the question.
        button: the answer yes.
        done: what is told afterwards.
        states: in which it can be done.
        act: does it; the third argument reads what was chosen: an arm, a share of a layer, a name.
        says: what it does, to visitors and to privacy.
        chooses_arm: whether an arm is chosen.
        names: what is to be named, as the label of a field; empty: nothing.
        destroys: whether it ends something that cannot be begun again.
        leaves: the page that comes next, where the experiment is gone.
        seldom: whether its button is a small one.
    """

    title: str
    button: str
    done: str
    states: tuple[Status, ...]
    act: Callable[[Deniable, str, Callable[[str], str]], object]
    says: Callable[[Experiment, Firm | None], list[str]]
    chooses_arm: bool = False
    names: str = ""
    destroys: bool = False
    leaves: str = ""
    seldom: bool = False


@router.get("/experiments/{key}/do/{name}")
def asked(
    request: Request, viewer: Runner, service: Service, key: str, name: str, arm: str = ""
) -> Response:
    """Ask before anything is done."""
    action, experiment = _action(name), service.experiments.get(key)
    if experiment.status not in action.states:
        refusal = f"This experiment is {experiment.status}; that cannot be done now."
        return responses.redirect(request, f"/experiments/{key}", refusal, "bad")
    return _page(request, viewer, service, experiment, name, responses.Typed({"arm": arm}))


def _page(
    request: Request,
    viewer: Viewer,
    service: Deniable,
    experiment: Experiment,
    name: str,
    typed: responses.Typed,
) -> Response:
    """The question; after a refusal with what was typed, and what is wrong beside its field."""
    action, key = _action(name), experiment.key
    ranked = Leaderboard(experiment, service.experiments.released_counts(key)).rows()
    return responses.show_form(
        request,
        "action.html",
        viewer,
        typed,
        results=service.experiments.results(key) if name == "promote" else None,
        experiment=experiment,
        action=action,
        name=name,
        says=action.says(experiment, current_firm(service)),
        ranked=[one for one in ranked if one.active],
    )


@router.post("/experiments/{key}/do/{name}")
def act(request: Request, form: RunSubmission, service: Service, key: str, name: str) -> Response:
    """Do it."""
    action, experiment = _action(name), service.experiments.get(key)
    place = f"/experiments/{experiment.key}"
    try:
        action.act(service, key, form.text)
    except DeniableError as error:
        given = {field: form.text(field) for field in FIELDS}
        if not any(given.values()) or experiment.status not in action.states:
            return responses.redirect(request, place, responses.error_sentence(error), "bad")
        typed = responses.Typed(given, responses.field_errors(error, FIELD_OF))
        return _page(request, form.viewer, service, experiment, name, typed)
    return responses.redirect(request, action.leaves or place, action.done)


def possible(experiment: Experiment) -> list[tuple[str, Action]]:
    """The actions that the experiment's state allows, with their names."""
    many = len(experiment.active_arms) > 2
    return [
        (name, action)
        for name, action in ACTIONS.items()
        if experiment.status in action.states and (many or name != "switch-off")
    ]


def _action(name: str) -> Action:
    if name not in ACTIONS:
        raise Problem(404, "unknown-name", "there is no such action")
    return ACTIONS[name]


def _starting(experiment: Experiment, firm: Firm | None) -> list[str]:
    said = [
        f"Commits {in_nats(experiment.budget_nano / NANO)} of the firm’s budget. It stays in use until "
        "the firm’s window after the last answer has passed, even if you stop early.",
        "From then on, the variant a visitor sees may depend on the visitor’s segment. After seeing "
        f"it, {belief_words(experiment.budget)} of the segment.",
        "Strategy and budget can no longer be changed. Variants can be switched off, and variants and "
        "segments added; the audit log keeps what each does to the guarantee.",
    ]
    if firm is None:
        return ["The firm has no budget yet: set one on the overview first.", *said]
    after = firm.remaining - experiment.budget_nano / NANO
    if experiment.layer:
        said.append(
            f"It takes the share of the layer “{experiment.layer}” that you choose. The "
            "experiments of one layer never share a visitor, so the layer costs only what the "
            "experiments of its fullest slot cost together."
        )
    elif after < 0:
        verb = "is" if firm.remaining == 1 else "are"
        said.insert(0, f"Only {in_nats(firm.remaining)} {verb} free, so this will be refused.")
    else:
        said.append(f"{nats(after)} of {in_nats(firm.budget)} will be left free.")
    return said


def _discarding(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "This draft never served anybody, and nothing was committed.",
        "From now on your site gets the answer “no such experiment” instead of the default variant "
        f"“{experiment.default_arm}”.",
        "The name can be used again. The audit log keeps a record of the draft.",
    ]


def _pausing(_experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "Visitors who have seen a variant keep it.",
        "New visitors get a variant chosen without using their segment.",
        "No budget is spent while it is paused, and none is given back.",
    ]


def _resuming(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "New visitors are again shown variants that may depend on their segment, within the same "
        f"guarantee as before: {belief_words(experiment.budget)}.",
        "Nothing more is committed: the budget was committed at the start.",
    ]


def _ending(shown: str, experiment: Experiment) -> list[str]:
    return [
        f"From now on everybody is shown {shown}, whatever their segment and whatever they saw "
        "before. It cannot be started again.",
        "A variant that everybody gets reveals nothing: from now on this experiment adds "
        "no risk for new visitors.",
        "What was shown until now stays covered by the guarantee. Its "
        f"{in_nats(experiment.budget)} of budget stays in use until the firm’s window after the last "
        "answer has passed.",
    ]


def _stopping(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return _ending(f"the default variant “{experiment.default_arm}”", experiment)


def _promoting(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        *_ending("the variant you choose", experiment),
        "Anybody who watches the site will see which variant won. That is a conclusion about all "
        "visitors together; the guarantee is about the variant that each individual visitor was shown.",
    ]


def _switching(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "New visitors no longer get this variant. Visitors who have it keep it.",
        "The other variants are drawn from new tables, checked against the same budget before anybody "
        "is served. They are a new version of the guarantee.",
        "Its grade is “given the time”: among visitors who first came after the change, odds move by "
        f"a factor of at most {factor(experiment.budget)}, as before. For a tracker who does not know "
        "on which day a visitor first came, there is no limit, because the chances of a variant differ "
        "before and after the change. The statement and the audit log will say so.",
    ]


def _adding_arm(experiment: Experiment, _firm: Firm | None) -> list[str]:
    said = [
        "From now on, new visitors can get the new variant. Visitors who have a variant keep it.",
        "A table with the new variant is published at once, checked against the same budget. It is "
        f"version {experiment.version + 1} of the guarantee.",
        "Its grade is “given the time”: among visitors who first came after the change, odds move by "
        f"a factor of at most {factor(experiment.budget)}, as before. The new variant reveals that the "
        "visitor came after it was added. For a tracker who does not know on which day a visitor first "
        "came, there is no limit. The statement and the audit log will say so.",
        f"Nothing more is committed: {in_nats(experiment.budget_nano / NANO)}, as before.",
    ]
    if experiment.arm_specific:
        said.append(
            f"Its own budget can be at most {in_nats(experiment.budget)}, the largest of the other "
            "variants, because no more was committed."
        )
    return said


def _adding_segment(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "Until the next table, visitors of this segment get a variant chosen without using their "
        "segment, as they do now. The next table is published on schedule and has a row for them.",
        "Visitors who came before keep their variant, and stay in “not listed”.",
        "The guarantee and its version stay as they are: the new row keeps the same budget as all "
        f"others, a factor of at most {factor(experiment.budget)}. Nothing more is committed.",
    ]


def _add_arm(service: Deniable, key: str, text: Callable[[str], str]) -> object:
    budget = _numbers.number("budget", text("budget")) if text("budget") else None
    return service.experiments.add_arm(key, text("name"), budget=budget)


def _stop_and_promote(service: Deniable, key: str, text: Callable[[str], str]) -> object:
    arm = text("arm")
    if arm not in {known.key for known in service.experiments.get(key).arms}:
        raise UnknownNameError("arm", arm)
    return service.experiments.stop(key, promote=arm)


ACTIONS: dict[str, Action] = {
    "start": Action(
        "Start this experiment?",
        "Start",
        "The experiment is running.",
        ("draft",),
        lambda service, key, text: service.experiments.start(
            key,
            share=_numbers.number("share", text("share"), 0.1, 100) / 100 if text("share") else 1.0,
        ),
        _starting,
    ),
    "discard": Action(
        "Remove this draft?",
        "Remove",
        "The draft is removed.",
        ("draft",),
        lambda service, key, _: service.experiments.discard(key),
        _discarding,
        destroys=True,
        leaves="/experiments",
        seldom=True,
    ),
    "pause": Action(
        "Pause this experiment?",
        "Pause",
        "It is paused: new visitors get a variant chosen without using their segment.",
        ("running",),
        lambda service, key, _: service.experiments.pause(key),
        _pausing,
    ),
    "resume": Action(
        "Resume this experiment?",
        "Resume",
        "The experiment is running again.",
        ("paused",),
        lambda service, key, _: service.experiments.resume(key),
        _resuming,
    ),
    "promote": Action(
        "Promote a winner?",
        "Promote and stop",
        "It is stopped; everybody gets the variant you promoted.",
        ("running", "paused"),
        _stop_and_promote,
        _promoting,
        chooses_arm=True,
        destroys=True,
    ),
    "switch-off": Action(
        "Switch a variant off?",
        "Switch a variant off",
        "The variant is off for new visitors.",
        ("running", "paused"),
        lambda service, key, text: service.experiments.switch_off(key, text("arm")),
        _switching,
        chooses_arm=True,
        destroys=True,
        seldom=True,
    ),
    "add-arm": Action(
        "Add a variant?",
        "Add a variant",
        "New visitors can get the new variant.",
        ("running", "paused"),
        _add_arm,
        _adding_arm,
        names="Key of the new variant",
        seldom=True,
    ),
    "add-segment": Action(
        "Add a segment?",
        "Add a segment",
        "The segment is listed; the next table has a row for it.",
        ("running", "paused"),
        lambda service, key, text: service.experiments.add_segment(key, text("name")),
        _adding_segment,
        names="Name of the new segment",
        seldom=True,
    ),
    "stop": Action(
        "Stop this experiment?",
        "Stop for good",
        "It is stopped; everybody gets its default variant.",
        ("running", "paused"),
        lambda service, key, _: service.experiments.stop(key),
        _stopping,
        destroys=True,
    ),
}
