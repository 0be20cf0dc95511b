"""Labels: the published test vector, the exact channel, independence, refusals."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from math import exp

import mpmath
import numpy as np
import pytest
from scipy import stats

from deniable.errors import InvalidArgumentError
from deniable.masks.limit import design_groups, equal_label_limit, label_limit
from deniable.masks.mask import Mask, channel_entries, null_row
from deniable.privacy.exact import SPACE

AGES = ["under-25", "25-44", "45-64", "65-plus"]
KEY = bytes(range(32))


def age_mask(**changes: object) -> Mask:
    settings = {"segments": AGES, "budget": 1, "key": KEY, "name": "age", **changes}
    return Mask(**settings)  # type: ignore[arg-type]


def test_the_published_vector() -> None:
    mask = age_mask()
    assert mask.channel_hash == "0667fca71c1d2778"
    asked = [("v-1", AGES[0]), ("v-1", AGES[3]), ("v-1", None), ("v-2", AGES[0]), ("v-3", AGES[0])]
    assert [mask.draw(*pair) for pair in asked] == [
        "652084f6ef594df6",
        "622252582594a05c",
        "80a9e8b2a8960be5",
        "d14644afab5b429c",
        "2ad11fa074482a2b",
    ]
    labels = ["~under-25", "~45-64", "~45-64", "~45-64", "~under-25"]
    assert [mask.label(*pair) for pair in asked] == labels
    assert mask.labels(*zip(*asked, strict=True)) == labels


def test_the_channel_is_exact_for_800_random_sizes_and_budgets() -> None:
    rng = random.Random(1)
    for _ in range(800):
        n_labels = rng.choice([2, 3, 4, 5, 10, 50, 200, 1000])
        nano = int(10 ** rng.uniform(0, 10.5))
        own, other = channel_entries(n_labels, nano)
        null = null_row(n_labels)
        assert own + (n_labels - 1) * other == SPACE == sum(null)
        with mpmath.workdps(60):
            most = mpmath.exp(mpmath.mpf(nano) / 10**9)
            for top, bottom in [(own, other), (max(null), other), (own, min(null))]:
                assert mpmath.mpf(top) / bottom <= most
            # A channel that wastes nothing: one unit more for the own label would break the budget
            # by itself or is below the resolution of 2^-64.
            assert mpmath.mpf(own) / other > most * (1 - 2 * most * n_labels / mpmath.mpf(other))


def test_frequencies_are_those_of_the_channel_and_a_wrong_one_is_noticed() -> None:
    mask = age_mask()
    drawn = mask.labels((f"v-{n}" for n in range(100_000)), itertools.repeat("25-44", 100_000))
    shown = np.array([drawn.count(label) for label in mask.labels_in_order])

    def p_value(budget: float) -> float:
        own = exp(budget) / (exp(budget) + 3)
        expected = np.full(4, (1 - own) / 3)
        expected[1] = own
        return float(stats.chisquare(shown, 100_000 * expected).pvalue)

    assert p_value(1) > 1e-9
    assert p_value(1.05) < 1e-9


def test_randomness_shared_between_segments_would_prove_the_segment() -> None:
    # With one u for both segments, a person who moves from a to b can go from label a to label b, but
    # a person who moves from b to a never can: the thresholds are ordered. That is a proof.
    mask = Mask(segments=["a", "b"], budget=1, key=KEY, name="m")
    threshold_a, threshold_b = mask.entries[0][0], mask.entries[1][0]
    draws = random.Random(2)
    shared = [draws.randrange(SPACE) for _ in range(10_000)]
    a_then_b = {(u < threshold_a, u < threshold_b) for u in shared}
    assert (True, False) in a_then_b
    assert (False, True) not in a_then_b
    # The mask's own draws for the two segments of one person are independent.
    pairs = [(mask.label(f"v{n}", "a"), mask.label(f"v{n}", "b")) for n in range(20_000)]
    own = float(mask.channel[0][0])
    expected = {("~a", "~a"): own * (1 - own), ("~a", "~b"): own * own}
    expected |= {("~b", "~a"): (1 - own) ** 2, ("~b", "~b"): own * (1 - own)}
    counts = [pairs.count(pair) for pair in expected]
    assert stats.chisquare(counts, [20_000 * p for p in expected.values()]).pvalue > 1e-9


@pytest.mark.parametrize(
    "change", [{"name": "age2"}, {"version": 2}, {"period": "2027"}, {"budget": 2}]
)
def test_other_masks_draw_other_labels(change: dict[str, object]) -> None:
    one, other = age_mask(), age_mask(**change)
    visitors = [f"v-{n}" for n in range(200)]
    assert [one.draw(v, AGES[0]) for v in visitors] != [other.draw(v, AGES[0]) for v in visitors]


def test_groups_are_labels() -> None:
    mask = age_mask(groups={"young": AGES[:2], "old": AGES[2:]})
    assert mask.labels_in_order == ("~young", "~old")
    assert mask.channel[0][0] == Fraction(mask.entries[0][0], SPACE)
    assert mask.draw("v-1", "under-25") == mask.draw("v-1", "25-44")
    expected = np.array([0.4, 0.1, 0.3, 0.2]) * np.array(
        [0.7310586, 0.7310586, 0.2689414, 0.2689414]
    )
    assert mask.posterior([0.4, 0.1, 0.3, 0.2])[0] == pytest.approx(expected / 0.5)


def test_names_are_normalised_and_visitors_are_not() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    mask = Mask(segments=[decomposed, "b"], budget=1, key=KEY, name="m")
    assert mask.segments[0] == composed
    assert mask.label("v", composed) == mask.label("v", decomposed)
    assert mask.draw("V-1", composed) != mask.draw("v-1", composed)


@pytest.mark.parametrize("visitor", ["", " v", "v 1", "v\n", "v-\u00fc", "x" * 257, 5, None])
def test_ids_are_refused_whatever_the_segment(visitor: str) -> None:
    for segment in ("under-25", None, "no such segment"):
        with pytest.raises(InvalidArgumentError, match=r"^visitor="):
            age_mask().label(visitor, segment)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"key": b"short"}, "key"),
        ({"key": "text"}, "key"),
        ({"budget": 0}, "budget"),
        ({"budget": 9e-10}, "budget"),
        ({"budget": "1.0000000001"}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"budget": -1}, "budget"),
        ({"segments": ["only"]}, "segments"),
        ({"segments": ["a", "a"]}, "segments"),
        ({"segments": ["~a", "b"]}, "segments"),
        ({"segments": ["a\x1e", "b"]}, "segments"),
        ({"segments": [f"s{n}" for n in range(1001)]}, "groups"),
        ({"name": "Age"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"period": "2027/1"}, "period"),
        ({"version": 0}, "version"),
        ({"groups": {"young": AGES[:2]}}, "groups"),
        ({"groups": {"young": AGES[:2], "old": AGES[1:]}}, "groups"),
        ({"groups": {"young": AGES, "old": []}}, "groups"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        age_mask(**change)
    assert refused.value.argument == argument
    assert "short" not in str(refused.value)


def test_an_unknown_segment_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidArgumentError, match="one of the 4 segments") as refused:
        age_mask().label("v", "secret value")
    assert "secret" not in str(refused.value)


def test_budgets_are_taken_as_typed() -> None:
    assert str(age_mask(budget="1.13").budget) == str(age_mask(budget=1.13).budget) == "1.13"


def test_neither_key_nor_draw_is_printed() -> None:
    mask = age_mask()
    assert KEY.hex() not in repr(mask)
    assert mask.fingerprint in repr(mask)


def test_no_label_exceeds_the_highest_belief() -> None:
    mask = age_mask(budget=1)
    for shares in ([0.25] * 4, [0.7, 0.1, 0.1, 0.1]):
        for segment, prior in enumerate(shares):
            reached = mask.posterior(shares)[:, segment].max()
            assert reached == pytest.approx(mask.highest_belief(prior), abs=1e-12)


# -- the limit and the groups --------------------------------------------------------------------


def test_the_limit_is_what_simulated_rates_give() -> None:
    mask = age_mask(budget=2)
    shares, h, n_arms = np.array([0.4, 0.3, 0.2, 0.1]), 0.7, 5
    rng = np.random.default_rng(3)
    common = rng.normal(size=(200_000, 1, n_arms))
    own = rng.normal(size=(200_000, 4, n_arms))
    scores = np.sqrt(1 - h) * common + np.sqrt(h) * own
    perfect = (shares @ scores.max(axis=2).T).mean()
    channel = np.array(mask.channel, dtype=np.float64)
    by_label = np.einsum("s,sz,nsa->nza", shares, channel, scores).max(axis=2).sum(axis=1).mean()
    assert by_label / perfect == pytest.approx(
        mask.expected_limit(shares.tolist(), heterogeneity=h), abs=0.005
    )


def test_the_limit_of_equal_groups_has_the_closed_form() -> None:
    for n_segments, n_labels, budget, h in [(4, 4, 1, 0.5), (4, 4, 3, 0.8), (8, 4, 1, 0.8)]:
        size = n_segments // n_labels
        names = [f"s{n}" for n in range(n_segments)]
        groups = {f"g{n}": names[n * size : (n + 1) * size] for n in range(n_labels)}
        mask = Mask(segments=names, budget=budget, key=KEY, name="m", groups=groups)
        expected = equal_label_limit(n_segments, n_labels, budget, h)
        assert mask.expected_limit(heterogeneity=h) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ((4, 4, 1, 0.5), 0.811702),
        ((4, 4, 1, 0.8), 0.673926),
        ((4, 4, 2, 0.8), 0.791783),
        ((4, 4, 3, 0.8), 0.900050),
        ((8, 4, 1, 0.8), 0.571916),
        ((8, 8, 1, 0.8), 0.567347),
        ((10, 5, 1, 0.5), 0.750388),
        ((10, 10, 1, 0.5), 0.748115),
    ],
)
def test_the_published_limits(setting: tuple[int, int, float, float], expected: float) -> None:
    assert equal_label_limit(*setting) == pytest.approx(expected, abs=5e-7)


def partitions(items: list[str]) -> list[list[list[str]]]:
    if not items:
        return [[]]
    first, *rest = items
    return [
        grouping
        for smaller in partitions(rest)
        for grouping in (
            [[first], *smaller],
            *(
                [
                    [*smaller[:n], [first, *smaller[n]], *smaller[n + 1 :]]
                    for n in range(len(smaller))
                ]
            ),
        )
    ]


def test_merged_groups_are_nearly_the_best_partition() -> None:
    rng = random.Random(4)
    for _ in range(20):
        cuts = sorted(rng.sample(range(1, 100), 5))
        shares = [b - a for a, b in itertools.pairwise([0, *cuts, 100])]
        names = [f"s{n}" for n in range(6)]
        budget, h = rng.choice([0.5, 1, 2]), rng.choice([0.5, 0.8])

        def limit(groups: list[list[str]], shares: list[int], budget: float, h: float) -> float:
            own, other = exp(budget), 1.0
            total = own + len(groups) - 1
            rows = [
                [(own if f"s{s}" in group else other) / total for group in groups] for s in range(6)
            ]
            return label_limit(np.array(rows), np.array(shares) / 100, h)

        designed = design_groups(dict(zip(names, shares, strict=True)), budget, h)
        reached = limit([list(group) for group in designed.values()], shares, budget, h)
        best = max(limit(p, shares, budget, h) for p in partitions(names) if len(p) > 1)
        assert best - reached <= 0.0007


@pytest.mark.parametrize("shares", [{"a": 100}, {"a": 60, "b": 60}, {"a": 50.5, "b": 49.5}])
def test_shares_are_whole_percents(shares: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="shares"):
        design_groups(shares, 1)
