// The package's public names.
export { DeniableClient, ServiceError } from "./client.js";
export { DeniableProvider } from "./provider.js";
export { Mask, WebMask } from "./mask.js";
