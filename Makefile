# `make help` lists the targets. They need Rust, Python 3.10 or newer, a C compiler and make.

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
BIN := $(VENV)/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(TARGET)/tools
REQUIREMENTS := client/python/requirements
PIP_INSTALL := $(BIN)/python -m pip install --quiet

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TOOLS)/bin/cargo-deny
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ := $(TOOLS)/bin/cargo-fuzz
MDBOOK_VERSION := 0.5.4
MDBOOK := $(TOOLS)/bin/mdbook
AZURITE_VERSION := 3.37.0
EMULATORS := $(abspath $(TARGET))/emulators
AZURITE := $(EMULATORS)/node_modules/.bin/azurite-blob

# Seconds per fuzz target, and the toolchain that builds them; see server/fuzz/README.md.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard server/fuzz/fuzz_targets/*.rs)))
FUZZ_TOOLCHAIN ?= nightly
FUZZ_SANITIZER ?= none
FUZZ_FLAGS = --fuzz-dir server/fuzz --features libfuzzer --sanitizer $(FUZZ_SANITIZER) --codegen-units 16 \
	--target-dir $(abspath $(TARGET))/fuzz

# Silence pip's notice of newer versions.
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Tests start hundreds of processes. Each would compile the package anew where this variable is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-ballista test-spark test-stores test-tensorflow test-frameworks lint docs dashboards fuzz fuzz-filters fuzz-scan drive simulate soak bench bench-kernels bench-peers bench-service gpu-kit build build-all dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

# CPU seconds of `make demo` before it trains, and how many of those run on one core on every machine: see its
# run in benches/runs.
DEMO_CPU_SECONDS := 1400
DEMO_SERIAL_SECONDS := 170

demo: ## train on real flights and on generated clicks from a stream, and compare with preparing files first
	@cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); \
	if test -x $(TARGET)/demo/forebay-server; then echo "make demo: everything is compiled unless a source has changed"; else \
	  echo "make demo: compiles forebay-server without optional features, about" \
	    "$$((1 + ($(DEMO_SERIAL_SECONDS) + ($(DEMO_CPU_SECONDS) - $(DEMO_SERIAL_SECONDS)) / cores) / 60)) minutes on $$cores cores, twice as long on slow ones"; fi; \
	echo "Then it trains on real flights and on generated clicks, about a minute."
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.demo demo-build
	$(BIN)/python client/python/examples/flights.py --bin-dir $(TARGET)/demo
	$(BIN)/python client/python/examples/clicks.py --bin-dir $(TARGET)/demo

# Cargo does not share the jobs of make: Python packages are installed while it compiles.
.PHONY: demo-build
demo-build:
	MAKEFLAGS= $(CARGO) build --locked --profile demo --package forebay-server --package forebay-native --no-default-features --lib --bins
	$(call install_native,demo)

# NVIDIA's run-time compiler, packaged for Linux only. Tests fail if it is missing there.
ifeq ($(shell uname),Linux)
NVRTC = $(or $(shell find $(abspath $(VENV))/lib -name 'libnvrtc.so.1[0-9]' | head -n 1),$(abspath $(VENV))/libnvrtc.so)
endif

# Number of test files that run in parallel.
PYTEST_WORKERS ?= 4

# A test that hangs prints the stacks of its threads and fails. The longest tests take two minutes on two busy cores.
TIMEOUT := --timeout 600 --timeout-method thread

# The native module of the Python package. Its file in the target folder has the name of the system's libraries.
NATIVE_LIBRARY := $(if $(filter Darwin,$(shell uname)),lib_native.dylib,lib_native.so)
NATIVE_MODULE := client/python/src/forebay/_native.abi3.so
# Replaces the module by that of a profile. A process may run the old one, so that a rename is needed.
install_native = cp $(TARGET)/$(1)/$(NATIVE_LIBRARY) $(NATIVE_MODULE).new && mv $(NATIVE_MODULE).new $(NATIVE_MODULE)

