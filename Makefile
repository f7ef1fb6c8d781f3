# The commands of the project; bare `make` lists them. What needs a Python environment is a session
# of noxfile.py, which `make` runs under the same name.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# The interpreter that the environments are made with: 3.11 or newer.
PYTHON ?= python3
# By a shell: make's own functions take a space in a path for two paths.
absolute = $(shell realpath --no-symlinks --canonicalize-missing -- "$(1)")
# Builds with other flags have folders of their own: sharing one would rebuild everything each time.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
# Optimised builds of tests: without link-time optimisation, which would be paid for each binary.
RELEASE_TESTS := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
LOOM := RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom $(RELEASE_TESTS)
# The sanitizer is unstable in the compiler, which RUSTC_BOOTSTRAP admits. Naming the target keeps
# it out of build scripts and procedural macros.
ASAN := RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$(TARGET_DIR)/asan
# A folder of recorded requests, `ops/*.ops.csv` and `pytorch/*.pickle`, that are not part of the
# repository: tests/data/README.md lists them. Tests and figures that need them say so without it.
ifneq ($(TRACES),)
export ACCELRT_TEST_TRACES := $(call absolute,$(TRACES))
endif
# libtest has no time limit. The watchdog prints the stacks of a test that runs for HANG_TEST_S
# seconds (tests/watchdog/longer.toml lists the longer ones) and ends it, and a binary after HANG_S.
export HANG_TEST_S ?= 120
export HANG_S ?= 1800
RUNNER := CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER
test-debug test-device test-release test-asan test-xpu test-xpu-fake removals-test stress faults \
	loom asan tsan: export $(RUNNER) = tests/watchdog/watch.py
# Sanitizers are slow, and a model takes as long as it has interleavings.
test-asan asan tsan loom: HANG_TEST_S := 600

CHECKS := fmt-check check-locks clippy features doc-check tidy check-header check-public check-mutants check-python
TESTS := test-debug test-python
# Other builds and kinds of device, and what takes longer than a change needs each time.
VARIANTS := removals loom test-scheduled test-device test-xpu-fake test-python-xpu-fake \
	test-python-device oracle test-numpy-selection test-intel test-torch-or-say demo \
	test-python-release counts
# What takes hours: planted defects, weaker orderings, a sample of mutants, suites on other builds.
NIGHTLY := faults removals-test test-release-all test-asan test-intel-all test-python-release-all \
	long-dask wheel packages weaken mutation mutants
SESSIONS := module module-release demo test-python test-python-release test-python-release-all \
	test-python-xpu-fake test-python-device intel test-python-intel test-python-intel-all \
	test-sanitized test-numpy test-numpy-selection long-dask check-python format-python stubs pictures \
	check-replay replays check-replays counts counts-accept dpctl bench oracle torch test-torch \
	test-torch-or-say bench-torch weaken mutants check-mutants mutation wheel packages math
# Runs targets one after the other, and prints the minutes and the number of tests of each.
STEPS = +MAKE="$(MAKE)" $(PYTHON) tests/steps/steps.py

.PHONY: help ci check test nightly $(SESSIONS) $(CHECKS) $(TESTS) $(VARIANTS) $(NIGHTLY) public-items \
	header unsafe-list test-release test-xpu stress asan tsan fuzz build install doc fmt peers viewer deny clean
# The environment has one module at a time.
.NOTPARALLEL:

help: .venv-nox/ready ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-24s %s\n", $$1, $$2 }' Makefile
	@.venv-nox/bin/nox --list | sed -n 's/^[-*] \([a-z-]*\) -> /\1\t/p' | expand -t 25

ci: ## everything that must pass before a change is merged
	$(STEPS) $(CHECKS) $(TESTS) $(VARIANTS)

check: $(CHECKS) ## format, lints, documentation, rules

test: ## the tests in Rust, then those in Python; `make ci` runs them on other builds and devices too
	$(STEPS) $(TESTS)

nightly: ## everything that takes hours
	$(STEPS) $(NIGHTLY)

.venv-nox/ready:
	$(PYTHON) -m venv .venv-nox
	.venv-nox/bin/python -m pip install --quiet 'nox>=2026'
	touch $@

# Variables of make's command line are in the environment, where the sessions look.
$(SESSIONS): .venv-nox/ready
	.venv-nox/bin/nox --session $@

fmt-check: ## the format of the Rust code
	$(CARGO) fmt --all --check
	$(CARGO) fmt $(DEVICE_CRATE) --check

