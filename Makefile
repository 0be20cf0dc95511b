# `make run` starts the product, `make test` proves it. Both set up everything they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SERVER := $(VENV)/.server-ready
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Modules are compiled once, not by each of a hundred processes, whatever the user's setting.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test suite check lint quick-lint types docs bench clean screenshots system audit-versions mutants reproduce reproduce-full
.DEFAULT_GOAL := run

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(SERVER): $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e '.[server]'
	@touch $@

$(READY): $(BIN)/python pyproject.toml constraints.txt constraints-dev.txt
	$(PIP) -c constraints-dev.txt -e '.[dev]'
	@touch $@ $(SERVER)

run: $(SERVER)
	$(BIN)/deniable serve --demo --store sqlite:///demo.db

lint: quick-lint types

quick-lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

# For a developer's loop: the linters and the quick tests.
check: lint
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not slow and not browser and not postgres'

system:
	@scripts/system-packages

# mypy has one core while the tests wait. The tests build the documentation (tests/test_site.py).
test: system quick-lint
	@$(MAKE) --no-print-directory -j2 types suite

# Workers are processes already: threads of their own would only wait for each other.
suite: export OPENBLAS_NUM_THREADS := 1
# A test that fails beside others is run once more alone, where no other load can matter, and must pass there.
suite: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal || { test $$? -eq 1 && $(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none; }

# The site in build/site, without the network; a broken link is an error.
docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet

audit-versions:
	@scripts/audit-versions

screenshots: $(READY)
	PYTHONPATH=. $(BIN)/python -m tests.web.screenshots

bench: $(READY) system
	$(BIN)/python -m benchmarks

# Planted faults, one by one, in a copy: the tests of its layer must notice each. `make mutants ONLY=storage`
# takes one layer, or those whose file or words contain the text; a second run goes on where the first ended.
mutants: $(READY) system
	$(BIN)/python -m tests.mutants --only '$(ONLY)' --jobs $(or $(JOBS),1)

# The paper's figures, tables and claims, with a report in build/research: small numbers, then all of them.
reproduce: $(READY)
	$(BIN)/python -m research reproduce all --quick --out build/research/quick

reproduce-full: $(READY)
	$(BIN)/python -m research reproduce all --out build/research/full

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
