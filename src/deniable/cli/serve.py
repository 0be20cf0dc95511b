"""`deniable serve`: the decision service over HTTP."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.stores import require_expected
from deniable.errors import InvalidArgumentError, MigrationNeededError, StoreUnavailableError
from deniable.service.settings import Settings, flag, load, variable

if TYPE_CHECKING:
    from deniable.service.http.app import Application
    from deniable.service.http.metrics import Tally

app = typer.Typer(add_completion=False)


def serve(**flags: object) -> None:
    """Serve decisions over HTTP, on SQLite or PostgreSQL, in one worker process or several.

    SIGTERM ends it without losing anything that was acknowledged.
    """
    from deniable.service.http import server

    settings = server.with_free_port(load(flags))
    if settings.demo:
        if settings.workers > 1:
            raise InvalidArgumentError("workers", settings.workers, "1 with --demo")
        if settings.only != "everything":
            raise InvalidArgumentError("only", settings.only, "everything with --demo")
        server.serve(settings, demo_application)
        return
    if settings.store == "memory:" and settings.workers > 1:
        raise InvalidArgumentError(
            "workers", settings.workers, "1 with memory:, which processes cannot share"
        )
    nobody = _check_store(settings)
    processes = f" with {settings.workers} processes" if settings.workers > 1 else ""
    here = server.address(settings)
    typer.echo(f"Deniable answers on {here}{processes}")
    if nobody and settings.only != "decide" and not settings.sign_in_header:
        store = f" --store {settings.store}" if settings.store.startswith("sqlite") else ""
        typer.echo(
            "Nobody can sign in yet. Make a link for the first person, then open it:\n"
            f"  deniable users invite NAME --role admin{store} --url {here}"
        )
    server.serve(settings, application)


def _check_store(settings: Settings) -> bool:
    """Return whether it has neither users nor keys. Report a store that cannot be opened.

    Workers wait for one that is down or not migrated.
    """
    from deniable.service.http import server

    try:
        require_expected(settings)
        with server.open_service(settings) as service:
            return not service.people.all() and not service.keys.all()
    except (StoreUnavailableError, MigrationNeededError) as error:
        if not settings.store.startswith("postgres") and isinstance(error, StoreUnavailableError):
            raise
        typer.echo(f"Deniable waits for its store: {error}", err=True)
        return False


def _parameters() -> list[inspect.Parameter]:
    """A flag for every setting; the environment and the file are read by the settings themselves."""
    config = typer.Option(help="TOML file with any of these settings. [DENIABLE_CONFIG]")
    annotations: dict[str, object] = {}
    for name, field in Settings.model_fields.items():
        negative = "/--no-" + name.replace("_", "-") if field.annotation is bool else ""
        meaning = f"{field.description} [{variable(name)}; default: {field.default}]"
        option = typer.Option(flag(name) + negative, help=meaning, show_default=False)
        kind = field.annotation if field.annotation in (bool, int, float) else str
        annotations[name] = Annotated[kind | None, option]
    annotations["config"] = Annotated[str | None, config]
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]


serve.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
app.command()(serve)


def application(settings: Settings, tally: Tally) -> Application:
    """The application on the store of the settings, pages included."""
    from deniable.service.http import server
    from deniable.service.http.app import create_app

    if settings.only == "decide":
        return create_app(server.open_when_available(settings), server.options_of(settings, tally))
    from deniable.web.access import TrustedProxy
    from deniable.web.pages import mount

    proxy = TrustedProxy.of(settings.sign_in_header, settings.trusted_proxies)
    if settings.webhook_url:
        from deniable.service.webhook import Webhook, checked_url

        checked_url(settings.webhook_url)
    service = server.open_when_available(settings)
    app = mount(create_app(service, server.options_of(settings, tally)), proxy=proxy)
    if settings.webhook_url:
        app.companions.append(Webhook(service, settings.webhook_url))
        app.api.state.webhook = True
    return app


def demo_application(settings: Settings, tally: Tally) -> Application:
    """The application on a made-up firm, whose visitors are simulated."""
    from deniable.demo import firm, month
    from deniable.service.http import server
    from deniable.service.http.app import create_app
    from deniable.web.monitor import Monitor
    from deniable.web.pages import mount

    service = month.opened(
        lambda: server.open_service(settings),
        watching=lambda service: Monitor(service).sample,
        told=lambda: typer.echo(
            "A made-up firm lives through its first month: a few seconds ...", err=True
        ),
    )
    secret = firm.prepare(service)
    app = mount(
        create_app(service, server.options_of(settings, tally)),
        demo=True,
        demo_key=secret if firm.only_demo(service) else "",
    )
    simulator = firm.Simulator(
        service, settings.demo_visitors, watched=lambda: app.api.state.seen_at
    )
    app.companions.append(simulator)
    here = server.address(settings)
    typer.echo(
        f"Deniable answers on {here}\n"
        "DEMO: a made-up firm, one label, nine experiments, simulated visitors. Nothing here is real.\n"
        f"Admin API key, for this run: {secret}\n"
        "Try:\n"
        f"  curl -s {here}/v1/experiments/{firm.HERO.key}/decisions \\\n"
        f"    -H 'Authorization: Bearer {secret}' \\\n"
        '    --json \'{"visitor": "me", "segment": "music"}\'\n'
        "Ctrl-C ends it."
    )
    return app
