"""Faults of the clients."""

from __future__ import annotations

from tests.mutants.fault import Fault

CLIENTS = "tests/client/test_clients.py"
ORDER = (f"{CLIENTS}::test_a_batch_keeps_its_order_both_ways",)
AGAIN = (f"{CLIENTS}::test_busy_and_unreachable_services_are_asked_again",)
GIVING_UP = (f"{CLIENTS}::test_it_gives_up_and_says_so",)
REFUSED = (f"{CLIENTS}::test_refusals_are_not_repeated",)

FAULTS = (
    Fault(
        "client/calls.py",
        'lambda answer: [_decision(item) for item in answer["decisions"]]',
        'lambda answer: [_decision(item) for item in reversed(answer["decisions"])]',
        "the decisions of a batch come back in another order",
        ORDER,
    ),
    Fault(
        "client/calls.py",
        '[{"visitor": name, "segment": segment} for name, segment in visitors]',
        '[{"visitor": name, "segment": segment} for name, segment in sorted(visitors, key=str)]',
        "the visitors of a batch are sent in another order",
        ORDER,
    ),
    Fault(
        "client/calls.py",
        "return min(wanted, LONGEST_WAIT_SECONDS)",
        "return 0.0",
        "a busy service is asked again at once",
        AGAIN,
    ),
    Fault(
        "client/calls.py",
        "return response.status_code in (502, 503, 504)",
        "return response.status_code >= 400",
        "refusals are repeated",
        REFUSED,
    ),
    Fault(
        "client/calls.py",
        "    if len(given) > 2 and given[2] is not None:\n",
        "    if False:\n",
        "the metric of a reward is not sent",
        (f"{CLIENTS}::test_rewards_carry_their_metric",),
    ),
    Fault(
        "client/calls.py",
        "quote(experiment, safe='')}/decisions",
        "experiment}/decisions",
        "an experiment's name can lead to another path",
        (f"{CLIENTS}::test_an_experiment_cannot_escape_its_place_in_the_path",),
    ),
    Fault(
        "client/clients.py",
        '"headers": {"Authorization": f"Bearer {api_key}"}',
        '"headers": {"Authorization": api_key}',
        "the API key is sent in another form",
        (f"{CLIENTS}::test_a_call_is_what_the_service_expects",),
    ),
    Fault(
        "client/openfeature.py",
        "if len(self._remembered) > REMEMBERED:",
        "if len(self._remembered) > 10**9:",
        "decisions are remembered without a limit",
        ("tests/client/test_openfeature.py",),
    ),
    Fault(
        "client/openfeature.py",
        "value = 1.0 if given is None else float(given)",
        "value = 1.0",
        "the value of an event is not its reward",
        ("tests/client/test_openfeature.py",),
    ),
    Fault(
        "client/openfeature.py",
        "wanted = self._events.get(tracking_event_name, (tracking_event_name,))",
        "wanted = self._events.get(tracking_event_name, ())",
        "an event of the experiment's name is no reward",
        ("tests/client/test_openfeature.py",),
    ),
)
