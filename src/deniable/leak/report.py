"""The measurements of a whole log: one object for command line, notebooks, report and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deniable import _validation as check
from deniable._extras import require
from deniable._types import JsonObject
from deniable.analysis.worth import Worth
from deniable.errors import InvalidArgumentError
from deniable.leak.budgets import BUDGETS, BudgetEffect, budget_effects, todays_reward
from deniable.leak.columns import NAMES, Columns
from deniable.leak.contexts import worth_of_contexts
from deniable.leak.counting import Counts, Tally, counted_log
from deniable.leak.files import as_file
from deniable.leak.joint import CombinedLeak, measure_jointly
from deniable.leak.measuring import Estimate, ExperimentLeak, Guesses, SegmentBelief, measure
from deniable.leak.worth import worth_of_counts

MOST_WORTHS = 50

if TYPE_CHECKING:
    from altair.typing import ChartType


@dataclass(frozen=True, eq=False)
class Leak:
    r"""What a log reveals to a tracker.

    Attributes:
        file: the log's name.
        kind: CSV, Parquet or JSON lines.
        columns: the column of each role.
        confidence: confidence with which all limits hold simultaneously.
        tally: rows, visitors, period.
        experiments: the measured ones, the strongest proof first.
        unmeasured: experiments with only one segment or variant.
        joint: over all experiments of a visitor; None without ids, or if no visitor met two.
        budgets: the effect of each budget.
        todays_reward: sum of rewards over the measured experiments; None without rewards.
        worths: whether personalising pays, in the experiments with most visitors (`MOST_WORTHS`), the
            most visitors first; the intervals of all hold together.
        contexts: what other columns would bring as contexts, the surest gain first.
        not_worth: why an experiment, or the whole log, cannot say; as sentences.

    >>> import deniable, tempfile, pathlib
    >>> rows = ["segment,variant,count", "new,red,800", "new,blue,200"]
    >>> rows += ["loyal,red,300", "loyal,blue,700"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "exposures.csv")
    ...     _ = file.write_text("\n".join(rows))
    ...     found = deniable.measure_leak(file)
    >>> worst = found.experiments[0].worst
    >>> worst.variant, worst.segment, worst.other, round(worst.ratio.value, 3)
    ('blue', 'loyal', 'new', 3.5)
    >>> round(worst.ratio.low, 2), round(worst.ratio.high, 2)
    (2.77, 4.46)
    """

    file: str
    kind: str
    columns: Columns
    confidence: float
    tally: Tally
    experiments: tuple[ExperimentLeak, ...]
    unmeasured: tuple[str, ...]
    joint: CombinedLeak | None
    budgets: tuple[BudgetEffect, ...]
    todays_reward: float | None
    worths: tuple[Worth, ...] = ()
    not_worth: tuple[str, ...] = ()
    contexts: tuple[Worth, ...] = ()

    @property
    def worst(self) -> ExperimentLeak:
        """The experiment with the strongest proof."""
        return self.experiments[0]

    @property
    def headline(self) -> SegmentBelief:
        """The segment whose odds provably rise most, in the experiment with the strongest proof."""
        return self.worst.worst_belief

    @property
    def ratio_high(self) -> float:
        """Upper limit of the odds ratios of all experiments, with the report's confidence."""
        return max(leak.ratio.high for leak in self.experiments)

    @property
    def unit(self) -> str:
        """What was counted: visitors, or exposures if the log has no ids."""
        return "exposures" if self.tally.visitors is None else "visitors"

    @property
    def reward_word(self) -> str:
        """The word for rewards: clicks if every reward is 0 or 1."""
        return "clicks" if self.tally.binary else "reward"

    @property
    def period(self) -> tuple[datetime, datetime] | None:
        """The first and the last exposure; None without times."""
        if self.tally.first is None or self.tally.last is None:
            return None
        try:
            first, last = (
                datetime.fromtimestamp(time / 1e6, tz=UTC)
                for time in (self.tally.first, self.tally.last)
            )
        except (OverflowError, ValueError, OSError):  # the numbers are not times since 1970
            return None
        return first, last

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON. Infinite ratios are None."""
        period = self.period
        return {
            "file": self.file,
            "kind": self.kind,
            "columns": dict(self.columns.used()),
            "guessed": sorted(
                role for role, _ in self.columns.used() if role not in self.columns.given
            ),
            "confidence": self.confidence,
            "rows": self.tally.rows,
            "skipped_rows": self.tally.skipped,
            "visitors": self.tally.visitors,
            "changed_variant": self.tally.changed_variant,
            "changed_segment": self.tally.changed_segment,
            "period": None if period is None else [time.isoformat() for time in period],
            "worst_odds_ratio": _estimate(
                Estimate(self.worst.ratio.value, self.worst.ratio.low, self.ratio_high)
            ),
            "experiments": [_experiment(leak) for leak in self.experiments],
            "unmeasured": list(self.unmeasured),
            "joint": None if self.joint is None else _joint(self.joint),
            "todays_reward": self.todays_reward,
            "budgets": [asdict(effect) for effect in self.budgets],
            "worth": [worth.to_dict() for worth in self.worths],
            "no_worth": list(self.not_worth),
            "contexts": [worth.to_dict() for worth in self.contexts],
        }

    def __repr__(self) -> str:
        found = f"{len(self.experiments)} experiments, odds ratio {self.worst.ratio.value:.3g}"
        return f"Leak({self.file!r}: {found})"

    def chart(self) -> ChartType:
        """Chart beliefs as people out of 100, the most revealing variants, and the effect of budgets."""
        from deniable.charts.leak import leak_chart
        from deniable.charts.theme import themed
        from deniable.leak.words import belief_pictures, budget_points, ratio_spans

        return themed(
            leak_chart(
                title=f"What {self.file} tells a tracker",
                beliefs=belief_pictures(self),
                spans=ratio_spans(self),
                budgets=budget_points(self),
                reward=self.reward_word,
            )
        )

    def html(self) -> str:
        """Return the report as one printable HTML page that works offline."""
        from deniable.leak.page import report_page

        return report_page(self)


def measure_leak(
    path: Any,  # pandas is not a dependency
    *,
    columns: Mapping[str, str | None] | None = None,
    confidence: float = 0.95,
    budgets: Sequence[float] = BUDGETS,
    progress: Callable[[int], None] | None = None,
    **words: str | None,
) -> Leak:
    """Measure what an exposure log reveals to a tracker.

    Args:
        path: the log: a CSV, Parquet or JSON-lines file, or a DataFrame of Polars or pandas.
        columns: role -> column, to override guessing by name; roles are segment, variant, visitor,
            time, count, reward, propensity, experiment, context. Within each context, an experiment
            is measured on its own: what the variant tells beyond the context.
        confidence: confidence with which all limits hold simultaneously.
        budgets: budgets to compare, in nats.
        progress: callback that receives the number of rows read.
        words: columns by role, as on the command line: `segment="tier"`.

    Raises:
        InvalidArgumentError: the file, a column or values cannot be used.

    >>> measure_leak("exposures.csv", confidence=2)
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: confidence=2: expected a number above 0, below 1
    """
    if not 0 < confidence < 1:
        raise InvalidArgumentError("confidence", confidence, "a number above 0, below 1")
    require("polars", extra="data")
    considered = tuple(check.nonnegative("budgets", list(budgets)).tolist())
    for word in words:
        if word not in NAMES:
            raise InvalidArgumentError(word, words[word], f"one of the roles {', '.join(NAMES)}")
    with (
        as_file(path) as file,
        counted_log(file, {**(columns or {}), **words}, progress) as (log, found, tally, files),
    ):
        usable = [counts for counts in tally.experiments if counts.informative]
        if not usable:
            _refuse(tally, found)
        # Two sides of a share and of a belief per cell, and of a guess per experiment and overall.
        n_limits = 4 * sum(counts.total.size for counts in usable) + 2 * (len(usable) + 1)
        alpha = (1 - confidence) / n_limits
        pairs = [(counts, measure(counts, alpha)) for counts in usable]
        pairs.sort(key=lambda pair: -pair[1].ratio.low)
        leaks = tuple(leak for _, leak in pairs)
        joint = None
        if files is not None and len(tally.experiments) > 1:
            joint = measure_jointly(files, tally, leaks, alpha)
        contexts = worth_of_contexts(log, found, confidence)
    worths, not_worth = _worths(usable, found, tally, confidence)
    headline = leaks[0].worst_belief
    met_most = None if files is None else 1 if joint is None else joint.met_most
    return Leak(
        file=log.path.name,
        kind=log.kind,
        columns=found,
        confidence=confidence,
        tally=tally,
        experiments=leaks,
        unmeasured=tuple(c.experiment for c in tally.experiments if not c.informative),
        joint=joint,
        budgets=budget_effects(
            pairs,
            segment=headline.segment,
            prior=headline.before,
            met_most=met_most,
            budgets=considered,
        ),
        todays_reward=todays_reward(pairs),
        worths=worths,
        not_worth=not_worth,
        contexts=contexts,
    )


def _worths(
    experiments: Sequence[Counts], columns: Columns, tally: Tally, confidence: float
) -> tuple[tuple[Worth, ...], tuple[str, ...]]:
    """Return what personalising is worth by experiment, and why it cannot be said for others."""
    largest = sorted(experiments, key=lambda counts: -counts.shown.sum())[:MOST_WORTHS]
    each = 1 - (1 - confidence) / len(largest)
    worths, reasons = [], []
    for counts in largest:
        try:
            worths.append(worth_of_counts(counts, columns, tally, each))
        except InvalidArgumentError as error:
            reasons.append(error.allowed)
    return tuple(worths), tuple(dict.fromkeys(reasons))


def _refuse(tally: Tally, columns: Columns) -> None:
    """Explain why nothing can be compared."""
    for role in ("segment", "variant"):
        if len(tally.names[role]) < 2:
            raise InvalidArgumentError(
                role, getattr(columns, role), f"a column with two or more {role}s; the log has one"
            )
    raise InvalidArgumentError(
        "experiment",
        columns.experiment,
        "an experiment with two or more segments and two or more variants; the log has none",
    )


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in asdict(estimate).items()}


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _guesses(guesses: Guesses | None) -> JsonObject | None:
    return None if guesses is None else asdict(guesses)


def _experiment(leak: ExperimentLeak) -> JsonObject:
    return {
        "experiment": leak.experiment,
        "visitors": leak.visitors,
        "segments": list(leak.segments),
        "worst_odds_ratio": _estimate(leak.ratio),
        "variants": [{**asdict(v), "ratio": _estimate(v.ratio)} for v in leak.variants],
        "beliefs": [asdict(belief) for belief in leak.beliefs],
        "guesses": _guesses(leak.guesses),
    }


def _joint(joint: CombinedLeak) -> JsonObject:
    return {
        **asdict(joint),
        "moved": [
            {"quantile": q, "value": _finite(value), "low": _finite(low)}
            for q, (value, low) in joint.moved.items()
        ],
        "most": {"value": _finite(joint.most[0]), "low": _finite(joint.most[1])},
    }
