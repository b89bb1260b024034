# Everything runs from one virtual environment, .venv, at the versions in constraints.txt, but for the peers of
# the benchmark, Flower, Ray, and MLflow and wandb, which have their own.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help venv hooks demo test nightly campaign reliability thorough flower sinks cluster lint format docs bench peers clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(READY) ## install Potluck and its tools into .venv

# The constraints file must apply: without it pip may choose another, far larger build of torch.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

hooks: $(READY) ## let git ask ruff and mypy before every commit
	$(BIN)/pre-commit install

demo: $(READY) ## compare the algorithms of examples/demo.toml, offline, into runs/demo
	$(BIN)/potluck compare examples/demo.toml --out runs/demo --force

test: export OMP_NUM_THREADS = 1
test: lint ## lint, types, tests in parallel, coverage
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term -m "not slow and not nightly"
	$(BIN)/python -m pytest -n 2 -m "slow and not nightly"

# What takes too long for every change; a new check is a target of its own, and named here.
nightly: campaign thorough flower sinks cluster ## the longer checks, an hour

thorough: export OMP_NUM_THREADS = 1
campaign: $(READY) ## everything bad by the thousand: kills, damage, loss, lies; goes on where it was
	$(BIN)/python tests/campaign

reliability: $(READY) ## put the last campaign's table into docs/reliability.md
	$(BIN)/python tests/campaign --write docs/reliability.md

thorough: $(READY) ## tests that take too long for every change; floors of baselines and the conditions of those below
	$(BIN)/python -m pytest -n 2 -m nightly

flower: export OMP_NUM_THREADS = 1
flower: .venv-flower/.ready ## runs on a SuperLink and three SuperNodes, beside the simulator; ten minutes
	.venv-flower/bin/python tests/flower_check.py

.venv-flower/.ready: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -c constraints-flower.txt -e ".[deploy,flower]"
	@touch $@

sinks: export OMP_NUM_THREADS = 1
sinks: .venv-sinks/.ready ## runs that MLflow and wandb follow, offline, read back; a minute
	.venv-sinks/bin/python tests/sinks_check.py

.venv-sinks/.ready: pyproject.toml constraints-sinks.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -c constraints-sinks.txt -e ".[mlflow,wandb]"
	@touch $@

cluster: export OMP_NUM_THREADS = 1
cluster: .venv-cluster/.ready ## runs on the machines of a Ray cluster, which are killed at times; five minutes
	.venv-cluster/bin/python -m pytest -m ray tests/cluster

.venv-cluster/.ready: pyproject.toml constraints-cluster.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -c constraints-cluster.txt -e ".[ray,deploy]" pytest
	@touch $@

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY) ## build the pages of docs/ into site/, offline; every link is checked
	$(BIN)/mkdocs build --strict

bench: $(READY) peers ## measure speed and memory, beside other simulators
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[fast]"  # the compiled planner, too
	$(BIN)/python -m bench

peers: .venv-peers/.ready .venv-peers-jax/.ready ## install those other simulators

# One that can't be had is missing in the benchmark's table, no more.
.venv-peers/.ready: bench/peers/constraints.txt
	-$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install -r $< && \
	$(@D)/bin/python -m pip install --no-deps fedlab==1.3.0 && touch $@

.venv-peers-jax/.ready: bench/peers/constraints-jax.txt
	-$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install -r $< && touch $@

clean: ## remove caches and builds; keeps .venv, runs and data
	rm -rf build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis htmlcov
	rm -f .coverage .coverage.*
	find bench docs examples potluck tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
