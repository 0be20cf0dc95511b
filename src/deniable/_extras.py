"""Maps optional dependencies to extras, and raises the error that says what to install.

The core (privacy, theory, strategies, planning, client, `deniable plan`) needs none of them.
Pydantic is not listed, because the command-line library requires it.
"""

from __future__ import annotations

from importlib.util import find_spec

from deniable.errors import MissingExtraError

MODULES: dict[str, frozenset[str]] = {
    "data": frozenset({"polars", "scipy"}),
    "charts": frozenset({"altair", "jinja2", "vl_convert"}),
    "simulate": frozenset({"numba", "polars", "scipy"}),
    "server": frozenset(
        {"alembic", "altair", "argon2", "fastapi", "granian", "jinja2", "multipart", "orjson"}
        | {"polars", "prometheus_client", "scipy", "sqlalchemy", "starlette", "uvloop"}
        | {"vl_convert"}
    ),
    "postgres": frozenset({"psycopg"}),
    "openfeature": frozenset({"openfeature"}),
}
"""Extra -> the modules that it installs, the smallest extra first; named as in pyproject.toml."""


def missing_extra(module: str, *, preferred: str | None = None) -> MissingExtraError | None:
    """Return the error for a module that could not be imported, or None if no extra installs it.

    Args:
        module: the dotted name of the module, as in `ModuleNotFoundError.name`.
        preferred: the extra to name if it installs the module; otherwise the first that does.

    >>> missing_extra("polars.series", preferred="simulate")
    MissingExtraError('polars', 'simulate')
    >>> missing_extra("antigravity") is None
    True
    """
    top = module.partition(".")[0]
    extras = [extra for extra, modules in MODULES.items() if top in modules]
    if not extras:
        return None
    return MissingExtraError(top, preferred if preferred in (*extras, "all") else extras[0])


def is_installed(module: str) -> bool:
    """Whether the module could be imported, without importing it.

    >>> is_installed("json"), is_installed("no_such_module")
    (True, False)
    """
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # can also be raised by an import hook
        return False


def require(module: str, *, extra: str) -> None:
    """Raise MissingExtraError if the module is not installed.

    >>> require("json", extra="data")
    """
    if not is_installed(module):
        raise MissingExtraError(module, extra)
