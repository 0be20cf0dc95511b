"""The planted faults by layer, from the mathematics up to the pages."""

from __future__ import annotations

from importlib import import_module

from tests.mutants.fault import Fault

LAYERS = (
    "privacy",
    "inference",
    "theory",
    "policies",
    "strategies",
    "simulation",
    "portfolio",
    "storage",
    "analysis",
    "charts",
    "planning",
    "audit",
    "leak",
    "documents",
    "service",
    "http",
    "client",
    "web",
    "cli",
    "research",
)

FAULTS: dict[str, tuple[Fault, ...]] = {
    layer: import_module(f"tests.mutants.faults.{layer}").FAULTS for layer in LAYERS
}
