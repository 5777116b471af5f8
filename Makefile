# `make help` lists the targets. PYTHON=python3 uses that Python, without a .venv or a package registry.
WORKLOAD ?= mlp
ARGS ?=
OPTIONS ?=
VENV := .venv

# Text for a program, which neither make nor a shell may interpret: it is passed unchanged, and split by Python.
override WORKLOAD := $(value WORKLOAD)
override ARGS := $(value ARGS)
override OPTIONS := $(value OPTIONS)
define PROFILE
import os, shlex, sys
sys.path.insert(0, os.path.abspath("pipeline"))
from nightsight.cli import main
def words(name):
    try:
        return shlex.split(os.environ[name])
    except ValueError as error:
        sys.exit(f"{name}={os.environ[name]}: {error}")
workload = os.environ["WORKLOAD"]
if workload.startswith("-"):
    sys.exit(f"WORKLOAD={workload} is an option, not a workload or script: give options in OPTIONS")
main(["profile", "--python", sys.executable, *words("OPTIONS"), workload, "--", *words("ARGS")], prog_name="nightsight")
endef
export WORKLOAD ARGS OPTIONS PROFILE

ifdef PYTHON
RUN := $(PYTHON)
NIGHTSIGHT := $(PYTHON) $(CURDIR)/pipeline
else
RUN := $(VENV)/bin/python
NIGHTSIGHT := $(VENV)/bin/nightsight
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
endif
# the tests start Python hundreds of times: without compiled files, each start takes a second more
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(RUN) -m pytest --dist worksteal
# the number of examples per property, and the seconds for a case of a test and for all of its cases (tests/tiers.py)
QUICK := NIGHTSIGHT_EXAMPLES=10 NIGHTSIGHT_ONE_CASE_S=0.1 NIGHTSIGHT_ALL_CASES_S=0.1
SHORT := NIGHTSIGHT_EXAMPLES=10 NIGHTSIGHT_ALL_CASES_S=1
PAGE := templates/node_modules
NPM := npm --prefix templates

.DEFAULT_GOAL := help
.PHONY: help profile check test nightly costs test-scripts lint site docs lock pictures bench simulate planted proofs doctor clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

profile: $(READY) ## profile WORKLOAD (default mlp); OPTIONS for nightsight, ARGS for the workload
	@$(RUN) -c "$$PROFILE"

check: lint ## lint and the quick tests; run before every commit
	$(QUICK) $(PYTEST) -n 2 -q -m "not nightly" --ignore=tests/browser --ignore=tests/gpu

test: $(READY_DEV) ## all tests except those of `make nightly`
	$(SHORT) $(PYTEST) -n 3 -m "not nightly"

nightly: $(READY_DEV) ## all tests with all examples, captures and looks
	$(PYTEST) -n 3

costs: $(READY_DEV) ## measure the time of each test on an idle machine; `make check` runs the quick ones
	NIGHTSIGHT_EXAMPLES=10 NIGHTSIGHT_COSTS=write $(PYTEST) -n 2 -q -m "not (gpu or nightly)"

test-scripts: ## the tests of the page's scripts in Node, without a browser
	node --test tests/scripts/*.test.mjs

lint: $(READY_DEV) $(PAGE)/.ready ## check style, types and import contracts, also of the page's scripts
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	$(RUN) -m tests.english
	$(NPM) run --silent lint
	$(NPM) run --silent types

site: $(READY_DEV) ## build the site of docs/ into build/site, and check all of its links
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

docs: $(READY_DEV) ## write the generated parts of docs/
	NIGHTSIGHT_DOCS=write $(RUN) -m pytest -q tests/test_docs.py tests/test_planted.py tests/test_worked.py tests/test_ci_parts.py \
		tests/test_render_brief.py -k current

lock: ## pin the packages that CI installs, with hashes; needs uv
	echo hatchling | uv pip compile pyproject.toml - --extra trend --universal --python-version 3.11 --upgrade \
		--only-binary :all: --generate-hashes --no-annotate --custom-compile-command "make lock" \
		-c constraints.txt --quiet -o templates/ci/requirements.txt

pictures: $(READY_DEV) ## render the sample report, the pictures in docs/ and the style page (reports/style) with Chromium
	$(RUN) -m tests.pictures

bench: $(READY_DEV) ## measure the figures of docs/benchmarks.md, and mark those above the limit; AGAINST=COMMIT: in turns with a commit
	$(RUN) -m tests.bench $(if $(AGAINST),--against $(AGAINST))

simulate: $(READY_DEV) ## measure how often comparisons are wrong under simulated noise (docs/statistics.md)
	$(RUN) -m tests.simulate

planted: $(READY) ## on a GPU host: time and capture programs with planted causes, and judge the advice
	tests/planted/run.sh "$(RUN)"

proofs: $(READY) ## on a GPU host: prove what is promised for real programs, and show that no trap is called proven
	mkdir -p real/traps
	PYTHONPATH=$(CURDIR):$(CURDIR)/pipeline $(RUN) -m tests.traps real/traps
	tests/real/run.sh prove --at-once 1

doctor: $(READY) ## check what profiling needs on this machine
	@$(NIGHTSIGHT) doctor --python "$(RUN)"

clean: ## remove .venv and caches, but no reports
	rm -rf $(VENV) $(PAGE) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage

$(VENV)/bin/python:
	python3 -m venv $(VENV)

# output of pip goes to standard error: standard output of `make profile` is the path of the report
PIP_INSTALL := $(VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing nightsight and torch into $(VENV), once: about 2 GB (with CUDA more), 1 to 5 minutes." >&2
	@echo "To use a Python that has torch, and install nothing: make $(MAKECMDGOALS) PYTHON=python3" >&2
	@$(PIP_INSTALL) -e '.[workloads]' >&2
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "Installing development tools into $(VENV), once: about 0.4 GB, 1 to 3 minutes." >&2
	@$(PIP_INSTALL) -e '.[workloads,dev]' >&2
	@touch $@

$(PAGE)/.ready: templates/package.json templates/package-lock.json
	@command -v npm >/dev/null || { echo "The page's scripts are checked by Node 20 and npm: install these" >&2; exit 1; }
	$(NPM) ci --silent
	@touch $@
