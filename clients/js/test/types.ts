// Checked by `npm run types`, never run.
import { OpenFeature, type Provider } from "@openfeature/server-sdk";
import { DeniableClient, DeniableProvider, ServiceError, type Decision } from "../index.js";

const client = new DeniableClient({ url: "http://localhost:8000", apiKey: "k", rewards: { waitMs: 10 } });
const sure: Promise<Decision> = client.decide("e", "v", { segment: "s" });
const perhaps: Promise<{ decision: string | null; arm: string }> = client.decide("e", "v", { fallback: "a" });
// @ts-expect-error: with a fallback there may be no id
const wrong: Promise<Decision> = client.decide("e", "v", { fallback: "a" });
const provider: Provider = new DeniableProvider(client, { events: { purchase: ["e"] } });
const status: number | null = new ServiceError(null, "timeout", "no answer").status;
OpenFeature.setProvider(provider);
void [sure, perhaps, wrong, status];
