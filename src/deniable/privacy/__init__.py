"""The privacy layer: mechanisms, beliefs, strategies, composition and the exact sampler."""
