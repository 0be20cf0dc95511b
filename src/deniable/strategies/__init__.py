"""Temporary: until the strategies layer is merged."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from deniable.privacy.tables import Band, Table, band, dynamic_bonus, nested_table


class _Nested:
    grade: ClassVar[str] = "across time"

    @classmethod
    def band(cls, budgets: tuple[int, ...]) -> Band | None:
        return band(budgets)

    @classmethod
    def bonus(cls, budgets: tuple[int, ...], clock: int) -> Fraction:
        raise NotImplementedError

    @classmethod
    def table(
        cls,
        budgets: tuple[int, ...],
        shows: list[list[int]],
        rewards: list[list[int]],
        *,
        horizon: int | None = None,
    ) -> Table:
        bonuses = [cls.bonus(budgets, sum(row) + 1) for row in shows]
        return nested_table(band(budgets), shows, rewards, bonuses)


class _Constant(_Nested):
    @classmethod
    def bonus(cls, budgets: tuple[int, ...], clock: int) -> Fraction:
        return Fraction(1)


class _Dynamic(_Nested):
    @classmethod
    def bonus(cls, budgets: tuple[int, ...], clock: int) -> Fraction:
        return dynamic_bonus(budgets, clock)


STRATEGIES: dict[str, type[_Nested]] = {"constant": _Constant, "dynamic": _Dynamic}
