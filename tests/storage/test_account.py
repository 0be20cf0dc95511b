"""The firm's account against a model that knows every answer: no window ever exceeds its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, insert, select, update
from tests.passing import STEP
from tests.storage.support import NAT, changed, draft, empty_store, load, start, stop

from deniable.audit.firm import lives_of as audited_lives
from deniable.errors import (
    BrokenPromiseError,
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.storage import account, account_rules, commitments, promises, times
from deniable.storage.account_rules import DAY, HOUR, counted, end_of_hour
from deniable.storage.commitments import Entry
from deniable.storage.records import SLOTS
from deniable.storage.schema import answers
from deniable.storage.schema import commitments as chain

MINUTE = HOUR // 60
SKEWS = st.integers(-20, 20)
"""Minutes by which the clocks of two machines are wrong."""


class Clock:
    """What `times.now` says, moved by hand."""

    def __init__(self, beat: Callable[[], None] = lambda: None) -> None:
        self._now = 20_000 * DAY
        self._beat = beat

    def __call__(self) -> int:
        return self._now

    @property
    def now(self) -> int:
        return self._now

    @now.setter
    def now(self, value: int) -> None:
        """Time passes while a service runs."""
        while value - self._now > STEP:
            self._now += STEP
            self._beat()
        self._now = value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> Clock:
    made = Clock(lambda: commitments.beat(connection))
    monkeypatch.setattr(times, "now", made)
    return made


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = empty_store()
    with engine.begin() as opened:
        yield opened
    engine.dispose()


def set_firm(connection: Connection, budget: float, days: int = 90, reason: str = "more") -> None:
    account.set_firm(connection, budget_nano=int(budget * NAT), window_days=days, reason=reason)


def answer(connection: Connection, key: str, at: int, writer: int = 1) -> None:
    """As a writer does: the last hour in which it answered."""
    identity, hour = bytes.fromhex(load(connection, key).id), at // HOUR
    here = (answers.c.experiment_id == identity) & (answers.c.writer_id == writer)
    known = connection.execute(select(answers.c.hour).where(here)).scalar()
    if known is None:
        values = {"experiment_id": identity, "writer_id": writer, "hour": hour}
        connection.execute(insert(answers).values(**values))
    elif hour > known:
        connection.execute(update(answers).where(here).values(hour=hour))


class Accounts(RuleBasedStateMachine):
    """Acts on a store and on a list of all answers ever given."""

    live = Bundle("live")
    paused = Bundle("paused")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.real_now, times.now = times.now, self.clock
        self.engine = empty_store()
        self.connection = self.engine.connect()
        self.made = 0
        self.costs: dict[str, tuple[int, str | None, int]] = {}
        self.answers: list[tuple[int, str]] = []
        self.firm = (0, 1)

    def teardown(self) -> None:
        times.now = self.real_now
        self.connection.close()
        self.engine.dispose()

    @initialize(budget=st.integers(1, 4), days=st.integers(1, 4))
    def first(self, budget: int, days: int) -> None:
        self.set(budget, days)

    @rule(budget=st.integers(0, 6), days=st.integers(1, 4))
    def set(self, budget: int, days: int) -> None:
        with suppress(InsufficientBudgetError):
            set_firm(self.connection, budget, days)
            self.firm = (budget * NAT, days)

    @rule(
        target=live,
        cost=st.integers(1, 3),
        layer=st.sampled_from([None, None, "one", "two"]),
        share=st.sampled_from([300, 500, 1000]),
    )
    def start(self, cost: int, layer: str | None, share: int) -> object:
        self.made += 1
        key = f"e{self.made}"
        made = draft(self.connection, key, budget_nano=cost * NAT, layer=layer)
        try:
            started = start(self.connection, made, share)
        except (InsufficientBudgetError, WrongStateError):
            return multiple()
        slots = 0 if started.slots is None else account_rules.slots_bitmap(started.slots)
        self.costs[key] = (cost * NAT, layer, slots)
        self.answer(key, 0)
        return key

    @rule(key=live, skew=SKEWS)
    def answer(self, key: str, skew: int) -> None:
        """A visitor's arm is shown, by a machine whose clock is wrong."""
        answer(self.connection, key, self.clock.now + skew * MINUTE)
        self.answers.append((self.clock.now, key))

    @rule(key=paused, skew=SKEWS)
    def answer_while_paused(self, key: str, skew: int) -> None:
        self.answer(key, skew)

    @rule(target=paused, key=consumes(live))
    def pause(self, key: str) -> str:
        experiment = load(self.connection, key)
        commitments.record(self.connection, "pause", experiment)
        changed(self.connection, experiment, status="paused")
        return key

    @rule(target=live, key=consumes(paused))
    def resume(self, key: str) -> str:
        experiment = load(self.connection, key)
        account.commit(self.connection, experiment, "resume", experiment.slots)
        changed(self.connection, experiment, status="running")
        return key

    @rule(key=consumes(live))
    def stop(self, key: str) -> None:
        stop(self.connection, load(self.connection, key))

    @rule(key=live)
    def erase(self, key: str) -> None:
        experiment = load(self.connection, key)
        detail = {"decisions": 1, "rewards": 0, "tombstones": 1}
        commitments.record(self.connection, "erase", experiment, **detail)
        changed(self.connection, experiment, has_tombstones=True)

    @rule(hours=st.integers(1, 60))
    def wait(self, hours: int) -> None:
        self.clock.now += hours * HOUR

    @rule(skew=SKEWS)
    def another_machine(self, skew: int) -> None:
        self.clock.now += skew * MINUTE

    @invariant()
    def no_window_exceeds_the_budget(self) -> None:
        budget, days = self.firm
        since = max([at for at, _ in self.answers], default=0) - days * DAY
        recent = {key for at, key in self.answers if at > max(since, self.clock.now - days * DAY)}
        total = sum(self.costs[key][0] for key in recent if self.costs[key][1] is None)
        for layer in ("one", "two"):
            mine = [self.costs[key] for key in recent if self.costs[key][1] == layer]
            total += max(  # shares are multiples of 100
                sum(cost for cost, _, slots in mine if slots >> slot & 1)
                for slot in range(0, SLOTS, 100)
            )
        assert total <= budget


