# Two commands from a bare clone: `make demo` and `make test`. Both set up .venv first, and only once.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do command -v $$p >/dev/null && \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
TORCH ?= torch==2.13.0
VENV := .venv
INTEROP := .venv-interop
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
NATIVE := $(shell find CMakeLists.txt cpu_kernels -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name CMakeLists.txt)

.PHONY: demo test test-pretended gate test-gpu test-interop asan setup bench clean

demo: setup
	$(VENV)/bin/qbench sweep suites/quickstart.yaml

test: setup $(VENV)/.tested-with $(VENV)/.oracle
	$(VENV)/bin/python -m pytest

# What depends on the instruction set, once more on pretended lesser processors: a sample of each parameter grid.
test-pretended: setup $(VENV)/.tested-with
	QBENCH_CPU=avx2 $(VENV)/bin/python -m pytest --grid 1 tests/cpu_kernels tests/amx tests/qbench/kernels tests/qbench/plan tests/qbench/gate
	QBENCH_CPU=scalar $(VENV)/bin/python -m pytest --grid 1 tests/cpu_kernels/test_dispatch.py tests/cpu_kernels/test_linear.py \
	    tests/cpu_kernels/test_attention.py tests/qbench/kernels/test_selftest.py tests/qbench/plan

# On a machine with a CUDA GPU: every kernel test runs there too, then all kernels are timed; ten minutes and the tests'.
test-gpu: setup $(VENV)/.tested-with
	$(VENV)/bin/python -m pytest tests/gpu_kernels
	$(VENV)/bin/python -m pytest -m cuda tests/qbench
	$(VENV)/bin/python -m gpu_kernels.measure --choose

# Against the rows that were kept last. On another machine than theirs less is compared, and what is left out is told.
gate: setup
	$(VENV)/bin/qbench gate --suite ci --baseline results/ci --any-machine

setup: $(VENV)/.installed

# A torch that the machine already has (a GPU build, say) is used rather than downloaded again.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "make: python 3.11 or newer is needed; none of python3, python3.12, python3.11 is" >&2; exit 2; }
	if $(PYTHON) -c 'import torch' 2>/dev/null; then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	$(PIP) 'pip>=25.1' # the first that installs dependency groups
	$(VENV)/bin/python -c 'import torch' 2>/dev/null || $(PIP) $(TORCH)
	touch $@

# Python files are used in place; only the metadata and the C++ call for another install.
$(VENV)/.installed: $(VENV)/.created pyproject.toml $(NATIVE)
	$(PIP) --editable .
	touch $@

$(VENV)/.tested-with: $(VENV)/.installed
	$(PIP) --group test
	touch $@

# An independent oracle built from source (minutes, once). Where that fails its tests are skipped, the next call tries again.
$(VENV)/.oracle: $(VENV)/.created pyproject.toml
	@$(PIP) --group oracle && touch $@ || \
	    echo "make: llama-cpp-python did not build; tests that compare with it are skipped" >&2

# Artifacts from here in others' own code, and theirs here.
test-interop: setup $(INTEROP)/.installed
	GPTQMODEL_CPU_WORKERS=2 $(INTEROP)/bin/python -m pytest tests/interop

# Others' packages, with many of their own, see the project's and stay apart from them: `make test` is as it was.
# The torch that is there is kept; another would be several gigabytes.
$(INTEROP)/.installed: $(VENV)/.tested-with pyproject.toml
	$(VENV)/bin/python -m venv $(INTEROP)
	$(VENV)/bin/python -c 'import site; [print(f"import site; site.addsitedir({path!r})") for path in site.getsitepackages()]' \
	    > $$(echo $(INTEROP)/lib/python3*/site-packages)/project.pth
	$(INTEROP)/bin/python -c 'import qbench, torch'
	$(VENV)/bin/python -c 'import torch; print("torch==" + torch.__version__.split("+")[0])' > $(INTEROP)/torch.txt
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check -c $(INTEROP)/torch.txt --group interop
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --group interop-no-deps
	touch $@

# AddressSanitizer holds freed memory back for a while: how much is given back is not to be seen there.
KEEPS_MEMORY := --deselect tests/cpu_kernels/test_buffer.py::test_memory_is_what_the_weights_take_and_given_back \
    --deselect tests/cpu_kernels/test_buffer.py::test_memory_of_keys_is_given_back_beside_others_that_stay
# What instructions a kernel is made of is asked of the ordinary extension; this one takes minutes to disassemble.
OTHER_CODE := tests/cpu_kernels/test_instructions.py

# The kernel tests with AddressSanitizer and UndefinedBehaviorSanitizer in the extension. -S, and the packages by path:
# an editable install would put the ordinary extension first.
asan: $(VENV)/.tested-with build/asan/.installed
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/asan:$$(cat build/asan/.packages) \
	    $(VENV)/bin/python -S -P -m pytest --timeout 0 tests/cpu_kernels tests/amx $(KEEPS_MEMORY) --ignore $(OTHER_CODE)

build/asan/.installed: $(VENV)/.created pyproject.toml $(NATIVE) $(shell find qbench quant cpu_kernels gpu_kernels -name '*.py')
	rm -rf build/asan
	$(PIP) --no-deps --target build/asan --config-settings=cmake.define.QBENCH_SANITIZE=ON \
	    --config-settings=build-dir=build/asan-objects .
	$(VENV)/bin/python -c 'import site; print(":".join(site.getsitepackages()))' > build/asan/.packages
	touch $@

bench: setup $(VENV)/.tested-with $(VENV)/.oracle
	$(VENV)/bin/python -m pytest --timeout 0 --benchmark-only tests/cpu_kernels tests/qbench/calibration

clean:
	rm -rf build runs
