# Everything runs in .venv, which `make setup` fills with exactly what requirements/ locks. Needs Python 3.11+ and, for Spark, Java 17+.
PYTHON ?= python3
VENV := .venv
DAFT_VENV := .venv-daft
RAY_VENV := .venv-ray
DEMO_VENV := .venv-demo
PYICEBERG_VENV := .venv-pyiceberg
SPARK_VENV = .venv-spark-$(VERSION)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(DEMO_VENV)/.installed
SPARK_STAMP = $(SPARK_VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
WORKERS ?= 3
FUZZ_SECONDS ?= 60
OTHER_PYTHONS ?= 3.11 3.12 3.13 3.14
# The first that is another one than that of .venv, which may be another patch release: Debian 12 still has 3.11.2.
FULL_VERSION := -c 'import ensurepip, sys; print(sys.version)'
FIND_PYTHON = found=; own=$$($(BIN)/python $(FULL_VERSION)); \
	for each in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python$$version /usr/bin/python$$version; do \
	if theirs=$$("$$each" $(FULL_VERSION) 2>/dev/null) && [ "$$theirs" != "$$own" ]; then found=$$each; break; fi; done
LOWEST_VENV := .venv-lowest
LOWEST_STAMP = $(LOWEST_VENV)/$(INSTALLED)
OTHER_VENV = .venv-$(VERSION)
OTHER_STAMP = $(OTHER_VENV)/$(INSTALLED)
# INTERPRETER_TESTS=tests runs all that test-fast runs, on each interpreter.
BYTES_TESTS := tests/security/test_kept_errors.py tests/crypto tests/files tests/manifests/test_tampering.py tests/parquet/test_thrift.py \
	tests/table/test_scan_tampering.py
INTERPRETER_TESTS ?= $(BYTES_TESTS)
# Where a release below the lowest was seen to fail: Arrow's streams, filelock's links, Click's choices, the seals of cryptography, and
# bitmaps of pyroaring.
BOUNDS_TESTS := tests/catalog/test_read_restrictions.py tests/catalog/test_pin_file.py tests/cli/test_help.py tests/cli/test_sealed_shares.py \
	tests/table/test_deletes.py
LOWEST_TESTS ?= $(INTERPRETER_TESTS) $(BOUNDS_TESTS)
# What those tests do without is left out of their environments, which take half the disk and no build of Spark then. For others all is there.
LEFT_OUT = $(if $(filter-out $(BYTES_TESTS) $(BOUNDS_TESTS),$(INTERPRETER_TESTS) $(LOWEST_TESTS)),,--excludes requirements/left-out.txt)
INSTALLED = .installed$(if $(LEFT_OUT),-for-bytes)
SPARK_TESTS ?= tests/spark
SPARK_MARKS ?= java and not campaign
BASE ?= main
STEPS ?= 2
# Those whose tests Hypothesis feeds, state machines and tests inside of tests among them.
PROPERTY_TESTS ?= $(shell grep -rlE '^(from|import) hypothesis' tests --include='test_*.py' | LC_ALL=C sort)
NIGHTLY_SPARKS ?= 4.0.5 4.1.4 4.2.1 4.3.0
NIGHTLY_PARTS ?= test-nightly-properties fuzz test-pyiceberg-next $(NIGHTLY_SPARKS:%=test-spark-%) test-all-interpreters test-all-lowest test-packages test-programs test-tools test-trino services daft ray campaign mutation
RUNTIME_EXTRAS := aws gcp azure vault lzo spark ray cli report adlfs duckdb gcsfs glue hive pandas polars s3fs sql-postgres testing
ISSUE_FORMS := $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
FUZZ_TARGETS := $(filter-out fuzz/harness.py,$(wildcard fuzz/*.py))
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# The environments beside .venv: uv fetches a package once and links it into each, which takes seconds and not minutes.
UV_INTO = $(BIN)/uv pip install --quiet --python
LOCK_DOCS := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --python-version 3.11 \
	--custom-compile-command 'make lock'
LOCK := $(LOCK_DOCS) pyproject.toml
REQUIRE_PYTHON := $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tablecrypt needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d. Try: make $(MAKECMDGOALS) PYTHON=python3.12" % sys.version_info[:2])'

# Tests start many processes, each of which would compile the package anew where this is set, as it is in many images of containers.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-spark test test-tools test-all test-rest test-examples test-fast test-changed test-slowest test-nightly nightly-parts test-nightly-properties test-all-interpreters test-all-lowest test-pyiceberg test-pyiceberg-next test-trino services conformance conformance-vectors test-spark spark-venv test-interpreters test-interpreter test-lowest test-packages campaign lint lint-workflows bench bench-growth bench-storage fuzz daft ray mutation docs lock wheel sbom changelog release github-release clean test-programs

help:
	@echo "make setup      install tablecrypt and all that its tests need into $(VENV)  (PYTHON=$(PYTHON))"
	@echo "make demo       an encrypted table from creation to scan, and a look at its bytes  (about a minute, in $(DEMO_VENV))"
	@echo "make demo-spark an encrypted table in Spark SQL, and a pipeline  (needs Java 17 or newer, and 2.2 GB for all that the tests need)"
	@echo "make test       lint, and the tests that a person waits for  (about ten minutes; those with Java need Java 17 or newer)"
	@echo "make test-all   make test, and the tests that it leaves: slow ones, all with Java, those in a browser, all examples"
	@echo "make test-trino what Trino reads of these tables, and what it refuses  (needs Java 25 or newer, and Maven)"
	@echo "make services   tables in stores, catalogs and key services that others wrote  (needs node, npm, Go, Cargo, Maven and Java 21)"
	@echo "make conformance  what readers that are here make of the conformance kit: docs/conformance.md  (Trino and Iceberg Java take minutes)"
	@echo "make conformance-vectors  build the kit's tables and files again, the same bytes each time"
	@echo "make test-fast  the tests that need neither Java nor patience"
	@echo "make test-changed  the tests that what differs from BASE=main can affect, as far as STEPS=2 imports away"
	@echo "make test-slowest  what the tests of the last runs took: by test, module, folder and tier"
	@echo "make test-nightly  random examples, fuzzing, other releases of Spark, PyIceberg and Python, the campaign and mutation: a night"
	@echo "                   (NIGHTLY_PARTS='fuzz campaign' runs some; needs Java 17 or newer)"
	@echo "make test-tools     the tests of the tools that the suite and releases are made with, which are slow  (a part of the night)"
	@echo "make campaign   the long tests: attacks, kills, faults, load, Iceberg's own test classes  (hours; needs a JDK 17 or newer)"
	@echo "make lint       ruff, mypy, the import contracts, and the workflows and forms in .github"
	@echo "make lint-workflows  the workflows under actionlint  (needs Go)"
	@echo "make bench      the benchmarks; their ratios and curves become docs/performance.md  (at most 25 minutes; Spark's need Java 17 or newer)"
	@echo "make bench-growth   how cost grows with files, snapshots, columns, rows and writers, for docs/performance.md  (about half an hour)"
	@echo "make bench-storage  the ratios for files of other sizes, codecs and writers, for docs/performance.md  (a quarter of an hour; Java 17 or newer)"
	@echo "make fuzz       every parser under atheris for FUZZ_SECONDS=60 each"
	@echo "make test-pyiceberg VERSION=0.12.1   the tests without Java against another release of PyIceberg, in $(PYICEBERG_VENV)"
	@echo "make test-interpreters  what reads and writes bytes, on each of Python $(OTHER_PYTHONS) that is found, in .venv-3.12 …"
	@echo "make test-packages      the wheel and the source distribution in empty environments, with each extra alone, on each Python that is found"
	@echo "make test-programs      dlt, dbt, Dagster and the others of docs/how-to/programs.md, each in an environment with its newest release"
	@echo "                        (PROGRAM=dlt runs one; they are not locked)"
	@echo "make test-lowest  the same with the lowest versions that pyproject.toml allows, in $(LOWEST_VENV)"
	@echo "make test-spark VERSION=4.3.0        the tests of Spark against another release of it, in .venv-spark-4.3.0  (needs Java 17 or newer)"
	@echo "make daft       the tests with Daft, which wants another pyarrow and gets $(DAFT_VENV)"
	@echo "make ray        the tests with Ray, on clusters of this machine, in $(RAY_VENV)  (some minutes)"
	@echo "make mutation   changes of crypto/, keys/, AGS1, pins and commit rules that no test notices (an hour or two)"
	@echo "make docs       the documentation site in build/site, which needs no network to read  (built in $(DOCS_VENV))"
	@echo "make lock       resolve requirements/ again from pyproject.toml"
	@echo "make wheel      the wheel in dist/, the same bytes wherever it is built"
	@echo "make sbom       dist/tablecrypt.cdx.json: every package that an installation can bring, with its hashes (CycloneDX)"
	@echo "make changelog  move the sentences in changes/ into CHANGELOG.md, for a release"
	@echo "make release TAG=v1.2.3  what docs/releasing.md releases, in dist/: built twice and compared"
	@echo "make clean      remove what the targets above made, $(VENV) included"

setup: $(STAMP)

$(STAMP): pyproject.toml requirements/dev.txt
	@$(REQUIRE_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Not in .venv: that one has all that the tests need, which takes minutes to install.
demo: $(DEMO_STAMP)
	@rm -rf demo
	@$(DEMO_VENV)/bin/tablecrypt demo --keep demo

$(DEMO_STAMP): SHELL := bash
$(DEMO_STAMP): pyproject.toml requirements/demo.txt
	@$(REQUIRE_PYTHON)
	@echo "1/3  Create $(DEMO_VENV)"
	@test -x $(DEMO_VENV)/bin/python || $(PYTHON) -m venv $(DEMO_VENV)
	@echo "2/3  Install what the command needs, with checked hashes: 100 MB to download, 400 MB on the disk"
	@set -o pipefail; $(DEMO_VENV)/bin/python -m pip --disable-pip-version-check install --no-compile --require-hashes -r requirements/demo.txt \
		| sed -un 's/^Collecting \([^ ]*\).*/       \1/p; s/^Installing collected packages.*/     All are here. Unpack them/p'
	@$(DEMO_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "3/3  Run tablecrypt demo"

demo-spark: setup
	@$(BIN)/python tests/support/java_version.py
	$(BIN)/python examples/spark_first_table.py
	$(BIN)/python examples/spark_pipeline.py

# What a person waits for: all that needs neither Java nor patience, and with Java a chosen set in one Spark session.
test: lint
	$(PYTEST) --tier first --hypothesis-profile quick --numprocesses $(WORKERS) --dist loadgroup

test-all: test test-rest test-examples

# Tests marked java form three groups, each of which runs in one worker: three hold a Spark session at most. They wait for it often, so that
# two cores serve three workers.
test-rest: setup
	$(PYTEST) --tier rest --numprocesses $(WORKERS) --dist loadgroup

# All examples of Hypothesis, of which `make test` tries a fifth. The night tries twenty times as many others.
test-examples: setup
	$(PYTEST) --tier all-examples --numprocesses $(WORKERS) --dist loadgroup

# What the suite and releases are made with: it changes seldom, and `make test-changed` runs it when it does.
test-tools: setup
	$(PYTEST) --numprocesses $(WORKERS) --dist loadgroup -m "nightly and not campaign"

test-fast: setup
	$(PYTEST) --numprocesses $(WORKERS) --dist loadgroup -m "not slow and not java and not campaign"

# What is chosen, and why, is printed first.
test-changed: setup
	@$(BIN)/python -m tests.support.changed_tests --base "$(BASE)" --steps $(STEPS) --numprocesses $(WORKERS) --dist loadgroup

test-slowest: setup
	@$(BIN)/python -m tests.support.slowest_tests

# Every part runs to its end, and a table shows what became of each. One that fails again is `make PART`.
test-nightly: setup
	@$(BIN)/python -m tests.support.nightly $(NIGHTLY_PARTS)

nightly-parts:
	@echo $(NIGHTLY_PARTS)

# Random examples, twenty times as many. What fails is kept in build/nightly, as an @example too. A test may take twenty times as long.
test-nightly-properties: setup
	$(PYTEST) --hypothesis-profile=nightly --timeout 18000 --numprocesses $(WORKERS) --dist loadgroup -m "not campaign and not releases" $(PROPERTY_TESTS)

# All tests without Java, and not only those of reading and writing bytes.
test-all-interpreters:
	@$(MAKE) --no-print-directory test-interpreters INTERPRETER_TESTS=tests

test-all-lowest:
	@$(MAKE) --no-print-directory test-lowest LOWEST_TESTS=tests

# What a release changed of the names that we use without its promise comes first, as a table.
test-pyiceberg: setup
	@test -n "$(VERSION)$(PYICEBERG)" || { echo "which release? make test-pyiceberg VERSION=0.12.1"; exit 2; }
	@test -x $(PYICEBERG_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(PYICEBERG_VENV)
	$(UV_INTO) $(PYICEBERG_VENV)/bin/python --require-hashes -r requirements/dev.txt
	$(UV_INTO) $(PYICEBERG_VENV)/bin/python --no-deps --reinstall "$(or $(PYICEBERG),pyiceberg==$(VERSION))"
	$(UV_INTO) $(PYICEBERG_VENV)/bin/python --no-deps --no-build-isolation --editable .
	$(PYICEBERG_VENV)/bin/python -m tests.support.pyiceberg_surface --changes
	$(PYICEBERG_VENV)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadgroup -m "not java and not slow and not campaign"

# The main branch of PyIceberg, or what the registry has that is newer than the locked release. Where neither is to be had, it says so.
test-pyiceberg-next: setup
	@next=$$($(BIN)/python -m tests.support.next_pyiceberg) || exit 1; \
	test -z "$$next" || $(MAKE) --no-print-directory test-pyiceberg PYICEBERG="$$next"

# Tests that ask Iceberg Java are skipped but on Spark 4.1. SPARK_TESTS=tests/spark/sql runs those of the SQL catalog alone.
test-spark: spark-venv
	@$(BIN)/python tests/support/java_version.py
	$(SPARK_VENV)/bin/python -m pytest --other-spark -m "$(SPARK_MARKS)" $(SPARK_TESTS)

test-spark-%:
	@$(MAKE) --no-print-directory test-spark VERSION=$*

spark-venv: setup
	@test -n "$(VERSION)" || { echo "which release? make test-spark VERSION=4.3.0"; exit 2; }
	@$(MAKE) --no-print-directory $(SPARK_STAMP)

$(SPARK_STAMP): pyproject.toml requirements/dev.txt
	@test -x $(SPARK_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(SPARK_VENV)
	$(UV_INTO) $(SPARK_VENV)/bin/python --require-hashes --excludes requirements/left-out.txt -r requirements/dev.txt
	$(UV_INTO) $(SPARK_VENV)/bin/python "pyspark[connect]==$(VERSION)"
	$(BIN)/uv cache clean --quiet pyspark # its unpacked source and its wheel, 1.9 GB that nothing else takes
	$(UV_INTO) $(SPARK_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

# Pythons beside that of .venv. Buffers, tracebacks and the garbage collector differ between them, so that what reads and writes bytes runs
# on each. One that is not found is named, and is no failure; one that crashes ends the run, which one process alone makes.
test-interpreters:
	@for version in $(OTHER_PYTHONS); do \
	  $(FIND_PYTHON); \
	  if [ -z "$$found" ]; then missing="$$missing $$version"; continue; fi; \
	  $(MAKE) --no-print-directory test-interpreter VERSION=$$version PYTHON="$$found" || exit 1; \
	done; \
	test -z "$$missing" || echo "Not found, and not tested: Python$$missing"

test-interpreter: $(OTHER_STAMP)
	$(OTHER_VENV)/bin/python -m pytest -m "not slow and not java and not campaign and not releases" $(INTERPRETER_TESTS)

# One process, which a crash ends. LOWEST_TESTS=tests runs all that test-fast runs.
test-lowest: $(LOWEST_STAMP)
	$(LOWEST_VENV)/bin/python -m pytest -m "not slow and not java and not campaign and not releases" $(LOWEST_TESTS)

$(LOWEST_STAMP): pyproject.toml requirements/lowest.txt requirements/left-out.txt $(STAMP)
	@test -x $(LOWEST_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(LOWEST_VENV)
	$(UV_INTO) $(LOWEST_VENV)/bin/python --require-hashes $(LEFT_OUT) -r requirements/lowest.txt
	$(UV_INTO) $(LOWEST_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

$(OTHER_STAMP): pyproject.toml requirements/dev.txt requirements/left-out.txt $(STAMP)
	@test -x $(OTHER_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(OTHER_VENV)
	$(UV_INTO) $(OTHER_VENV)/bin/python --require-hashes $(LEFT_OUT) -r requirements/dev.txt
	$(UV_INTO) $(OTHER_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

# Installs twine by itself: nothing else needs it.
test-packages: setup
	$(PIP) install --require-hashes -r requirements/packages.txt
	@for version in $(OTHER_PYTHONS); do \
	  $(FIND_PYTHON); \
	  if [ -z "$$found" ]; then missing="$$missing $$version"; else pythons="$$pythons $$found"; fi; \
	done; \
	OTHER_PYTHONS="$$pythons" $(PYTEST) tests/packages || exit 1; \
	test -z "$$missing" || echo "Not found, and not tested: Python$$missing"

# Each program in .venv-programs-…, with the newest release that goes beside ours. PROGRAM="dlt daft" runs these.
test-programs: setup
	$(BIN)/python -m tests.programs.environments $(PROGRAM)
	TABLECRYPT_PROGRAMS="$(PROGRAM)" $(PYTEST) tests/programs

campaign: setup
	$(PYTEST) --numprocesses $(WORKERS) --dist loadgroup -m campaign

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/zizmor --offline --quiet --persona pedantic .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms $(ISSUE_FORMS)

# Of the expressions in the workflows, which a schema does not know. Needs Go, whose checksum database knows this version.
lint-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Installs tpchgen-cli by itself: nothing else needs it.
bench: setup
	$(PIP) install --require-hashes -r requirements/bench.txt
	$(BIN)/python benchmarks/_all.py build/bench docs; missed=$$?; \
	  $(BIN)/python benchmarks/_readme_plot.py build/bench . || missed=1; exit $$missed

bench-growth: setup
	$(BIN)/python benchmarks/growth.py benchmarks/growth.json docs

bench-storage: setup
	$(BIN)/python benchmarks/storage.py benchmarks/storage.json docs

# Installs atheris by itself: nothing else needs it. A target that fails does not keep the others from running.
fuzz: setup
	$(PIP) install --require-hashes -r requirements/fuzz.txt
	@for target in $(FUZZ_TARGETS); do \
	  echo "== $$target"; \
	  PYTHONPATH=.:catalog $(BIN)/python $$target -max_total_time=$(FUZZ_SECONDS) || failed="$$failed $$target"; \
	done; \
	test -z "$$failed" || { echo "Failed:$$failed"; exit 1; }

# Trino's jars come by Maven the first time, half a gigabyte of them.
test-trino: setup
	$(PYTEST) -m trino tests/trino tests/conformance

# What is fetched the first time, by npm, Go and Maven, stays in the user's cache folder. What a tool is missing for is skipped, and said.
services: setup
	$(PYTEST) -m services tests/services tests/conformance

# The page is a run: what is not there is left out, and said. Tables lie where their metadata says, in /tmp/iceberg-encryption-conformance.
conformance: setup
	PYTHONPATH=.:catalog $(BIN)/python conformance/run.py --page docs/conformance.md

conformance-vectors: setup
	PYTHONPATH=.:catalog $(BIN)/python -m conformance.build

daft: setup
	@test -x $(DAFT_VENV)/bin/python || $(BIN)/python -m venv --without-pip $(DAFT_VENV)
	$(UV_INTO) $(DAFT_VENV)/bin/python --require-hashes -r requirements/daft.txt
	$(UV_INTO) $(DAFT_VENV)/bin/python --no-deps --no-build-isolation --editable .
	DAFT_PYTHON=$(CURDIR)/$(DAFT_VENV)/bin/python $(PYTEST) tests/engines

# Nodes and workers of Ray are processes that take seconds to start each, so this runs at night.
ray: setup
	@test -x $(RAY_VENV)/bin/python || $(BIN)/python -m venv --without-pip $(RAY_VENV)
	$(UV_INTO) $(RAY_VENV)/bin/python --require-hashes -r requirements/ray.txt
	$(UV_INTO) $(RAY_VENV)/bin/python --no-deps --no-build-isolation --editable .
	$(RAY_VENV)/bin/python -m pytest tests/ray

# Installs mutmut by itself: nothing else needs it. Which modules, and by which tests, says [tool.mutmut] in pyproject.toml. It runs in a
# copy of what was committed, with both packages at the top, because mutmut knows modules by their paths. A changed loop may write for ever:
# no file grows beyond a gigabyte. MUTANTS='tablecrypt.keys.*' tries some.
MUTANTS ?=
mutation: setup
	$(PIP) install --require-hashes -r requirements/mutation.txt
	rm -rf build/mutation && mkdir -p build/mutation
	git archive HEAD | tar -x -C build/mutation && mv build/mutation/catalog/tablecrypt_catalog build/mutation/
	cd build/mutation && git init --quiet && ulimit -f 2097152 && nice $(CURDIR)/$(BIN)/mutmut run --max-children $(WORKERS) $(MUTANTS) && $(CURDIR)/$(BIN)/mutmut results

# A warning fails the build. Needs no network once its packages are installed.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

$(DOCS_STAMP): requirements/docs.txt
	@$(REQUIRE_PYTHON)
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/docs.txt
	@touch $@

lock: setup
	$(LOCK) --output-file requirements/dev.txt --extra dev
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/runtime.txt $(RUNTIME_EXTRAS:%=--extra %)
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/fuzz.txt --extra fuzz
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/demo.txt --extra demo
	$(LOCK_DOCS) --output-file requirements/docs.txt --group docs
	$(LOCK) --output-file requirements/daft.txt --extra daft --extra aws --extra demo
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/ray.txt --extra ray --extra aws --extra tests --group ray-dashboard
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/bench.txt --extra bench
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/mutation.txt --extra mutation
	$(LOCK) --constraint requirements/dev.txt --output-file requirements/packages.txt --extra packages
	$(LOCK) --resolution lowest-direct --output-file requirements/lowest.txt $(RUNTIME_EXTRAS:%=--extra %) --extra tests

wheel: setup
	$(BIN)/hatchling build --target wheel

sbom: setup
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/tablecrypt.cdx.json

# Of 0.2.0, the changes of before changes/ existed are in CHANGELOG.md already. They follow those from changes/.
changelog: setup
	@version=$$($(BIN)/hatchling version) && $(BIN)/towncrier build --yes --version "$$version" && \
	  sed "s/^## $$version, unreleased$$/### Earlier/" CHANGELOG.md >CHANGELOG.new && mv CHANGELOG.new CHANGELOG.md

release: sbom
	$(BIN)/python -m tests.support.release "$(TAG)"

# The release workflow alone runs this, after it has published: it needs gh, and the right to make a release.
github-release:
	gh release create "$(TAG)" --verify-tag --title "$(TAG)" --notes-file dist/RELEASE_NOTES.md dist/*.whl dist/*.tar.gz dist/SHA256SUMS dist/tablecrypt.cdx.json

clean:
	rm -rf $(VENV) $(DAFT_VENV) $(RAY_VENV) $(DEMO_VENV) $(DOCS_VENV) $(PYICEBERG_VENV) $(LOWEST_VENV) .venv-spark-* .venv-programs-* .venv-3.* demo dist build metastore_db spark-warehouse derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache fuzz/findings
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