RUNS = settings(max_examples=40, stateful_step_count=30, phases=[Phase.generate])
# It ends at the first example that fails. Which ones are tried depends on the modules that are loaded.
UNTIL_NOTICED = settings(RUNS, max_examples=2000)


def test_no_window_exceeds_the_budget() -> None:
    run_state_machine_as_test(Accounts, settings=RUNS)


def _stopped_is_gone(life: account_rules.Life, _settings: object) -> int | None:
    return life.answered


def _present_window_alone(
    life: account_rules.Life, known: list[account_rules.Setting]
) -> int | None:
    return None if life.answered is None else life.answered + known[-1].window_days * DAY


def test_the_model_notices_what_is_freed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (account, account_rules):
        monkeypatch.setattr(module, "counts_until", _stopped_is_gone)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Accounts, settings=UNTIL_NOTICED)


def test_the_present_window_alone_would_free_what_counts(
    connection: Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_rules, "counts_until", _present_window_alone)
    assert not _shortening_frees_nothing(connection, clock)


def _shortening_frees_nothing(connection: Connection, clock: Clock) -> bool:
    set_firm(connection, 1, days=90)
    stop(connection, start(connection, draft(connection, "a")))
    clock.now += 10 * DAY
    set_firm(connection, 1, days=1)
    return account.current_firm(connection).committed_nano == NAT


def test_shortening_the_window_frees_nothing(connection: Connection, clock: Clock) -> None:
    assert _shortening_frees_nothing(connection, clock)
    clock.now += 80 * DAY - HOUR
    assert account.current_firm(connection).committed_nano == NAT
    clock.now += 4 * HOUR
    assert account.current_firm(connection).committed_nano == 0


def test_answers_after_the_change_have_the_new_window(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1, days=10)
    running = start(connection, draft(connection, "a"))
    answer(connection, "a", clock.now)
    clock.now += DAY
    set_firm(connection, 1, days=2)
    clock.now += 20 * DAY
    answer(connection, "a", clock.now)
    stop(connection, running)
    clock.now += 2 * DAY
    assert account.counting(connection, clock.now)
    clock.now += 3 * HOUR
    assert not account.counting(connection, clock.now)


def test_a_longer_window_counts_what_is_inside_it(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1, days=1)
    stop(connection, start(connection, draft(connection, "a")))
    clock.now += 5 * DAY
    assert account.current_firm(connection).committed_nano == 0
    start(connection, draft(connection, "b"))
    with pytest.raises(InsufficientBudgetError) as refused:
        set_firm(connection, 1, days=30)
    assert refused.value.requested == 2 * NAT
    set_firm(connection, 2, days=30)
    assert account.current_firm(connection).committed_nano == 2 * NAT


