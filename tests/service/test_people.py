"""People: invitations that work once, passwords, limits on guessing, sessions, who did what."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select, text, update
from tests.service.support import running
from tests.web.site import HOSTILE

from deniable.errors import (
    InvalidArgumentError,
    TooManyAttemptsError,
    UnknownNameError,
    WrongStateError,
)
from deniable.service import passwords
from deniable.service.http.auth import Authenticator
from deniable.service.people import LIMITS, WINDOW_SECONDS, People
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.service.sessions import FORGET_SECONDS, Sessions
from deniable.storage.commitments import acting
from deniable.storage.records import ROLES, SCOPES, ApiKey
from deniable.storage.schema import commitments, sessions

PASSWORD = "a long walk by the sea"
SECOND = 1_000_000
HOUR = 3600 * SECOND
REAL_HASHER = passwords.hasher


@pytest.fixture(autouse=True)
def cheap_hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same code with less work; what the real hasher costs is not what is tested here."""
    from argon2 import PasswordHasher

    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", lambda: quick)
    passwords._of_nobody.cache_clear()
    yield
    passwords._of_nobody.cache_clear()


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 2_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(service: Deniable) -> Clock:
    """The time of the service's people and sessions."""
    clock = Clock()
    service.people = People(service._store, bytes(32), clock)
    service.sessions = Sessions(service._store, clock)
    return clock


def joined(service: Deniable, name: str = "ada", role: Any = "manager") -> None:
    invitation = service.people.invite(name, role)
    assert service.people.accept(invitation.token, PASSWORD) is not None


def test_an_invitation_works_once(service: Deniable) -> None:
    invitation = service.people.invite(" Ada ", "manager")
    assert invitation.user.name == "ada"
    assert not invitation.user.active
    invited = service.people.invited(invitation.token)
    assert invited == invitation.user
    user = service.people.accept(invitation.token, PASSWORD)
    assert user is not None
    assert user.active
    assert service.people.invited(invitation.token) is None
    assert service.people.accept(invitation.token, "another long password") is None
    assert service.people.sign_in("ada", PASSWORD) == user
    assert service.people.sign_in("ada", "another long password") is None


def test_an_invitation_ends(service: Deniable, clock: Clock) -> None:
    invitation = service.people.invite("ada", "viewer", hours=2)
    clock.now += 2 * HOUR - 1
    assert service.people.invited(invitation.token) is not None
    clock.now += 1
    assert service.people.invited(invitation.token) is None
    assert service.people.accept(invitation.token, PASSWORD) is None


def test_a_new_link_replaces_the_old_one_and_ends_sessions(service: Deniable) -> None:
    joined(service)
    service.sessions.begin("t" * 64, seconds=60, user=service.people.get("ada").id)
    first = service.people.invite("ada")
    second = service.people.invite("ada")
    assert service.people.invited(first.token) is None
    assert service.sessions.find("t" * 64) is not None  # until the password is another one
    assert service.people.accept(second.token, "quite another password") is not None
    assert service.sessions.find("t" * 64) is None
    assert service.people.sign_in("ada", PASSWORD) is None
    assert service.people.get("ada").role == "manager"


def test_no_secret_is_stored_or_shown(service: Deniable) -> None:
    invitation = service.people.invite("ada", "admin")
    service.sessions.begin("s" * 64, seconds=60, user=invitation.user.id)
    service.people.accept(invitation.token, PASSWORD)
    with service._store.read() as connection:
        tables = ("users", "invites", "sessions", "attempts", "commitments", "facts")
        stored = repr([connection.execute(text(f"SELECT * FROM {t}")).all() for t in tables])
    for secret in (invitation.token, PASSWORD, "s" * 64):
        assert secret not in stored
        assert secret not in repr(invitation)
    assert "$argon2id$" in stored


@pytest.mark.parametrize(
    "weak", ["", "short", "eleven-char", "aaaaaaaaaaaaaaaaaa", "x" * 201, "ada's own secret"]
)
def test_weak_passwords_are_refused_and_not_repeated(service: Deniable, weak: str) -> None:
    invitation = service.people.invite("ada", "viewer")
    with pytest.raises(InvalidArgumentError) as refused:
        service.people.accept(invitation.token, weak)
    assert not weak or weak not in str(refused.value)
    assert service.people.accept(invitation.token, PASSWORD) is not None


