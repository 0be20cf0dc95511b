"""A cookie that becomes a login: two ids are two spends; the first id, kept with the account, is one."""

from __future__ import annotations

from fractions import Fraction

from tests.promise.support import entries_of, rows_of, taught
from tests.service.support import running, serving

from deniable.privacy.exact import exp_floor
from deniable.service.service import Deniable
from deniable.storage.records import Role
from deniable.strategies.recipe import Recipe

BUDGET = 1.0


class Shop:
    """What the integration guide asks of a firm: the first id of a person is kept with the account."""

    def __init__(self) -> None:
        self._first_ids: dict[str, str] = {}

    def visitor(self, cookie: str, account: str | None) -> str:
        """The id to decide by; a login takes over the cookie's id, unless it has one already."""
        return cookie if account is None else self._first_ids.setdefault(account, cookie)


def test_two_ids_of_one_person_are_two_spends() -> None:
    """The pair of arms moves the odds by more than e^budget: by up to its square, as documented."""
    with serving("memory:") as service:
        running(service, arms=("x", "y"), segments=("a", "b"), budget=BUDGET, strategy="constant")
        taught(service, "checkout", {"a": "x", "b": "y"}, visitors=60)
        a, b = rows_of(service, "checkout")[-2:]
        for visitor in ("cookie", "login"):
            service.decide("checkout", visitor, "a")
        members = [entry for entry in entries_of(service, "checkout") if entry[2] >= 0]
        assert len(members) == 2 * 60 + 2
    pair = Fraction(a[0], b[0]) ** 2
    assert exp_floor(1_000_000_000) < pair <= exp_floor(1_000_000_000) ** 2


def test_under_joint_the_second_id_has_no_limit() -> None:
    """Its table may contain the first one's record: one draw moves the odds by more than e^(2 budget).

    The same holds for a relative with the same segment.
    """
    budget, recipe = 0.1, Recipe("joint", (10**8,) * 2, (0, 1), 10**6)
    shows, rewards = [[8, 52], [21, 13]], [[0, 0], [0, 0]]  # visitors that a tracker sent
    rows = []
    for segment in range(2):
        seen = [[*row] for row in shows], [[*row] for row in rewards]
        seen[0][segment][0] += 1
        seen[1][segment][0] += 10**6  # the first id saw arm 0 and clicked
        table = recipe.table(recipe.counts(*seen))
        table.check(recipe.budgets)
        rows.append(table.rows[segment])
    assert Fraction(rows[1][1], rows[0][1]) > 17 > exp_floor(round(2 * budget * 10**9))


def test_the_first_id_kept_with_the_account_is_one_spend() -> None:
    """Same arm, one draw, nothing debited; erasing that id forgets both."""
    shop = Shop()
    with serving("memory:", budget=BUDGET) as service:
        running(service, budget=BUDGET)
        before = service.decide("checkout", shop.visitor("cookie", None), "a")
        spent = service.firm.current().committed
        on_login = service.decide("checkout", shop.visitor("cookie", "account"), "b")
        elsewhere = service.decide("checkout", shop.visitor("another device", "account"), "b")
        assert before == on_login == elsewhere
        assert service.firm.current().committed == spent
        assert len(entries_of(service, "checkout")) == 1
        assert service.visitors.erase([shop.visitor("any", "account")]).decisions == 1
        assert service.visitors.stored("cookie") == []


def test_one_id_has_one_slot_of_a_layer_also_in_later_experiments() -> None:
    """Why the id has to stay the same: two ids can be members of both halves of a layer."""
    shop = Shop()
    with serving("memory:", budget=BUDGET) as service:
        kept, swapped = [], []
        for key in ("first", "second"):
            service.experiments.create(
                key, arms=("x", "y"), segments=("a", "b"), budget=BUDGET, layer="page"
            )
            service.experiments.start(key, share=0.5)
            for i in range(96):
                account = None if key == "first" else f"account{i}"
                kept.append(_is_member(service, key, shop.visitor(f"cookie{i}", account)))
                if key == "second":
                    swapped.append(_is_member(service, key, f"account{i}"))
        assert service.firm.current().committed == BUDGET  # the price of a layer: one of the two
    first, second = kept[:96], kept[96:]
    assert [one + other for one, other in zip(first, second, strict=True)] == [1] * 96
    assert 2 in [one + other for one, other in zip(first, swapped, strict=True)]


def _is_member(service: Deniable, key: str, visitor: str) -> bool:
    service.decide(key, visitor, "a")
    return entries_of(service, key)[-1][1] == Role.MEMBER
