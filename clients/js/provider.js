// A server provider for OpenFeature: flags are experiments, variants are arms, `track` sends rewards.
//
// The SDK calls it by its shape, so nothing is imported from it.

const REMEMBERED = 100_000; // decisions whose ids are kept for `track`; older ones are asked for
const CODES = { 400: "INVALID_CONTEXT", 404: "FLAG_NOT_FOUND", 422: "INVALID_CONTEXT" };

export class DeniableProvider {
  metadata = { name: "deniable" };
  runsOn = "server";
  #client;
  #events;
  #segmentAttribute;
  #onError;
  #remembered = new Map();

  constructor(client, { events = {}, segmentAttribute = "segment", onError = () => {} } = {}) {
    this.#client = client;
    this.#events = new Map(Object.entries(events));
    this.#segmentAttribute = segmentAttribute;
    this.#onError = onError;
  }

  /** The visitor's arm. The reason is the same for everybody. */
  async resolveStringEvaluation(flag, _defaultValue, context) {
    const visitor = visitorOf(context);
    const segment = textOf(context, this.#segmentAttribute);
    const known = textOf(context, "context") ?? undefined;
    let found;
    try {
      found = await this.#client.decide(flag, visitor, { segment, context: known });
    } catch (error) {
      throw failure(CODES[error.status] ?? "GENERAL", error.message);
    }
    this.#remember(JSON.stringify([flag, visitor, known]), found.decision);
    return {
      value: found.arm,
      variant: found.arm,
      reason: "SPLIT",
      flagMetadata: { decision: found.decision },
    };
  }

  /** Send the event as the reward of its experiments: 1, or the details' value.
   *
   * The details' `metric`, where given, names the metric. A visitor without a decision is not
   * enrolled by an event. A failure is told to `onError`, never thrown.
   */
  track(event, context, details = {}) {
    this.#rewarded(event, context ?? {}, details).catch((error) => this.#onError(error));
  }

  async resolveBooleanEvaluation() {
    throw notText();
  }

  async resolveNumberEvaluation() {
    throw notText();
  }

  async resolveObjectEvaluation() {
    throw notText();
  }

  /** Send the rewards that wait. */
  async onClose() {
    await this.#client.flush();
  }

  async #rewarded(event, context, { value = 1, metric }) {
    const visitor = visitorOf(context);
    const experiments = this.#events.get(event) ?? [event];
    const current = textOf(context, "context") ?? undefined;
    const known = experiments.map((flag) =>
      this.#remembered.get(JSON.stringify([flag, visitor, current])),
    );
    if (known.includes(undefined)) {
      const stored = await this.#client.stored(visitor, { context: current });
      experiments.forEach((flag, at) => {
        known[at] ??= Object.hasOwn(stored, flag) ? stored[flag].decision : undefined;
      });
    }
    const found = known.filter((decision) => decision !== undefined);
    await Promise.all(found.map((decision) => this.#client.reward(decision, value, { metric })));
  }

  #remember(name, decision) {
    this.#remembered.delete(name); // so that the oldest is the first of the map
    this.#remembered.set(name, decision);
    if (this.#remembered.size > REMEMBERED) {
      this.#remembered.delete(this.#remembered.keys().next().value);
    }
  }
}

function visitorOf(context) {
  if (!context?.targetingKey) {
    throw failure("TARGETING_KEY_MISSING", "the targeting key is the visitor's id");
  }
  return context.targetingKey;
}

function textOf(context, attribute) {
  const found = context[attribute] ?? null;
  if (found === null || typeof found === "string") return found;
  throw failure("INVALID_CONTEXT", `${attribute}: expected text`);
}

function notText() {
  return failure("TYPE_MISMATCH", "an experiment's value is the key of an arm, which is text");
}

/** An error as the SDK reads it. */
function failure(code, message) {
  return Object.assign(new Error(message), { code });
}