@pytest.mark.parametrize(
    "name", [*HOSTILE, "", " ", "a b", "-ada", "ada\n", "a" * 65, "аda", "a:b"]
)
def test_hostile_names_are_refused(service: Deniable, name: str) -> None:
    if name == "ada\n":  # what surrounds a name is no part of it
        assert service.people.invite(name, "viewer").user.name == "ada"
        return
    with pytest.raises(InvalidArgumentError, match="name"):
        service.people.invite(name, "viewer")
    assert service.people.sign_in(name, PASSWORD) is None
    assert service.people.all() == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p: p.invite("ada", "root"), InvalidArgumentError),
        (lambda p: p.invite("ada"), InvalidArgumentError),
        (lambda p: p.invite("ada", "viewer", hours=0), InvalidArgumentError),
        (lambda p: p.invite("ada", "viewer", hours=721), InvalidArgumentError),
        (lambda p: p.get("nobody"), UnknownNameError),
        (lambda p: p.set_role("nobody", "viewer"), UnknownNameError),
        (lambda p: p.disable("nobody"), UnknownNameError),
        (lambda p: p.invite("bob"), WrongStateError),
        (lambda p: p.set_role("bob", "root"), InvalidArgumentError),
    ],
)
def test_mistakes_are_told(
    service: Deniable, call: Callable[[People], object], error: type[Exception]
) -> None:
    joined(service, "bob")
    service.people.disable("bob")
    with pytest.raises(error):
        call(service.people)


def test_guessing_is_limited_whether_or_not_anybody_has_the_name(
    service: Deniable, clock: Clock
) -> None:
    joined(service)
    for name in ("ada", "nobody"):
        for _ in range(LIMITS["pair"]):
            assert service.people.sign_in(name, "wrong", "10.0.0.1") is None
        with pytest.raises(TooManyAttemptsError) as refused:
            service.people.sign_in(name, PASSWORD, "10.0.0.1")
        assert refused.value.seconds == WINDOW_SECONDS
    assert service.people.sign_in("ada", PASSWORD, "10.0.0.2") is not None  # not locked out
    clock.now += WINDOW_SECONDS * SECOND
    assert service.people.sign_in("ada", PASSWORD, "10.0.0.1") is not None


@pytest.mark.parametrize("kind", ["name", "address"])
def test_guessing_is_limited_from_many_addresses_and_of_many_names(
    service: Deniable, clock: Clock, kind: str
) -> None:
    def guess(number: int) -> None:
        name, address = (
            ("ada", f"10.0.0.{number}") if kind == "name" else (f"n{number}", "10.0.0.1")
        )
        assert service.people.sign_in(name, "wrong", address) is None

    for number in range(LIMITS[kind]):
        guess(number)
    with pytest.raises(TooManyAttemptsError):
        guess(LIMITS[kind])


def test_right_passwords_do_not_use_up_the_limit(service: Deniable, clock: Clock) -> None:
    joined(service)
    for _ in range(max(LIMITS.values()) + 5):
        assert service.people.sign_in("ada", PASSWORD, "10.0.0.1") is not None


