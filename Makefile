# `make help` lists the targets. PYTHON=python3 uses that interpreter as it is: no .venv, no registry.
WORKLOAD ?= mlp
export WORKLOAD
ARGS ?=
OPTIONS ?=
VENV := .venv

ifdef PYTHON
RUN := $(PYTHON)
else
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
endif

.DEFAULT_GOAL := help
.PHONY: help profile test lint bench doctor clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

profile: $(READY) ## profile WORKLOAD (default mlp); OPTIONS for nightsight, ARGS for the workload
	@$(RUN) -m pipeline profile --python "$(RUN)" $(OPTIONS) "$$WORKLOAD" -- $(ARGS)

test: $(READY_DEV) ## run every test
	$(RUN) -m pytest -n 2 --dist worksteal

lint: $(READY_DEV) ## style, types and import contracts
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

bench: $(READY_DEV) ## measure what docs/benchmarks.md lists
	$(RUN) -m tests.bench

doctor: $(READY) ## check what profiling needs on this machine
	@$(RUN) -m pipeline doctor --python "$(RUN)"

clean: ## remove .venv and caches; reports stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage

$(VENV)/bin/python:
	python3 -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workloads]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workloads,dev]'
	@touch $@
