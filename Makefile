# make demo and make test are all that a newcomer needs. Both build .venv themselves, from Python 3.11+ alone;
# PYTHON=... says which one. ARGS=... goes to pytest, the benchmark or the soak run.
.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench soak suites clean dev-env demo-env

PY := .venv/bin/python
# Hundreds of Pythons are started by the tests. Where this is set, each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# mypy 2 may use several processes; older ones don't know the variable.
export MYPY_NUM_WORKERS ?= 2
BOOTSTRAP := $(or $(PYTHON),python3) scripts/bootstrap.py

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: demo-env ## an agent's state saved, killed, picked up, forked and measured
	@$(PY) -m examples.demo $(ARGS)

test: lint ## lint, types and every test but the long campaigns
	@echo "» tests"
	@$(PY) -m pytest -n 4 --dist loadgroup --durations 20 $(ARGS)

lint: dev-env ## ruff (rules and format), the layers and mypy
	@echo "» ruff check"
	@$(PY) -m ruff check .
	@echo "» ruff format --check"
	@$(PY) -m ruff format --check .
	@echo "» lint-imports"
	@.venv/bin/lint-imports --no-logo
	@echo "» mypy"
	@$(PY) -m mypy

format: dev-env ## format the code and mend what ruff can mend
	@echo "» ruff"
	@$(PY) -m ruff check --fix --exit-zero .
	@$(PY) -m ruff format .

bench: dev-env ## what saves, loads and turns cost, against the raw driver; PEERS=1 adds other libraries
	@echo "» benchmarks"
	@PEERS="$(PEERS)" $(PY) -m benchmarks $(ARGS)

# ARGS are for pytest alone and CAMPAIGN for the campaigns alone; with neither, both run.
soak: dev-env ## campaigns of faults on every store, then long kill and load tests
	@echo "» soak"
	$(if $(CAMPAIGN),@$(PY) -m tests.soak $(CAMPAIGN),$(if $(ARGS),,@$(PY) -m tests.soak))
	$(if $(CAMPAIGN),$(if $(ARGS),@$(PY) -m pytest -m soak --timeout 0 $(ARGS)),@$(PY) -m pytest -m soak --timeout 0 $(ARGS))

suites: dev-env ## a framework's own tests on our stores; ARGS="langgraph"
	@echo "» suites"
	@$(PY) -m tests.suites $(ARGS)

clean: ## remove .venv and everything else that was generated
	@echo "» clean"
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev-env:
	@$(BOOTSTRAP) dev

demo-env:
	@$(BOOTSTRAP) demo
