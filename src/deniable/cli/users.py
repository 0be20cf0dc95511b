"""`deniable users`: people who sign in to the pages."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from deniable.cli.printing import AsJson, print_found, print_json
from deniable.cli.stores import KeyFile, Store, opened, settings_of
from deniable.report.terminal import print_table

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Manage people, their roles and sessions."
)

Name = Annotated[
    str, typer.Argument(help="Name that the person signs in with, such as a mail address.")
]
ROLE_HELP = "viewer, analyst, manager, privacy-officer or admin"


@app.command()
def invite(
    name: Name,
    role: Annotated[
        str, typer.Option(help=f"{ROLE_HELP}; needed for a new person.", show_default=False)
    ] = "",
    hours: Annotated[int, typer.Option(help="Hours for which the link works.")] = 72,
    url: Annotated[
        str,
        typer.Option(
            help="URL at which people reach the service.",
            show_default="host and port of the settings",
        ),
    ] = "",
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Print a one-time link to choose a password; earlier links stop working."""
    from deniable.storage.records import UserRole

    with opened(store, key_file) as service:
        invitation = service.people.invite(
            name, cast(UserRole, role) if role else None, hours=hours
        )
    settings = settings_of(store, key_file)
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    base = url.rstrip("/") or f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    link = base + invitation.path
    if as_json:
        print_json(
            {"user": invitation.user, "link": link, "expires_at": invitation.expires_at.isoformat()}
        )
    else:
        typer.echo(link)


@app.command("list")
def list_all(store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """List all people, with role and state."""
    with opened(store, key_file) as service:
        found = service.people.all()
    print_found(
        found,
        "People",
        ("name", "role", "joined", "disabled"),
        lambda user: (user.name, user.role, user.joined_at, user.disabled_at),
        as_json=as_json,
    )


@app.command()
def role(
    name: Name,
    role: Annotated[str, typer.Argument(help=f"{ROLE_HELP[0].upper()}{ROLE_HELP[1:]}.")],
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Change a person's role, from the next request on."""
    from deniable.storage.records import UserRole

    with opened(store, key_file) as service:
        user = service.people.set_role(name, cast(UserRole, role))
    typer.echo(f"{user.name} is {user.role}")


@app.command()
def disable(name: Name, store: Store = "", key_file: KeyFile = "") -> None:
    """Disable a person; sessions and links end at once."""
    with opened(store, key_file) as service:
        user = service.people.disable(name)
    typer.echo(f"{user.name} is disabled")


@app.command()
def enable(name: Name, store: Store = "", key_file: KeyFile = "") -> None:
    """Let a disabled person sign in again, with the old password."""
    with opened(store, key_file) as service:
        user = service.people.enable(name)
    typer.echo(f"{user.name} is enabled")


@app.command()
def sessions(
    name: Annotated[
        str, typer.Argument(help="Show only this person's sessions.", show_default=False)
    ] = "",
    end: Annotated[
        str,
        typer.Option(
            help="End the session with this id, or `all` sessions of NAME.", show_default=False
        ),
    ] = "",
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """List who is signed in, or end a session."""
    with opened(store, key_file) as service:
        user = service.people.get(name) if name else None
        if end == "all" and user is not None:
            typer.echo(f"{service.sessions.end_all(user)} sessions of {user.name} ended")
            return
        if end:
            service.sessions.end(end)
            typer.echo("1 session ended")
            return
        found = [one for one in service.sessions.all() if user is None or one.user == user]
    if as_json:
        print_json(
            [
                {
                    "id": one.id,
                    "who": one.name,
                    "browser": one.browser,
                    "since": one.created_at,
                    "last_seen_hour": one.seen_at,
                    "expires_at": one.expires_at,
                }
                for one in found
            ]
        )
        return
    print_table(
        "Sessions",
        ("who", "where", "since", "last seen", "id"),
        [(one.name, one.browser, one.created_at, one.seen_at, one.id) for one in found],
    )
