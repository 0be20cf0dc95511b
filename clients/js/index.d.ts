import type { EvaluationContext, JsonValue, Provider, ResolutionDetails } from "@openfeature/server-sdk";

export interface Decision {
  /** What the reward needs. */
  decision: string;
  arm: string;
}

export interface Reward {
  decision: string;
  /** 0 to the metric's cap; 0 or 1 where no cap was declared. */
  value: number;
  /** The metric that decides if not given. */
  metric?: string;
}

export interface ClientOptions {
  /** Of the service, without a path. */
  url: string;
  /** With the scopes `decide` and `reward`, or one of them. */
  apiKey: string;
  /** For a call with all its attempts; 1000 if not given. */
  timeoutMs?: number;
  /** Further attempts where the service cannot be reached or answers 503; 3 if not given. */
  retries?: number;
  /** How rewards are sent together: up to `largest` (500) after at most `waitMs` (50). */
  rewards?: { largest?: number; waitMs?: number };
  /** For tests. */
  fetch?: typeof globalThis.fetch;
}

/** The service refused a call (`status`), or could not be reached in time (null). */
export class ServiceError extends Error {
  readonly status: number | null;
  readonly code: string;
  constructor(status: number | null, code: string, detail: string);
}

export interface VisitOptions {
  segment?: string | null;
  /** What trackers know anyway, such as the device, if the experiment is on contexts. */
  context?: string | null;
  /** False for a visit that no third party observes; the key needs the scope `unobserved`. */
  observed?: boolean;
}

/** A client of one service, for servers. It may be shared by all requests of a process. */
export class DeniableClient {
  constructor(options: ClientOptions);
  /** The visitor's arm, and the id that its reward needs. */
  decide(experiment: string, visitor: string, options?: VisitOptions): Promise<Decision>;
  /** The same; the fallback arm, without an id, where the service does not answer in time or refuses. */
  decide(
    experiment: string,
    visitor: string,
    options: VisitOptions & { fallback: string },
  ): Promise<Decision | { decision: null; arm: string }>;
  /** Decisions in the order of the visitors. */
  decideBatch(
    experiment: string,
    visitors: readonly { visitor: string; segment?: string | null; context?: string | null }[],
    options?: { observed?: boolean },
  ): Promise<Decision[]>;
  /** Count a response (1 if no value is given). Kept when it is stored; sent together with others. */
  reward(decision: string | null, value?: number, options?: { metric?: string }): Promise<void>;
  /** Count many now, in one transaction. */
  rewardBatch(rewards: readonly Reward[]): Promise<void>;
  /** The visitor's label for life, such as "~sports". The first known segment counts. */
  label(mask: string, visitor: string, segment?: string | null): Promise<string>;
  /** Labels in the order of the visitors. */
  labelBatch(
    mask: string,
    visitors: readonly { visitor: string; segment?: string | null }[],
  ): Promise<string[]>;
  /** Experiment -> the decision that the visitor has there; never draws one. */
  stored(visitor: string, options?: { context?: string | null }): Promise<Record<string, Decision>>;
  /** Send the rewards that wait; call it before the process ends. */
  flush(): Promise<void>;
}

export interface ProviderOptions {
  /** Event -> the experiments whose reward it is; else the experiment of the event's name. */
  events?: Record<string, readonly string[]>;
  /** The context's attribute that holds the segment; `segment` if not given. */
  segmentAttribute?: string;
  /** Told why a reward was not sent. */
  onError?: (error: Error) => void;
}

/** Evaluates string flags for the server SDK of OpenFeature. */
export class DeniableProvider implements Provider {
  readonly metadata: { readonly name: "deniable" };
  readonly runsOn: "server";
  constructor(client: DeniableClient, options?: ProviderOptions);
  resolveStringEvaluation(
    flag: string,
    defaultValue: string,
    context: EvaluationContext,
  ): Promise<ResolutionDetails<string>>;
  resolveBooleanEvaluation(): Promise<ResolutionDetails<boolean>>;
  resolveNumberEvaluation(): Promise<ResolutionDetails<number>>;
  resolveObjectEvaluation<T extends JsonValue>(): Promise<ResolutionDetails<T>>;
  track(event: string, context?: EvaluationContext, details?: Record<string, unknown>): void;
  onClose(): Promise<void>;
}

/** The parsed file that `deniable mask create` wrote. */
export interface MaskDefinition {
  mask: string;
  version: number;
  period: string;
  groups: Record<string, readonly string[]>;
  own: string;
  other: string;
  channel: string;
}

/** Private labels by Node's crypto, for servers. */
export class Mask {
  constructor(definition: MaskDefinition, key: string, crypto: typeof import("node:crypto"));
  /** Such as "~sports"; the segment is null if it is not known yet. */
  label(visitor: string, segment: string | null): string;
}

/** The same by WebCrypto, for edge workers. */
export class WebMask {
  static create(definition: MaskDefinition, key: string): Promise<WebMask>;
  label(visitor: string, segment: string | null): Promise<string>;
}
