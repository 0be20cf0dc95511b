"""Client for the decision service: `Client`, `AsyncClient`, and an OpenFeature provider.

::

    with Client("http://127.0.0.1:8000", api_key="dnb_...") as client:
        decision = client.decide("checkout", visitor="v-1", segment="returning")
        client.reward(decision.id, 1)
"""

from deniable.client.calls import ServiceError
from deniable.client.clients import AsyncClient, Client
from deniable.storage.records import Decision

__all__ = ["AsyncClient", "Client", "Decision", "ServiceError"]
