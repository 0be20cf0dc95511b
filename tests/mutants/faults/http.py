"""Faults of the HTTP routes, of who may call them, and of the limits on requests."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/service/http"
DECIDE = f"{TESTS}/test_decide_routes.py"
AUTH = f"{TESTS}/test_auth.py"
SCOPES = f"{AUTH}::test_every_route_wants_its_scope_and_admin_may_everything"
CONNECTIONS = f"{TESTS}/test_connections.py"

FAULTS = (
    Fault(
        "service/http/decide_routes.py",
        '(_UNOBSERVED, "unobserved", False),',
        '(_UNOBSERVED, "decide", False),',
        "a key that decides may decide for unobserved visits",
        ("tests/service/http/test_auth.py",),
    ),
    Fault(
        "service/http/app.py",
        'deciding != (only == "decide"):',
        "False:",
        "a process answers what another was started for",
        (f"{TESTS}/test_pressure.py::test_deciding_and_pages_in_processes_of_their_own",),
    ),
    Fault(
        "service/http/decide_routes.py",
        "or not document.keys() <= _VISITOR_MEMBERS:",
        "or False:",
        "a batch may have members that nobody knows",
        (f"{DECIDE}::test_unknown_members_are_refused",),
    ),
    Fault(
        "service/http/server.py",
        "        except (StoreUnavailableError, MigrationNeededError) as error:\n",
        "        except MigrationNeededError as error:\n",
        "a worker that starts while the database is down ends the service",
        (f"{TESTS}/test_outages.py::test_a_worker_that_crashes_while_postgres_is_down_comes_back",),
    ),
    Fault(
        "service/http/api.py",
        "    if problem is not None:\n",
        "    if False:\n",
        "a process stays ready on a schema that it does not know",
        (f"{TESTS}/test_outages.py::test_a_process_on_a_newer_schema_is_not_ready_and_says_why",),
    ),
    Fault(
        "service/http/metrics.py",
        "enumerate(owners) if not _alive(pid)), 0)",
        "enumerate(owners) if not pid), 0)",
        "a new worker counts in the row of another that is alive",
        (f"{TESTS}/test_metrics.py::test_a_process_takes_over_the_row_of_one_that_died",),
    ),
    Fault(
        "service/http/decide_routes.py",
        'wanted = items(document, "rewards", self._limits.batch)',
        'wanted = items(document, "rewards", 10**9)',
        "a batch of rewards has no limit",
        (f"{DECIDE}::test_batches_of_rewards_are_bounded",),
    ),
    Fault(
        "service/http/decide_routes.py",
        'wanted = items(document, "visitors", self._limits.batch)',
        'wanted = items(document, "visitors", 10**9)',
        "a batch of decisions has no limit",
        (f"{DECIDE}::test_batches_and_bodies_are_bounded",),
    ),
    Fault(
        "service/http/decide_routes.py",
        "        caller.require(route.scope)\n",
        "",
        "any key may decide and reward",
        (SCOPES,),
    ),
    Fault(
        "service/http/decide_routes.py",
        "return padded(body, (arm,), self._service.longest_arm(key))",
        "return body",
        "the length of an answer tells the arm",
        (
            "tests/promise/test_side_channels.py::"
            "test_the_length_of_an_answer_does_not_tell_the_arm",
        ),
    ),
    Fault(
        "service/http/auth.py",
        "if known is not None and self._clock() - known.found_valid <= self._outage:",
        "if known is not None:",
        "a key is accepted for ever while the store is gone",
        (f"{AUTH}::test_an_outage_has_an_end",),
    ),
    Fault(
        "service/http/auth.py",
        "return known.caller if known.fresh_until >= self._clock() else None",
        "return known.caller",
        "a revoked key works for ever",
        (f"{AUTH}::test_the_store_is_asked_once_in_a_while",),
    ),
    Fault(
        "service/http/auth.py",
        'scopes = SCOPES if "admin" in key.scopes else key.scopes',
        "scopes = SCOPES",
        "every key may do everything",
        (SCOPES,),
    ),
    Fault(
        "service/http/auth.py",
        "            if found is not None:\n",
        "            if False:\n",
        "two Authorization headers are accepted",
        (f"{CONNECTIONS}::test_two_authorizations_are_a_mistake",),
    ),
    Fault(
        "service/http/messages.py",
        "        if len(body) > limit:\n            raise too_large(limit)\n",
        "",
        "a body of any length is read",
        (f"{DECIDE}::test_a_body_without_an_end_is_cut_off",),
    ),
    Fault(
        "service/http/server.py",
        "HEADER_LIMIT = 16_384",
        "HEADER_LIMIT = 16_384_000",
        "headers may be as long as one likes",
        (f"{CONNECTIONS}::test_headers_have_a_limit",),
    ),
    Fault(
        "service/http/messages.py",
        "        async with asyncio.timeout(limits.seconds):\n"
        "            return await _whole_body(scope, receive, limits.body)\n",
        "        return await _whole_body(scope, receive, limits.body)\n",
        "a body that never comes is waited for",
        (f"{CONNECTIONS}::test_nobody_is_waited_for_longer_than_allowed",),
    ),
    Fault(
        "service/http/app.py",
        "        if path in HEALTH_PATHS:\n",
        "        if False:\n",
        "health checks fail under load",
        (f"{TESTS}/test_pressure.py::test_too_many_requests_in_flight_are_refused",),
    ),
    Fault(
        "service/http/app.py",
        "if self._in_flight >= self._options.in_flight_limit:",
        "if False:",
        "any number of requests is answered at once",
        (f"{TESTS}/test_pressure.py::test_too_many_requests_in_flight_are_refused",),
    ),
    Fault(
        "service/http/idempotency.py",
        "if found.request_hash != request_hash:",
        "if False:",
        "another request is given the answer of the first",
        (f"{TESTS}/test_administration.py::test_a_key_belongs_to_one_request_of_one_caller",),
    ),
    Fault(
        "service/http/idempotency.py",
        'return orjson.dumps({**document, "secret": None})',
        "return body",
        "the secret of a new API key is stored",
        (f"{TESTS}/test_administration.py::test_a_remembered_reply_holds_no_secret",),
    ),
    Fault(
        "service/http/metrics.py",
        "return count - count % REWARD_STEP",
        "return count",
        "metrics show every single reward",
        ("tests/promise/test_side_channels.py::test_metrics_do_not_show_a_single_reward",),
    ),
    Fault(
        "service/http/ofrep.py",
        "return 400 if problem.status == 422 else problem.status, orjson.dumps(body)",
        "return problem.status, orjson.dumps(body)",
        "OFREP is answered with a status that it does not know",
        (f"{TESTS}/test_ofrep.py::test_a_status_that_the_protocol_does_not_know_is_told_as_400",),
    ),
)
