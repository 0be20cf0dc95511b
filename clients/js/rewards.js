// Rewards wait a moment and are sent together: one request and one transaction for many.

export class RewardQueue {
  #send;
  #largest;
  #waitMs;
  #waiting = [];
  #timer = null;
  #sending = new Set();

  constructor(send, { largest, waitMs }) {
    this.#send = send;
    this.#largest = largest;
    this.#waitMs = waitMs;
  }

  /** Kept when the batch with this reward is stored, broken when it was refused. */
  add(reward) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ reward, resolve, reject });
      if (this.#waiting.length >= this.#largest) this.#start();
      else this.#timer ??= setTimeout(() => this.#start(), this.#waitMs);
    });
  }

  /** Send what waits, and wait for all that is under way, whatever becomes of it. */
  async flush() {
    this.#start();
    await Promise.all(this.#sending);
  }

  #start() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const batch = this.#waiting;
    this.#waiting = [];
    if (batch.length === 0) return;
    const sent = this.#sent(batch).finally(() => this.#sending.delete(sent));
    this.#sending.add(sent);
  }

  async #sent(batch) {
    try {
      await this.#send(batch.map((item) => item.reward));
      for (const item of batch) item.resolve();
    } catch (error) {
      // One bad reward refuses its whole batch. Alone, each is stored or told its own error.
      const refused = (error.status ?? 500) < 500 && batch.length > 1;
      if (refused) for (const item of batch) await this.#sent([item]);
      else for (const item of batch) item.reject(error);
    }
  }
}