# A server without features, and the tests that it passes. It has the crates of other projects as the whole build has them,
# so that these are compiled once. The whole build comes last: its program stays in target/debug.
LIGHT := $(abspath $(TARGET))/light
LIGHT_TESTS := $(addprefix server/tests/, light streams/test_bare_pyarrow.py)

# Two at a time: packages are installed, and the light server tested, while cargo compiles.
test: ## run every test: Rust with doc tests, Python
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.test light-build
	@$(MAKE) --no-print-directory --jobs 2 light-test test-build
	@$(MAKE) --no-print-directory full-test

.PHONY: light-build light-test test-build full-test
light-build:
	MAKEFLAGS= $(CARGO) build --locked --workspace --no-default-features --features forebay-simulation/feature-crates \
	  --bin forebay-server --test layering
	mkdir -p $(LIGHT) && cp $(TARGET)/debug/forebay-server $(LIGHT)/

light-test:
	FOREBAY_SERVER_BIN="$(LIGHT)/forebay-server" $(BIN)/pytest $(TIMEOUT) $(LIGHT_TESTS)

test-build:
	MAKEFLAGS= $(CARGO) build --locked --workspace --lib --bins --tests
	$(call install_native,debug)

full-test:
	FOREBAY_NVRTC="$(NVRTC)" $(CARGO) test --locked --workspace --no-fail-fast
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" \
	  FOREBAY_PREPARE_BIN="$(abspath $(TARGET))/debug/forebay-prepare" \
	  $(BIN)/pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations 10 $(TIMEOUT) server/tests client/python/tests

# A slice of the black-box tests, one or two files of most subjects.
QUICK_TESTS := $(addprefix server/tests/, docs streams/test_bare_pyarrow.py streams/test_replay_rules.py exchange/test_exchange.py \
	fit/test_saved_result.py faults/files/test_footers.py faults/requests/test_bad_input.py ops/test_rejected_plans.py \
	ops/test_outputs.py operations/test_configuration.py operations/test_health_and_metrics.py parquet/test_raw_tables.py \
	security/test_grants.py storage/test_locations.py) $(addprefix client/python/tests/, test_client.py test_cursor.py \
	test_ops_plan.py test_package.py test_plan.py test_refusals.py test_stream_rules.py)

test-quick: $(VENV)/.test test-build ## run the unit tests and a slice of the others, in under five minutes after a build
	$(CARGO) test --locked --workspace --lib --bins
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" \
	  $(BIN)/pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile $(QUICK_TESTS)

# The other tests skip these.
test-ballista: $(VENV)/.test test-build ## run queries on a Ballista cluster and compare with one machine
	$(CARGO) build --locked --package forebay-prepare --features ballista --bins
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" \
	  FOREBAY_PREPARE_BIN="$(abspath $(TARGET))/debug/forebay-prepare" $(BIN)/pytest server/tests/ballista

test-spark: $(VENV)/.spark test-build ## compare the ops with Spark MLlib; needs Java 17
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" $(BIN)/pytest server/tests/spark

# The other tests skip Azure. `make test` has the other stores.
test-stores: $(VENV)/.stores $(EMULATORS)/.azurite-$(AZURITE_VERSION) test-build ## test object stores, Azure included; needs Node.js, 370 MB in target/
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" FOREBAY_AZURITE="$(AZURITE)" \
	  $(BIN)/pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile server/tests/storage server/tests/faults/storage

TENSORFLOW_TESTS := $(addprefix client/python/tests/, test_tensorflow.py test_example_two_frameworks.py)

# The other tests skip these unless TensorFlow is installed.
test-tensorflow: $(VENV)/.tensorflow test-build ## test forebay.tensorflow with TensorFlow, 1.5 GB more in .venv
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" $(BIN)/pytest $(TENSORFLOW_TESTS)

FRAMEWORK_TESTS := $(addprefix client/python/tests/, frameworks test_example_quickstart.py)

