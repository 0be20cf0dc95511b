# `make run` starts the product, `make test` proves it. Both set up everything they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test lint bench clean screenshots system audit-versions
.DEFAULT_GOAL := run

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(READY)
	$(BIN)/deniable serve --demo --store sqlite:///demo.db

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

system:
	@scripts/system-packages

test: system lint
	$(BIN)/python -m pytest -n auto --dist worksteal

audit-versions:
	@scripts/audit-versions

screenshots: $(READY)
	PYTHONPATH=. $(BIN)/python -m tests.web.screenshots

bench: $(READY) system
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
