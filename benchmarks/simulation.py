"""The simulator: leap against step, step against C, and the firm-wide study at true scale.

Times are processor time of one thread, so that a busy machine does not tell; medians over repetitions.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import row
from deniable.datasets import RECOMMENDATION_RATES, ExperimentData, asos, synthetic_portfolio
from deniable.errors import InvalidArgumentError
from deniable.policies.base import Policy
from deniable.policies.benchmarks import GittinsPolicy, RandomPolicy
from deniable.policies.greedy import ConstantPolicy, DynamicPolicy, EpsilonGreedyPolicy
from deniable.simulation.environment import Environment
from deniable.simulation.job import Kernel, SimulationJob, make_job, run_from
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.run import Case, simulate_many
from deniable.theory.best_budget import best_constant_budget, best_dynamic_budget

C_LOOP = Path(__file__).with_name("simulation_loop.c")
BUDGETS = (0.05, 1, 3, 5)


def main() -> bool:
    """Print every row; True where all limits hold."""
    return all([*_two_arms(), *_eight_arms(), *_short(), *_against_c(), *_study()])


def kernel_seconds(
    world: Environment, policy: Policy, kernel: Kernel, repeats: int, *, first: int = 0
) -> float:
    """The median processor time of one repetition."""
    job = make_job(world, policy, kernel=kernel)
    run_from(job, _state(10**6))
    return statistics.median(_once(job, first + i) for i in range(repeats))


def _once(job: SimulationJob, seed: int) -> float:
    state = _state(seed)
    start = time.thread_time()
    run_from(job, state)
    return time.thread_time() - start


def _state(seed: int) -> NDArray[np.uint64]:
    return generator_state(np.random.SeedSequence(seed))


def _leap_over_step(world: Environment, policy: Policy, leaps: int = 101, steps: int = 3) -> float:
    """How many times faster, with half of the leaps before the steps and half after."""
    before = kernel_seconds(world, policy, "leap", leaps // 2)
    step = kernel_seconds(world, policy, "step", steps)
    after = kernel_seconds(world, policy, "leap", leaps - leaps // 2, first=leaps // 2)
    return step / ((before + after) / 2)


def _two_arms() -> list[bool]:
    held = []
    for rates, limit in (((0.324, 0.295), 5000), ((0.1955, 0.195), 300)):
        world = Environment(rates, 10**8)
        for budget in BUDGETS:
            pair: list[Policy] = [ConstantPolicy(budget), DynamicPolicy(budget)]
            for policy in pair:
                faster = _leap_over_step(world, policy, steps=1)
                name = f"leap / step, T=1e8, {rates[0]}/{rates[1]}, {policy.label}"
                held.append(row(name, faster, "x", limit, at_least=True))
    return held


def _eight_arms() -> list[bool]:
    world = Environment(RECOMMENDATION_RATES, 10**6)
    held = []
    policies: list[Policy] = [f(b) for f in (ConstantPolicy, DynamicPolicy) for b in (1, 3)]
    for policy in policies:
        name = f"leap / step, T=1e6, 8 recommendations, {policy.label}"
        held.append(row(name, _leap_over_step(world, policy), "x", 20, at_least=True))
    return held


def _short() -> list[bool]:
    held = []
    for rates in ((0.324, 0.295), (0.1955, 0.195), (0.5, 0.5), RECOMMENDATION_RATES):
        world = Environment(rates, 10**4)
        policies: list[Policy] = [ConstantPolicy(0.05), DynamicPolicy(5)]
        policies += [EpsilonGreedyPolicy(), GittinsPolicy()]
        for policy in policies:
            name = f"leap / step, T=1e4, K={len(rates)}, {rates[0]:.3g}, {policy.label}"
            faster = _leap_over_step(world, policy, leaps=101, steps=21)
            held.append(row(name, faster, "x", 1, at_least=True))
    return held


def _against_c() -> list[bool]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("SKIP  no C compiler found: the step kernel is not compared with C")
        return []
    held = []
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "loop")
        command = [compiler, "-O2", "-march=native", "-o", program, str(C_LOOP)]
        subprocess.run(command, check=True)
        for budget in BUDGETS:
            policy = ConstantPolicy(budget)
            explored = 2 / (1 + np.exp(budget))
            ratios = []
            for _ in range(5):
                mine = kernel_seconds(Environment([0.324, 0.295], 10**7), policy, "step", 1) * 100
                arguments = [program, "0.324", "0.295", str(explored), "10000000"]
                text = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
                ratios.append(mine / float(text.split()[0]))
            name = f"step / C loop, {policy.label} ({mine:.1f} ns a visitor)"
            held.append(row(name, statistics.median(ratios), "x", 1.5))
    return held


def _study() -> list[bool]:
    """The firm-wide study at true scale, a tenth of its repetitions."""
    firm, source = firm_or_stand_in()
    start = time.perf_counter()
    repetitions = 10
    cases = study_cases(firm)
    simulate_many(cases, repetitions, seed=1)
    minutes = (time.perf_counter() - start) / 60 * (100 / repetitions)
    visits = sum(case.environment.horizon for case in cases) * 100
    name = f"firm-wide study, {source}, {len(cases)} cases, {visits:.2g} visitors"
    return [row(name, minutes, "min", 10)]


def firm_or_stand_in() -> tuple[list[ExperimentData], str]:
    """ASOS where the data folder has it, else a synthetic portfolio; and which."""
    try:
        return asos(), "ASOS"
    except InvalidArgumentError:
        print("NOTE  no ASOS data (set DENIABLE_DATA): the synthetic portfolio stands in")
        return synthetic_portfolio(1), "synthetic"


def study_cases(firm: list[ExperimentData]) -> list[Case]:
    """Every different case of 10 firm budgets x 3 regimes x 2 rules, and the benchmarks.

    The solver's split is stood in for by its usual shape: the largest experiments get their best
    budget until the firm's is spent. The flexible regime picks one of the other two's strategies,
    so its cases are among theirs, and a case that several settings share is run once.
    """
    worlds = [Environment.of(data) for data in sorted(firm, key=lambda data: -data.visitors)]
    cases: dict[tuple[str, str], Case] = {}
    for name, best, make in (
        ("constant", best_constant_budget, ConstantPolicy),
        ("dynamic", best_dynamic_budget, DynamicPolicy),
    ):
        caps = [float(best(world.n_arms, world.horizon)) for world in worlds]
        for total in (0.01, 0.1, 1, 3, 5, 10, 20, 50, 100, 500):
            left = float(total)
            for world, cap in zip(worlds, caps, strict=True):
                filled = min(left, cap)
                left -= filled
                for budget in (filled, min(cap, total / len(worlds)), cap):
                    policy: Policy = make(budget) if budget > 0 else RandomPolicy()
                    cases[world.name, f"{name} {policy.label}"] = Case(world, policy)
    unique = {(case.environment.name, case.policy.label): case for case in cases.values()}
    return list(unique.values())
