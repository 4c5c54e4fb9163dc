# Everything a contributor does. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first interpreter that runs and is of a version that fits.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS ?= dev,tensorboard,atari,box2d,oracle,plots,solver

# One thread per process: the tests are run side by side, and torch would take every core for each.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
TEST_WORKERS ?= 2

.PHONY: help setup train test test-slow check format docs bench clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## virtual environment in .venv with all that development needs (PYTHON=python3.12 chooses)

$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; $${python:-false} -c '$(FITS)' 2>/dev/null || { echo "$${python:-python3} is not Python" \
		"3.11, 3.12 or 3.13; install one of them and say which: make setup PYTHON=python3.12" >&2; exit 1; }
	[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

train: setup  ## train tic-tac-toe
	$(BIN)/muzero-train experiment=tictactoe

test: setup  ## the quick tests
	$(TEST_ENV) $(BIN)/python -m pytest -q -n $(TEST_WORKERS) -m "not slow"

test-slow: setup  ## the slow tests: learning runs, packaging; and the property tests with fresh examples
	$(TEST_ENV) $(BIN)/python -m pytest -q -m slow
	$(TEST_ENV) HYPOTHESIS_PROFILE=fresh $(BIN)/python -m pytest -q -n $(TEST_WORKERS) -m "hypothesis and not slow"

check: setup  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## write docs/configuration.md anew
	$(BIN)/python scripts/make_config_docs.py

bench: setup  ## print the benchmarks' figures
	@shopt -s nullglob; for script in scripts/bench_*.py; do echo "== $$script"; $(TEST_ENV) $(BIN)/python "$$script"; done

clean:  ## remove the virtual environment, caches and build results (runs/ stays)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
