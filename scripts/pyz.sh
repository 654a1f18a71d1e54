#!/usr/bin/env bash
# Builds dist/code-commit.pyz, one file that runs on a bare Python 3.11 or newer: scripts/pyz.sh [FILE]
set -euo pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
# shellcheck source=scripts/bootstrap.sh
source "${self%/*}/bootstrap.sh"

ensure runtime
cd -- "$ROOT"
target=${1:-dist/code-commit.pyz}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

find_python venv ensurepip
say "collecting what goes in"
mkdir -p -- "$work/app" "$(dirname -- "$target")"
"$BASE" -I -m venv "$work/venv"
# code-commit needs the HTTP client beside the standard library; compiled packages serve other commands.
for name in h11 httpcore2 truststore; do
    pinned=$(sed -n "/^$name==/,/[^\\\\]\$/p" requirements.txt)
    [[ -n $pinned ]] || die "requirements.txt does not pin $name."
    printf '%s\n' "$pinned" >>"$work/needed.txt"
done
"$work/venv/bin/python" -I -m pip --disable-pip-version-check install --quiet --no-compile \
    --require-hashes --target "$work/app" -r "$work/needed.txt"
cp -R -- src/coilclaw "$work/app/coilclaw"
# Folders of the repository that other commands need are linked into the package.
find "$work/app/coilclaw" -type l -delete
find "$work/app" \( -name '__pycache__' -o -name 'bin' \) -type d -prune -exec rm -rf -- {} +
if find "$work/app" -name '*.so' | grep -q .; then
    die "a compiled package got in: $(find "$work/app" -name '*.so' | head -n 1)"
fi
printf 'import sys\n\nfrom coilclaw.cli.delivery.commit import main\n\nsys.exit(main())\n' >"$work/app/__main__.py"
# Bytecode beside the source: an archive cannot keep a cache, and another Python ignores it.
"$BASE" -I -m compileall -q -b -d . "$work/app"
"$BASE" -I -m zipapp --compress --python '/usr/bin/env python3' --output "$target" "$work/app"
say "built $target"
