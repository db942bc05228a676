# make serve   a daemon with demo models on 127.0.0.1:$(PORT), gRPC on $(GRPC_PORT)
# make test    everything that CI checks; make pytest TESTS=tests/batching for a part
# make test-cluster   scenarios on a real Kubernetes control plane, which is built once (minutes, needs Go); SCENARIOS=... for some
# make simulate   a day of a cluster's decisions with ten seeds, in virtual time; SIMULATE='--hours 2' for another
# make bench   the whole report, peers included (long); make bench BENCH='--only A,H --peers triton' for a part
#              make bench-quick: the ratios that regressions show in, in minutes
# make soak    load, faults and reloads for MINUTES, then tables; overload, thrash, generated, fuzz: other long runs (docs/reliability.md)
# make audit   known vulnerabilities of the packages that constraints.txt pins
# All set up .venv by themselves; PYTHON chooses the interpreter (3.11 or later).

PYTHON ?= python3
SCENARIOS ?= tests/cluster/scenarios
PORT ?= 8080
GRPC_PORT ?= 50051
MINUTES ?= 10
SIMULATE ?= --hours 24 --seeds 10
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: serve test lint ruff mypy bands audit pytest test-cluster simulate soak overload thrash generated fuzz bench bench-quick docs site deploy clean always
.DELETE_ON_ERROR:

serve: $(VENV)/.installed
	$(BIN)/wakeful serve --demo --host 127.0.0.1 --port $(PORT) --grpc-port $(GRPC_PORT)

test: lint audit pytest

lint: ruff mypy bands

ruff: $(VENV)/.installed-test
	$(BIN)/ruff check .

mypy: $(VENV)/.installed-test
	$(BIN)/mypy

bands: $(VENV)/.installed-test
	$(BIN)/lint-imports --no-logo

audit: $(VENV)/.installed-test
	$(BIN)/python -m tools.audit $(AUDIT)

pytest: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n logical --dist loadfile $(TESTS)

test-cluster: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile $(SCENARIOS)

simulate: $(VENV)/.installed-test
	$(BIN)/python -m tests.cluster.simulation $(SIMULATE)

soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

overload: $(VENV)/.installed-test
	$(BIN)/python -m tests.overload

thrash: $(VENV)/.installed-test
	$(BIN)/python -m tests.thrash

generated: $(VENV)/.installed-test
	$(BIN)/python -m tests.generated --models 500

fuzz: $(VENV)/.installed-test
	$(BIN)/python -m tests.frontends.http.fuzz

bench: $(VENV)/.installed-test
	$(BIN)/python -m bench $(BENCH)

bench-quick: $(VENV)/.installed-test
	$(BIN)/python -m bench --quick --only A,C,D,H,J --out bench/results/quick $(BENCH)

# The pages that are made from the code.
PAGES := docs/cli.md docs/configuration.md docs/errors.md docs/events.md docs/grpc.md docs/http.md docs/metrics.md
SCHEMA := docs/reference/models.schema.json

docs: $(PAGES) $(SCHEMA)
	$(BIN)/python -m tools.forms

docs/cli.md: PAGE = wakeful.cli.reference
docs/configuration.md: PAGE = wakeful.config.reference
docs/errors.md: PAGE = wakeful.frontends.http.reference
docs/events.md: PAGE = wakeful.telemetry.event_kinds
docs/grpc.md: PAGE = wakeful.frontends.grpc.method_reference
docs/http.md: PAGE = wakeful.frontends.http.route_reference
docs/metrics.md: PAGE = wakeful.telemetry.reference
$(SCHEMA): PAGE = wakeful.config.json_schema
$(PAGES) $(SCHEMA): $(VENV)/.installed-test always
	$(BIN)/python -m $(PAGE) > $@.new
	mv $@.new $@

# All documents as pages for a browser, in build/site.
site: $(VENV)/.installed-test
	$(BIN)/python -m tools.site

# What kustomize and Helm install, and Grafana's board, made from the code too.
deploy: $(VENV)/.installed-test
	$(BIN)/python -m wakeful.cluster.packaging deploy
	$(BIN)/python -m tools.board > deploy/grafana/wakeful.json

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is installed first, pinned like all else, instead of fetched unpinned into a throw-away environment.
$(VENV)/.backend: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Wakeful needs Python 3.11 or later; set PYTHON. This is " + sys.version)'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -c constraints.txt hatchling editables
	@touch $@

$(VENV)/.installed: $(VENV)/.backend pyproject.toml
	$(PIP) install -c constraints.txt --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.backend pyproject.toml
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[test]'
	@touch $@ $(VENV)/.installed
