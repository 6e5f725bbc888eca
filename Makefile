# Every target sets up what it needs; nothing has to be installed by hand.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OLD_PIP = $(OLD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLD_VENV)/constraints.txt
# Two cores: one pool of polars, torch and tokenizers beside pytest's own workers.
JOBS ?= 2
# The newest TRL with every trainer that was removed since; BCO, Nash-MD and XPO are in 1.13.0 too.
OLD_TRL ?= 1.12.0
OLD_VENV ?= .venv-trl-$(OLD_TRL)
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1

.PHONY: demo demo-data demo-train test test-slow test-all test-old-trl lint types format bench docs clean help

help:
	@echo "make demo      convert the shipped samples and show what came of them, then train a tiny model"
	@echo "make test      the tests, in about five minutes"
	@echo "make test-all  the slow ones too: real trainers, browsers, big inputs"
	@echo "make test-old-trl  methods that TRL removed, in an environment with TRL $(OLD_TRL)"
	@echo "make lint      ruff and mypy"
	@echo "make format    ruff format and its safe fixes"
	@echo "make docs      generate what is generated in docs/ and schemas/"
	@echo "make bench     the side-by-side benchmarks"

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/train: $(VENV)/base
	@echo "Installing torch and TRL into $(VENV), for the training part; this is the long download."
	$(PIP) torch
	$(PIP) -e '.[train]'
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/base $(VENV)/train

$(VENV)/bench: $(VENV)/dev
	$(PIP) -e '.[bench]'
	touch $@

# The data part needs a few small packages and comes first; the training part needs torch.
demo:
	@$(MAKE) --no-print-directory demo-data
	@$(MAKE) --no-print-directory demo-train

demo-data: $(VENV)/base
	@PATH="$(abspath $(BIN)):$$PATH" sh docs/examples/demo.sh

demo-train: $(VENV)/train
	@PATH="$(abspath $(BIN)):$$PATH" sh docs/examples/train.sh

test: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow" -rs

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow -rs

test-all: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -rs

# An environment of its own: the versions of constraints.txt, but for TRL.
$(OLD_VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OLD_VENV)
	grep -v '^trl==' constraints.txt > $(OLD_VENV)/constraints.txt
	echo 'trl==$(OLD_TRL)' >> $(OLD_VENV)/constraints.txt
	$(OLD_PIP) torch
	$(OLD_PIP) -e '.[dev]'
	touch $@

test-old-trl: $(OLD_VENV)/dev
	$(OLD_VENV)/bin/python -m pytest tests/test_training_legacy.py -n $(JOBS) -rs

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/dev
	$(BIN)/python docs/generate.py

bench: $(VENV)/bench
	$(BIN)/python benchmarks/convert.py

clean:
	rm -rf $(VENV) $(OLD_VENV) demo build .mypy_cache .ruff_cache .pytest_cache .hypothesis
