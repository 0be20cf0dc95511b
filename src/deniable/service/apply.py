"""The firm as a file: compare its budget, experiments, API keys and people with the store, and apply it.

A file describes the wanted state. `compare` finds the steps that lead there. If any change would
break an existing promise, the whole file is refused. Applying the same file again takes no steps.
Anything that the file does not name is left alone. Arms and segments listed after those of a
running experiment are added to it, and the step says what that does to the promise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError, UnknownNameError
from deniable.privacy.composition import nano_down
from deniable.service.firm_file import (
    Wanted,
    members,
    only,
    parsed,
    slots_of,
    tables,
    wanted_experiment,
)
from deniable.service.people import Invitation, checked_name
from deniable.service.service import Deniable
from deniable.storage.records import ROLES, SCOPES, SLOTS, Experiment, Status

_NEXT: dict[tuple[Status, Status], tuple[str, ...]] = {
    ("draft", "running"): ("start",),
    ("draft", "paused"): ("start", "pause"),
    ("running", "paused"): ("pause",),
    ("paused", "running"): ("resume",),
    ("running", "stopped"): ("stop",),
    ("paused", "stopped"): ("stop",),
}
"""(current status, wanted status) -> action; other transitions are impossible."""


@dataclass(frozen=True)
class Step:
    """One change to apply.

    Attributes:
        words: description for people.
        act: applies the change; returns a message to show once (a key's secret, an invitation's
            path), or None.
    """

    words: str
    act: Callable[[], str | None]


@dataclass
class Difference:
    """The differences between a store and a file.

    Attributes:
        steps: changes that lead to the wanted state, in order.
        refused: impossible changes; if there are any, no step may be applied.
        left_alone: experiments in the store that the file does not name.
    """

    steps: list[Step] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)


def compare(text: str, service: Deniable) -> Difference:
    r"""Compare the store with a file.

    Args:
        text: TOML, in the format of `written`.
        service: the service whose store to compare.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     found = compare("[firm]\nbudget = 3", service)
    ...     [step.words for step in found.steps]
    ['firm: at most 3 nats in any 90 days']
    """
    document = parsed(text)
    found = Difference()
    _compare_firm(document.get("firm"), service, found)
    stored = {experiment.key: experiment for experiment in service.experiments.all()}
    wanted = {key: wanted_experiment(key, given) for key, given in tables(document, "experiments")}
    for key, want in wanted.items():
        _compare_experiment(key, want, stored.get(key), service, found)
    _compare_keys(dict(tables(document, "keys")), service, found)
    _compare_users(dict(tables(document, "users")), service, found)
    found.left_alone = [key for key in stored if key not in wanted]
    return found


def _compare_firm(given: object, service: Deniable, found: Difference) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise InvalidArgumentError("firm", given, "a table [firm]")
    only(given, ("budget", "window_days", "reason"), "firm")
    budget, days = given.get("budget"), given.get("window_days", 90)
    if not isinstance(budget, int | float) or type(days) is not int:
        raise InvalidArgumentError("firm", given, "budget (a number) and window_days (whole days)")
    nano = nano_down(budget)
    now = None
    with suppress(UnknownNameError):  # no budget was set before
        now = service.firm.current()
    if now is not None and (now.budget_nano, now.window_days) == (nano, days):
        return
    if now is not None and nano < now.committed_nano:
        found.refused.append(f"firm.budget: {now.committed:g} nats count already")
    if now is not None and not given.get("reason"):
        if nano > now.budget_nano:
            found.refused.append("firm.budget: raising it needs `reason`")
        if days < now.window_days:
            found.refused.append("firm.window_days: shortening it needs `reason`")
    words = f"firm: at most {budget:g} nats in any {days} days"
    if now is not None:
        words += f" instead of {now.budget:g} in any {now.window_days}"
    setting = partial(
        service.firm.set, budget=budget, window_days=days, reason=given.get("reason", "")
    )
    found.steps.append(Step(words, _silent(setting)))


def _compare_experiment(
    key: str, want: Wanted, stored: Experiment | None, service: Deniable, found: Difference
) -> None:
    life = service.experiments
    now: Status = "draft"
    if stored is None:
        made = want.made
        creating = partial(
            life.create,
            key,
            arms=want.arms,
            segments=made.segments,
            contexts=made.contexts[1:],
            observed=made.observed,
            budget=None if made.arm_specific else made.budget,
            strategy=made.strategy,
            planned_visitors=made.planned_visitors,
            layer=made.layer,
            holdout=made.holdout / 1000,
            default_arm=made.default_arm,
            attribution_seconds=made.attribution_seconds,
            metrics=made.metrics,
        )
        words = f"{key}: create, {made.strategy}, {made.budget:g} nats"
        found.steps.append(Step(words, _silent(creating)))
        active = {arm.key for arm in want.arms}
    else:
        now, active = stored.status, {arm.key for arm in stored.active_arms}
        _compare_settings(key, want, stored, service, found)
    _compare_status(key, want, now, service, found)
    if stored is not None:
        _compare_size(key, want, stored, service, found)
    for arm in want.off:
        if arm in active:
            switching = partial(life.switch_off, key, arm)
            found.steps.append(Step(f"{key}: switch off {arm}", _silent(switching)))
    gone = set() if stored is None else {arm.key for arm in stored.arms} - active
    if any(arm.key in gone and arm.key not in want.off for arm in want.arms):
        found.refused.append(f"{key}: an arm that was switched off cannot come back")
    if want.off and want.status in ("draft", "stopped") and active & set(want.off):
        found.refused.append(f"{key}: arms are switched off while it runs or is paused")


def _compare_settings(
    key: str, want: Wanted, stored: Experiment, service: Deniable, found: Difference
) -> None:
    """Settings that carry the promise are fixed, except a draft's budget and strategy."""
    before, after = _fixed(stored), _fixed(want.made)
    for name in ("arms", "segments", "contexts"):  # appended ones are handled by `_compare_size`
        after[name] = after[name][: len(before[name])]
    changed = [name for name in before if before[name] != after[name]]
    free = {"budget", "strategy"} if stored.status == "draft" and not stored.arm_specific else set()
    for name in changed:
        if name not in free:
            why = "fixed when it was created" if stored.status == "draft" else "part of its promise"
            found.refused.append(f"{key}.{name}: {why}{_both(name, stored, want.made)}")
    if changed and set(changed) <= free:
        plan = {key: (want.made.budget_nano, want.made.strategy)}
        words = f"{key}: {want.made.strategy}, {want.made.budget:g} nats "
        words += f"instead of {stored.strategy}, {stored.budget:g} nats"
        found.steps.append(Step(words, _silent(partial(service.experiments.replan, plan))))
    if stored.slots is not None and round(want.share * SLOTS) != slots_of(stored):
        found.refused.append(f"{key}.share: fixed when it started")


