"""Public data is not part of the repository: tests that need it are left out where there is none.

Where DENIABLE_DATA names a folder, its files must be there: a missing one fails, it is not skipped.
"""

from __future__ import annotations

import pytest

from deniable.datasets import data_folder

LEFT_OUT = "NO PUBLIC DATA: DENIABLE_DATA is not set"
"""The one reason to skip a test that CI accepts."""

needs_public_data = pytest.mark.skipif(data_folder() is None, reason=LEFT_OUT)
