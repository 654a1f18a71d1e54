#!/usr/bin/env bash
# Prints how fast CoilClaw is against a raw floor: scripts/bench.sh [--only NAME] [--json] [--strict]
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

ensure dev
cd -- "$ROOT"
unset PYTHONPATH PYTHONHOME COILCLAW_HOME COILCLAW_LOG "${!GIT_@}"
exec "$ENVIRONMENT/bin/python" -m bench "$@"
