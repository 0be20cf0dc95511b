"""Scenarios: an environment and a run as a TOML file, or as command-line flags.

::

    name = "landing page"
    visitors = 1e6
    policies = ["constant", "dynamic", "gittins", "random", "perfect"]
    budget = [1, 3]                          # one policy for each
    repetitions = 100
    seed = 1

    [rates]                                  # by segment and arm
    mobile = { old = 0.31, new = 0.29 }
    desktop = { old = 0.20, new = 0.25 }

    [shares]
    mobile = 0.7
    desktop = 0.3

Rates and shares can also be plain lists, with one row of rates for each segment. For click rates that
change, and rewards that are late or have values::

    delay = 20                               # visitors; or the probabilities of 0, 1, 2, ...
    values = 40                              # of a click; or by arm
    value_spread = 0.5                       # of its logarithm
    mask_budget = 3                          # policies see private labels instead of segments
    contexts = ["phone", "phone", "desktop"]  # of each segment: policies see these instead

    [[changes]]
    visitor = 500_000
    rates = [[0.29, 0.31], [0.25, 0.20]]
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

from deniable import _validation as check
from deniable._numbers import toml_words
from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.masks.mask import KEY_BYTES, Mask
from deniable.simulation.environment import LONGEST_HORIZON, Environment
from deniable.simulation.job import KERNELS, Kernel
from deniable.strategies import STRATEGIES
from deniable.strategies.arm_budgets import ArmConstant, ArmDynamic
from deniable.strategies.benchmarks import BestPrivate, EpsilonGreedy, Gittins, Perfect, Random
from deniable.strategies.constant import Constant
from deniable.strategies.custom import Custom, ThompsonSampling, UpperConfidence
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.joint import Joint
from deniable.strategies.kernel_rules import Growth, Published, Simulated
from deniable.strategies.pooled import Pooled
from deniable.strategies.unbounded import Unbounded

DEFAULTS: JsonObject = {
    "name": "experiment",
    "shares": None,
    # Not all strategies, because joint takes half a minute to compile.
    "policies": ["constant", "dynamic", "epsilon-greedy", "gittins", "random", "perfect"],
    "budget": 1.0,
    "budgets": None,
    "discount": None,
    "publishing": "visitor",
    "repetitions": 100,
    "seed": 0,
    "checkpoints": [],
    "kernel": "leap",
    "changes": [],
    "delay": 0,
    "values": 1.0,
    "value_spread": 0.0,
    "mask_budget": None,
    "contexts": None,
}
"""Default values. `rates` and `visitors` have none."""

PUBLISHING: dict[str, Growth | None] = {"visitor": None, "service": "service"}
"""When private policies learn: after every visitor, or in tables published as in the service."""

KEYS = ("rates", "visitors", *DEFAULTS)

Names: TypeAlias = tuple[str, ...] | None
"""Names of arms or segments in their order; None where the file gives lists."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """A simulation to run.

    Attributes:
        environment: the ground truth.
        policies: policies with different labels.
        repetitions: repetitions of each policy.
        seed: random seed.
        checkpoints: visitors at which to record counts, in addition to the horizon.
        kernel: "leap" or "step".
    """

    environment: Environment
    policies: tuple[Simulated, ...]
    repetitions: int
    seed: int
    checkpoints: tuple[int, ...]
    kernel: Kernel


def read_scenario(path: str | PathLike[str]) -> Scenario:
    r"""Read a scenario from a TOML file; errors name the key that is wrong.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "page.toml"
    ...     _ = path.write_text("rates = [0.3, 0.2]\nvisitors = 1e6")
    ...     read_scenario(path).environment.horizon
    1000000
    """
    return make_scenario(read_values(path))


def read_values(path: str | PathLike[str]) -> JsonObject:
    """Read a TOML file without interpreting it."""
    if not isinstance(path, str | PathLike):
        raise InvalidArgumentError("scenario", path, "a path")
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise InvalidArgumentError("scenario", str(path), allowed) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError("scenario", str(path), f"TOML ({toml_words(error)})") from None


def make_scenario(values: Mapping[str, Any]) -> Scenario:
    """Create a scenario from a table of values.

    >>> scenario = make_scenario({"rates": [0.3, 0.2], "visitors": 1e6, "budget": [1, 3],
    ...                           "policies": ["dynamic", "random"]})
    >>> [policy.label for policy in scenario.policies]
    ['dynamic(1)', 'dynamic(3)', 'random']
    """
    if "horizon" in values and "visitors" not in values:
        values = {**values, "visitors": values["horizon"]}
        values.pop("horizon")
    for key in values:
        if key not in KEYS:
            raise InvalidArgumentError(key, values[key], "one of the keys " + ", ".join(KEYS))
    for key in ("rates", "visitors"):
        if key not in values:
            raise InvalidArgumentError(key, None, "a value: every scenario needs it")
    filled = {**DEFAULTS, **values}
    visitors = check.whole("visitors", filled["visitors"], 1, LONGEST_HORIZON)
    kernel = filled["kernel"]
    if kernel not in KERNELS:
        raise InvalidArgumentError("kernel", kernel, "leap or step")
    environment = _environment(filled, visitors)
    if filled["contexts"] is not None:
        if filled["mask_budget"] is not None:
            raise InvalidArgumentError("contexts", "...", "none with mask_budget: either, not both")
        environment = environment.by_context()
    if filled["mask_budget"] is not None:
        environment = _masked(environment, filled["mask_budget"])
    return Scenario(
        environment=environment,
        policies=_policies(filled, environment.n_arms),
        repetitions=check.whole("repetitions", filled["repetitions"], 1),
        seed=check.whole("seed", filled["seed"], 0),
        checkpoints=tuple(
            check.whole("checkpoints", point, 1, visitors)
            for point in _list("checkpoints", filled["checkpoints"])
        ),
        kernel=kernel,
    )


def _environment(values: Mapping[str, Any], visitors: int) -> Environment:
    rates, shares = values["rates"], values["shares"]
    by_segment = rates if isinstance(rates, dict) and not _is_row(rates) else shares
    segments = tuple(by_segment) if isinstance(by_segment, dict) else None
    first = next(iter(rates.values())) if rates is by_segment and segments else rates
    arms = tuple(first) if isinstance(first, dict) else None
    return Environment(
        _rows("rates", rates, segments, arms),
        visitors,
        _ordered("shares", shares, segments, "segments"),
        name=values["name"],
        arms=arms,
        segments=segments,
        contexts=values["contexts"],
        changes=_changes(values["changes"], segments, arms),
        delay=values["delay"],
        values=_rows("values", values["values"], segments, arms),
        value_spread=values["value_spread"],
    )


def _changes(changes: object, segments: Names, arms: Names) -> list[tuple[int, Any]]:
    allowed = "tables with a visitor and the rates from there on"
    if not isinstance(changes, list):
        raise InvalidArgumentError("changes", changes, allowed)
    made = []
    for change in changes:
        if not isinstance(change, dict) or set(change) != {"visitor", "rates"}:
            raise InvalidArgumentError("changes", change, allowed)
        made.append((change["visitor"], _rows("changes", change["rates"], segments, arms)))
    return made


def _masked(environment: Environment, budget: Any) -> Environment:
    if environment.n_segments < 2:
        allowed = "nothing where there is one segment: give rates by segment in a file"
        raise InvalidArgumentError("mask_budget", budget, allowed)
    # A simulation draws labels from their channel, so the key does not matter.
    mask = Mask(
        segments=environment.segments,
        budget=check.single("mask_budget", check.nonnegative("mask_budget", budget)),
        key=bytes(KEY_BYTES),
        name="simulated",
    )
    return environment.masked(mask)


def _rows(argument: str, given: Any, segments: Names, arms: Names) -> Any:
    """Return one row for each segment, or one row for all; lists and numbers are returned unchanged."""
    if _is_row(given):
        return _ordered(argument, given, arms, "arms")
    rows = _ordered(argument, given, segments, "segments")
    return rows if rows is given else [_ordered(argument, row, arms, "arms") for row in rows]


def _is_row(given: Any) -> bool:
    """Whether these are numbers by arm, not rows by segment."""
    return isinstance(given, dict) and not any(isinstance(v, dict | list) for v in given.values())


def _ordered(argument: str, given: Any, names: Names, kind: str) -> Any:
    """Return the values of a table in the order of its names; anything else unchanged."""
    if not isinstance(given, dict):
        return given
    if set(given) != set(names or ()):
        allowed = f"the {kind} " + ", ".join(names or ()) if names else "a list"
        raise InvalidArgumentError(argument, list(given), allowed)
    return [given[name] for name in names or ()]


def _policies(values: Mapping[str, Any], n_arms: int) -> tuple[Simulated, ...]:
    names = values["policies"]
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InvalidArgumentError("policies", names, "a list of policy names")
    discount = values["discount"]
    if discount is not None:
        discount = float(check.probability("discount", discount, open_at_zero=True))
    publishing = values["publishing"]
    if not isinstance(publishing, str) or publishing not in PUBLISHING:
        raise InvalidArgumentError("publishing", publishing, "one of " + ", ".join(PUBLISHING))
    growth = PUBLISHING[publishing]
    made: list[Simulated] = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError("policies", name, "a list of policy names")
        for budget in _list("budget", values["budget"]) or [None]:
            settings = Settings(budget, values["budgets"], discount)
            policy: Simulated = (
                STRATEGIES[name](budget)
                if name in STRATEGIES and budget is not None
                else policy_named(name, settings)
            )
            if isinstance(policy, Published):
                policy = cast(Simulated, replace(policy, growth=growth))
            if policy not in made:
                made.append(policy)
    return tuple(made)


def _list(argument: str, value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str | dict):
        raise InvalidArgumentError(argument, value, "a number or a list of numbers")
    return [value]


# -- policies by name ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Parameters of policies created by name.

    Attributes:
        budget: for policies that keep one, such as constant, joint and best-private.
        budgets: budgets by arm, for arm-constant and arm-dynamic.
        discount: for gittins; None uses the horizon's.
    """

    budget: float | None = None
    budgets: Sequence[float] | None = None
    discount: float | None = None