# The other tests skip those of frameworks that are not installed. No model and no data is downloaded.
test-frameworks: $(VENV)/.frameworks test-build ## test the adapters with Ray, DALI, Transformers, JAX and others, 1.6 GB more in .venv
	FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" HF_HUB_OFFLINE=1 $(BIN)/pytest $(FRAMEWORK_TESTS)

lint: $(VENV)/.lint $(CARGO_DENY) ## check formats, lints, types, wording, licences and advisories
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO_DENY) --locked check licenses bans sources
	@if $(CARGO_DENY) fetch db; then set -x; $(CARGO_DENY) --locked check advisories; \
	else echo "lint: advisories NOT checked: their database is not available" >&2; fi
	@if printf 'jinja2==2.4.1\n' | $(BIN)/pip-audit --requirement /dev/stdin --no-deps --disable-pip 2>/dev/null | grep -qE 'PYSEC|GHSA|CVE'; \
	then set -x; $(BIN)/pip-audit --local --skip-editable --progress-spinner off; \
	else echo "lint: advisories of Python packages NOT checked: their database is not available" >&2; fi
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project client/python
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project client/python/examples
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project docs
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project grafana
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project benches
	$(BIN)/basedpyright --pythonpath $(BIN)/python --project server/deploy/packages
	server/deploy/lint.sh $(BIN)
	$(BIN)/python docs/check_words.py

docs: $(VENV)/.docs $(MDBOOK) ## build the book and both API references, and check links
	$(BIN)/pytest --noconftest server/tests/docs/test_links.py
	PATH="$(abspath $(BIN)):$$PATH" $(MDBOOK) build docs
	$(BIN)/python docs/check_pages.py docs/book
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace
	$(BIN)/python -W error -m pdoc --output-directory $(TARGET)/doc/python forebay forebay.torch
	@echo "docs/book/index.html, $(TARGET)/doc/forebay_client/index.html, $(TARGET)/doc/python/index.html"

dashboards: $(VENV)/.made ## generate Grafana's dashboards from their sources
	$(BIN)/python grafana/dashboards.py

fuzz: $(CARGO_FUZZ) ## fuzz the server, FUZZ_SECONDS=600 per fuzz target; needs a nightly toolchain
	@rustc +$(FUZZ_TOOLCHAIN) --version || { \
	  echo "make: fuzzing needs Rust's nightly toolchain: rustup toolchain install $(FUZZ_TOOLCHAIN) --profile minimal" >&2; exit 1; }
	PATH="$(abspath $(TOOLS))/bin:$$PATH" $(CARGO) +$(FUZZ_TOOLCHAIN) fuzz build $(FUZZ_FLAGS)
	@for target in $(FUZZ_TARGETS); do \
	  found="$(abspath $(TARGET))/fuzz/corpus/$$target"; seeds=server/fuzz/corpus/$$target; dictionary=; \
	  mkdir -p "$$found"; if [ -f $$seeds.dict ]; then dictionary=-dict=$$seeds.dict; fi; \
	  (set -x; PATH="$(abspath $(TOOLS))/bin:$$PATH" $(CARGO) +$(FUZZ_TOOLCHAIN) fuzz run $(FUZZ_FLAGS) $$target "$$found" $$seeds \
	    -- -max_total_time=$(FUZZ_SECONDS) -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 $$dictionary) || exit 1; \
	done

FILTER_FUZZ_SEEDS ?= 300
FILTER_FUZZ_FIRST ?= 0

fuzz-filters: $(VENV)/.test test-build ## compare random filters with derived columns and DuckDB (FILTER_FUZZ_SEEDS, FILTER_FUZZ_FIRST)
	FILTER_FUZZ_SEEDS=$(FILTER_FUZZ_SEEDS) FILTER_FUZZ_FIRST=$(FILTER_FUZZ_FIRST) FILTER_FUZZ_EXPRESSIONS=60 \
	  FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" $(BIN)/pytest server/tests/filters/test_search.py

