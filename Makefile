# Every target installs what it needs first; what is there already costs nothing. ARGS="..." goes to the program behind a target.
.DEFAULT_GOAL := help
.PHONY: help run test check bench clean

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## install what is missing and serve the embedded model
	@$(PYTHON) .ci/bootstrap.py run
	@exec $(BIN)/baton serve $(ARGS)

test: ## run all tests and name those that could not run
	@$(PYTHON) .ci/bootstrap.py test
	@PYTHONPATH=.ci exec $(BIN)/python -m pytest -p not_run $(ARGS)

check: ## lint, formatting, types and import contracts
	@$(PYTHON) .ci/bootstrap.py check
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@MYPYPATH=.ci $(BIN)/mypy .ci benchmarks
	@$(BIN)/lint-imports --no-logo

bench: ## measure Baton beside other servers on this machine (ARGS="gateway --quick" for one part, and a short run)
	@$(PYTHON) .ci/bootstrap.py bench
	@PYTHONPATH=.ci exec $(BIN)/python -m benchmarks $(ARGS)

clean: ## remove .venv and caches of this checkout (the wheel in ~/.cache/baton stays)
	rm -rf .venv tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
