#!/usr/bin/env bash
# Runs CoilClaw, and sets it up on first use: scripts/run.sh ARGUMENTS…
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ ! -L $self ]] || self=$(readlink -f -- "$self")
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

ensure runtime

# Isolated: neither the directory we are called from nor PYTHON* variables can slip a module in.
options=(-I)
[[ $ENVIRONMENT == "$ROOT/.venv" ]] || options+=(-X "pycache_prefix=$ENVIRONMENT/pycache")
exec "$ENVIRONMENT/bin/python" "${options[@]}" -m coilclaw "$@"
