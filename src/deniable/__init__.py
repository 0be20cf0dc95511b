"""Deniable: bandit experiments that keep every visitor's segment deniable, within a privacy budget.

The names here are those of everyday work. Formulas of the paper are in `deniable.theory`, mechanisms and
beliefs in `deniable.privacy`, the firm's problem in `deniable.portfolio`, public data in
`deniable.datasets`, and all errors in `deniable.errors`. Names are imported on first use, so that
`import deniable` is fast.

>>> import deniable
>>> round(float(deniable.highest_belief(prior=0.2, risk=1)), 3)
0.405
"""

from __future__ import annotations

from importlib import import_module

_HOME = {
    "client.clients": ("Client",),
    "errors": ("DeniableError",),
    "expectations.fit": ("fit_prior",),
    "leak.report": ("measure_leak",),
    "leak.worth": ("worth",),
    "masks.limit": ("design_groups",),
    "masks.mask": ("Mask",),
    "planning.arm_plan": ("plan_arms",),
    "planning.plan": (
        "Plan",
        "plan",
    ),
    "portfolio.allocation": (
        "Allocation",
        "allocate",
    ),
    "portfolio.problem": ("Portfolio",),
    "privacy.belief": (
        "budget_for_belief",
        "highest_belief",
    ),
    "simulation.environment": ("Environment",),
    "simulation.results": ("SimulationResult",),
    "simulation.run": (
        "Case",
        "simulate",
        "simulate_many",
    ),
    "strategies.arm_budgets": (
        "ArmConstant",
        "ArmDynamic",
    ),
    "strategies.benchmarks": (
        "BestPrivate",
        "EpsilonGreedy",
        "Gittins",
        "Perfect",
        "Random",
    ),
    "strategies.constant": ("Constant",),
    "strategies.custom": (
        "Custom",
        "ThompsonSampling",
    ),
    "strategies.dynamic": ("Dynamic",),
    "strategies.joint": ("Joint",),
    "strategies.joint_lp": ("best_table",),
    "strategies.pooled": ("Pooled",),
    "strategies.unbounded": ("Unbounded",),
}
"""Module -> its public names."""

_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_PACKAGES = ("datasets", "errors", "portfolio", "privacy", "theory")

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"deniable.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("deniable")
    # `open` is not in __all__: `from deniable import *` must not hide the built-in function.
    module = "service.service" if name == "open" else _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'deniable' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"deniable.{module}"), name)
    except ModuleNotFoundError as error:
        from deniable._extras import missing_extra

        raise missing_extra(error.name or "") or error from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__", "open"])
