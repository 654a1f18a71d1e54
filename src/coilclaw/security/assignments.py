"""Variables that a command line sets: which change nothing, and which change what runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import forbidden, other
from coilclaw.security.wordpaths import check_mentions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.commandclass import Classed
    from coilclaw.security.shellscript import Word
    from coilclaw.security.wordpaths import Scene

_HARMLESS: Final = frozenset(
    {
        *("LC_ALL", "LANG", "LANGUAGE", "LC_CTYPE", "LC_COLLATE", "LC_NUMERIC", "LC_TIME"),
        *("LC_MESSAGES", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"),
        *("COLORTERM", "COLUMNS", "LINES", "CI", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
        *("PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "RUST_BACKTRACE", "DEBIAN_FRONTEND"),
        *(
            "SOURCE_DATE_EPOCH",
            "LS_COLORS",
            "BLOCK_SIZE",
            "QUOTING_STYLE",
            "TIME_STYLE",
            "DEBUG",
            "VERBOSE",
            "RUST_LOG",
        ),
        *("NODE_ENV", "GOOS", "GOARCH", "CGO_ENABLED", "CARGO_TERM_COLOR", "PY_COLORS"),
    }
)
_TUNING: Final = frozenset({"GIT_PAGER_IN_USE", "GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"})
"""They run nothing, and are no longer as the tool sets them."""
_PAGERS: Final = frozenset({"PAGER", "GIT_PAGER", "MANPAGER"})
_DANGEROUS: Final = re.compile(
    r"PATH|LD_.*|DYLD_.*|GIT_.*|.*_?EDITOR|VISUAL|.*PAGER|IFS|ENV|BASH.*|ZDOTDIR|FPATH|CDPATH"
    r"|PYTHON.*|NODE_.*|NPM_.*|npm_.*|PERL.*|RUBY.*|GEM_.*|BUNDLE_.*|PHP.*|LUA_.*|JAVA_TOOL_OPTIONS"
    r"|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|PROMPT_COMMAND|PS[0-4]|SHELLOPTS|GLOBIGNORE|HOME"
    r"|SHELL|GREP_.*|RIPGREP_.*|LESS.*|MAN.*|BROWSER|TAR_OPTIONS|RSYNC_.*|SSH_.*|SUDO_.*|CARGO.*"
    r"|RUSTC.*|RUSTFLAGS|GOFLAGS|GO.*|CC|CXX|MAKEFLAGS|MAKE|XDG_.*|TMPDIR|COILCLAW_.*"
    r"|.*_PROXY|.*_proxy|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RES_OPTIONS|MALLOC_.*|GLIBC_.*"
    r"|TERMINFO.*|POSIXLY_CORRECT|OPENSSL_.*|CURL_.*|WGETRC|PIP_.*|UV_.*|VIRTUAL_ENV|CONDA_.*"
    r"|FZF_.*|FD_.*|BAT_.*|JQ_.*|DOCKER_.*|KUBECONFIG|AWS_.*|HISTFILE|MAIL.*|EXINIT|VIM.*|SED.*"
)
_BUILDS: Final = re.compile(
    r"PATH|PYTHON(?!HOME|STARTUP|INSPECT|BREAKPOINT).*|NODE_.*|NPM_CONFIG_.*|npm_config_.*|PERL5LIB|RUBY.*"
    r"|GEM_.*|BUNDLE_.*|PHP_.*|LUA_PATH|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|CLASSPATH|CARGO.*|RUST.*"
    r"|GO.*|CC|CXX|MAKEFLAGS|XDG_.*|TMPDIR|OPENSSL_CONF|PIP_.*|UV_.*|VIRTUAL_ENV|CONDA_.*|AWS_.*"
    r"|MALLOC_.*|GIT_(?:AUTHOR|COMMITTER)_.*|POSIXLY_CORRECT"
)
"""Variables that change which code of the workspace runs, or how it is built."""
_EDITORS: Final = frozenset({"GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL"})
_LOOP_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_DECLARERS: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_SETTERS: Final = frozenset({"read", "unset", "mapfile", "readarray", "getopts", "let", "printf"})


def check_assignments(
    assignments: Sequence[tuple[str, Word]],
    scene: Scene,
    *,
    loop: bool = False,
    bare: bool = False,
) -> list[Classed]:
    """Say what speaks against setting variables; the one of a loop may have any plain name.

    ``bare`` is whether they are for the shell alone, and not given to a program.
    """
    found: list[Classed] = []
    for name, value in assignments:
        if bare and not _DANGEROUS.fullmatch(name.rstrip("+")):
            found += check_mentions(value, scene)
            continue
        found += _check(name, value, loop=loop, contained=scene.settings.contained)
        found += check_mentions(value, scene)
    return found


def declared(name: str, words: Sequence[Word]) -> tuple[tuple[str, Word], ...]:
    """Return the variables that a builtin sets, such as ``export A=1`` and ``read A``."""
    from coilclaw.security.shellscript import Word as Written

    if name not in _DECLARERS and name not in _SETTERS:
        return ()
    if name == "printf" and not any((word.text or "").startswith("-v") for word in words[1:2]):
        return ()
    found = []
    for word in words[1:]:
        bare = (word.text or word.raw).removeprefix("-v").lstrip("\"'")
        variable, _, value = bare.partition("=")
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\+?", variable):
            found.append((variable.rstrip("+"), Written(value, value)))
    return tuple(found)


def _check(name: str, value: Word, *, loop: bool, contained: bool) -> list[Classed]:
    bare = name.partition("[")[0].rstrip("+")
    if bare in _PAGERS and value.text in {"cat", ""}:
        return []
    if bare in _HARMLESS:
        if value.text is not None or loop:
            return []
        return [other("command.assignment", f"what {name} becomes is known only when it runs")]
    quiet = bare in _EDITORS and value.text in {"true", ":", "cat"}
    if contained and not loop and (quiet or _BUILDS.fullmatch(bare)):
        return [other("command.environment", f"{name} changes what runs, or how")]
    if _DANGEROUS.fullmatch(bare) and bare not in _TUNING:
        return [forbidden("command.environment", f"{name} changes what runs, or how")]
    if loop and _LOOP_NAME.fullmatch(bare):
        return []
    return [other("command.assignment", f"{name} is not one of the variables known to be harmless")]
