# From a fresh clone every target first makes .venv and installs kproxy with its development tools into it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SITE   := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
# The tools that can also tell whether what they write is up to date.
GENERATORS = $(subst /,.,$(basename $(wildcard tools/generate_*.py)))

# Where this is set each process compiles every module again, and pytest rewrites every test.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help agents archives backends clients client-results demo demo-programs docs explore test test-busy lint bench sim sim-txn mutate hostile fuzz soak generate image release-rehearsal lock system chaos network idempotence clean
.DEFAULT_GOAL := help

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/make \1	\2/p;s/^\([a-z-]*\):  *## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | sort -u

define CHECK_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kproxy needs Python 3.11 or later: make PYTHON=/path/to/python3.11"; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' || { echo "this Python cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
endef

$(STAMP): pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Who has no environment for development gets a small one: 90 MB in place of 1.9 GB.
DEMO := $(if $(wildcard $(STAMP)),$(VENV),build/demo)
demo: demo-programs $(DEMO)/.installed   ## a 0.9-protocol client, refused by Kafka 4.4 and served through kproxy
	$(DEMO)/bin/kproxy demo $(ARGS)

build/demo/.installed: pyproject.toml
	@echo "Installing kproxy and one Kafka client into build/demo, once: about half a minute."
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv build/demo
	build/demo/bin/python -m pip install --disable-pip-version-check --editable '.[demo]'
	@touch $@

demo-programs:
	@echo "Looking for Java and Maven."
	@tools/system-packages.sh demo || echo "Until then an embedded fake broker takes the place of Kafka."

# Hundreds of processes begin in the tests: none of them shall compile kproxy anew, or read Kafka's classes from the jars.
# Tests of brokers and clients wait for more than half of their time: three processes keep two cores at work.
test: system archives   ## the whole test suite, in three processes (JOBS=3); installs what it needs first, or says what is missing
	@$(BIN)/python -m compileall -q kproxy verification bench tools
	$(BIN)/python -m pytest -n $(or $(JOBS),3) --dist loadfile --no-loadscope-reorder --durations=30 $(ARGS)

archives: $(STAMP) ## classes of Kafka and Spark that each start of Java maps, in place of reading the jars
	-@$(BIN)/python -m kproxy.testing.archive_kafka
	-@$(BIN)/python -m kproxy.testing.archive_spark

clients: archives ## installs the clients of the interop tests side by side, so that no test waits for a download
	$(BIN)/python -m tests.interop.install

client-results: system clients ## tests all released clients, and records what passed for docs/clients.md
	INTEROP_HOMES=all $(BIN)/python -m pytest -q tests/interop/test_clients.py tests/interop/test_transactional_clients.py --record-clients $(ARGS)
	$(BIN)/python -m tools.generate_clients

test-busy: $(STAMP)  ## tests beside endless loops, one a core: what fails only here waits too short (ARGS=tests/interop)
	$(BIN)/python -m tools.busy -q $(ARGS)

# Before a commit: the cores and the shell, on a fake broker. No program of others is started.
CHECKED = $(addprefix tests/,codec config dedup net proxy txn)
check: $(STAMP)  ## unit and core tests, before a commit: under 2 minutes on two cores (JOBS=2)
	$(BIN)/python -m pytest -q -n $(or $(JOBS),2) --dist loadfile -m "not (spark or kafka or java or browser)" $(CHECKED) $(ARGS)

lint: $(STAMP)   ## ruff, mypy --strict, layers, generated files up to date, wording and links of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p kproxy -p bench -p verification
	$(BIN)/lint-imports
	@for tool in $(GENERATORS); do echo "$$tool --check"; $(BIN)/python -m $$tool --check || exit 1; done
	$(BIN)/python -m tools.check_words
	$(BIN)/python -m tools.check_docstrings
	$(SITE) --quiet

docs: $(STAMP)   ## the documentation as a site, in build/site; checks every link
	$(SITE)

generate: $(STAMP) ## write the generated files again
	@for tool in $(GENERATORS); do echo "$$tool"; $(BIN)/python -m $$tool || exit 1; done

bench: $(STAMP)  ## direct, a bare relay and kproxy side by side (ARGS=--quick for the short one)
	$(BIN)/python -m bench $(ARGS)

sim: $(STAMP)    ## many simulated runs of clients, kproxy, brokers and faults (SEEDS=2000 FIRST=0 JOBS=2)
	$(BIN)/python -m verification.simulation --seeds $(or $(SEEDS),2000) --first-seed $(or $(FIRST),0) --jobs $(or $(JOBS),2) $(ARGS)

sim-txn: $(STAMP) ## the same for transactions, in both homes (SEEDS=300 FIRST=0 JOBS=2)
	$(BIN)/python -m verification.simulation.transactions --seeds $(or $(SEEDS),300) --first-seed $(or $(FIRST),0) --jobs $(or $(JOBS),2) $(ARGS)

explore: $(STAMP) ## the coordinator's own code in every order of what may happen, in small worlds; each rule left out
	PYTHONHASHSEED=0 $(BIN)/python -m verification.explorer $(ARGS)

backends: system $(STAMP) ## the contract and released clients on Kafka 4.3, Kafka 3.9, Kafka 2.8 and franz-go's kfake
	$(BIN)/python -m pytest -q -n $(or $(JOBS),2) --dist loadfile -m backends tests/contract tests/interop/test_other_backends.py $(ARGS)

chaos: $(STAMP)  ## real faults on three real brokers, and what came of it (ARGS="--seconds 600 --seed 1")
	$(BIN)/python -m verification.chaos $(ARGS)

agents: $(STAMP)  ## log shippers, appenders and mirrors while acknowledgements are lost, directly and through kproxy (ARGS="--only rsyslog")
	$(BIN)/python -m verification.agents $(ARGS)

idempotence: $(STAMP)  ## idempotent producers while responses are lost, brokers are killed, epochs are raised (ARGS="--only java-4.4.0")
	$(BIN)/python -m verification.idempotence $(ARGS)

network: $(STAMP) ## released clients on a network that is cut, slow, or loses acknowledgements (root; ARGS="--only latency")
	$(BIN)/python -m verification.network $(ARGS)

mutate: $(STAMP) ## one rule changed at a time: which changes no test notices (ARGS="kproxy/dedup --limit 50 --seconds 20")
	$(BIN)/python -m tools.mutate $(ARGS)

hostile: $(STAMP) ## attacks and mutated frames on a live kproxy, and what they cost it (ARGS=--short for a minute)
	timeout --kill-after=60 1800 $(BIN)/python -m verification.hostile $(ARGS)

fuzz: $(STAMP)   ## coverage-guided fuzzing of all that reads what others send, for an hour (Linux; ARGS="fetch --seconds 60")
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m verification.fuzz $(ARGS)

soak: $(STAMP)   ## clients of several kinds come and go: whether kproxy grows (ARGS="--minutes 90 --json soak.json")
	$(BIN)/python -m verification.soak $(ARGS)

image: $(STAMP)  ## the image of deploy/Dockerfile, without a daemon, and proof that it works (Debian, root only)
	$(BIN)/python -m tools.image

release-rehearsal: $(STAMP) ## every step of a release but its uploads, with seconds (root, Debian; ARGS="package install")
	@$(BIN)/python -m tools.release $(ARGS)

lock: $(STAMP)   ## the image's dependencies, the newest that fit
	$(BIN)/python -m tools.generate_lock --upgrade

system:          ## the Debian packages that tests need; without root it names what is missing
	@tools/system-packages.sh

clean:           ## everything that was made, the virtual environment too
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