def _both(name: str, stored: Experiment, made: Experiment) -> str:
    """Return the stored value and the file's; empty for lists, which may name segments."""
    now, then = members(stored).get(name), members(made).get(name)
    if isinstance(now, list | dict) or isinstance(then, list | dict):
        return ""
    now, then = ("not set" if value is None else value for value in (now, then))
    return f" ({now}; the file says {then})"


def _compare_size(
    key: str, want: Wanted, stored: Experiment, service: Deniable, found: Difference
) -> None:
    """Add arms and segments listed after the stored ones, while the experiment runs or is paused."""
    arms = want.arms[len(stored.arms) :]
    segments = want.made.segments[len(stored.segments) :]
    contexts = want.made.contexts[len(stored.contexts) :]
    if not arms and not segments and not contexts:
        return
    if want.status not in ("running", "paused") or stored.status == "draft":
        found.refused.append(
            f"{key}: arms, segments and contexts are added while it runs or is paused"
        )
    if {arm.key for arm in arms} & set(want.off):
        found.refused.append(f"{key}: an arm that is added is on")
    life = service.experiments
    # Segments first, so that the table made for a new arm already has their rows.
    for place, segment in enumerate(segments, len(stored.segments) + 1):
        words = f"{key}: add segment {place}, unlisted until the next table"
        found.steps.append(Step(words, _silent(partial(life.add_segment, key, segment))))
    for context in contexts:
        words = f"{key}: add context {context}, which has a row from the next table on"
        found.steps.append(Step(words, _silent(partial(life.add_context, key, context))))
    for version, arm in enumerate(arms, stored.version + 1):
        adding = partial(life.add_arm, key, arm.key, budget=arm.budget, label=arm.label)
        words = f"{key}: add arm {arm.key}, a new promise version {version}, given the time"
        found.steps.append(Step(words, _silent(adding)))


