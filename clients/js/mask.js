// Private labels: the same keyed hash as `deniable.Mask` in Python and `deniable mask sql`.
//
// Runs on servers and in edge workers, never in a browser: whoever has the key and an id can exclude
// segments. `Mask` uses Node's crypto and answers at once; `WebMask` uses WebCrypto and answers with a
// promise.

const FIELD = "\x1f";
const VALUE = "\x1e";
const GROUP = "\x1d";
const VISITOR = /^[!-~]{1,256}$/;
const KEY = /^[0-9a-f]{64}$/i;

class Channel {
  /**
   * @param {object} definition the parsed file that `deniable mask create` wrote
   * @param {string} key 64 hex digits
   */
  constructor(definition, key) {
    if (typeof window !== "undefined" && typeof document !== "undefined") {
      throw new Error("a mask's key belongs on a server, never in a browser");
    }
    if (typeof key !== "string" || !KEY.test(key.trim())) {
      throw new TypeError("key: expected 64 hex digits");
    }
    this.key = Uint8Array.from(key.trim().match(/../g), (pair) => parseInt(pair, 16));
    this.definition = definition;
    const groups = Object.entries(definition.groups);
    this.names = groups.map(([name]) => `~${name}`);
    this.numbers = new Map(
      groups.flatMap(([, members], number) => members.map((segment) => [segment, number])),
    );
    const own = BigInt(`0x${definition.own}`);
    const other = BigInt(`0x${definition.other}`);
    const null_ = nullRow(BigInt(groups.length));
    const rows = groups.map((_, row) => groups.map((_, label) => (label === row ? own : other)));
    this.thresholds = [...rows, null_].map(cumulative);
  }

  /** What the channel's hash is taken of. */
  hashedText() {
    const groups = Object.values(this.definition.groups).map((members) => members.join(VALUE));
    return [...groups, this.definition.own, this.definition.other].join(GROUP);
  }

  /** The text to hash for a visitor, and the number of its group. */
  message(visitor, segment) {
    // The id is checked first: a refusal of it must not depend on the segment.
    if (typeof visitor !== "string" || !VISITOR.test(visitor)) {
      throw new TypeError("visitor: expected 1 to 256 printable ASCII characters without spaces");
    }
    const unknown = segment === null || segment === undefined;
    const number = unknown ? this.names.length : this.numbers.get(String(segment).normalize("NFC"));
    if (number === undefined) {
      throw new TypeError(`segment: expected one of the segments of mask ${this.definition.mask}`);
    }
    const { mask, version, channel, period } = this.definition;
    const group = unknown ? "-" : String(number);
    const fields = ["deniable-mask-1", mask, version, channel, period, visitor, group];
    return { text: fields.join(FIELD), number };
  }

  /** The label for the first 16 hex digits of the hash. */
  label(digits, number) {
    const place = this.thresholds[number].findIndex((threshold) => digits < threshold);
    return this.names[place < 0 ? this.names.length - 1 : place];
  }
}

/** Labels by Node's crypto: `import crypto from "node:crypto"; new Mask(definition, key, crypto)`. */
export class Mask {
  #channel;
  #crypto;

  /** @param {{createHmac: Function, createHash: Function}} crypto `import crypto from "node:crypto"` */
  constructor(definition, key, crypto) {
    this.#crypto = crypto;
    this.#channel = new Channel(definition, key);
    const hash = crypto.createHash("sha256").update(this.#channel.hashedText()).digest("hex");
    checkChannel(definition, hash);
  }

  /** The visitor's label, such as "~sports"; `segment` is null if it is not known yet. */
  label(visitor, segment) {
    const { text, number } = this.#channel.message(visitor, segment);
    const digest = this.#crypto.createHmac("sha256", this.#channel.key).update(text).digest("hex");
    return this.#channel.label(digest.slice(0, 16), number);
  }
}

/** Labels by WebCrypto, for edge workers: `await WebMask.create(definition, key)`. */
export class WebMask {
  #channel;
  #key;

  constructor(channel, key) {
    this.#channel = channel;
    this.#key = key;
  }

  static async create(definition, key) {
    const channel = new Channel(definition, key);
    const text = new TextEncoder().encode(channel.hashedText());
    checkChannel(definition, hex(await crypto.subtle.digest("SHA-256", text)));
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const imported = await crypto.subtle.importKey("raw", channel.key, algorithm, false, ["sign"]);
    return new WebMask(channel, imported);
  }

  /** A promise of the visitor's label; see `Mask.label`. */
  async label(visitor, segment) {
    const { text, number } = this.#channel.message(visitor, segment);
    const digest = await crypto.subtle.sign("HMAC", this.#key, new TextEncoder().encode(text));
    return this.#channel.label(hex(digest).slice(0, 16), number);
  }
}

function checkChannel(definition, hash) {
  if (hash.slice(0, 16) !== definition.channel) {
    throw new Error("the mask's segments, groups or budget were changed without a new version");
  }
}

function nullRow(size) {
  const space = 1n << 64n;
  const rest = space % size;
  return Array.from({ length: Number(size) }, (_, n) => space / size + (BigInt(n) < rest ? 1n : 0n));
}

/** Upper ends as 16 hex digits, all but the last: compared as text, byte by byte. */
function cumulative(row) {
  let sum = 0n;
  return row.slice(0, -1).map((entry) => (sum += entry).toString(16).padStart(16, "0"));
}

function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
