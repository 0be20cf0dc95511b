"""`deniable serve`: the decision service over HTTP."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from deniable.errors import InvalidArgumentError
from deniable.service.settings import Settings, flag, load, variable

app = typer.Typer(add_completion=False)

_HELP = {item.name: item.metadata["help"] for item in fields(Settings)}
_DEFAULT = {item.name: item.default for item in fields(Settings)}


def _option(name: str) -> Any:
    """The flag of a setting; the environment and the file are read by the settings themselves."""
    shown = f"{_HELP[name]} [{variable(name)}; default: {_DEFAULT[name]}]"
    negative = f"/--no-{name}" if isinstance(_DEFAULT[name], bool) else ""
    return typer.Option(flag(name) + negative, help=shown, show_default=False)


@app.command()
def serve(
    store: Annotated[str | None, _option("store")] = None,
    key_file: Annotated[str | None, _option("key_file")] = None,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    workers: Annotated[int | None, _option("workers")] = None,
    queue_limit: Annotated[int | None, _option("queue_limit")] = None,
    batch_limit: Annotated[int | None, _option("batch_limit")] = None,
    body_limit: Annotated[int | None, _option("body_limit")] = None,
    in_flight_limit: Annotated[int | None, _option("in_flight_limit")] = None,
    key_cache_seconds: Annotated[float | None, _option("key_cache_seconds")] = None,
    shutdown_seconds: Annotated[int | None, _option("shutdown_seconds")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    log_requests: Annotated[str | None, _option("log_requests")] = None,
    demo: Annotated[bool | None, _option("demo")] = None,
    demo_visitors: Annotated[int | None, _option("demo_visitors")] = None,
    config: Annotated[
        str | None, typer.Option(help="TOML file with any of these settings. [DENIABLE_CONFIG]")
    ] = None,
) -> None:
    """Serve decisions over HTTP, on SQLite or PostgreSQL, in one process or several.

    SIGTERM ends it without losing anything that was acknowledged.
    """
    settings = load(dict(locals()))
    if settings.demo and settings.workers > 1:
        raise InvalidArgumentError("workers", settings.workers, "1 with --demo")
    if settings.demo:
        _serve_demo(settings)
    elif settings.workers > 1:
        _serve_workers(settings)
    else:
        _serve_one(settings)


def worker() -> Any:
    """The application of one worker process, from its environment."""
    from deniable.service.http.app import create_app
    from deniable.service.http.logs import log_to_stderr
    from deniable.service.http.server import collect_seldom, open_service, options_of
    from deniable.web.pages import mount

    settings = load()
    log_to_stderr(settings.log_level)
    app = mount(create_app(open_service(settings), options_of(settings)))
    collect_seldom()
    return app


def _serve_one(settings: Settings) -> None:
    from deniable.service.http import server
    from deniable.service.http.app import create_app
    from deniable.web.pages import mount

    sock = server.listening_socket(settings)
    service = server.open_service(settings)
    app = mount(create_app(service, server.options_of(settings)))
    typer.echo(f"Deniable answers on {server.address(sock)}")
    server.serve(app, settings, sock)


def _serve_workers(settings: Settings) -> None:
    from deniable.service.http import server

    sock = server.listening_socket(settings)
    server.open_service(settings).close()  # a store that cannot be opened is told once, here
    typer.echo(f"Deniable answers on {server.address(sock)} with {settings.workers} processes")
    server.serve_workers("deniable.cli.serve:worker", settings, sock)


def _serve_demo(settings: Settings) -> None:
    from deniable.service import demo
    from deniable.service.http import server
    from deniable.service.http.app import create_app
    from deniable.web.pages import mount

    sock = server.listening_socket(settings)
    service = server.open_service(settings)
    secret = demo.prepare(service)
    simulator = demo.Simulator(service, settings.demo_visitors)
    app = mount(create_app(service, server.options_of(settings)), demo=True)
    here = server.address(sock)
    typer.echo(
        f"Deniable answers on {here}\n"
        "DEMO: a made-up firm, two experiments, simulated visitors. Nothing here is real.\n"
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
