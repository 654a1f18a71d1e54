#!/usr/bin/env bash
# The one gate: format, lint, types, import rules, tests. scripts/test.sh [PYTEST ARGUMENTS…]
#
# COILCLAW_TEST_SCALE=full repeats as often as continuous integration does;
# COILCLAW_TEST_WORKERS=N sets the number of test processes.
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

ensure dev
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

gate format "$python" -m ruff format --quiet --check --diff .
gate lint "$python" -m ruff check --quiet .
gate types "$python" -m mypy --no-error-summary
for place in environments/*/; do
    gate "types of $place" env MYPYPATH="$place" "$python" -m mypy --no-error-summary "$place"
done
gate imports "$ENVIRONMENT/bin/lint-imports" --no-logo --cache-dir "$caches/import-linter"
if ((${#failed[@]})); then
    printf 'failed, so no tests were run: %s\n' "${failed[*]}" >&2
    exit 1
fi

printf '== tests\n'
"$python" -m pytest --numprocesses "${COILCLAW_TEST_WORKERS:-auto}" --maxprocesses 8 --dist worksteal "$@"
