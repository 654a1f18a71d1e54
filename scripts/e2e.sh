#!/usr/bin/env bash
# The first day with CoilClaw, from nothing to a verified merge: scripts/e2e.sh [--keep]
#
# COILCLAW=/path/to/coilclaw plays it with another one than that of this checkout.
#
# One user story: the total of a shop ignores its discount. A contract is written, a scripted agent
# carries it out, its work is merged, and the evidence is verified, replayed and executed again.
# Everything happens in a fresh directory, with an empty home. Exit code 0: all was as it should be.
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ ! -L $self ]] || self=$(readlink -f -- "$self")
[[ $self == */* ]] || self=./$self
command=${COILCLAW:-$(cd -- "${self%/*}" && pwd)/run.sh}

keep=
case ${1-} in
'') ;;
--keep) keep=1 ;;
*)
    printf 'usage: e2e.sh [--keep]\n' >&2
    exit 2
    ;;
esac

# Not below /tmp, which the sandbox of the agents covers.
place=$(mktemp -d -- "${COILCLAW_E2E_DIR:-/var/tmp}/coilclaw-e2e-XXXXXXXX")
place=$(cd -- "$place" && pwd -P)
ended() {
    code=$?
    if [[ -n $keep ]]; then
        printf 'kept: %s\n' "$place"
    else
        chmod -R u+rwX -- "$place" 2>/dev/null || true
        rm -rf -- "$place"
    fi
    ((code == 0)) || printf 'e2e: failed with exit code %s\n' "$code" >&2
    exit "$code"
}
trap ended EXIT

# The caller's configuration, repository and runtime root are nobody's business here.
unset COILCLAW_LOG CORTEXPILOT_RUNTIME_ROOT CORTEXPILOT_CODEX_BASE_HOME "${!GIT_@}"
export COILCLAW_HOME=$place/home NO_COLOR=1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
coilclaw() { "$command" "$@"; }
say() { printf '\n== %s\n' "$*"; }
commit() {
    git add -A
    git -c user.name=User -c user.email=user@coilclaw.invalid commit -q "$@"
}

say "a repository with a bug that a test shows"
mkdir -p -- "$place/shop/shop" "$place/shop/tests"
cd -- "$place/shop"
git init -q -b main
printf '__pycache__/\n' >.gitignore
printf 'def total(prices, discount=0):\n    return sum(prices)\n' >shop/price.py
touch shop/__init__.py tests/__init__.py
cat >tests/test_price.py <<'END'
import unittest

from shop.price import total


class Price(unittest.TestCase):
    def test_the_discount_is_taken_off(self):
        self.assertEqual(total([4, 6], 3), 7)
END
commit -m 'A shop'

say "init --repo: runtime root, ignore line, policies, hooks"
coilclaw init --repo --hooks
# No contract is active yet, so the hooks let a person commit.
commit -m 'Policies'

say "contract init: the user story as a contract"
coilclaw contract init ../contract.json --spec 'Make total() subtract the discount.' \
    --path shop/price.py --test 'python3 -m unittest tests.test_price'
coilclaw contract validate ../contract.json

say "run --merge, by a scripted agent"
cat >../agent.json <<'END'
[[{"write": {"shop/price.py": "def total(prices, discount=0):\n    return sum(prices) - discount\n"}},
  {"text": "total() subtracts the discount."}]]
END
before=$(git rev-parse HEAD)
coilclaw run ../contract.json --runner scripted:../agent.json --merge
[[ $(git rev-parse HEAD~) == "$before" ]]
[[ $(git show --format= --name-only) == shop/price.py ]]
[[ -z $(git status --porcelain) ]]
grep -q 'sum(prices) - discount' shop/price.py

say "runs verify"
coilclaw runs verify last
say "runs reexec"
coilclaw runs reexec last
say "runs replay"
coilclaw runs replay last
say "runs verify, once more: looking at a run changes nothing of it"
coilclaw runs verify last

say "done"
