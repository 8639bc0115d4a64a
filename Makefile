# Everything that is done to this repository, by one word each: `make help` lists the words.
# Steps of the set-up leave a stamp in .setup/ and run again when what they are made of changes.

PYTHON ?= python3
UV     := 0.13.9

BIN    := .venv/bin
STAMPS := .setup
# The wheel is made of these.
SOURCE := Cargo.toml Cargo.lock python/Cargo.toml python/pyproject.toml \
          $(shell find crates python/src python/stoker -type f ! -name '*.pyc')

# One set of flags for all builds, so that they share what is compiled.
export PYO3_BUILD_EXTENSION_MODULE := 1
export UV_NATIVE_TLS := 1

# Workers of the benches import much: they need to find it compiled.
LADDER := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m bench.ladder
BENCH  := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m bench.speed

.DELETE_ON_ERROR:
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## list these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/wheel $(STAMPS)/models/done  ## install what is needed, build the wheel, put it into .venv

demo: setup  ## a Python loader against stoker, rung by rung, with plots (3 minutes)
	$(BIN)/stoker demo

ladder: setup  ## the same job loaded in nine ways, from plain Python to stoker on Ray (6 minutes)
	$(LADDER)

ladder-docs: setup  ## the same, and the figures go into docs/ladder.md
	$(LADDER) --docs docs/ladder.md

cluster: setup  ## where data workers belong: several hosts with limited cards and Ray, as root (7 minutes)
	$(BIN)/python -m bench.cluster

cluster-docs: setup  ## the same, and the figures go into docs/cluster.md
	$(BIN)/python -m bench.cluster --docs docs/cluster.md

profile: setup  ## where the time of an image goes; the figures go into docs/profile.md (2 minutes)
	$(BIN)/python -m bench.profile --docs docs/profile.md

profile-accept: setup  ## expect of each room what it takes now
	$(BIN)/python -m bench.profile --accept

bench: setup $(STAMPS)/rivals/done  ## stoker against every rival, on the same work in one run (30 minutes)
	$(BENCH)

bench-docs: setup $(STAMPS)/rivals/done  ## the same, depths and neighbour too, and the figures go into docs/benchmarks.md (an hour)
	$(BENCH) --docs docs/benchmarks.md
	$(BIN)/python -m bench.depths --docs docs/benchmarks.md
	$(BIN)/python -m bench.neighbour --docs docs/benchmarks.md

waiting-docs: setup  ## bottlenecks provoked, named and ended, and what metrics cost: into docs/guides/waiting.md (8 minutes)
	$(BIN)/python -m bench.waiting --docs docs/guides/waiting.md
	$(BIN)/python -m bench.overhead --docs docs/guides/waiting.md

docs: $(STAMPS)/docs/done  ## the documentation as a site, in target/docs; dead links are errors (10 seconds)
	rm -rf target/docs
	$(STAMPS)/docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -c docs/site -b html \
	    -d target/tmp/docs . target/docs
	@echo target/docs/index.html

reference: setup  ## write docs/reference/help.md and api.md anew, of the command's help and the docstrings
	$(BIN)/python scripts/reference.py

test: test-rust test-python  ## all tests

test-rust: setup
	@if cargo nextest --version >/dev/null 2>&1; then set -x; \
	    cargo nextest run --release --workspace --exclude stoker-python --no-fail-fast; else set -x; \
	    cargo test --release --workspace --exclude stoker-python --no-fail-fast; fi

# Tests that start clusters and whole programs wait more than they work, so they run beside the others.
PROGRAMS := $(wildcard $(addprefix python/tests/test_,$(addsuffix .py,bench cluster* demo evaluation \
            examples hand_over ladder process_life_ray ray ray_*)))
# Each of these provokes one limit, and looks whether that is named: on two cores, others beside it are a second.
ALONE := $(addprefix python/tests/test_bench_,sizing.py waiting.py)

test-python: setup
	$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-programs test-others
	$(MAKE) --no-print-directory test-alone