SCAN_FUZZ_SEEDS ?= 400
SCAN_FUZZ_FIRST ?= 0

fuzz-scan: $(VENV)/.test test-build ## stream random files of several writers and compare with pyarrow (SCAN_FUZZ_SEEDS, SCAN_FUZZ_FIRST)
	SCAN_FUZZ_SEEDS=$(SCAN_FUZZ_SEEDS) SCAN_FUZZ_FIRST=$(SCAN_FUZZ_FIRST) \
	  FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" $(BIN)/pytest server/tests/parquet/test_random_files.py

DRIVE_SEEDS ?= 500

drive: $(VENV)/.test test-build ## drive the Python client through random faults and check every row (DRIVE_SEEDS)
	FOREBAY_DRIVER_SEEDS=$(DRIVE_SEEDS) FOREBAY_DRIVER_STEPS=40 \
	  FOREBAY_SERVER_BIN="$(abspath $(TARGET))/debug/forebay-server" $(BIN)/pytest client/python/tests/test_client_driver.py

simulate: ## run ten thousand seeds of simulated faults (SIMULATE_SEEDS, SIMULATE_FIRST)
	$(CARGO) test --locked --package forebay-simulation -- --ignored --nocapture many_seeds

bench: ## run the criterion benches
	$(CARGO) bench --locked -p forebay-benches

bench-kernels: $(VENV)/.kernels ## compare the kernels with NumPy, Polars, DuckDB and pyarrow, on one core
	$(CARGO) build --locked --release -p forebay-benches --bin kernel_runner
	$(VENV)/kernels/bin/python benches/kernels/run.py

bench-peers: $(VENV)/.test build ## compare Parquet to tensors with Polars, DuckDB, Ray Data, Spark and others
	$(BIN)/python benches/peers/run.py

bench-service: $(VENV)/.test build ## measure start, overlap with training steps, growth, fairness, and memory over minutes
	$(BIN)/python benches/service/run.py

GPU_KIT := $(TARGET)/gpu-kit

gpu-kit: build ## pack benches/gpu/check.sh with its programs for a machine with a GPU, at most 48 MB
	mkdir -p $(GPU_KIT)
	$(CARGO) test --locked --release --package forebay-kernels --features cuda --lib --no-run \
	  --message-format json-render-diagnostics > $(GPU_KIT)/messages.json
	$(PYTHON) benches/gpu/pack.py --server $(TARGET)/release/forebay-server --gpu-kernel $(TARGET)/release/gpu-kernel \
	  --parity-messages $(GPU_KIT)/messages.json --native $(TARGET)/release/lib_native.so --out $(GPU_KIT)

SOAK_MINUTES ?= 30

# With FOREBAY_SERVER_BIN set, that program is used and no release build is made.
soak: $(VENV)/.test $(if $(FOREBAY_SERVER_BIN),,build) ## load two replicas and inject faults for SOAK_MINUTES (30); check every byte and memory
	$(BIN)/python benches/soak/run.py --minutes $(SOAK_MINUTES)

build: ## build forebay-server, forebay and the Python package's native module in the release profile
	$(CARGO) build --locked --release --workspace --exclude forebay-prepare --exclude forebay-fuzz \
	  --exclude forebay-simulation --lib --bins
	$(call install_native,release)

# Features of forebay-prepare: `ballista` adds the cluster engine, and the programs of a cluster.
PREPARE_FEATURES ?=

# A separate command, so that the features that DataFusion enables are not those of the server.
build-all: build ## build forebay-prepare too: SQL over datasets, with all of DataFusion (PREPARE_FEATURES=ballista: on clusters)
	$(CARGO) build --locked --release --package forebay-prepare --features "$(PREPARE_FEATURES)" --bins

dist: $(VENV)/.dist build ## make the wheel, source distribution, archive of programs, checksums and bill of materials in dist/
	$(BIN)/python server/deploy/packages/dist.py --programs $(TARGET)/release --out dist

