"""`Idempotency-Key` on administrative requests: the first success is stored and replayed.

Refusals change nothing and are not stored. Decide and reward need no key, because a visitor's
decision is stored only once, and so is a decision's reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

import orjson

from deniable.service.http.messages import Message, Problem, Send, json_answer, send_answer
from deniable.service.service import Deniable
from deniable.storage.idempotency import StoredReply

LONGEST_KEY = 200
REPLAYED = (b"idempotency-replayed", b"true")


async def answer_once(
    service: Deniable,
    key: bytes,
    body: bytes,
    answer: Callable[[Send], Awaitable[int]],
    send: Send,
) -> int:
    """Replay the stored response to this request, or answer it and store that. Returns the status.

    Args:
        service: the service that stores responses.
        key: the request's key, from `reply_key`.
        body: the request's body.
        answer: answers the request, using the given `send`.
        send: sends to the client.
    """
    request = sha256(body).digest()
    found = await asyncio.to_thread(service.idempotency.reserve, key, request)
    if found is not None:
        reply = checked_reply(found, request)
        await send_answer(send, json_answer(reply.status, reply.body, extra=[REPLAYED]))
        return reply.status
    messages: list[Message] = []
    status = 500

    async def keep(message: Message) -> None:
        messages.append(message)

    try:
        status = await answer(keep)
    finally:  # also if the route failed, to release the key
        sent = b"".join(message.get("body", b"") for message in messages)
        kept = remembered_body(status, sent)
        await asyncio.to_thread(service.idempotency.finish, key, status, kept)
    for message in messages:
        await send(message)
    return status


def reply_key(caller: str, method: str, path: str, given: bytes) -> bytes:
    """Return the stored form of the key: its hash combined with the caller and the route."""
    if not 1 <= len(given) <= LONGEST_KEY or not all(32 < letter < 127 for letter in given):
        raise Problem(
            400,
            "idempotency-key",
            f"Idempotency-Key: expected 1 to {LONGEST_KEY} visible characters",
        )
    return sha256(b"\n".join([caller.encode(), method.encode(), path.encode(), given])).digest()


def checked_reply(found: StoredReply, request_hash: bytes) -> StoredReply:
    """Return the stored response; raise a problem if it belongs to another request or is not ready."""
    if found.request_hash != request_hash:
        raise Problem(
            422, "idempotency-key-reused", "this Idempotency-Key was used for another request"
        )
    if not found.status:
        raise Problem(409, "idempotency-key-busy", "the first request with this key is at work")
    return found


def remembered_body(status: int, body: bytes) -> bytes | None:
    """Return what to store of a response: nothing of a refusal, and never a new API key's secret.

    >>> remembered_body(201, b'{"id":"1","secret":"dnb_x"}')
    b'{"id":"1","secret":null}'
    """
    if not 200 <= status < 300:
        return None
    document = orjson.loads(body) if body else None
    if isinstance(document, dict) and document.get("secret") is not None:
        return orjson.dumps({**document, "secret": None})
    return body
