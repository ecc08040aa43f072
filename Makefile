# Two commands do everything, each with its own set-up: `make demo` and `make test`.
.PHONY: demo test bench soak fuzz format clean

demo: ## the main job on real data: pack, catalog, train
	tools/setup.sh demo
	.venv/bin/python examples/python/train_fashion_mnist.py

test: ## builds and passes all tests (prints "N passed, N failed, N skipped")
	tools/setup.sh test
	.venv/bin/python tools/run_tests.py

bench: ## measures beside the peers and writes bench/results.md
	tools/setup.sh bench
	.venv/bin/python bench/run.py
	.venv/bin/python bench/micro.py

fuzz: ## libFuzzer on every target, FUZZ_SECONDS (60) each
	tools/setup.sh test
	tools/fuzz.sh

soak: ## the long runs: 10 GB stream, many random plans
	tools/setup.sh test
	.venv/bin/python -m pytest -q tests/python --soak

format: ## clang-format on all C files
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-* .venv .venv-* demo-data