# The crates beside this one, whose builds take no lock file that this one's dependencies changed.
check-locks: ## the lock files of the crates outside of the workspace
	for crate in fuzz examples/device tests/oracle/peer; do \
		$(CARGO) update --quiet --workspace --locked --manifest-path $$crate/Cargo.toml || exit 1; \
	done

clippy: ## the lints of all crates
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

features: ## without the feature `async`
	$(CARGO) clippy -- -D warnings

doc-check: ## the documentation has no broken links
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features --document-private-items

# rustdoc's description of the crate is unstable, which RUSTC_BOOTSTRAP admits; its form is that of
# the toolchain.
PUBLIC_DOC := $(TARGET_DIR)/public
PUBLIC_CRATES := accelrt accelrt-mkl accelrt-observe accelrt-opencl accelrt-random accelrt-replay accelrt-testing
check-public: ## the public items are those of docs/public_items.txt, half have examples, pages name nothing private
	for crate in $(PUBLIC_CRATES); do \
		RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$(PUBLIC_DOC) $(CARGO) rustdoc --quiet --package $$crate --lib \
			--all-features -- -Z unstable-options --output-format json || exit 1; \
	done
	$(PYTHON) tests/public/items.py docs/public_items.txt $(PUBLIC_FLAGS) \
		$(foreach crate,$(subst -,_,$(PUBLIC_CRATES)),$(PUBLIC_DOC)/doc/$(crate).json)

public-items: ## writes docs/public_items.txt
	$(MAKE) check-public PUBLIC_FLAGS=--accept

TIDY := $(CARGO) test --quiet --features async --test tidy --
tidy: ## the rules of the project alone
	$(TIDY) --nocapture

unsafe-list: ## writes docs/unsafe.md, the list of files with unsafe code
	$(TIDY) --ignored

HEADER := $(CARGO) test --quiet --package accelrt-capi --test header --
check-header: ## include/accelrt.h has the functions of crates/accelrt-capi
	$(HEADER)

header: ## writes include/accelrt.h
	$(HEADER) --ignored

test-debug: ## the tests in Rust
	$(CARGO) test --workspace --all-features

# Each as ACCELRT_CPU_SCHEDULE has it, as "seed:3,strategy:starve"; without one, two.
SCHEDULES ?=
test-scheduled: ## the suites of engine, buffers, order and allocator under schedules
	CARGO=$(CARGO) TEST_FEATURES=async $(PYTHON) tests/schedules/suites.py $(SCHEDULES)

# A crate of its own, as a maker of devices has one.
DEVICE_CRATE := --manifest-path examples/device/Cargo.toml
DEVICE := CARGO_TARGET_DIR="$(call absolute,$(TARGET_DIR)/device)" $(CARGO)
test-device: ## a stranger's kind of device against the conformance kit, and ten that break their word
	$(DEVICE) clippy --locked $(DEVICE_CRATE) --all-targets -- -D warnings
	$(DEVICE) test --locked $(DEVICE_CRATE)

# Races show up at full speed, not under debug assertions.
RELEASE_SUITES := --lib $(addprefix --test ,allocator buffer engine order stress)
OPTIMISED_TEST := $(RELEASE_TESTS) CARGO_TARGET_DIR=$(TARGET_DIR)/test-release $(CARGO) test --release --features async
test-release: ## the suites with many threads, in an optimised build
	$(OPTIMISED_TEST) $(RELEASE_SUITES)

test-release-all: ## all suites of the root crate, in an optimised build
	$(OPTIMISED_TEST) --lib --tests

stress: ## the stress test with its large ones: minutes
	$(OPTIMISED_TEST) --test stress -- --include-ignored --nocapture --test-threads=1

# A million tasks meet the sanitizer, so this one target is built optimised for it.
test-asan: ## the stress test under the address sanitizer
	$(ASAN) $(RELEASE_TESTS) $(CARGO) test --release --target $(HOST) --features async --test stress

asan: ## unit and integration tests under the address sanitizer
	$(ASAN) $(CARGO) test --target $(HOST) --features async --lib --tests

# Nightly with `rust-src`: without a standard library built with the sanitizer, the order that a sleep
# and a wake make is not seen. What it cannot run is skipped; see docs/testing.md. A backtrace takes
# longer under it than the tests' watchdogs allow.
tsan: ## data races, under the thread sanitizer of a nightly compiler
	RUST_BACKTRACE=0 ACCELRT_TEST_PROGRAMS=200 \
		RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$(TARGET_DIR)/tsan \
		$(CARGO) +nightly test -Zbuild-std --target $(HOST) --features async \
		--lib --test engine --test order --test buffer --test ffi -- \
		--skip fork:: --skip fence_tests:: --skip random_sequences_agree_with_a_model