test-programs:
	$(BIN)/pytest $(PROGRAMS)

test-others:
	$(BIN)/pytest python/tests $(addprefix --ignore=,$(PROGRAMS) $(ALONE))

test-alone:
	$(BIN)/pytest $(ALONE)

gpu: setup  ## on a machine with a GPU: its tests, then what copies to it cost (2 minutes)
	$(BIN)/pytest -v python/tests/test_gpu.py
	$(BIN)/python -m bench.device

fuzz: setup  ## look for bytes that break a parser or decoder: SECONDS=60 for each, or for TARGETS="image line"
	scripts/fuzz.sh $(or $(SECONDS),60) $(TARGETS)

sanitize: setup  ## the engine under AddressSanitizer and ThreadSanitizer (two hours)
	scripts/sanitize.sh

arm: setup  ## images, patches and text on a 64-bit Arm processor, played by qemu (15 minutes)
	scripts/arm.sh

ci: lint docs test  ## what must pass before a change is done

lint: setup  ## formatting, lints, documentation, pins of the rivals; warnings are errors
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- --deny warnings
	cargo clippy --release --workspace --exclude stoker-python --example overhead \
	    --features stoker-engine/metrics-switch -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' cargo doc --release --workspace --no-deps --document-private-items
	$(BIN)/ruff format --check --config python/pyproject.toml python scripts examples bench docs/site
	$(BIN)/ruff check --config python/pyproject.toml python scripts examples bench docs/site
	$(BIN)/uv pip install --quiet --dry-run --python $(BIN)/python --requirement bench/speed/rivals.txt \
	    --override bench/speed/rivals-overrides.txt

format:  ## format all code
	cargo fmt --all
	$(BIN)/ruff format --config python/pyproject.toml python scripts examples bench docs/site
	$(BIN)/ruff check --fix --config python/pyproject.toml python scripts examples bench docs/site

requirements:  ## pin anew what python/requirements.in asks for, the rivals of the bench, and what builds the site
	$(BIN)/uv pip compile --quiet --universal --no-annotate --python-version 3.11 \
	    --custom-compile-command 'make requirements' \
	    --output-file python/requirements.txt python/requirements.in
	$(BIN)/uv pip compile --quiet --no-annotate --python-version 3.11 \
	    --custom-compile-command 'make requirements' --override bench/speed/rivals-overrides.txt \
	    --output-file bench/speed/rivals.txt bench/speed/rivals.in
	$(BIN)/uv pip compile --quiet --universal --no-annotate --python-version 3.11 \
	    --custom-compile-command 'make requirements' \
	    --output-file docs/site/requirements.txt docs/site/requirements.in

clean:  ## remove all that was built or set up
	rm -rf target .venv $(STAMPS)

$(STAMPS)/system: scripts/system.sh Cargo.toml
	PYTHON=$(PYTHON) scripts/system.sh
	@mkdir -p $(@D) && touch $@

$(STAMPS)/packages: python/requirements.txt | $(STAMPS)/system
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet uv==$(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --requirement $<
	@touch $@

# The rivals of the bench: with what the project has of the same, from the same cache.
$(STAMPS)/rivals/done: bench/speed/rivals.txt bench/speed/rivals-overrides.txt | $(STAMPS)/packages
	rm -rf $(@D)
	$(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --requirement $< \
	    --override bench/speed/rivals-overrides.txt
	@touch $@

# What builds the site: nothing else needs it.
$(STAMPS)/docs/done: docs/site/requirements.txt | $(STAMPS)/packages
	rm -rf $(@D)
	$(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --requirement $<
	@touch $@

$(STAMPS)/wheel: $(SOURCE) $(STAMPS)/system $(STAMPS)/packages
	rm -rf target/wheels
	$(BIN)/maturin build --release --manifest-path python/Cargo.toml --out target/wheels
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --reinstall target/wheels/*.whl
	@touch $@

$(STAMPS)/models/done: scripts/models.py | $(STAMPS)/packages
	$(BIN)/python scripts/models.py $(@D)
	@touch $@
