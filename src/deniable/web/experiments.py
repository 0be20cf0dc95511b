"""All experiments, new drafts, and one experiment while it runs."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