def _budget(settings: Settings) -> float:
    if settings.budget is None:
        raise InvalidArgumentError(
            "budget", None, "a budget for the policies that keep one, such as constant or joint"
        )
    return settings.budget


def _budgets(settings: Settings) -> Sequence[float]:
    if settings.budgets is None:
        raise InvalidArgumentError(
            "budgets", None, "a budget by arm for the policies arm-constant and arm-dynamic"
        )
    return settings.budgets


POLICIES: dict[str, Callable[[Settings], Simulated]] = {
    "constant": lambda given: Constant(_budget(given)),
    "dynamic": lambda given: Dynamic(_budget(given)),
    "arm-constant": lambda given: ArmConstant(_budgets(given)),
    "arm-dynamic": lambda given: ArmDynamic(_budgets(given)),
    "epsilon-greedy": lambda given: EpsilonGreedy(),
    "gittins": lambda given: Gittins(given.discount),
    "joint": lambda given: Joint(_budget(given)),
    "best-private": lambda given: BestPrivate(_budget(given)),
    "pooled": lambda given: Pooled(),
    "unbounded": lambda given: Unbounded(),
    "thompson": lambda given: Custom(ThompsonSampling),
    "thompson-response": lambda given: Custom(ThompsonSampling, budget=_budget(given)),
    "ucb": lambda given: Custom(UpperConfidence),
    "ucb-response": lambda given: Custom(UpperConfidence, budget=_budget(given)),
    "random": lambda given: Random(),
    "perfect": lambda given: Perfect(),
}


def policy_named(name: str, settings: Settings | None = None) -> Simulated:
    """Return the policy with this name.

    >>> policy_named("dynamic", Settings(budget=3)).label
    'dynamic(3)'
    """
    if name not in list(POLICIES):
        raise InvalidArgumentError("policies", name, "names from " + ", ".join(POLICIES))
    return POLICIES[name](settings or Settings())
