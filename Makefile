# The commands of the house. Bare `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# By a shell: make's own functions take a space in a path for two paths.
absolute = $(shell realpath --no-symlinks --canonicalize-missing -- "$(1)")
# Builds with other flags have folders of their own: sharing one would rebuild everything each time.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
comma := ,
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
# What Rust tests are built with: their binaries cannot link the interpreter's library everywhere.
TEST_FEATURES := async
# Optimised builds of tests: without link-time optimisation, which would be paid for each binary.
RELEASE_TESTS := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# The sanitizer is unstable in the compiler, which RUSTC_BOOTSTRAP admits. Naming the target keeps
# it out of build scripts and procedural macros.
ASAN := RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$(TARGET_DIR)/asan
# Of Python's tests those that run on every kind.
EVERY_KIND_TESTS := $(foreach part,accelerator await await_loops await_programs buffer contexts \
	dlpack done_callbacks event failure_descriptions failures generator host_call host_threads launch_host \
	numpy_memory parameters profiler reclaimers stream task_contexts task_pools task_programs threads \
	timeouts verbose_runtime version waits xpu,tests/python/test_$(part).py)
# Rust tests that run on an xpu device as well; and those that need one which compiles programs of
# ours, which the fake does not.
XPU_TESTS ?= device faults order
XPU_KERNEL_TESTS := kernels
OPENCL := --package accelrt-opencl --features accelrt/async
# A folder of recorded requests, `ops/*.ops.csv` and `pytorch/*.pickle`, that are not part of the
# repository: tests/data/README.md lists them. Tests and figures that need them say so without it.
TRACES ?=
# The snapshots of PyTorch among them, or others.
SNAPSHOTS ?= $(if $(TRACES),$(wildcard $(TRACES)/pytorch/*.pickle))
ifneq ($(TRACES),)
export ACCELRT_TEST_TRACES := $(call absolute,$(TRACES))
endif
# The interpreter that the environment of the Python tests is made with: 3.11 or newer.
PYTHON ?= python3
VENV := .venv
# What makes a wheel for other machines, and what tries it: neither knows the repository's module.
PACKAGING := .venv-packaging
TRIED := $(TARGET_DIR)/packaging/tried
WHEELS := $(TARGET_DIR)/wheels
# Those of Python's tests that need NumPy at most.
WHEEL_TESTS := $(foreach part,accelerator buffer demo errors event goals info,\
	tests/python/test_$(part).py)
# An environment for its shared libraries alone: a real OpenCL device on every x86-64 processor.
INTEL := .venv-intel
INTEL_OPENCL := $(INTEL)/lib/libintelocl.so
# The same for oneMKL and oneDNN, and one library over NumPy that calls the first.
MATH := .venv-math
MKL_LIBRARY = $(lastword $(wildcard $(MATH)/lib/libmkl_rt.so.?))
# What the tests of the fake build; each command takes some time, so that others wait for it.
FAKE_OPENCL_LIBRARY = $(call absolute,$(TARGET_DIR)/tmp/libfake_opencl_whole.so)
FAKE_DEVICES := devices=2,priorities=1,strict=1,memory=64G,command_us=20
BENCH_DIR := $(TARGET_DIR)/bench
# libtest has no time limit. The watchdog prints the stacks of a test that runs for HANG_TEST_S
# seconds (tests/watchdog/longer.toml lists the longer ones) and ends it, and a binary after HANG_S.
HANG_TEST_S ?= 120
HANG_S ?= 1800
RUNNER := CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER

WATCHED := test-debug test-device test-release test-asan test-xpu test-xpu-fake removals-test stress faults \
	loom asan tsan
$(WATCHED): export $(RUNNER) = tests/watchdog/watch.py
export HANG_TEST_S HANG_S
# Sanitizers are slow, and a model takes as long as it has interleavings.
test-asan asan tsan loom: HANG_TEST_S := 600

# The environment has one module at a time.
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Runs targets one after the other, and prints the minutes and the number of tests of each.
STEPS = +MAKE="$(MAKE)" $(PYTHON) tests/steps/steps.py
CHECKS := fmt-check check-locks clippy features doc-check tidy check-header check-public check-mutants check-python
TESTS := test-debug test-python
# Other builds and kinds of device, and what takes longer than a change needs each time.
VARIANTS := removals loom test-scheduled test-device test-xpu-fake \
	test-python-xpu-fake test-python-device oracle test-numpy-selection test-intel test-torch-or-say \
	demo test-python-release counts

.PHONY: ci
ci: ## everything that must pass before a change is merged
	$(STEPS) $(CHECKS) $(TESTS) $(VARIANTS)

.PHONY: check
check: $(CHECKS) ## format, lints, documentation, rules

.PHONY: fmt-check
fmt-check:
	$(CARGO) fmt --all --check
	$(CARGO) fmt $(DEVICE_CRATE) --check

# The crates beside this one, whose builds take no lock file that this one's dependencies changed.
.PHONY: check-locks
check-locks:
	for crate in fuzz examples/device tests/oracle/peer; do \
		$(CARGO) update --quiet --workspace --locked --manifest-path $$crate/Cargo.toml || exit 1; \
	done

.PHONY: clippy
clippy:
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

.PHONY: features
features: ## without the feature `async`
	$(CARGO) clippy -- -D warnings

.PHONY: doc-check
doc-check:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features --document-private-items

# rustdoc's description of the crate is unstable, which RUSTC_BOOTSTRAP admits; its form is that of
# the toolchain.
PUBLIC_DOC := $(TARGET_DIR)/public
PUBLIC_ITEMS := docs/public_items.txt
# The crates with an API in Rust.
PUBLIC_CRATES := accelrt accelrt-mkl accelrt-observe accelrt-opencl accelrt-random accelrt-replay accelrt-testing
.PHONY: check-public
check-public: ## the public items are those of docs/public_items.txt, half have examples, pages name nothing private
	for crate in $(PUBLIC_CRATES); do \
		RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$(PUBLIC_DOC) $(CARGO) rustdoc --quiet --package $$crate --lib \
			--all-features -- -Z unstable-options --output-format json || exit 1; \
	done
	$(PYTHON) tests/public/items.py $(PUBLIC_ITEMS) $(PUBLIC_FLAGS) \
		$(foreach crate,$(subst -,_,$(PUBLIC_CRATES)),$(PUBLIC_DOC)/doc/$(crate).json)

.PHONY: public-items
public-items: ## writes docs/public_items.txt
	$(MAKE) check-public PUBLIC_FLAGS=--accept

.PHONY: tidy
tidy: ## the house rules alone
	$(CARGO) test --quiet --features $(TEST_FEATURES) --test tidy -- --nocapture

.PHONY: check-header
check-header:
	$(CARGO) test --quiet --package accelrt-capi --test header

.PHONY: header
header: ## writes include/accelrt.h, the functions of crates/accelrt-capi for C
	$(CARGO) test --quiet --package accelrt-capi --test header -- --ignored

.PHONY: unsafe-list
unsafe-list: ## writes docs/unsafe.md, the list of files with unsafe code
	$(CARGO) test --quiet --features $(TEST_FEATURES) --test tidy -- --ignored

.PHONY: test
test: ## the tests in Rust, then those in Python; `make ci` runs them on other builds and devices too
	$(STEPS) $(TESTS)

.PHONY: test-debug
test-debug:
	$(CARGO) test --workspace --all-features

# Each as ACCELRT_CPU_SCHEDULE has it, as "seed:3,strategy:starve"; without one, two.
SCHEDULES ?=
.PHONY: test-scheduled
test-scheduled: ## the suites of engine, buffers, order and allocator under schedules
	CARGO=$(CARGO) TEST_FEATURES=$(TEST_FEATURES) $(PYTHON) tests/schedules/suites.py $(SCHEDULES)

# A crate of its own, as a maker of devices has one.
DEVICE_CRATE := --manifest-path examples/device/Cargo.toml
.PHONY: test-device
test-device: ## a stranger's kind of device against the conformance kit, and ten that break their word
	CARGO_TARGET_DIR="$(call absolute,$(TARGET_DIR)/device)" $(CARGO) clippy --locked $(DEVICE_CRATE) --all-targets -- -D warnings
	CARGO_TARGET_DIR="$(call absolute,$(TARGET_DIR)/device)" $(CARGO) test --locked $(DEVICE_CRATE)

# Races show up at full speed, not under debug assertions.
RELEASE_SUITES := --lib $(addprefix --test ,allocator buffer engine order stress)
.PHONY: test-release
test-release: ## the suites with many threads, in an optimised build
	$(RELEASE_TESTS) CARGO_TARGET_DIR=$(TARGET_DIR)/test-release \
		$(CARGO) test --release --features $(TEST_FEATURES) $(RELEASE_SUITES)

.PHONY: test-release-all
test-release-all:
	$(MAKE) test-release RELEASE_SUITES="--lib --tests"

# A million tasks meet the sanitizer, so this one target is built optimised for it.
.PHONY: test-asan
test-asan: ## the stress test under the address sanitizer
	$(ASAN) $(RELEASE_TESTS) \
		$(CARGO) test --release --target $(HOST) --features $(TEST_FEATURES) --test stress

.PHONY: removals
removals: ## deletes each crate with its dependents, and checks that the rest builds
	$(PYTHON) tests/steps/removals.py check

.PHONY: removals-test
removals-test: ## the same, with the tests of the rest
	$(PYTHON) tests/steps/removals.py test

.PHONY: stress
stress: ## the stress test with its large ones: minutes
	$(RELEASE_TESTS) CARGO_TARGET_DIR=$(TARGET_DIR)/test-release \
		$(CARGO) test --release --features $(TEST_FEATURES) --test stress -- \
		--include-ignored --nocapture --test-threads=1

.PHONY: faults
faults: ## which calls of a backend were failed in which scenarios, and the laws after each
	ACCELRT_TEST_FAULT_CALLS=12 $(CARGO) test --features $(TEST_FEATURES) --test faults -- --nocapture --test-threads=1

# They are ignored elsewhere because not every machine has a runtime; here one that is missing fails.
.PHONY: test-xpu
test-xpu: ## the tests that need an OpenCL runtime with unified shared memory
	$(CARGO) test $(OPENCL) $(addprefix --test ,$(XPU_TESTS)) \
		-- --ignored --show-output xpu

# Its own tests build the fake. `strict`: a rule of OpenCL that is broken ends the process. Tests that
# run at once share its devices, each up to a limit of its own.
.PHONY: test-xpu-fake
test-xpu-fake: ## the same on a fake OpenCL, whose device memory the host cannot read
	$(CARGO) test $(OPENCL) --test fake self_test
	ACCELRT_OPENCL_LIBRARY="$(FAKE_OPENCL_LIBRARY)" FAKE_OPENCL=$(FAKE_DEVICES) $(MAKE) test-xpu

.PHONY: test-python-xpu-fake
test-python-xpu-fake: module ## the Python tests of every kind, on three devices of the fake
	$(CARGO) test $(OPENCL) --test fake self_test
	ACCELRT_TEST_KIND=xpu ACCELRT_OPENCL_LIBRARY="$(FAKE_OPENCL_LIBRARY)" FAKE_OPENCL=$(FAKE_DEVICES),devices=3 \
		$(VENV)/bin/python -m pytest $(EVERY_KIND_TESTS)

# The example kind in C, of three devices.
NPU_LIBRARY = $(call absolute,$(TARGET_DIR)/tmp/libnpu.so)
.PHONY: test-python-device
test-python-device: module ## the Python tests of every kind, and the plug-in's, on a stranger's kind in C
	mkdir -p $(dir $(NPU_LIBRARY))
	cc -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -pthread -DNPU_DEVICES=3 -Iinclude \
		examples/device/c/npu.c -o "$(NPU_LIBRARY)"
	ACCELRT_TEST_KIND=npu ACCELRT_KINDS="npu=$(NPU_LIBRARY)" ACCELRT_ACCELERATOR=npu \
		$(VENV)/bin/python -m pytest $(EVERY_KIND_TESTS)
	$(VENV)/bin/python -m pytest --accelrt-kind npu --accelrt-library "$(NPU_LIBRARY)"

$(INTEL)/ready: pyproject.toml
	rm -rf $(INTEL)
	$(PYTHON) -m venv $(INTEL)
	$(INTEL)/bin/python -m pip install --quiet 'pip>=25.1'
	$(PYTHON) -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*extras["optional-dependencies"]["xpu"], sep="\n")' \
		| $(INTEL)/bin/python -m pip install --quiet --requirement /dev/stdin
	test -f $(INTEL_OPENCL)
	touch $@

# By the distribution's loader (make peers): the wheels' own takes no library by OCL_ICD_VENDORS.
# Without a loader or the runtime it fails.
.PHONY: test-intel
test-intel: $(INTEL)/ready ## the same on Intel's runtime for CPUs, in Rust and Python
	OCL_ICD_VENDORS="$(call absolute,$(INTEL_OPENCL))" $(MAKE) test-xpu test-python-xpu \
		XPU_TESTS="$(XPU_TESTS) $(XPU_KERNEL_TESTS)"

.PHONY: test-intel-all
test-intel-all: ## the same with all Python tests
	$(MAKE) test-intel XPU_PYTHON_TESTS=tests/python

# Those of every kind, and those that mention xpu: no other target compiles kernels.
XPU_PYTHON_TESTS ?= $(EVERY_KIND_TESTS) $(foreach part,device info kind_modules messages program \
	xpu_loss,tests/python/test_$(part).py)
.PHONY: test-python-xpu
test-python-xpu: module ## the Python tests and the demo, on the xpu device of this machine
	ACCELRT_TEST_KIND=xpu $(VENV)/bin/python -m pytest $(XPU_PYTHON_TESTS)
	ACCELRT_ACCELERATOR=xpu $(VENV)/bin/python -m accelrt demo

# From scratch whenever pyproject.toml changed: what it no longer names is gone then. An older pip
# does not know dependency groups.
$(VENV)/ready: pyproject.toml
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet --group build --group test --group check
	touch $@

# A digest of all that a module is made of and of the module itself, whoever put it there.
MODULE_STATE = { echo "$(1)"; rustc -vV; $(VENV)/bin/maturin --version; $(VENV)/bin/python -VV; \
	env | grep -E '^(CARGO|RUST)' | sort || true; \
	find src crates Cargo.toml Cargo.lock pyproject.toml python -type f \
		-not -name '*.py' -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum; } | sha256sum

# Even with nothing to compile maturin links and packs again.
define install_module
	@if [ "$$($(call MODULE_STATE,$(1)))" != "$$(cat $(VENV)/module 2>/dev/null)" ]; then \
		rm -f $(VENV)/module; \
		VIRTUAL_ENV="$(call absolute,$(VENV))" $(VENV)/bin/maturin develop --quiet $(1); \
		$(call MODULE_STATE,$(1)) >$(VENV)/module; \
	fi
endef

# The module in the environment, as it is now: cargo knows what to build again.
.PHONY: module
module: $(VENV)/ready
	$(call install_module)

# The same with link-time optimisation, in the other one's place.
.PHONY: module-release
module-release: $(VENV)/ready
	$(call install_module,--release)

.PHONY: demo
demo: module-release ## builds the optimised module and runs the main job on a real file
	$(VENV)/bin/python -m accelrt demo
	$(VENV)/bin/python -m accelrt replay tests/data/own_gpt_fixed.ops.csv

.PHONY: check-replay
check-replay: module-release ## replays snapshots of PyTorch address by address: SNAPSHOTS=FILES or TRACES=FOLDER
	$(if $(SNAPSHOTS),,$(error no snapshots: name files by SNAPSHOTS=FILES, or their folder by TRACES=FOLDER))
	$(VENV)/bin/python -m accelrt replay --check $(SNAPSHOTS)

# The requests of the table in docs/allocator.md.
REPLAYED = $(if $(TRACES),$(wildcard $(TRACES)/ops/*.ops.csv $(TRACES)/pytorch/*.pickle))

.PHONY: replays
replays: ## replays the recordings of TRACES=FOLDER under each policy; writes the table of docs/allocator.md
	$(MAKE) join-replays

.PHONY: check-replays
check-replays: ## sees whether that table is what the replays come to
	$(MAKE) join-replays REPLAY_FLAGS=--stale

.PHONY: join-replays
join-replays: module-release
	$(if $(REPLAYED),,$(error no recorded requests: name a folder that contains ops/*.ops.csv by TRACES=FOLDER))
	mkdir -p $(BENCH_DIR)
	$(VENV)/bin/python -m accelrt replay --policy native,torch,torch+expandable \
		--granularity 2097152 --json $(BENCH_DIR)/replays.json $(REPLAYED)
	$(VENV)/bin/python benches/replays.py $(BENCH_DIR)/replays.json docs/allocator.md $(REPLAY_FLAGS)

# An optional peer, 1.3 GB on disk: an index may have no torch but one for CUDA, whose packages for
# GPUs are left out.
TORCH := .venv-torch
BRIDGE := bridges/torch
$(TORCH)/ready: $(BRIDGE)/pyproject.toml $(BRIDGE)/stand_ins.py
	rm -rf $(TORCH)
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet 'pip>=25.1'
	$(TORCH)/bin/python -m pip install --quiet --no-deps 'torch>=2.15' || \
		{ echo "$@: the package index has no torch 2.15 or newer for this machine and $$($(TORCH)/bin/python -VV)" >&2; exit 1; }
	$(TORCH)/bin/python -m pip install --quiet --group $(BRIDGE)/pyproject.toml:peer
	$(TORCH)/bin/python $(BRIDGE)/stand_ins.py
	touch $@

# The extension, for this torch: minutes. Python finds accelrt where the other environment has it.
$(TORCH)/bridge: $(TORCH)/ready include/accelrt.h $(wildcard $(BRIDGE)/csrc/* $(BRIDGE)/*.py)
	echo "$(call absolute,python)" >$$(echo $(TORCH)/lib/python3*/site-packages)/accelrt.pth
	$(TORCH)/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable $(BRIDGE)
	touch $@

.PHONY: torch
torch: module $(TORCH)/bridge ## installs torch into an environment of its own, and builds accelrt-torch there

.PHONY: test-torch
test-torch: torch ## torch.device("accelrt"): the tests of bridges/torch
	cd $(BRIDGE) && "$(call absolute,$(TORCH)/bin/python)" -m pytest

# For CI: where the package index has no torch it says so, and fails with TORCH_REQUIRED=1.
.PHONY: test-torch-or-say
test-torch-or-say:
	if $(MAKE) $(TORCH)/ready; then $(MAKE) test-torch; \
	else echo "torch is missing: the tests of bridges/torch did not run" >&2; test -z "$(TORCH_REQUIRED)"; fi

# Under another load the numbers are another program's.
.PHONY: bench-torch
bench-torch: module-release $(TORCH)/bridge ## the figures of torch.device("accelrt") beside the CPU's: T1 to T5
	$(TORCH)/bin/python -m accelrt_torch.bench

# The allocator's settings for all figures: the default ones.
BENCH_SETTINGS ?=
# How long the figures wait for a quiet machine, at most.
BENCH_WAIT_S ?= 60
# And how long each thing that a row measures waits for one, at most.
BENCH_PATIENCE_S ?= 3
FIGURES = $(CARGO) bench --package accelrt-benches --bench figures --

# xpu's figures and OpenCL's are taken on Intel's runtime where `make test-intel` has installed it,
# and oneMKL's on what `make peers` has; else on what the machine has. PyTorch's own allocator is
# measured where `make oracle` has brought a release of it, and torch.device("accelrt") where `make
# torch` has installed torch.
.PHONY: bench
bench: BENCH_WITH := $(if $(wildcard $(INTEL_OPENCL)),OCL_ICD_VENDORS="$(call absolute,$(INTEL_OPENCL))") \
	$(if $(MKL_LIBRARY),ACCELRT_MKL_LIBRARY="$(call absolute,$(MKL_LIBRARY))") \
	$(if $(BENCH_SETTINGS),ACCELRT_ALLOC_CONF=$(BENCH_SETTINGS))
bench: module-release ## the figures, ours beside the peers'; writes the table of benches/README.md
	mkdir -p $(BENCH_DIR)
	$(FIGURES) --anchors "$(call absolute,$(BENCH_DIR)/before.json)" $(BENCH_WAIT_S)
	c10=$$($(VENV)/bin/python tests/oracle/installed.py "$(call absolute,$(ORACLE_CACHE))"); \
	$(BENCH_WITH) $(FIGURES) --json "$(call absolute,$(BENCH_DIR)/rust.jsonl)" \
		$(if $(TRACES),--traces "$(call absolute,$(TRACES))") $${c10:+--c10 "$$c10"} --patience $(BENCH_PATIENCE_S) >$(BENCH_DIR)/rust.txt
	$(BENCH_WITH) $(VENV)/bin/python -m accelrt bench --json $(BENCH_DIR)/python.json \
		$(if $(TRACES),--traces "$(call absolute,$(TRACES))") --patience $(BENCH_PATIENCE_S) >$(BENCH_DIR)/python.txt
	rm -f $(BENCH_DIR)/torch.json
	$(if $(wildcard $(TORCH)/bridge),$(TORCH)/bin/python -m accelrt_torch.bench --json $(BENCH_DIR)/torch.json)
	$(FIGURES) --anchors "$(call absolute,$(BENCH_DIR)/after.json)" 0
	$(VENV)/bin/python benches/report.py $(BENCH_DIR) benches/README.md

.PHONY: counts
counts: ## instructions of the hot paths, compared with benches/instructions.txt
	$(MAKE) count-instructions

.PHONY: counts-accept
counts-accept: ## writes benches/instructions.txt
	$(MAKE) count-instructions COUNT_FLAGS=--accept

.PHONY: count-instructions
count-instructions: module-release
	bench=$$($(CARGO) bench --package accelrt-benches --bench hot_paths --no-run --message-format=json \
		| sed -n 's/.*"name":"hot_paths".*"executable":"\([^"]*\)".*/\1/p'); \
	$(VENV)/bin/python benches/counts.py "$$bench" benches/instructions.txt $(COUNT_FLAGS)

.PHONY: test-python
test-python: module ## the Python tests, `examples/` and the examples in docstrings
	$(VENV)/bin/python -m pytest

# Tests of memory without an order have the mark `accelrt_unordered`; those of the sanitizer watch.
.PHONY: test-sanitized
test-sanitized: module ## the Python tests, examples and the demo under the sanitizer, which finds nothing
	$(VENV)/bin/python -m pytest --accelrt-sanitize tests/python \
		--ignore tests/python/test_sanitizer.py --ignore tests/python/test_sanitizer_ring.py
	for script in all_reduce errors memory_diagnosis missing_overlap ring_buffer; do \
		$(VENV)/bin/python -m accelrt sanitize examples/$$script.py >/dev/null || exit 1; \
	done
	ACCELRT_SANITIZER=raise $(VENV)/bin/python -m accelrt demo

# Both runs and their comparison; for the whole suite, which takes some ten minutes, none is named.
# The selection takes up to three: those files whose tests make the most of memory of every size.
NUMPY_TESTS ?=
NUMPY_SELECTION := $(addsuffix .py,$(addprefix _core/tests/test_, \
	indexing item_selection nditer shape_base numeric array_coercion dlpack) \
	$(addprefix lib/tests/test_,function_base shape_base io) linalg/tests/test_linalg)

.PHONY: test-numpy
test-numpy: module ## NumPy's own tests in accelrt's memory, beside a run without; NUMPY_TESTS=selection is short
	$(VENV)/bin/python tests/numpy/suite.py $(TARGET_DIR)/numpy \
		$(if $(filter selection,$(NUMPY_TESTS)),$(NUMPY_SELECTION),$(NUMPY_TESTS))

.PHONY: test-numpy-selection
test-numpy-selection:
	$(MAKE) test-numpy NUMPY_TESTS=selection

# Link-time optimisation sees what no other build sees: an abort at exit was in this module alone.
RELEASE_PYTHON_TESTS ?= $(foreach part,buffer c_api dlpack event exit failures fork host_threads launch \
	launch_host memory numpy_memory profiler stream threads,tests/python/test_$(part).py)
.PHONY: test-python-release
test-python-release: module-release ## Python tests of threads, memory and exits on the optimised module
	$(VENV)/bin/python -m pytest $(RELEASE_PYTHON_TESTS)

.PHONY: test-python-release-all
test-python-release-all:
	$(MAKE) test-python-release RELEASE_PYTHON_TESTS=

.PHONY: check-python
check-python: module ## format, lints and types of the Python part, and its stubs against it
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m mypy.stubtest --allowlist tests/python/stubtest_allowlist.txt --ignore-unused-allowlist accelrt

.PHONY: stubs
stubs: module ## brings docstrings into the stubs, where editors look for them; writes those of kinds
	$(VENV)/bin/python tests/python/stub_docs.py
	$(VENV)/bin/python tests/python/kind_stubs.py
	$(VENV)/bin/ruff format --quiet python/accelrt/*.pyi python/accelrt/*/*.pyi

# Optimised, and so without debug assertions: they keep the ranks of held locks per system thread,
# and a model runs all of its threads on one.
.PHONY: loom
loom: ## every interleaving of the lock-free parts, in models
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom $(RELEASE_TESTS) \
		$(CARGO) test --release --lib loom

# Which: words of the lines that it prints, `--sample COUNT`, `--seed SEED`.
WEAKEN ?=
.PHONY: weaken
weaken: $(VENV)/ready ## make each atomic ordering weaker, one at a time, and see that models fail
	models=$$(RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom $(RELEASE_TESTS) \
		$(CARGO) test --release --lib --no-run --message-format=json \
		| sed -n 's/.*"name":"accelrt".*"executable":"\([^"]*\)".*/\1/p'); \
	CARGO_TARGET_DIR=$(TARGET_DIR) $(VENV)/bin/python tests/mutants/weaken.py "$$models" $(WEAKEN)

.PHONY: asan
asan: ## unit and integration tests under the address sanitizer
	$(ASAN) $(CARGO) test --target $(HOST) --features $(TEST_FEATURES) --lib --tests

# Nightly with `rust-src`: without a standard library built with the sanitizer, the order that a sleep
# and a wake make is not seen. What it cannot run is skipped; see docs/testing.md. A backtrace takes
# longer under it than the tests' watchdogs allow.
.PHONY: tsan
tsan: ## data races, under the thread sanitizer of a nightly compiler
	RUST_BACKTRACE=0 ACCELRT_TEST_PROGRAMS=200 \
		RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$(TARGET_DIR)/tsan \
		$(CARGO) +nightly test -Zbuild-std --target $(HOST) --features $(TEST_FEATURES) \
		--lib --test engine --test order --test buffer --test ffi -- \
		--skip fork:: --skip fence_tests:: --skip random_sequences_agree_with_a_model

# What it finds new stands below the target folder; what is worth keeping goes to fuzz/corpus.
FUZZ_S ?= 60
.PHONY: fuzz
fuzz: ## programs made by a fuzzer, for FUZZ_S seconds; needs a nightly compiler and cargo-fuzz
	mkdir -p $(TARGET_DIR)/fuzz/corpus
	$(CARGO) +nightly fuzz run --target-dir "$(call absolute,$(TARGET_DIR)/fuzz)" allocator \
		$(TARGET_DIR)/fuzz/corpus fuzz/corpus/allocator -- -max_total_time=$(FUZZ_S) -len_control=0 -max_len=4096

# Parts of PyTorch's wheels, some MB, are kept in ORACLE_CACHE between runs, of other checkouts too;
# for each the whole wheel is downloaded once. With ORACLE_REQUIRED=1 it fails where there are none.
# ORACLE has more: ORACLE="--kinds oom fraction", ORACLE="--shrink 'oom 7'".
ORACLE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/accelrt/oracle
ORACLE_OPERATIONS ?= 100000
ORACLE ?=
.PHONY: oracle
oracle: $(VENV)/ready ## compare policy torch with PyTorch's compiled allocator, ORACLE_OPERATIONS steps
	CARGO=$(CARGO) $(VENV)/bin/python tests/oracle/oracle.py --cache "$(call absolute,$(ORACLE_CACHE))" \
		--target "$(call absolute,$(TARGET_DIR)/oracle)" --operations $(ORACLE_OPERATIONS) $(ORACLE)

# To run some: make mutants MUTANTS="fence GIL"
MUTANTS ?=
.PHONY: mutants
mutants: $(VENV)/ready ## plant defects and see that named tests fail
	CARGO_TARGET_DIR=$(TARGET_DIR) $(VENV)/bin/python tests/mutants/run.py $(MUTANTS)

.PHONY: check-mutants
check-mutants: $(VENV)/ready
	$(VENV)/bin/python tests/mutants/run.py --stale

# A sample of MUTATION_COUNT mutants of the areas, drawn by MUTATION_SEED; a run that was interrupted
# goes on with the same seed. To try the survivors again: make mutation MUTATION="--again"
MUTATION_SEED ?= 16
MUTATION_COUNT ?= 60
MUTATION ?=
.PHONY: mutation
mutation: $(VENV)/ready ## cargo-mutants' mutants, a seeded sample: at least 90 % are noticed by a test
	@$(CARGO) mutants --version >/dev/null 2>&1 || { \
		echo "cargo-mutants is not installed: cargo install --locked cargo-mutants"; \
		exit 1; \
	}
	CARGO_TARGET_DIR=$(TARGET_DIR)/mutation $(VENV)/bin/python tests/mutants/mutation.py \
		--seed $(MUTATION_SEED) --count $(MUTATION_COUNT) $(MUTATION)

.PHONY: nightly
nightly: ## what takes hours: planted defects, weaker orderings, a sample of mutants, every suite on every build
	$(STEPS) faults removals-test test-release-all test-asan test-intel-all test-python-release-all long-dask wheel packages \
		weaken mutation mutants

.PHONY: long-dask
long-dask: module ## workers of dask.distributed: killed five times in a row, 10,000 tasks, beside plain dask
	TEST_LONG=1 $(VENV)/bin/python -m pytest tests/python/test_dask.py tests/python/test_dask_store.py tests/python/test_dask_shortage.py

.PHONY: build
build: ## the optimised library for C
	$(CARGO) build --release --package accelrt-capi
	@ls -l $(TARGET_DIR)/release/libaccelrt_capi.*

# Where programs in C find it: library, headers, and what pkg-config says. Packagers set DESTDIR.
PREFIX ?= /usr/local
DESTDIR ?=
C_ABI = $(shell sed -n 's/^\#define ACCELRT_ABI_VERSION //p' include/accelrt.h)
C_LIBRARY = libaccelrt.so.$(C_ABI)
INSTALLED = $(DESTDIR)$(PREFIX)
.PHONY: install
install: ## installs the library for C, its headers and its pkg-config file below PREFIX
	$(CARGO) rustc --release --package accelrt-capi --lib --crate-type cdylib -- \
		-C link-arg=-Wl,-soname,$(C_LIBRARY)
	install -d "$(INSTALLED)/lib/pkgconfig" "$(INSTALLED)/include"
	install -m 755 $(TARGET_DIR)/release/libaccelrt_capi.so "$(INSTALLED)/lib/$(C_LIBRARY)"
	ln -sf $(C_LIBRARY) "$(INSTALLED)/lib/libaccelrt.so"
	install -m 644 include/accelrt.h include/accelrt.hpp include/accelrt_backend.h "$(INSTALLED)/include"
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: accelrt' \
		'Description: Streams, events and stream-ordered memory of any device' \
		"Version: $$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)" \
		'Cflags: -I$${prefix}/include' 'Libs: -L$${prefix}/lib -laccelrt' \
		>"$(INSTALLED)/lib/pkgconfig/accelrt.pc"

$(PACKAGING)/ready: pyproject.toml
	rm -rf $(PACKAGING)
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install --quiet 'pip>=25.1'
	$(PACKAGING)/bin/python -m pip install --quiet --group build --group packaging
	touch $@

# zig links against the C library of 2014, whatever this machine's is.
.PHONY: wheel
wheel: $(PACKAGING)/ready ## the wheel for any Linux on x86-64, checked and tried in an empty environment
	rm -rf $(WHEELS) $(TRIED)
	PATH="$(call absolute,$(PACKAGING)/bin):$$PATH" CARGO_TARGET_DIR="$(call absolute,$(TARGET_DIR)/packaging)" \
		$(PACKAGING)/bin/maturin build --quiet --release --zig --compatibility manylinux2014 \
		--compression-level 9 --out $(WHEELS)
	ls -l $(WHEELS)
	$(PACKAGING)/bin/auditwheel show $(WHEELS)/*.whl | grep manylinux_2_17_x86_64
	$(PYTHON) -m venv $(TRIED)
	$(TRIED)/bin/python -m pip install --quiet $(WHEELS)/*.whl
	cd $(TRIED) && bin/python -m accelrt --version && bin/python -m accelrt demo
	cd $(TRIED) && bin/python -m accelrt view "$(call absolute,tests/data/own_gpt_fixed.ops.csv)" -o page.html
	$(TRIED)/bin/python -m pip install --quiet 'pip>=25.1'
	$(TRIED)/bin/python -m pip install --quiet pytest hypothesis numpy
	$(TRIED)/bin/python -m pytest --quiet $(WHEEL_TESTS)

# Without link-time optimisation: that they build is seen, not how fast they are.
.PHONY: packages
packages: $(PACKAGING)/ready ## the source distribution and the crate, each built without the repository
	rm -rf $(TARGET_DIR)/packaging/source
	$(PACKAGING)/bin/maturin sdist --out $(TARGET_DIR)/packaging/source
	$(RELEASE_TESTS) $(PACKAGING)/bin/python -m pip wheel --quiet --no-deps \
		--wheel-dir $(TARGET_DIR)/packaging/source $(TARGET_DIR)/packaging/source/*.tar.gz
	$(CARGO) package --workspace --exclude accelrt-python --exclude accelrt-benches --all-features

.PHONY: doc
doc: ## the documentation, in target/doc
	$(CARGO) doc --workspace --no-deps --all-features

.PHONY: fmt
fmt: $(VENV)/ready ## format the code
	$(CARGO) fmt
	$(VENV)/bin/ruff format

$(MATH)/ready: pyproject.toml
	rm -rf $(MATH)
	$(PYTHON) -m venv $(MATH)
	$(MATH)/bin/python -m pip install --quiet 'pip>=25.1'
	$(MATH)/bin/python -m pip install --quiet --group math
	touch $@

# Like the packages they are installed where that is possible: tests skip without them, and
# `.ci/run` sees that they ran.
.PHONY: peers
peers: ## what measurements run under and compare with, and tests watch; by apt-get and pip
	@.ci/peers
	@$(MAKE) --silent $(MATH)/ready || echo "peers: not installed, as pip failed: oneMKL and oneDNN"

# The library in the pages of `view` is npm's, file by file; its version stands in its README.
VIEWER := python/accelrt/cli/view/vendor/uplot
VIEWER_PACKAGE = uplot@$(shell sed -n '1s/^uPlot \([0-9.]*\).*/\1/p' $(VIEWER)/README.md)
.PHONY: viewer
viewer: ## compare the library in pages of `view` with npm's package, which it downloads
	rm -rf $(TARGET_DIR)/viewer
	mkdir -p $(TARGET_DIR)/viewer
	cd $(TARGET_DIR)/viewer && npm pack --silent $(VIEWER_PACKAGE) && tar -xzf uplot-*.tgz
	cd $(VIEWER) && sha256sum --check --strict SHA256SUMS
	for file in LICENSE dist/uPlot.iife.min.js dist/uPlot.min.css; do \
		cmp "$(TARGET_DIR)/viewer/package/$$file" "$(VIEWER)/$${file#dist/}"; \
	done

# Of tests' own data, in the window that the tests of pages have.
.PHONY: pictures
pictures: module ## takes the pictures in docs/pictures anew; needs Chromium (make peers)
	mkdir -p docs/pictures
	TEST_NEEDS_CHROMIUM=1 PICTURES="$(call absolute,docs/pictures)" \
		$(VENV)/bin/python -m pytest tests/python/test_view_browser.py -k "not million"
	ls -l docs/pictures

.PHONY: dpctl
dpctl: module ## a SYCL queue to compare with in `make bench`, by pip: a gigabyte, so not among the peers
	$(VENV)/bin/python -m pip install --quiet dpctl

# Advisories are a database in the network; the rest needs what Cargo.lock has and no more.
DENY ?= bans licenses sources
.PHONY: deny
deny: ## licences, bans and sources of the dependencies; with DENY=advisories known defects, by the network
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --all-features --offline check $(DENY); \
	else \
		echo "cargo-deny is not installed: cargo install --locked cargo-deny"; \
		exit 1; \
	fi

.PHONY: clean
clean: ## remove what was built
	$(CARGO) clean
	rm -rf $(VENV) $(INTEL) $(MATH) $(PACKAGING) $(TORCH)
