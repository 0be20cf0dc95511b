"""Draws: the right arm for every number, the right frequencies, and never the parent's again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from scipy.stats import chi2
from tests.patience import PATIENCE

from deniable import ServingTable, arm_specific_table, symmetric_table
from deniable.errors import NANO
from deniable.privacy.exact import SPACE

NEVER = 1e-9
"""A right sampler fails by chance once in a billion runs."""
DRAWS = 400_000

TABLES = {
    "two arms": symmetric_table(2, NANO),
    "five arms": symmetric_table(5, NANO),
    "eight arms, greedy": symmetric_table(8, 3 * NANO),
    "arm-specific": arm_specific_table([NANO // 2, NANO, 2 * NANO]),
    "uniform": symmetric_table(7, 0),
}


def _feeding(number: int) -> Callable[[int], bytes]:
    return lambda size: number.to_bytes(size, "little")


def _by_definition(table: ServingTable, greedy: int, number: int) -> int:
    """Walk through the pieces; what is left at the end is the greedy arm's."""
    for arm, piece in enumerate(table.pieces):
        if number < piece:
            return arm
        number -= piece
    return greedy


@pytest.mark.parametrize(
    "table",
    [
        *TABLES.values(),
        symmetric_table(3, 1),
        symmetric_table(2, 700 * NANO),
        symmetric_table(50, 20 * NANO),
        arm_specific_table([1, NANO, 700 * NANO, 5 * NANO]),
    ],
)
def test_every_boundary(table: ServingTable) -> None:
    edges = {0, SPACE - 1, SPACE // 2}
    total = 0
    for piece in table.pieces:
        total += piece
        edges |= {total - 1, total, total + 1}
    for number in (edge for edge in edges if edge < SPACE):
        for greedy in range(table.n_arms):
            drawn = table.draw(greedy, entropy=_feeding(number))
            assert drawn == _by_definition(table, greedy, number)


def test_boundaries_of_ten_thousand_arms() -> None:
    table = symmetric_table(10_000, 5 * NANO)
    rng = random.Random(3)
    for arm in [0, 1, 9_998, 9_999, *rng.sample(range(10_000), 200)]:
        edge = sum(table.pieces[: arm + 1])
        for number in (edge - 1, edge, edge + 1):
            assert table.draw(77, _feeding(number)) == _by_definition(table, 77, number)


def _p_value(drawn: Counter[int], table: ServingTable, greedy: int) -> float:
    n = drawn.total()
    expected = [n * table.count(arm, greedy) / SPACE for arm in range(table.n_arms)]
    statistic = sum((drawn[arm] - e) ** 2 / e for arm, e in enumerate(expected))
    return float(chi2.sf(statistic, df=table.n_arms - 1))


def _off_by_three_percent(table: ServingTable) -> ServingTable:
    """The last arm is shown 3% less often where it is greedy, the first as much more often."""
    extra = table.count(table.n_arms - 1, table.n_arms - 1) * 3 // 100
    first, *middle, last = table.pieces
    last -= extra if table.bonus == 0 else 0
    return ServingTable((first + extra, *middle, last), (700 * NANO,) * table.n_arms)


@pytest.mark.parametrize("source", ["seeded", "system"])
@pytest.mark.parametrize("name", TABLES)
def test_frequencies(name: str, source: str) -> None:
    table = TABLES[name]
    greedy = table.n_arms - 1
    entropy = random.Random(20).randbytes if source == "seeded" else os.urandom
    drawn = Counter(table.draw(greedy, entropy) for _ in range(DRAWS))
    assert _p_value(drawn, table, greedy) > NEVER
    assert _p_value(drawn, _off_by_three_percent(table), greedy) < NEVER, "the test has no power"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_off_by_three_percent_fails(name: str) -> None:
    table = TABLES[name]
    greedy = table.n_arms - 1
    wrong, entropy = _off_by_three_percent(table), random.Random(21).randbytes
    drawn = Counter(wrong.draw(greedy, entropy) for _ in range(DRAWS))
    assert _p_value(drawn, table, greedy) < NEVER
    assert _p_value(drawn, wrong, greedy) > NEVER


def test_the_default_is_the_systems_entropy() -> None:
    """Seeding Python's own generator changes nothing: two runs differ."""
    table = symmetric_table(8, NANO)
    runs = []
    for _ in range(2):
        random.seed(1)
        runs.append([table.draw(0) for _ in range(400)])
    assert runs[0] != runs[1]
    assert ServingTable.draw.__defaults__ == (os.urandom,)


FORK = """
import os, random, sys
from deniable import symmetric_table

table = symmetric_table(8, 1_000_000_000)
seeded = random.Random(5).randbytes
for entropy in (os.urandom, seeded):
    table.draw(0, entropy)
    reader, writer = os.pipe()
    child = os.fork()
    drawn = "".join(str(table.draw(0, entropy)) for _ in range(400)).encode()
    if child == 0:
        os.write(writer, drawn)
        os._exit(0)
    os.waitpid(child, 0)
    print(int(os.read(reader, 400) == drawn))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_repeat_its_parent() -> None:
    """The system's entropy differs after a fork; a seeded generator repeats, so the test can tell."""
    output = subprocess.run(
        [sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    assert output.split() == ["0", "1"]
