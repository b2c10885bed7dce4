# The front door. Every target first brings what it needs (tools/setup.sh: Debian packages, oneDNN); nothing to do by hand.
#   make demo       build, and read a picture of a line of text with a trained model
#   make test       build, then every test and the corpus of $GANTRY_CORPUS (default ../shared) if it is there
#   make test-long  and the big models
#   make bench      every model beside ONNX Runtime and OpenVINO (bench/run.sh), tables and a picture into docs/benchmarks
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
RELEASE := build/release
export CTEST_OUTPUT_ON_FAILURE = 1

.PHONY: build demo test test-long bench format lint asan asan-hostile tsan clean install build-tests setup setup-test setup-format
.DEFAULT_GOAL := build

setup setup-test setup-format:
	@tools/setup.sh $(patsubst setup,build,$(@:setup-%=%))

# $(call compile,PRESET[,TARGET])
compile = cmake --preset $(1) >build/configure-$(1).log || { cat build/configure-$(1).log; exit 1; }; \
	cmake --build --preset $(1) -j $(JOBS) --target $(or $(2),all)

build: setup
	@$(call compile,release,product)

demo: build
	@tools/demo.sh

build-tests: setup-test
	@$(call compile,release)

test: build-tests
	@tools/run_tests.py --build $(RELEASE)

test-long: build-tests
	@tools/run_tests.py --build $(RELEASE) --long

bench: build
	@bench/run.sh

asan: setup-test
	@$(call compile,asan)
	@tools/run_tests.py --build build/asan --programs-only

# The hostile files of the corpus with the build of `make asan`.
asan-hostile: setup-test
	@$(call compile,asan,gantry)
	@tools/corpus.sh hostile && tests/run_hostile.py build/corpus/hostile --build build/asan

tsan: setup-test
	@$(call compile,tsan)
	@tools/run_tests.py --build build/tsan --programs-only

format: setup-format
	@git ls-files '*.c' '*.h' | xargs clang-format -i

lint: setup-format
	@$(call compile,debug)
	@git ls-files '*.c' | xargs -P $(JOBS) -n 4 clang-tidy --quiet -p build/debug

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(RELEASE) --prefix $(PREFIX)

# Downloads (build/deps, build/models, build/corpus) stay.
clean:
	@rm -rf build/release build/debug build/asan build/tsan build/fuzz