def _compare_status(
    key: str, want: Wanted, now: Status, service: Deniable, found: Difference
) -> None:
    if now == want.status:
        if now == "stopped" and service.experiments.get(key).winner != want.winner:
            found.refused.append(f"{key}.winner: fixed when it was stopped")
        return
    acts = _NEXT.get((now, want.status))
    if acts is None:
        found.refused.append(f"{key}.status: {now} cannot become {want.status}")
        return
    life = service.experiments
    calls: dict[str, Callable[[], object]] = {
        "start": partial(life.start, key, share=want.share),
        "pause": partial(life.pause, key),
        "resume": partial(life.resume, key),
        "stop": partial(life.stop, key, promote=want.winner),
    }
    for act in acts:
        promoted = f", promote {want.winner}" if act == "stop" and want.winner else ""
        found.steps.append(Step(f"{key}: {act}{promoted}", _silent(calls[act])))


def _compare_keys(wanted: dict[str, JsonObject], service: Deniable, found: Difference) -> None:
    known = {key.label: key for key in service.keys.all() if key.revoked_at is None}
    for label, given in wanted.items():
        only(given, ("scopes",), f"keys.{label}")
        scopes = given.get("scopes")
        if not isinstance(scopes, list) or not scopes or not set(scopes) <= set(SCOPES):
            raise InvalidArgumentError(
                f"keys.{label}.scopes", scopes, f"some of {', '.join(SCOPES)}"
            )
        if label not in known:
            creating = partial(service.keys.create, label, scopes)
            words = f"key {label}: create for {', '.join(scopes)}"
            found.steps.append(Step(words, _secret(creating)))
        elif set(known[label].scopes) != set(scopes):
            found.refused.append(f"keys.{label}.scopes: revoke the key and create another one")


def _compare_users(wanted: dict[str, JsonObject], service: Deniable, found: Difference) -> None:
    """Compare people by name. Those whom the file does not name are left alone."""
    known = {user.name: user for user in service.people.all()}
    for given_name, given in wanted.items():
        where = f"users.{given_name}"
        try:
            name = checked_name(given_name)
        except InvalidArgumentError as error:
            raise InvalidArgumentError("users", given_name, error.allowed) from None
        only(given, ("role", "disabled"), where)
        role, disabled = given.get("role"), given.get("disabled", False)
        if role not in ROLES:
            raise InvalidArgumentError(f"{where}.role", role, f"one of {', '.join(ROLES)}")
        if not isinstance(disabled, bool):
            raise InvalidArgumentError(f"{where}.disabled", disabled, "true or false")
        people, user = service.people, known.get(name)
        if user is None:
            if disabled:
                continue
            inviting = partial(people.invite, name, role)
            found.steps.append(Step(f"user {name}: invite as {role}", _link(inviting)))
            continue
        if user.role != role:
            changing = partial(people.set_role, name, role)
            found.steps.append(
                Step(f"user {name}: {role} instead of {user.role}", _silent(changing))
            )
        if disabled != (user.disabled_at is not None):
            act = people.disable if disabled else people.enable
            words = f"user {name}: {'disable' if disabled else 'enable'}"
            found.steps.append(Step(words, _silent(partial(act, name))))


def _link(invite: Callable[[], Invitation]) -> Callable[[], str]:
    return lambda: invite().path


def _secret(create: Callable[[], tuple[str, object]]) -> Callable[[], str]:
    return lambda: create()[0]


def _silent(act: Callable[[], object]) -> Callable[[], None]:
    def done() -> None:
        act()

    return done


def _fixed(experiment: Experiment) -> JsonObject:
    """Return the settings that `create` fixes, by name."""
    return {
        "arms": [(arm.key, arm.label, arm.budget_nano, arm.weight) for arm in experiment.arms],
        "segments": experiment.segments,
        "contexts": experiment.contexts,
        "observed": experiment.observed,
        "budget": experiment.budget_nano,
        "strategy": experiment.strategy,
        "planned_visitors": experiment.planned_visitors,
        "layer": experiment.layer,
        "holdout": experiment.holdout,
        "default_arm": experiment.default_arm,
        "attribution_seconds": experiment.attribution_seconds,
        "metrics": experiment.metrics,
    }
