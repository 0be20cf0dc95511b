"""Start, pause, resume, stop, promote, switch off: each asks first, and says what it does to privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.errors import NANO, DeniableError, UnknownNameError
from deniable.service.http.guard import Service
from deniable.service.http.problems import Problem
from deniable.service.service import Deniable
from deniable.storage.records import Experiment, Firm, Status
from deniable.web import answers, fields
from deniable.web.access import Runner, RunSubmission
from deniable.web.overview import current_firm
from deniable.web.standing import Standing
from deniable.web.wording import factor, nats

router = APIRouter()


@dataclass(frozen=True)
class Action:
    """Something that can be done to an experiment.

    Attributes:
        title: the question.
        button: the answer yes.
        done: what is told afterwards.
        states: in which it can be done.
        act: does it; the third argument is what was chosen: an arm, a share of a layer, or nothing.
        says: what it does, to visitors and to privacy.
        chooses_arm: whether an arm is chosen.
        final: whether it cannot be undone.
    """

    title: str
    button: str
    done: str
    states: tuple[Status, ...]
    act: Callable[[Deniable, str, str], object]
    says: Callable[[Experiment, Firm | None], list[str]]
    chooses_arm: bool = False
    final: bool = False


@router.get("/experiments/{key}/do/{name}")
def asked(
    request: Request, viewer: Runner, service: Service, key: str, name: str, arm: str = ""
) -> Response:
    """Ask before anything is done."""
    action, experiment = _action(name), service.experiments.get(key)
    if experiment.status not in action.states:
        refusal = f"This experiment is {experiment.status}; that cannot be done now."
        return answers.redirect(request, f"/experiments/{key}", refusal, "bad")
    ranked = Standing(experiment, service.experiments.counts(key)).leaderboard()
    return answers.show(
        request,
        "action.html",
        viewer,
        results=service.experiments.results(key) if name == "promote" else None,
        experiment=experiment,
        action=action,
        name=name,
        says=action.says(experiment, current_firm(service)),
        ranked=[one for one in ranked if one.arm.active],
        chosen=arm,
    )


@router.post("/experiments/{key}/do/{name}")
def act(request: Request, form: RunSubmission, service: Service, key: str, name: str) -> Response:
    """Do it."""
    action, place = _action(name), f"/experiments/{service.experiments.get(key).key}"
    try:
        action.act(service, key, form.text("arm") or form.text("share"))
    except DeniableError as error:
        return answers.redirect(request, place, fields.in_words(error), "bad")
    return answers.redirect(request, place, action.done)


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
        f"Commits {nats(experiment.cost_nano / NANO)} nats of the firm’s budget. They count until "
        "the firm’s window after the last answer has passed, also if you stop early.",
        "From then on the arm a visitor sees may depend on the visitor’s segment. Whoever watches "
        f"which arm is shown can move the odds of any segment by a factor of at most "
        f"{factor(experiment.budget)}.",
        "Arms, segments, strategy and budget can no longer be changed.",
    ]
    if firm is None:
        return ["The firm has no budget yet: set one on the overview first.", *said]
    after = firm.remaining - experiment.cost_nano / NANO
    if experiment.layer:
        said.append(
            f"It takes the share of the layer “{experiment.layer}” that you choose. The "
            "experiments of one layer never share a visitor, so the layer costs only what the "
            "experiments of its fullest slot cost together."
        )
    elif after < 0:
        said.insert(0, f"Only {nats(firm.remaining)} nats are free, so this will be refused.")
    else:
        said.append(f"{nats(after)} of {nats(firm.budget)} nats will be left free.")
    return said


def _pausing(_experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "Visitors who have seen an arm keep it.",
        "New visitors get an arm of the zero row, which tells nothing about them.",
        "No budget is spent while it is paused, and none is given back.",
    ]


def _resuming(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "New visitors are again shown arms that may depend on their segment, within the same "
        f"promise as before: a factor of at most {factor(experiment.budget)}.",
        "Nothing more is committed: the budget was committed at the start.",
    ]


def _ending(shown: str, experiment: Experiment) -> list[str]:
    return [
        f"From now on everybody is shown {shown}, whatever their segment and whatever they saw "
        "before. It cannot be started again.",
        "An arm that everybody gets tells nothing about anybody: from now on this experiment adds "
        "no risk for new visitors.",
        "What was shown until now stays covered by the promise: a factor of at most "
        f"{factor(experiment.budget)} for each visitor. Those {nats(experiment.budget)} nats "
        "count until the firm’s window after the last answer has passed.",
    ]


def _stopping(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return _ending(f"the default arm “{experiment.default_arm}”", experiment)


def _promoting(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        *_ending("the arm you choose", experiment),
        "Whoever watches will notice which arm won. That is a conclusion from all visitors "
        "together; the promise is about the arm that each single visitor was shown.",
    ]


def _switching(experiment: Experiment, _firm: Firm | None) -> list[str]:
    return [
        "New visitors no longer get this arm. Visitors who have it keep it.",
        "The other arms are drawn from new tables, checked against the same budget before anybody "
        "is served. They are a new version of the promise.",
        "Its grade is “given the time”, unless the new tables fit between the old bounds: among "
        "visitors who first came after the change, odds move by a factor of at most "
        f"{factor(experiment.budget)}, as before. A tracker who does not know on which day a "
        "visitor first came could learn more, because the same arm is shown with other chances "
        "before and after the change. The statement and the ledger will say so.",
    ]


def _stop_and_promote(service: Deniable, key: str, arm: str) -> object:
    if arm not in {known.key for known in service.experiments.get(key).arms}:
        raise UnknownNameError("arm", arm)
    return service.experiments.stop(key, promote=arm)


ACTIONS: dict[str, Action] = {
    "start": Action(
        "Start this experiment?",
        "Start",
        "It runs.",
        ("draft",),
        lambda service, key, percent: service.experiments.start(
            key, share=fields.number("share", percent) / 100 if percent else 1.0
        ),
        _starting,
    ),
    "pause": Action(
        "Pause this experiment?",
        "Pause",
        "It is paused: new visitors get an arm that tells nothing about them.",
        ("running",),
        lambda service, key, _: service.experiments.pause(key),
        _pausing,
    ),
    "resume": Action(
        "Resume this experiment?",
        "Resume",
        "It runs again.",
        ("paused",),
        lambda service, key, _: service.experiments.resume(key),
        _resuming,
    ),
    "promote": Action(
        "Promote a winner?",
        "Promote and stop",
        "It is stopped; everybody gets the arm you promoted.",
        ("running", "paused"),
        _stop_and_promote,
        _promoting,
        chooses_arm=True,
        final=True,
    ),
    "switch-off": Action(
        "Switch an arm off?",
        "Switch off",
        "The arm is off for new visitors.",
        ("running", "paused"),
        lambda service, key, arm: service.experiments.switch_off(key, arm),
        _switching,
        chooses_arm=True,
        final=True,
    ),
    "stop": Action(
        "Stop this experiment?",
        "Stop for good",
        "It is stopped; everybody gets its default arm.",
        ("running", "paused"),
        lambda service, key, _: service.experiments.stop(key),
        _stopping,
        final=True,
    ),
}