def test_five_refills_cost_five_nats(connection: Connection, clock: Clock) -> None:
    """Setting the budget again between experiments gives nothing back."""
    for budget in range(1, 6):
        set_firm(connection, budget)
        stop(connection, start(connection, draft(connection, f"e{budget}")))
        with pytest.raises(InsufficientBudgetError):
            start(connection, draft(connection, f"more{budget}"))
        clock.now += MINUTE
    firm = account.current_firm(connection)
    assert (firm.committed_nano, firm.remaining_nano) == (5 * NAT, 0)
    with pytest.raises(InsufficientBudgetError) as refused:
        set_firm(connection, 4)
    assert (refused.value.remaining, refused.value.requested) == (4 * NAT, 5 * NAT)


def test_a_refused_start_names_what_remains(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 2.5)
    start(connection, draft(connection, "a", budget_nano=3 * NAT // 2))
    with pytest.raises(InsufficientBudgetError) as refused:
        start(connection, draft(connection, "b", budget_nano=2 * NAT))
    assert (refused.value.remaining, refused.value.requested) == (NAT, 2 * NAT)


def test_idle_time_before_the_stop_is_not_counted_twice(
    connection: Connection, clock: Clock
) -> None:
    set_firm(connection, 1, days=10)
    running = start(connection, draft(connection, "a"))
    answer(connection, "a", clock.now)
    clock.now += 8 * DAY
    stop(connection, running)
    clock.now += 2 * DAY - HOUR
    assert account.counting(connection, clock.now)
    clock.now += 4 * HOUR
    assert not account.counting(connection, clock.now)


def test_a_forged_hour_frees_nothing(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1, days=10)
    running = start(connection, draft(connection, "a"))
    clock.now += 5 * DAY
    answer(connection, "a", clock.now)
    stop(connection, running)
    before = account.counting(connection, clock.now)
    connection.execute(update(answers).values(hour=0))
    assert account.counting(connection, clock.now) == before
    answer(connection, "a", clock.now + 3 * HOUR)  # a late one moves it on
    (later,) = account.counting(connection, clock.now)
    assert (later.until or 0) > (before[0].until or 0)


def test_a_raise_needs_a_reason(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1, reason="")
    set_firm(connection, 1, reason="")
    set_firm(connection, 0.5, reason="")
    set_firm(connection, 0.5, days=100, reason="")
    for budget, days in ((0.6, 100), (0.5, 99)):
        with pytest.raises(InvalidArgumentError, match="reason"):
            set_firm(connection, budget, days, reason=" ")
        set_firm(connection, budget, days, reason="a second team")
    reasons = [promises_detail["reason"] for promises_detail in _details(connection, "firm")]
    assert reasons == ["", "", "", "", "a second team", "a second team"]


def _details(connection: Connection, kind: str) -> list[dict[str, object]]:
    return [entry.detail for entry in commitments.linked(connection, chain.c.kind == kind)]


def test_nothing_starts_without_a_budget(connection: Connection, clock: Clock) -> None:
    with pytest.raises(UnknownNameError):
        account.current_firm(connection)
    with pytest.raises(UnknownNameError):
        start(connection, draft(connection, "a"))


def test_time_does_not_go_back(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1, days=1)
    stop(connection, start(connection, draft(connection, "a")))
    clock.now += 3 * DAY
    set_firm(connection, 1, days=1)
    clock.now -= 3 * DAY  # another machine is behind
    assert commitments.moment(connection) == clock.now + 3 * DAY
    assert account.current_firm(connection).committed_nano == 0


def test_layers_cost_their_dearest_slot(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 3)
    first = start(connection, draft(connection, "a", budget_nano=3 * NAT, layer="page"), 400)
    second = start(connection, draft(connection, "b", budget_nano=2 * NAT, layer="page"), 600)
    assert account.current_firm(connection).committed_nano == 3 * NAT
    bitmaps = [account_rules.slots_bitmap(one.slots or b"") for one in (first, second)]
    assert bitmaps == [(1 << 400) - 1, ((1 << 600) - 1) << 400]
    assert account.free_slots(connection, "page") == []
    stop(connection, first)
    with pytest.raises(WrongStateError, match="0 of its 1000 slots free"):
        account.take_slots(connection, "page", 1)
    clock.now += 91 * DAY
    assert account.free_slots(connection, "page") == list(range(400))
    third = draft(connection, "c", budget_nano=NAT, layer="page")
    assert account_rules.slots_bitmap(start(connection, third, 100).slots or b"") == (1 << 100) - 1


def test_slots_that_overlap_add_up(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 3)
    start(connection, draft(connection, "a", budget_nano=2 * NAT, layer="page"), 500)
    overlapping = account_rules.bitmap_slots(1 << 499)
    with pytest.raises(InsufficientBudgetError) as refused:
        account.commit(
            connection,
            draft(connection, "b", budget_nano=2 * NAT, layer="page"),
            "start",
            overlapping,
        )
    assert (refused.value.remaining, refused.value.requested) == (NAT, 2 * NAT)


def test_a_layer_costs_what_every_slot_by_itself_says(connection: Connection) -> None:
    """The sums over sets of slots against the sums over slots."""
    patterns = [0b1011, 0b1110, 0b0110 << 990, (1 << 1000) - 1, 1 << 999, 0]
    users = [
        account_rules.Counted(bytes([i]) * 16, "page", slots, 3 + 2 * i, None)
        for i, slots in enumerate(patterns)
    ]
    by_slot = max(
        sum(one.cost_nano for one in users if one.slots >> slot & 1) for slot in range(SLOTS)
    )
    assert account_rules.total_nano(users) == max(by_slot, max(one.cost_nano for one in users))


def test_a_row_at_odds_with_the_ledger_does_not_start(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1)
    cheap = changed(connection, draft(connection, "a", budget_nano=5 * NAT), budget_nano=NAT)
    with pytest.raises(BrokenPromiseError, match="budget_nano"):
        account.commit(connection, cheap, "start", None)


@pytest.mark.parametrize("kind", ["firm", "start"])
def test_a_changed_entry_is_not_believed(connection: Connection, clock: Clock, kind: str) -> None:
    """What one UPDATE of the firm's budget, or of a start's amount, brings: nothing but a refusal.

    Also where the entry was found to hold before.
    """
    set_firm(connection, 1)
    start(connection, draft(connection, "a"))
    account.current_firm(connection)
    entry = connection.execute(select(chain).where(chain.c.kind == kind)).one()
    change = {"detail": entry.detail.replace("1000000000", "9000000000")}
    if kind == "start":
        change = {"amount_nano": 0}
    connection.execute(update(chain).where(chain.c.seq == entry.seq).values(**change))
    with pytest.raises(BrokenPromiseError, match=f"commitment {entry.seq} was changed"):
        account.current_firm(connection)


def test_a_removed_entry_is_noticed(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1)
    start(connection, draft(connection, "a"))
    for kind in ("table", "start"):
        connection.execute(chain.delete().where(chain.c.kind == kind))
        with pytest.raises(BrokenPromiseError, match="removed"):
            account.current_firm(connection)


def test_slots_and_layer_belong_together(connection: Connection, clock: Clock) -> None:
    set_firm(connection, 1)
    with pytest.raises(InvalidArgumentError, match="slots"):
        account.commit(connection, draft(connection, "a"), "start", bytes(125))
    with pytest.raises(InvalidArgumentError, match="slots"):
        account.commit(connection, draft(connection, "b", layer="page"), "start", None)
    assert promises.promise_of(connection, load(connection, "a")).status == "draft"


def test_an_answer_that_the_chain_knows_counts_whatever_is_stored() -> None:
    """A process that had not heard of the stop answered once more; then its row was removed."""
    who, stopped, later = b"a" * 16, 1_000, 1_050
    life = {"layer": None, "slots": None}
    entries = [
        Entry(1, "firm", None, 0, {"budget_nano": NAT, "window_days": 1, "reason": ""}, 0),
        Entry(2, "start", who, NAT, life, 0),
        Entry(3, "stop", who, 0, {"last_answer": stopped}, stopped * HOUR),
        Entry(4, "clock", None, 0, {"skipped": 0, "answers": {who.hex(): later}}, later * HOUR),
        Entry(5, "clock", None, 0, {"skipped": 0, "answers": {who.hex(): 9}}, later * HOUR + 1),
    ]
    end = end_of_hour(later) + DAY
    assert audited_lives(entries)[0].ended == end - DAY
    hours: dict[bytes, int]
    for hours in ({}, {who: stopped}, {who: later}):
        assert len(counted(entries, hours, end - 1)) == 1
        assert counted(entries, hours, end) == []
