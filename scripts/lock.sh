#!/usr/bin/env bash
# Remakes requirements.txt and requirements-dev.txt from pyproject.toml: scripts/lock.sh [--upgrade]
#
# Pins that still fit stay as they are; --upgrade looks for newer ones. The locks hold versions and
# hashes, never where a package was downloaded from.
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

case $* in
    '' | --upgrade) ;;
    *) printf 'usage: scripts/lock.sh [--upgrade]\n' >&2 && exit 2 ;;
esac

cd -- "$ROOT"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

say "fetching the resolver"
find_python venv ensurepip
"$BASE" -I -m venv "$work/venv"
"$work/venv/bin/python" -I -m pip --disable-pip-version-check install --quiet uv

# compile FILE OPTIONS…
compile() {
    local file=$1
    shift
    say "resolving $file"
    [[ ! -e $file ]] || cp -- "$file" "$work/$file"
    "$work/venv/bin/uv" pip compile pyproject.toml --quiet --output-file "$work/$file" \
        --generate-hashes --universal --python-version 3.11 \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate "$@" >/dev/null
    {
        printf '# Made by scripts/lock.sh from pyproject.toml; installed with --require-hashes.\n'
        grep -v '^#' -- "$work/$file" || printf '# There is no such dependency at present.\n'
    } >"$file"
}

compile requirements.txt --extra sandbox "$@"
compile requirements-dev.txt --extra sandbox --group dev "$@"