clean: ## remove everything that make creates: target/, .venv/, data/, dist/, docs/book/
	$(CARGO) clean
	rm -rf $(VENV) data dist docs/book $(NATIVE_MODULE)

# === The virtual environment ===
# Each stamp file marks its requirements as installed; a changed requirements file installs again. One package has no
# wheel and is built with the pinned tools of build.txt.

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make: Forebay needs Python 3.10 or newer, for example: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv or ensurepip; install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(REQUIREMENTS)/build.txt $(REQUIREMENTS)/demo.txt client/python/pyproject.toml $(VENV)/.made
	@echo "installing Python packages into $(VENV), a few minutes: PyTorch is 3 GB with CUDA libraries, which it loads with or without a GPU"
	$(PIP_INSTALL) -r $(REQUIREMENTS)/build.txt
	$(PIP_INSTALL) --no-build-isolation --use-pep517 -r $(REQUIREMENTS)/demo.txt
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable client/python
	@touch $@

$(VENV)/.dist: $(REQUIREMENTS)/build.txt $(REQUIREMENTS)/dist.txt $(VENV)/.made
	$(PIP_INSTALL) -r $(REQUIREMENTS)/build.txt -r $(REQUIREMENTS)/dist.txt
	@touch $@

$(VENV)/.test: $(REQUIREMENTS)/test.txt $(REQUIREMENTS)/dist.txt server/tests/harness/pyproject.toml $(VENV)/.demo
	$(PIP_INSTALL) -r $(REQUIREMENTS)/test.txt
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable server/tests/harness
	@touch $@

$(VENV)/.spark: $(REQUIREMENTS)/spark.txt $(VENV)/.test
	$(PIP_INSTALL) --no-build-isolation --use-pep517 -r $(REQUIREMENTS)/spark.txt
	@touch $@

$(VENV)/.stores: $(REQUIREMENTS)/stores.txt $(VENV)/.test
	$(PIP_INSTALL) -r $(REQUIREMENTS)/stores.txt
	@touch $@

$(VENV)/.tensorflow: $(REQUIREMENTS)/tensorflow.txt $(VENV)/.test
	$(PIP_INSTALL) -r $(REQUIREMENTS)/tensorflow.txt
	@touch $@

$(VENV)/.frameworks: $(REQUIREMENTS)/frameworks.txt $(VENV)/.test
	$(PIP_INSTALL) -r $(REQUIREMENTS)/frameworks.txt
	@touch $@

$(VENV)/.kernels: benches/kernels/requirements.txt $(REQUIREMENTS)/build.txt server/tests/harness/pyproject.toml $(VENV)/.made
	$(PYTHON) -m venv $(VENV)/kernels
	$(VENV)/kernels/bin/python -m pip install --quiet -r benches/kernels/requirements.txt -r $(REQUIREMENTS)/build.txt
	$(VENV)/kernels/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable server/tests/harness
	@touch $@

$(VENV)/.lint: $(REQUIREMENTS)/lint.txt $(VENV)/.test
	$(PIP_INSTALL) -r $(REQUIREMENTS)/lint.txt
	@touch $@

$(VENV)/.docs: $(REQUIREMENTS)/docs.txt $(VENV)/.test
	$(PIP_INSTALL) -r $(REQUIREMENTS)/docs.txt
	@touch $@

# === Tools ===

$(CARGO_DENY):
	$(CARGO) install cargo-deny --version $(CARGO_DENY_VERSION) --locked --root $(TOOLS)

# Without the features serve, watch and search.
$(MDBOOK):
	$(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --no-default-features --root $(TOOLS)

$(EMULATORS)/.azurite-$(AZURITE_VERSION):
	@command -v npm > /dev/null || { echo "make: Azurite needs Node.js and npm" >&2; exit 1; }
	npm install --no-audit --no-fund --no-save --ignore-scripts --prefix $(EMULATORS) azurite@$(AZURITE_VERSION)
	@touch $@

$(CARGO_FUZZ):
	$(CARGO) install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --root $(TOOLS)
