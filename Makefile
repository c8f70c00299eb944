# Each target obtains uv and the environment that it needs, by itself; a second run is quick.
# Nothing outside this folder is changed, apart from caches of uv and of the models.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

UV := $(shell command -v uv || echo $(CURDIR)/.tools/uv/bin/uv)
PYTHON := .venv/bin/python
INSTALL = $(UV) pip install --quiet --python $(PYTHON)
# Workers of pytest; two suit a machine with two cores.
JOBS ?= 2
ARGS ?=
# Seed of every plan of the quickstart.
SEED ?= 0

export HARBOR_TELEMETRY := 0

.PHONY: help quickstart native-loop train-check venv test test-slow lint mutants format bench schemas plugin requirements clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

quickstart: .venv/.local ## baseline -> demonstrations -> GRPO -> held-out comparison, offline, in 20 minutes
	UV="$(UV)" $(PYTHON) -m scripts.quickstart --seed $(SEED) $(ARGS)

native-loop: .venv/.local ## the real Claude Code on a small model: demonstrations -> SFT -> GRPO, in 30 minutes
	UV="$(UV)" $(PYTHON) -m scripts.native_loop --seed $(SEED) $(ARGS)

train-check: .venv/.local ## does GRPO improve on its warm start with each of three seeds? in 40 minutes
	UV="$(UV)" $(PYTHON) -m scripts.train_check --seed $(SEED) $(ARGS)

venv: .venv/.dev ## the development environment in .venv

test: .venv/.dev ## every test but the slow end-to-end suites
	$(PYTHON) -m pytest -m "not slow" -n $(JOBS) --dist loadfile $(ARGS)

test-slow: .venv/.dev ## the end-to-end suites, one at a time
	$(PYTHON) -m pytest -m slow $(ARGS)

lint: .venv/.dev ## style, types, layering, and whether exported schemas are current
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright
	exported=$$(mktemp -d); trap 'rm -rf "$$exported"' EXIT
	$(PYTHON) -m specs.export "$$exported"
	diff -r specs/schemas "$$exported" || { echo "run: make schemas"; exit 1; }

mutants: .venv/.dev ## do the tests fail when the code is wrong? 100 mutants of the parts that must be right
	$(PYTHON) -m scripts.mutants --jobs $(JOBS) $(ARGS)

format: .venv/.dev ## apply the formatter and safe fixes
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: .venv/.dev .tools/litellm ## measurements, each beside its baseline
	$(PYTHON) -m benchmarks $(ARGS)

schemas: .venv/.dev ## export the JSON Schemas of all contracts
	$(PYTHON) -m specs.export

requirements: .venv/.dev ## renew the hash-pinned requirements from pyproject.toml
	compile="$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.12"
	$$compile pyproject.toml -o requirements/base.txt
	$$compile pyproject.toml --extra local -o requirements/local.txt
	$$compile pyproject.toml --extra tinker -o requirements/tinker.txt
	$$compile pyproject.toml --extra local --extra tinker --group dev -o requirements/dev.txt
	$$compile requirements/litellm.in -o requirements/litellm.txt

clean: ## remove the environment, tools and caches; keeps homes and pulled models
	rm -rf .venv .tools dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CURDIR)/.tools/uv/bin/uv:
	python3 -m pip install --quiet --disable-pip-version-check --target .tools/uv uv

$(PYTHON): | $(filter $(CURDIR)/.tools/%,$(UV))
	$(UV) venv --quiet --allow-existing --python "$$(cat .python-version)" .venv

.venv/.local: requirements/local.txt pyproject.toml | $(PYTHON)
	$(INSTALL) --require-hashes -r requirements/local.txt
	$(INSTALL) --no-deps -e .
	touch $@

# What a benchmark compares the proxy with; its pins would not go together with ours.
.tools/litellm: requirements/litellm.txt | $(PYTHON)
	$(UV) venv --quiet --allow-existing --python "$$(cat .python-version)" $@
	$(UV) pip install --quiet --python $@/bin/python --require-hashes -r requirements/litellm.txt
	touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | $(PYTHON)
	$(INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL) --no-deps -e .
	touch $@ .venv/.local

plugin: ## copy the skills into the Claude Code plugin
	rm -rf plugins/claude/skills
	cp -R skills plugins/claude/skills
	find plugins -name __pycache__ -prune -exec rm -rf {} +
