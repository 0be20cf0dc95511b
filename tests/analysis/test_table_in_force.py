"""The table in force as a picture: what all rows share, what is tailored, when and why it came."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from tests.web.making import cells_of, experiment_of, table_of

from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.segment_risk import segment_risks
from deniable.analysis.table_in_force import grade_now, table_in_force
from deniable.privacy.tables import decoded_table
from deniable.storage.records import Experiment, PublishedTable

SHOWS = [(3000, 3000, 3000), (3000, 3000, 3000), (0, 0, 0)]
CLICKS = [(900, 300, 300), (300, 900, 300), (0, 0, 0)]


def made() -> tuple[Experiment, PublishedTable]:
    experiment = experiment_of(n_arms=3, strategy="joint")
    return experiment, table_of(experiment, SHOWS, CLICKS)


def test_shared_and_tailored_parts_add_up() -> None:
    experiment, published = made()
    shown = table_in_force(experiment, published, None)
    table = decoded_table(published.rows, 3)
    for (name, chances), row in zip(shown.rows, (*table.rows, table.unlisted), strict=True):
        assert name
        assert [chance for chance, _ in chances] == [entry / 2**64 for entry in row]
        assert all(shared <= chance for chance, shared in chances)
    least = [min(column) / 2**64 for column in zip(*table.rows, strict=True)]
    assert shown.shared == pytest.approx(sum(least))
    # Opposite best arms at budget 1: 2/(1 + e) is shared by the best table there is.
    assert shown.shared == pytest.approx(2 / (1 + math.e), abs=0.02)


def test_it_says_when_and_why() -> None:
    experiment, published = made()
    assert table_in_force(experiment, published, None).why == "before the first visitor"
    earlier = replace(published, decisions=17_000)
    assert "from 17,000 to 18,000" in table_in_force(experiment, published, earlier).why
    other = replace(earlier, version=0)
    assert table_in_force(experiment, published, other).why == "because an arm was switched off"
    fewer = replace(other, counts=json.dumps({"shows": [[1, 2], [3, 4]]}).encode())
    assert table_in_force(experiment, published, fewer).why == "because an arm was added"


def test_the_grade_is_weaker_once_the_arms_have_changed() -> None:
    constant = experiment_of(n_arms=3, strategy="constant")
    assert grade_now(constant) == "across time"
    assert grade_now(replace(constant, version=2)) == "given the time"
    assert grade_now(made()[0]) == "given the time"


def test_the_risk_of_a_row_is_its_widest_ratio_and_never_above_the_cap() -> None:
    experiment, published = made()
    board = Leaderboard(experiment, cells_of(experiment, SHOWS, CLICKS))
    for risk in segment_risks(board, published):
        assert 0.9 < risk.risk <= 1.0
        assert not risk.reached
        assert risk.when == "whenever it learns something"
