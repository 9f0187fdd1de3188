# Everything from a bare machine with Python 3.11 and make: `make demo`, `make test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH  := $(shell grep '^torch==' constraints.txt)
CORE   := $(VENV)/.installed-core
ALL    := $(VENV)/.installed-all

.DEFAULT_GOAL := help
SECONDS ?= 60
PYTHONS ?= $(PYTHON)
.PHONY: help demo reproduce test quick slow attack lint format docs dist clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(CORE)  ## bound a small network with every method
	@$(BIN)/lipcert demo
	@echo; echo "The command lives in $(BIN): source $(BIN)/activate"

reproduce: $(ALL)  ## a quick part of the paper's experiments, and a report of it; about six minutes
	$(BIN)/lipcert reproduce all --quick --out results/quick
	@echo "The report: $(CURDIR)/results/quick/report.html"

test: $(ALL)  ## style, types and all tests but the slow ones
	@$(MAKE) --no-print-directory --jobs 2 lint quick

quick: $(ALL)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
	  $(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal

slow: $(ALL)  ## the tests that take minutes, and more combinations of cases
	$(BIN)/python -m pytest -m slow

attack: $(ALL)  ## search for wrong answers: make attack SECONDS=1800 SEED=7
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m attack --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

lint: $(ALL)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(ALL)  ## bring the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(ALL)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(CORE)  ## wheel and sdist into dist/, and the README's Python with the wheel alone: make dist PYTHONS="python3.11 python3.13"
	rm -rf dist
	$(BIN)/python -m hatchling build
	for python in $(PYTHONS); do "$$python" tests/wheel.py dist || exit 1; done

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is older; set PYTHON=/path/to/python"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# no build isolation: the builder is pinned by the constraints like everything else
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing lipcert into $(VENV) ..."
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable .
	@touch $@

# torch by its exact pin first, so that nothing resolves a newer one
$(ALL): $(CORE)
	@echo "Installing the extras and tools into $(VENV), some minutes ..."
	@$(PIP) $(TORCH)
	@$(PIP) --no-build-isolation --editable '.[all,dev,docs]'
	@touch $@
