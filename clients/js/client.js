// Decide and reward over HTTP, for servers.
//
// Every call can be repeated without harm: a visitor's decision is stored once and a reward counts
// once. So whatever gets no answer, or 502, 503 or 504, is tried again until the time is over.

import { RewardQueue } from "./rewards.js";

const LONGEST_PAUSE_MS = 5000;
const TRY_AGAIN = new Set([502, 503, 504]);

/** The service refused a call, or could not be reached in time. */
export class ServiceError extends Error {
  /**
   * @param {number | null} status the HTTP status, or null where no answer came
   * @param {string} code the kind of problem, for programs
   * @param {string} detail for people
   */
  constructor(status, code, detail) {
    super(status === null ? detail : `${status} ${code}: ${detail}`);
    this.name = "ServiceError";
    this.status = status;
    this.code = code;
  }
}

/** A client of one service. It may be shared by all requests of a process. */
export class DeniableClient {
  #url;
  #headers;
  #timeoutMs;
  #retries;
  #fetch;
  #rewards;

  constructor(options) {
    if (typeof window !== "undefined" && typeof document !== "undefined") {
      // The key and the segments belong to the server: whoever runs the page could read them.
      throw new Error("deniable-client runs on a server, never in a browser");
    }
    const { url, apiKey, timeoutMs = 1000, retries = 3, rewards = {} } = options ?? {};
    if (!/^https?:\/\//.test(url ?? "")) {
      throw new TypeError("url: expected http://... or https://...");
    }
    if (typeof apiKey !== "string" || apiKey === "") throw new TypeError("apiKey: expected text");
    this.#url = url.replace(/\/+$/, "");
    this.#headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    this.#timeoutMs = positive("timeoutMs", timeoutMs);
    this.#retries = natural("retries", retries);
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#rewards = new RewardQueue((batch) => this.rewardBatch(batch), {
      largest: positive("rewards.largest", rewards.largest ?? 500),
      waitMs: natural("rewards.waitMs", rewards.waitMs ?? 50),
    });
  }

  /** The visitor's arm, and the id that its reward needs.
   *
   * With `fallback`, a service that does not answer in time, or refuses the call for whatever reason,
   * gives that arm and no id. So a page is never later than the time-out, and never fails.
   */
  async decide(experiment, visitor, { segment = null, context, observed, fallback } = {}) {
    const path = decisions(experiment, observed);
    try {
      const { decision, arm } = await this.#post(path, { visitor, segment, context });
      return { decision, arm };
    } catch (error) {
      if (fallback === undefined || !(error instanceof ServiceError)) throw error;
      return { decision: null, arm: fallback };
    }
  }

  /** Decisions for `{visitor, segment, context}` objects, in order. */
  async decideBatch(experiment, visitors, { observed } = {}) {
    const path = `${decisions(experiment, observed)}/batch`;
    const wanted = visitors.map(({ visitor, segment = null, context }) => ({ visitor, segment, context }));
    return (await this.#post(path, { visitors: wanted })).decisions;
  }

  /** Count the response to a decision; only the first one of each metric counts.
   *
   * Rewards are sent in batches: the promise is kept when the batch that holds this one is stored.
   * A decision without an id (a fallback) has no reward.
   */
  async reward(decision, value = 1, { metric } = {}) {
    if (decision === null) return;
    await this.#rewards.add(metric === undefined ? { decision, value } : { decision, value, metric });
  }

  /** Count `{decision, value, metric}` objects now, in one transaction. */
  async rewardBatch(rewards) {
    await this.#post("/v1/rewards/batch", { rewards });
  }

  /** The visitor's label for life, such as "~sports". The first known segment counts. */
  async label(mask, visitor, segment = null) {
    const path = `/v1/masks/${encodeURIComponent(mask)}/labels`;
    return (await this.#post(path, { visitor, segment })).label;
  }

  /** Labels for `{visitor, segment}` objects, in order. */
  async labelBatch(mask, visitors) {
    const path = `/v1/masks/${encodeURIComponent(mask)}/labels/batch`;
    const wanted = visitors.map(({ visitor, segment = null }) => ({ visitor, segment }));
    return (await this.#post(path, { visitors: wanted })).labels;
  }

  /** Experiment -> the decision that the visitor has there; never draws one. */
  async stored(visitor, { context } = {}) {
    const found = await this.#post("/ofrep/v1/evaluate/flags", {
      context: { targetingKey: visitor, context },
    });
    return Object.fromEntries(
      found.flags.map((flag) => [flag.key, { decision: flag.metadata.decision, arm: flag.variant }]),
    );
  }

  /** Send the rewards that wait; call it before the process ends. */
  async flush() {
    await this.#rewards.flush();
  }

  async #post(path, body) {
    const text = JSON.stringify(body);
    const deadline = AbortSignal.timeout(this.#timeoutMs);
    for (let attempt = 0; ; attempt += 1) {
      const last = attempt === this.#retries;
      let answer = null;
      try {
        answer = await this.#fetch(this.#url + path, {
          method: "POST",
          headers: this.#headers,
          body: text,
          signal: deadline,
          redirect: "error", // a redirect would carry the key elsewhere
        });
        if (answer.ok) return answer.status === 204 ? null : await answer.json();
      } catch (error) {
        if (deadline.aborted) throw new ServiceError(null, "timeout", "no answer in time");
        if (last) throw new ServiceError(null, "unreachable", `no answer: ${error.name}`);
      }
      if (answer !== null && (last || !TRY_AGAIN.has(answer.status))) throw await refusal(answer);
      await pause(pauseMs(attempt, answer), deadline);
    }
  }
}

/** The path of an experiment's decisions. Unobserved visits have one of their own. */
function decisions(experiment, observed = true) {
  const kind = observed ? "experiments" : "unobserved";
  return `/v1/${kind}/${encodeURIComponent(experiment)}/decisions`;
}

/** Milliseconds until the next attempt: what the service asks for, else 50, 100, 200, ... */
function pauseMs(attempt, answer) {
  const asked = Number.parseInt(answer?.headers.get("retry-after") ?? "", 10);
  return Math.min(Number.isNaN(asked) ? 50 * 2 ** attempt : 1000 * asked, LONGEST_PAUSE_MS);
}

function pause(ms, deadline) {
  return new Promise((resolve, reject) => {
    const give_up = () => {
      clearTimeout(timer);
      reject(new ServiceError(null, "timeout", "no answer in time"));
    };
    if (deadline.aborted) return give_up();
    const timer = setTimeout(() => {
      deadline.removeEventListener("abort", give_up);
      resolve();
    }, ms);
    deadline.addEventListener("abort", give_up, { once: true });
  });
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  const code = String(problem.type ?? problem.errorCode ?? "unknown").split(":").pop();
  const detail = problem.detail ?? problem.errorDetails ?? answer.statusText;
  return new ServiceError(answer.status, code, String(detail));
}

function positive(name, value) {
  if (!(Number.isFinite(value) && value > 0)) throw new RangeError(`${name}: expected a positive number`);
  return value;
}

function natural(name, value) {
  if (!(Number.isInteger(value) && value >= 0)) throw new RangeError(`${name}: expected 0, 1, 2, ...`);
  return value;
}