def test_every_refusal_costs_one_check_of_a_password(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown, invited, disabled, wrong: the same work, so the time tells nothing."""
    joined(service)
    joined(service, "gone")
    service.people.disable("gone")
    service.people.invite("invited", "viewer")
    checked: list[str] = []
    real = passwords.hasher()

    class Counting:
        def hash(self, password: str) -> str:
            return real.hash(password)

        def verify(self, stored: str, password: str) -> bool:
            checked.append(stored)
            return real.verify(stored, password)

        def check_needs_rehash(self, stored: str) -> bool:
            return real.check_needs_rehash(stored)

    monkeypatch.setattr(passwords, "hasher", Counting)
    for name in ("nobody", "invited", "gone", "ada"):
        assert service.people.sign_in(name, "wrong password") is None
    assert len(checked) == 4
    parameters = {stored.rsplit("$", 2)[0] for stored in checked}
    assert len(parameters) == 1  # the same memory and rounds for all of them
    assert service.people.sign_in("gone", PASSWORD) is None


def test_a_hash_made_with_less_work_is_made_anew(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from argon2 import PasswordHasher

    joined(service)
    monkeypatch.setattr(passwords, "hasher", lambda: PasswordHasher(2, 16, 1))
    assert service.people.sign_in("ada", PASSWORD) is not None
    with service._store.read() as connection:
        stored = connection.execute(text("SELECT password_hash FROM users")).scalar_one()
    assert "m=16,t=2" in stored
    assert service.people.sign_in("ada", PASSWORD) is not None


def test_sessions_follow_the_person(service: Deniable, clock: Clock) -> None:
    joined(service)
    ada = service.people.get("ada")
    service.sessions.begin("a" * 64, seconds=3600, user=ada.id, browser="Firefox\x1b on Linux")
    found = service.sessions.find("a" * 64)
    assert found is not None
    assert (found.user, found.browser, found.name) == (ada, "Firefox on Linux", "ada")
    service.people.set_role("ada", "viewer")
    changed = service.sessions.find("a" * 64)
    assert changed is not None
    assert changed.user is not None
    assert changed.user.role == "viewer"
    service.people.disable("ada")
    assert service.sessions.find("a" * 64) is None
    service.people.enable("ada")
    assert service.sessions.find("a" * 64) is None  # it was ended, not only hidden
    service.sessions.begin("b" * 64, seconds=3600, user=ada.id)
    clock.now += 3600 * SECOND
    assert service.sessions.find("b" * 64) is None
    assert service.sessions.all() == []


def test_sessions_are_listed_ended_and_forgotten(service: Deniable, clock: Clock) -> None:
    joined(service)
    _, key = service.keys.create("page", ["read"])
    ada = service.people.get("ada")
    for token in ("a" * 64, "b" * 64):
        service.sessions.begin(token, seconds=3600, user=ada.id)
        clock.now += 1
    service.sessions.begin("c" * 64, seconds=3600, key=key.id)
    everything = service.sessions.all()
    assert [one.name for one in everything] == ["API key page", "ada", "ada"]
    assert len(service.sessions.of(everything[1])) == 2
    service.sessions.end(everything[2].id)
    assert service.sessions.find("a" * 64) is None
    assert service.sessions.end_all(ada) == 1
    service.keys.revoke(key.id)
    assert service.sessions.all() == []
    for unknown in ("00" * 32, "not hexadecimal"):
        with pytest.raises(UnknownNameError):
            service.sessions.end(unknown)
    clock.now += (3601 + FORGET_SECONDS) * SECOND
    service.sessions.begin("d" * 64, seconds=3600, user=ada.id)
    with service._store.read() as connection:
        assert len(connection.execute(select(sessions)).all()) == 1


def test_when_a_session_was_seen_is_written_once_an_hour(service: Deniable, clock: Clock) -> None:
    joined(service)
    service.sessions.begin("a" * 64, seconds=10 * 3600, user=service.people.get("ada").id)
    writes = 0
    real = service._store.retried

    def counting(work: Any, *, lasting: bool = True) -> Any:
        nonlocal writes
        writes += 1
        return real(work, lasting=lasting)

    service._store.retried = counting  # type: ignore[method-assign]
    for _ in range(3):
        clock.now += HOUR
        for _ in range(50):
            assert service.sessions.find("a" * 64) is not None
    assert writes == 3


def test_the_use_of_a_key_is_written_once_an_hour(service: Deniable) -> None:
    secret, key = service.keys.create("shop", ["decide"])
    assert key.last_used_at is None
    notes: list[str] = []

    class Keys:
        def authenticate(self, secret: str) -> ApiKey | None:
            return service.keys.authenticate(secret)

        def note_use(self, key: ApiKey) -> None:
            notes.append(key.label)
            service.keys.note_use(key)

    authenticator = Authenticator(Keys())
    for _ in range(1_000):
        assert authenticator.authenticate(secret) is not None
    authenticator._noting.shutdown(wait=True)
    assert len(notes) in (1, 2)  # two where an hour begins meanwhile
    used = service.keys.all()[-1].last_used_at
    assert used is not None
    assert (used.minute, used.second, used.microsecond) == (0, 0, 0)
    another = Authenticator(Keys())  # after a restart, in the same hour
    assert another.authenticate(secret) is not None
    another._noting.shutdown(wait=True)
    assert len(notes) <= 2


def test_the_ledger_says_who_did_it(service: Deniable) -> None:
    running(service, "before")  # nobody in particular: an entry as it always was
    with acting("user", "ada"):
        running(service, "checkout")
        service.firm.set(budget=101, reason="more")
    with acting("key", "shop: user:ada"):
        service.experiments.pause("checkout")
    entries = service.ledger.entries()
    by = {(entry.kind, entry.experiment): entry.actor for entry in entries}
    assert by["start", "before"] is None
    assert by["start", "checkout"] == by["create", "checkout"] == "user:ada"
    assert by["pause", "checkout"] == "key:shop: user:ada"  # a label cannot pose as a person
    assert by["firm", None] == "user:ada"
    assert service.ledger.verify().sound


def test_another_name_in_the_ledger_is_noticed(service: Deniable) -> None:
    with acting("user", "ada"):
        running(service)
    entry = service.ledger.entries()[-1]
    forged = json.dumps({**json.loads(entry.detail), "by": "user:bob"}, sort_keys=True)
    with service._store.begin() as connection:
        connection.execute(
            update(commitments).where(commitments.c.seq == entry.seq).values(detail=forged)
        )
    assert service.ledger.verify().problem == f"commitment {entry.seq} was changed or reordered"


def test_changes_of_people_and_keys_are_in_the_ledger(service: Deniable) -> None:
    joined(service)
    service.people.set_role("ada", "admin")
    service.people.set_role("ada", "admin")  # nothing changes, nothing is recorded
    service.people.disable("ada")
    service.people.disable("ada")
    service.people.enable("ada")
    _, key = service.keys.create("shop", ["decide"])
    service.keys.revoke(key.id)
    service.keys.revoke(key.id)
    found = [json.loads(e.detail) for e in service.ledger.entries() if e.kind == "access"]
    assert [one["act"] for one in found] == [
        *("invite", "join", "role", "disable", "enable", "create key", "revoke key")
    ]
    assert [one.get("role") for one in found][:3] == ["manager", "manager", "admin"]
    assert service.ledger.verify().sound


def test_the_firm_has_a_name(service: Deniable) -> None:
    assert service.firm.settings().name == ""
    for name in ("Acme & Söhne", "Acme & Söhne", "Acme"):
        assert service.firm.change_settings(name=f" {name} ").name == name
    assert service.firm.settings().name == "Acme"
    kept = [e for e in service.ledger.entries() if e.kind == "settings"]
    assert [json.loads(e.detail)["name"] for e in kept] == ["Acme & Söhne", "Acme"]
    for bad in ("x" * 121, "a\nb", "\x00"):
        with pytest.raises(InvalidArgumentError):
            service.firm.change_settings(name=bad)


def test_exports_are_in_the_ledger(service: Deniable, tmp_path: Any) -> None:
    running(service)
    service.decide("checkout", "v", "a")
    with acting("user", "ada"):
        rows = service.ledger.export(tmp_path / "a.csv", experiment="checkout")
    entry = service.ledger.entries()[-1]
    detail = json.loads(entry.detail)
    assert (entry.kind, entry.experiment, entry.actor) == ("export", "checkout", "user:ada")
    assert (detail["shape"], detail["rows"]) == ("private", rows)
    assert service.ledger.verify().sound


def test_roles_grow_and_only_admins_manage_people() -> None:
    assert set(ROLES["viewer"]) < set(ROLES["analyst"]) < set(ROLES["manager"]) < set(SCOPES)
    assert set(ROLES["viewer"]) < set(ROLES["privacy-officer"]) < set(ROLES["admin"])
    assert set(ROLES["admin"]) == set(SCOPES)
    assert [role for role, scopes in ROLES.items() if "admin" in scopes] == ["admin"]
    assert all("read" in scopes for scopes in ROLES.values())
    longest = " ".join(SCOPES)
    assert len(longest) <= 128  # the column of `api_keys`


def test_an_error_that_tells_to_wait_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(TooManyAttemptsError(seconds=7)))
    assert again.seconds == 7


def test_the_real_hasher_is_the_one_recommended() -> None:
    """RFC 9106, second recommendation: Argon2id, 3 passes, 64 MiB, 4 lanes."""
    real = REAL_HASHER()
    assert (real.time_cost, real.memory_cost, real.parallelism) == (3, 65_536, 4)
    assert real.type.name == "ID"


def test_people_of_one_process_are_those_of_another(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with open_service(url) as first, open_service(url) as second:
        joined(first)
        assert second.people.sign_in("ada", PASSWORD) is not None
        first.sessions.begin("a" * 64, seconds=60, user=first.people.get("ada").id)
        assert second.sessions.find("a" * 64) is not None
        second.people.disable("ada")
        assert first.sessions.find("a" * 64) is None