removals: ## deletes each crate with its dependents, and checks that the rest builds
	$(PYTHON) tests/steps/removals.py check

removals-test: ## the same, with the tests of the rest
	$(PYTHON) tests/steps/removals.py test

faults: ## which calls of a backend were failed in which scenarios, and the laws after each
	ACCELRT_TEST_FAULT_CALLS=12 $(CARGO) test --features async --test faults -- --nocapture --test-threads=1

# They are ignored elsewhere because not every machine has a runtime; here one that is missing fails.
# Tests of kernels need one that compiles programs of ours, which the fake does not.
OPENCL := --package accelrt-opencl --features accelrt/async
XPU_TESTS ?= device faults order
test-xpu: ## the Rust tests that need an OpenCL runtime with unified shared memory
	$(CARGO) test $(OPENCL) $(addprefix --test ,$(XPU_TESTS)) -- --ignored --show-output xpu

# Its own tests build the fake. `strict`: a rule of OpenCL that is broken ends the process. Tests that
# run at once share its devices, each up to a limit of its own. Each command takes some time, so that
# others wait for it.
test-xpu-fake: ## the same on a fake OpenCL, whose device memory the host cannot read
	$(CARGO) test $(OPENCL) --test fake self_test
	ACCELRT_OPENCL_LIBRARY="$(call absolute,$(TARGET_DIR)/tmp/libfake_opencl_whole.so)" \
		FAKE_OPENCL=devices=2,priorities=1,strict=1,memory=64G,command_us=20 $(MAKE) test-xpu

# By the distribution's loader (make peers): the wheels' own takes no library by OCL_ICD_VENDORS.
test-intel test-intel-all: test-%: intel ## the same on Intel's runtime for CPUs, in Rust and Python
	OCL_ICD_VENDORS="$(call absolute,.venv-intel/lib/libintelocl.so)" $(MAKE) test-xpu XPU_TESTS="$(XPU_TESTS) kernels"
	$(MAKE) test-python-$*

loom: ## every interleaving of the lock-free parts, in models
	$(LOOM) $(CARGO) test --release --lib loom

# What it finds new stands below the target folder; what is worth keeping goes to fuzz/corpus.
FUZZ_S ?= 60
fuzz: ## programs made by a fuzzer, for FUZZ_S seconds; needs a nightly compiler and cargo-fuzz
	mkdir -p $(TARGET_DIR)/fuzz/corpus
	$(CARGO) +nightly fuzz run --target-dir "$(call absolute,$(TARGET_DIR)/fuzz)" allocator \
		$(TARGET_DIR)/fuzz/corpus fuzz/corpus/allocator -- -max_total_time=$(FUZZ_S) -len_control=0 -max_len=4096

build: ## the optimised library for C
	$(CARGO) build --release --package accelrt-capi
	@ls -l $(TARGET_DIR)/release/libaccelrt_capi.*

# Where programs in C find it: library, headers, and what pkg-config says. Packagers set DESTDIR.
PREFIX ?= /usr/local
DESTDIR ?=
install: ## installs the library for C, its headers and its pkg-config file below PREFIX
	CARGO=$(CARGO) CARGO_TARGET_DIR=$(TARGET_DIR) crates/accelrt-capi/install.sh "$(PREFIX)" "$(DESTDIR)"

doc: ## the documentation, in target/doc
	$(CARGO) doc --workspace --no-deps --all-features

fmt: format-python ## format the code
	$(CARGO) fmt --all

# Tests skip without them, and `.ci/run` sees that they ran.
peers: ## what measurements run under and compare with, and tests watch; by apt-get and pip
	@.ci/peers
	@$(MAKE) --silent math || echo "peers: not installed, as pip failed: oneMKL and oneDNN"

viewer: ## compare the library in pages of `view` with npm's package, which it downloads
	tests/steps/viewer.sh $(TARGET_DIR)/viewer

# Advisories are a database in the network; the rest needs what Cargo.lock has and no more.
DENY ?= bans licenses sources
deny: ## licences, bans and sources of the dependencies; with DENY=advisories known defects, by the network
	$(CARGO) deny --all-features --offline check $(DENY)

clean: ## remove what was built
	$(CARGO) clean
	rm -rf .venv .venv-intel .venv-math .venv-nox .venv-packaging .venv-torch
