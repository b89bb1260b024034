# Everything runs from one virtual environment, .venv, at the versions in constraints.txt.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint format bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(READY) ## install Potluck and its tools into .venv

# The constraints file must apply: without it pip may choose another, far larger build of torch.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY) ## compare the algorithms of examples/demo.toml, offline, into runs/demo
	$(BIN)/potluck compare examples/demo.toml --out runs/demo --force

test: export OMP_NUM_THREADS = 1
test: lint ## lint, types, tests in parallel, coverage
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure speed and memory
	$(BIN)/python -m bench

clean: ## remove caches and builds; keeps .venv, runs and data
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis htmlcov
	rm -f .coverage .coverage.*
	find bench examples potluck tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
