// Drives a running service for 300 visitors in one of four ways; prints shows by arm as JSON.
// node drive.js WAY EXPERIMENT, with SERVICE_URL, SERVICE_KEY and TIMEOUT_MS in the environment.
import { DeniableClient, DeniableProvider } from "../index.js";

const [way, experiment] = process.argv.slice(2);
const { SERVICE_URL: url, SERVICE_KEY: apiKey } = process.env;
const client = new DeniableClient({ url, apiKey, timeoutMs: Number(process.env.TIMEOUT_MS) });
const RATES = { old: 0.05, new: 0.6 };

let state = 7; // the same clicks every time
function chance() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}
const clicks = (arm) => Number(chance() < RATES[arm]);

async function withClient(number) {
  const visitor = `v-${number}`;
  const first = await client.decide(experiment, visitor, { segment: "a" });
  const again = await client.decide(experiment, visitor, { segment: "b" });
  if (again.decision !== first.decision || again.arm !== first.arm) throw new Error("not kept");
  const sent = client.reward(first.decision, clicks(first.arm));
  await client.flush();
  await sent;
  return first.arm;
}

async function withBatches(number) {
  const visitors = [{ visitor: `v-${number}`, segment: "a" }];
  const [found] = await client.decideBatch(experiment, visitors);
  await client.rewardBatch([{ decision: found.decision, value: clicks(found.arm) }]);
  return found.arm;
}

/** A function that evaluates with a client of OpenFeature's SDK. */
async function throughSdk(provider, rewarded) {
  const { OpenFeature } = await import("@openfeature/server-sdk");
  await OpenFeature.setProviderAndWait(provider);
  const flags = OpenFeature.getClient();
  return async (number) => {
    const context = { targetingKey: `v-${number}`, segment: "a" };
    const details = await flags.getStringDetails(experiment, "default", context);
    if (details.reason !== "SPLIT") throw new Error(JSON.stringify(details));
    await rewarded(flags, context, details);
    return details.value;
  };
}

async function withSdk() {
  const provider = new DeniableProvider(client, { events: { purchase: [experiment] }, onError });
  return throughSdk(provider, async (flags, context, { value }) => {
    flags.track("purchase", context, { value: clicks(value) });
    await client.flush();
  });
}

async function withStockProvider() {
  const { OFREPProvider } = await import("@openfeature/ofrep-provider");
  const provider = new OFREPProvider({ baseUrl: url, headers: [["Authorization", `Bearer ${apiKey}`]] });
  return throughSdk(provider, async (_flags, _context, details) => {
    const { decision } = details.flagMetadata;
    await client.rewardBatch([{ decision, value: clicks(details.value) }]);
  });
}

function onError(error) {
  console.error(error);
  process.exitCode = 1;
}

const ways = {
  client: async () => withClient,
  batches: async () => withBatches,
  sdk: withSdk,
  "stock-provider": withStockProvider,
};
const shown = await ways[way]();
const shows = { old: 0, new: 0 };
for (let number = 0; number < 300; number += 1) shows[await shown(number)] += 1;
await client.flush();
console.log(JSON.stringify(shows));
