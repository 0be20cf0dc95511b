"""A publisher that makes other tables than its strategy would; audits still replay the real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from deniable.privacy.tables import Band, Table
from deniable.service import table_making
from deniable.service.table_making import recipe_of
from deniable.storage.records import Experiment
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Counts

MakeTable = Callable[[Recipe, Counts], Table]


def publishes(patch: pytest.MonkeyPatch, make: MakeTable) -> None:
    """From now on, the publisher's tables are these."""

    class OtherRecipe(Recipe):
        def table(self, counts: Counts, band: Band | None = None) -> Table:
            return make(self, counts)

    def other(experiment: Experiment) -> Recipe:
        real = recipe_of(experiment)
        return OtherRecipe(**{field.name: getattr(real, field.name) for field in fields(real)})

    patch.setattr(table_making, "recipe_of", other)
