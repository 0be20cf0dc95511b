"""Tables read after the experiment has grown: later arms have no chance, later segments are unlisted."""

from __future__ import annotations

import json
import random

import pytest

from deniable.audit.promise import AuditedTable
from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import Table, draw, stored_table, thresholds


def test_a_table_is_widened_by_nothing_but_zeros_and_its_zero_row() -> None:
    rng = random.Random(3)
    for _ in range(50):
        height, width = rng.randint(1, 4), rng.randint(2, 4)
        rows = []
        for _ in range(height + 1):
            cuts = sorted(rng.randrange(2**64) for _ in range(width - 1))
            rows.append(tuple(b - a for a, b in zip([0, *cuts], [*cuts, 2**64], strict=True)))
        table = Table(tuple(rows[1:]), rows[0])
        counts = json.dumps({"shows": [[0] * width] * height}).encode()
        more_rows, more_arms = rng.randint(0, 2), rng.randint(0, 2)
        wide = stored_table(table.encoded(), counts, height + more_rows, width + more_arms)
        for segment in range(height + more_rows):
            own = table.rows[segment] if segment < height else table.unlisted
            assert wide.rows[segment] == own + (0,) * more_arms
            for point in (0, 2**63, 2**64 - 1):  # nobody is ever shown an arm of later
                assert draw(thresholds(wide.rows[segment]), point) < width
        assert wide.unlisted == table.unlisted + (0,) * more_arms


@pytest.mark.parametrize(
    ("counts", "shape"),
    [
        (b"{}", (3, 3)),
        (b"[]", (3, 3)),
        (b"no", (3, 3)),
        (b'{"shows": []}', (3, 3)),
        (b'{"shows": [[0, 0]]}', (3, 3)),  # two rows are stored
        (b'{"shows": [[0, 0], [0, 0]]}', (1, 3)),  # segments do not go away
        (b'{"shows": [[0, 0], [0, 0]]}', (3, 1)),
    ],
)
def test_a_table_whose_shape_cannot_be_is_refused(counts: bytes, shape: tuple[int, int]) -> None:
    half = (2**63, 2**63)
    encoded = Table((half, half), half).encoded()
    with pytest.raises(BrokenPromiseError):
        stored_table(encoded, counts, *shape)
    with pytest.raises(BrokenPromiseError):
        AuditedTable.stored(
            1, 1, encoded, counts, decisions=0, published_at=0, n_segments=shape[0], n_arms=shape[1]
        )
