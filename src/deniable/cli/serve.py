"""`deniable serve`: the decision service over HTTP."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.stores import require_expected
from deniable.errors import InvalidArgumentError
from deniable.service.settings import Settings, flag, load, variable

if TYPE_CHECKING:
    from deniable.service.http.app import Application, Options
    from deniable.service.http.server import Inherited
    from deniable.service.http.tracing import Traced

app = typer.Typer(add_completion=False)


def serve(**flags: object) -> None:
    """Serve decisions over HTTP, on SQLite or PostgreSQL, in one process or several.

    SIGTERM ends it without losing anything that was acknowledged.
    """
    from deniable.service.http import server

    inherited = server.inherited()
    settings = load(flags)
    if inherited is not None:
        _serve_as_worker(settings, inherited)
    elif settings.demo and settings.workers > 1:
        raise InvalidArgumentError("workers", settings.workers, "1 with --demo")
    elif settings.demo:
        _serve_demo(settings)
    elif settings.workers > 1:
        _serve_workers(settings)
    else:
        _serve_one(settings)


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


def application(settings: Settings, options: Options) -> Application | Traced:
    """The application on the store of the settings, pages included."""
    from deniable.service.http.app import create_app
    from deniable.service.http.server import open_service
    from deniable.web.access import TrustedProxy
    from deniable.web.pages import mount

    proxy = TrustedProxy.of(settings.sign_in_header, settings.trusted_proxies)
    if settings.webhook_url:
        from deniable.service.webhook import Webhook, checked_url

        checked_url(settings.webhook_url)
    provider = None
    if settings.traces:
        from deniable.service.http.tracing import Traced, otlp_provider

        provider = otlp_provider()
    service = open_service(settings)
    app = mount(create_app(service, options), proxy=proxy)
    if settings.webhook_url:
        app.companions.append(Webhook(service, settings.webhook_url))
        app.api.state.webhook = True
    return app if provider is None else Traced(app, provider)


def _serve_as_worker(settings: Settings, inherited: Inherited) -> None:
    from deniable.service.http import server

    app = application(settings, server.options_of(settings, inherited.tally))
    server.serve(app, settings, inherited.sock, inherited.lifeline)


def _serve_one(settings: Settings) -> None:
    from deniable.service.http import server

    require_expected(settings)
    sock = server.listening_socket(settings)
    app = application(settings, server.options_of(settings))
    typer.echo(f"Deniable answers on {server.address(sock)}")
    server.serve(app, settings, sock)


def _serve_workers(settings: Settings) -> None:
    from deniable.service.http import server

    require_expected(settings)
    sock = server.listening_socket(settings)
    server.open_service(settings).close()  # a store that cannot be opened is reported once, here
    typer.echo(f"Deniable answers on {server.address(sock)} with {settings.workers} processes")
    server.supervise(settings, sock)


def _serve_demo(settings: Settings) -> None:
    from deniable.service import demo, demo_history
    from deniable.service.http import server
    from deniable.service.http.app import create_app
    from deniable.web.pages import mount
    from deniable.web.watcher import Watcher

    sock = server.listening_socket(settings)
    service = demo_history.opened(
        lambda: server.open_service(settings),
        watching=lambda service: Watcher(service).sample,
        told=lambda: typer.echo(
            "A made-up firm lives through its first month: a few seconds ...", err=True
        ),
    )
    secret = demo.prepare(service)
    app = mount(
        create_app(service, server.options_of(settings)),
        demo=True,
        demo_key=secret if demo.only_demo(service) else "",
    )
    simulator = demo.Simulator(
        service,
        settings.demo_visitors,
        watched=lambda: app.api.state.seen_at,
        experiments=demo.LIVE,
    )
    here = server.address(sock)
    typer.echo(
        f"Deniable answers on {here}\n"
        "DEMO: a made-up firm, eight experiments, simulated visitors. Nothing here is real.\n"
        f"Admin API key, for this run: {secret}\n"
        "Try:\n"
        f"  curl -s {here}/v1/experiments/{demo.EXPERIMENTS[0].key}/decisions \\\n"
        f"    -H 'Authorization: Bearer {secret}' \\\n"
        '    --json \'{"visitor": "me", "segment": "returning"}\'\n'
        "Ctrl-C ends it."
    )
    simulator.start()
    try:
        server.serve(app, settings, sock)
    finally:
        simulator.end()
