# What a developer does here; `make help` lists it. Needs Python >= 3.11, git and make; the rest goes into .venv.

VENV    := .venv
BIN     := $(VENV)/bin
WORKERS ?= 2
# The first Python on the path that is new enough; say PYTHON=... to choose another.
PYTHON  ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
             $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Spark needs a Java: from PyPI where the machine has none.
JDK     := $(shell command -v java >/dev/null 2>&1 || test -x "$$JAVA_HOME/bin/java" || echo jdk)
# The older versions of PySpark that `make test-all` runs besides the newest: first and last patches, and one that
# misread what others read.
SPARKS  := 3.5.0 3.5.3 3.5 4.0.0 4.0
# The newest one that Spark's own Delta exists for (tests/interop/conftest.py).
DELTA   := 4.2
# Object stores that are no mocks: what `make test-all` runs against where there are Go and Node.
GO_STORES   := github.com/versity/versitygw/cmd/versitygw@v1.8.0
NODE_STORES := azurite@3.35.0
# Warnings of the build backend about editable installs tell a user of this project nothing. What has to be built is
# packed without compression: PySpark comes as a source, and its jars are compressed already.
PIP     := PYTHONWARNINGS=ignore DIST_EXTRA_CONFIG='$(CURDIR)/.ci/wheels.cfg' \
           $(BIN)/python -m pip --quiet --disable-pip-version-check
# Most installed modules are never imported; what is gets compiled by its first import, once for all processes.
PINNED  := $(PIP) install --no-compile -c constraints.txt --build-constraint constraints.txt
INSTALL  = $(PINNED) -e . $(addprefix --group ,$(1))

# Hundreds of processes import the packages: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

# One target beside others, for it leaves cores idle: pyright has one thread, Spark waits. All are told of, that one at
# the end, and a failure of any is one.
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

docs: $(VENV)/.dev ## the site of the documentation (build/site); what does not resolve is an error
	$(BIN)/python docs/build.py

pictures: $(VENV)/.dev ## every picture of the documentation, made anew (docs/images)
	$(BIN)/python docs/rooms.py
	$(BIN)/python -m benchmarks.pictures
	$(BIN)/python -m examples.demo
	cp demo-output/demo.png docs/images

notebooks: $(VENV)/.dev ## run the notebooks of examples/ and keep what their cells show
	$(BIN)/jupyter execute --inplace examples/*.ipynb

test: checks ## everything CI runs: style, layers, types, documentation, tests
	$(call BESIDE,spark,pytest)

test-all: checks stores ## the same with slow sweeps, a cluster, older PySparks, Spark's Delta
	$(call BESIDE,jvm-all,pytest-all)

# Each worker begins with files of its own, whose tests share what they made, and takes over from others when it is done.
STEAL    = -n $(WORKERS) --dist worksteal

pytest: $(VENV)/.dev ## the tests alone, without those of Spark
	$(BIN)/python -m pytest $(STEAL) --ignore=tests/spark --ignore=tests/interop

pytest-all: $(VENV)/.dev ## the tests with the slow sweeps
	$(BIN)/python -m pytest $(STEAL) --ignore=tests/spark --ignore=tests/interop --slow --durations=40

# A session of each kind at once, each in a process of its own, and one JVM for both: it takes 2 GB and most of a minute
# to warm up. Both are told of, and a failure of either is one. What is asked of both, and what of Spark Connect alone.
SHARED   = --server=$(VENV)/server
ON_BOTH  = @rm -f $(VENV)/server; \
	$(BIN)/python -m pytest tests/spark $(SHARED) $(1) --connect $(2) >$(VENV)/connect.log 2>&1 & connect=$$!; \
	$(BIN)/python -m pytest tests/spark $(SHARED) $(1); classic=$$?; \
	wait $$connect; connect=$$?; cat $(VENV)/connect.log; exit $$((classic | connect))

spark: $(VENV)/.dev ## the tests of Spark, on a classic session and, where it may differ, on Spark Connect
	$(call ON_BOTH,,-m connect)

# Older versions run two at a time, each told of when it is done.
spark-all: $(VENV)/.dev $(VENV)/.jdk $(SPARKS:%=$(VENV)/pyspark-%/.done) ## with slow sweeps, cluster and older versions
	@printf '%s\n' $(SPARKS) | xargs -P 2 -I % sh -c 'PYTHONPATH=$(VENV)/pyspark-% EXPECTED_PYSPARK=% \
	  $(BIN)/python -m pytest tests/spark/versions >$(VENV)/pyspark-%/log 2>&1; passed=$$?; \
	  cat $(VENV)/pyspark-%/log; exit $$passed'
	$(call ON_BOTH,--slow --durations=20)

interop: $(VENV)/.dev $(VENV)/.jdk $(VENV)/pyspark-$(DELTA)/.done ## Spark's own Delta on our tables (needs Maven Central)
	PYTHONPATH=$(VENV)/pyspark-$(DELTA) EXPECTED_PYSPARK=$(DELTA) $(BIN)/python -m pytest tests/interop --slow

jvm-all: spark-all interop ## both of these

stores: $(VENV)/stores/.done ## servers of S3 and Azure for the tests, as far as Go and Node are there

bench: $(VENV)/.bench ## run every benchmark: one table of targets beside figures (benchmarks/out/)
	$(BIN)/python -m benchmarks.run_all

bench-large: $(VENV)/.bench ## rows larger than memory: 60 million within 2 GiB (20 GB of disk, an hour on two cores)
	$(BIN)/python -m benchmarks.bench_memory 10

lint: $(VENV)/.dev ## ruff and the layers of the packages
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/lint-imports --no-cache --no-logo

checks: $(VENV)/.dev ## all that runs no tests, at once: lint, types, docs
	$(call BESIDE,pyright,lint mypy docs)

types: $(VENV)/.dev ## mypy and pyright, both strict, at once
	$(call BESIDE,pyright,mypy)

mypy: $(VENV)/.dev
	$(BIN)/mypy

pyright: $(VENV)/.dev
	$(BIN)/python -m pyright

format: $(VENV)/.dev ## put the code into shape
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

install: $(VENV)/.dev ## the virtual environment for development

clean: ## remove the virtual environment, caches and outputs
	rm -rf $(VENV) .cache demo-output benchmarks/out build *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# A stamp per set of packages: a second call costs nothing.
$(VENV)/.pip: constraints.txt
	@test -n "$(PYTHON)" || { echo 'no Python >= 3.11 on the path: say make PYTHON=/path/to/python' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade -c constraints.txt pip
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(call INSTALL,demo)
	@touch $@

# PySpark alone takes as long as all others together: it is put beside them; what it needs comes with its group.
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

# Beside the virtual environment's packages, not among them: PYTHONPATH chooses one.
$(VENV)/pyspark-%/.done: tests/spark/versions/pyspark-%.txt | $(VENV)/.pip
	rm -rf $(@D)
	$(PIP) install --no-compile --no-deps --target $(@D) -r $<
	@touch $@

$(VENV)/stores/.done: | $(VENV)/.pip
	mkdir -p $(@D)
	! command -v go >/dev/null 2>&1 || GOBIN=$(abspath $(@D)) go install $(GO_STORES)
	! command -v npm >/dev/null 2>&1 || npm install --silent --no-audit --no-fund --prefix $(@D) $(NODE_STORES)
	@touch $@

$(VENV)/.bench: $(VENV)/.pip pyproject.toml
	$(call INSTALL,bench spark $(JDK))
	@touch $@
