# These do everything on a fresh clone with Python 3.11 or newer: make demo, make serve, make test.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
BUILD_DOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet  # the theme advertises
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto  # idle threads leave their core to others
LOCKED := $(PIP) --require-hashes --no-deps --only-binary :all: --requirement

.PHONY: help demo serve test test-slow check check-javascript docs format bench reproduce clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 14

demo: $(VENV)/installed-demo  ## see what a digit reader knows, in under a minute
	$(BIN)/iknow demo

serve: $(VENV)/installed-serve  ## serve that digit reader, and show how to ask it
	$(BIN)/iknow serve --demo $(ARGS)

test: $(VENV)/installed-dev  ## run the tests
	$(PYTEST)

test-slow: $(VENV)/installed-dev  ## run the tests that take longer
	$(PYTEST) --dist worksteal -m slow

check: $(VENV)/installed-dev  ## lint, types (the pages' JavaScript too), layers, and documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@$(MAKE) --no-print-directory check-javascript
	$(BUILD_DOCS)

# The pages' JavaScript is checked by tsc, which needs node; nothing else here does.
check-javascript:
ifneq ($(and $(shell command -v node),$(shell command -v npm)),)
	@$(MAKE) --silent node_modules/installed
	node_modules/.bin/tsc
else
	@echo 'The pages'"'"' JavaScript was not checked: node and npm are not on the PATH.' >&2
	@test -z "$(CI)$(IKNOW_REQUIRE_NODE)" || { echo 'CI or IKNOW_REQUIRE_NODE is set.' >&2; exit 1; }
endif

node_modules/installed: package-lock.json package.json
	npm ci --silent
	@touch $@

docs: $(VENV)/installed-dev  ## build the documentation: open site/index.html
	$(BUILD_DOCS)

format: $(VENV)/installed-dev  ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed-dev  ## speed and memory beside bare products, scikit-learn and FAISS
	$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(VENV)/installed-dev  ## the paper's tables and figures, resumable, in about an hour
	$(BIN)/python -m reproduction all $(ARGS)

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache site node_modules

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "iknow needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	sed '/^# What its service/,$$d' constraints.txt > $(VENV)/core.txt
	$(LOCKED) $(VENV)/core.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/installed-serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	sed '/^# What its development needs/,$$d' constraints.txt > $(VENV)/serve.txt
	$(LOCKED) $(VENV)/serve.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/installed-demo

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	sed '/^# Without hashes/,$$d' constraints.txt > $(VENV)/locked.txt
	sed '1,/^# Without hashes/d' constraints.txt > $(VENV)/unlocked.txt
	$(LOCKED) $(VENV)/locked.txt
	$(PIP) --no-build-isolation --constraint $(VENV)/unlocked.txt --editable '.[dev]'
	@touch $@ $(VENV)/installed-demo $(VENV)/installed-serve
