"""OFREP's bulk evaluation in a large firm: 1,000 running experiments, a visitor known to half of them.

The answer tells what is stored and draws nothing. Visitors take turns, over one kept-alive connection.

    python -m benchmarks.bulk
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from benchmarks.service import _prepared, served
from benchmarks.timing import row
from deniable.service.http.ofrep import BULK_PATH

EXPERIMENTS, VISITORS, REQUESTS = 1_000, 20, 200


def _fill(store: str, experiments: int) -> str:
    """Make the store; returns the secret of an API key."""
    with _prepared(store) as service:
        for number in range(experiments):
            key = f"experiment-{number}"
            service.experiments.create(key, arms=["a", "b"], segments=["x"], budget=0.001)
            service.experiments.start(key)
            if number % 2:
                service.decide_batch(key, [(f"v-{one}", "x") for one in range(VISITORS)])
        return service.keys.create("benchmark", ["decide"])[0]


def main(experiments: int = EXPERIMENTS) -> bool:
    """Print the latencies; True where the limit holds."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        secret = _fill(store, experiments)
        with served("decide", store, pinned=False) as server:
            took = _latencies(server.url, secret, experiments // 2) * 1e3
    best, median, slow = np.percentile(took, (0, 50, 99))
    print(f"      best {best:.1f} ms, median {median:.1f} ms, p99 {slow:.1f} ms")
    return row(f"OFREP bulk, {experiments:,} experiments, median", float(median), "ms", 50.0)


def _latencies(url: str, secret: str, known: int) -> npt.NDArray[np.float64]:
    """Seconds of each request but the first, whose experiments and key are not known yet."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    took = []
    for number in range(REQUESTS + 1):
        context = {"targetingKey": f"v-{number % VISITORS}", "segment": "x"}
        begin = time.perf_counter()
        connection.request("POST", BULK_PATH, json.dumps({"context": context}), headers)
        with connection.getresponse() as answer:
            body = answer.read()
        took.append(time.perf_counter() - begin)
        assert answer.status == 200, (answer.status, body)
        assert len(json.loads(body)["flags"]) == known
    return np.array(took[1:])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
