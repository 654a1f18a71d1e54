#!/usr/bin/env bash
# The one gate: format, lint, types, import rules, tests. scripts/test.sh [--fast] [PYTEST ARGUMENTS…]
#
# --fast takes the tests of the pure areas alone, with few examples: for use after each edit.
# COILCLAW_TEST_SCALE=full repeats as often as continuous integration does;
# COILCLAW_TEST_WORKERS=N sets the number of test processes.
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

fast=
if [[ ${1:-} == --fast ]]; then
    fast=1
    shift
fi

# Programs that tests start, as program:Debian package. Who is root gets them installed.
ensure_programs() {
    local pair missing=()
    for pair in git:git gcc:gcc make:make npm:npm systemctl:systemd setpriv:util-linux "$@"; do
        type -P "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    [[ -e /usr/include/stdio.h ]] || missing+=(libc6-dev)
    ((${#missing[@]})) || return 0
    if ((UID == 0)) && type -P apt-get >/dev/null; then
        say "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 && return
    fi
    say "tests that need one of these are skipped: ${missing[*]}. On Debian: apt-get install ${missing[*]}"
}

ensure dev
[[ -n $fast ]] || ensure_programs
cd -- "$ROOT"

# What the caller's shell happens to hold must not decide a result: a git hook exports where its
# repository is, and a PYTHONPATH would have another checkout tested.
unset PYTHONPATH PYTHONHOME COILCLAW_HOME COILCLAW_LOG "${!GIT_@}"

# Caches stay out of the tree, which may not be ours to write in.
caches=$ENVIRONMENT/cache
if ! mkdir -p -- "$caches" 2>/dev/null || [[ ! -w $caches ]]; then
    caches=$(mktemp -d)
    trap 'rm -rf -- "$caches"' EXIT
fi
export RUFF_CACHE_DIR=$caches/ruff MYPY_CACHE_DIR=$caches/mypy
export HYPOTHESIS_STORAGE_DIRECTORY=$caches/hypothesis
python=$ENVIRONMENT/bin/python

failed=()
gate() {
    local name=$1
    shift
    printf '== %s\n' "$name"
    "$@" || failed+=("$name")
}

check_types() {
    local place status=0
    "$python" -m mypy --no-error-summary || status=1
    for place in environments/*/; do
        env MYPYPATH="$place" "$python" -m mypy --no-error-summary "$place" || status=1
    done
    return "$status"
}

# More processes than cores: many tests wait for a child, a clock or a signal. The pure ones do not.
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
workers=${COILCLAW_TEST_WORKERS:-$((fast ? cores : (cores * 3 + 1) / 2))}
tests=("$python" -m pytest --numprocesses "$workers" --maxprocesses 8 --dist worksteal)

gate format "$python" -m ruff format --quiet --check --diff .
gate lint "$python" -m ruff check --quiet .
gate imports "$ENVIRONMENT/bin/lint-imports" --no-logo --cache-dir "$caches/import-linter"
if [[ -n $fast ]]; then
    # Types are checked beside the tests: that takes one core.
    check_types >"$caches/types.txt" 2>&1 &
    types=$!
    pure=(answer blocks bundle canonical command contract envelope fence gate gitpatch hosts lines
        redaction shell structured textedit treepath unified)
    (($#)) || set -- tests/architecture tests/unit/{changes,contracts,domain,gates,security} \
        $(printf "tests/properties/test_%s*.py\n" "${pure[@]}")
    COILCLAW_TEST_SCALE=fast gate tests "${tests[@]}" -m 'not slow' "$@"
    show_types() {
        wait "$types" || { cat -- "$caches/types.txt" && return 1; }
    }
    gate types show_types
    ((${#failed[@]})) || exit 0
    printf 'failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
gate types check_types
if ((${#failed[@]})); then
    printf 'failed, so no tests were run: %s\n' "${failed[*]}" >&2
    exit 1
fi

printf '== tests\n'
"${tests[@]}" "$@"
