"""Judge one simple command: layer by layer, down to the programs that really run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.carriers import carried_commands, carried_texts, check_stream_program
from coilclaw.policy.commands.command_class import (
    Classed,
    CommandClass,
    CommandInput,
    UnwrappedCommand,
    family_name,
    forbidden,
    harmless,
    is_bare,
    make_allowed,
    other,
    program_name,
    strictest,
    unknown,
)
from coilclaw.policy.commands.destructive import (
    check_code,
    denial,
    destructive_command,
    destructive_text,
    is_device,
)
from coilclaw.policy.commands.git_command import GitCommand
from coilclaw.policy.commands.interpreters import peel_interpreter, peel_shell
from coilclaw.policy.commands.rule_lookup import judge_by_rules
from coilclaw.policy.commands.word_paths import (
    STREAMS,
    check_mentions,
    check_read,
    check_real_mentions,
    check_write,
)
from coilclaw.policy.commands.wrappers import peel_wrapper
from coilclaw.policy.path_rules import under
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coilclaw.policy.commands.word_paths import Scene
    from coilclaw.policy.shell.script import Redirection, Simple

MAX_LAYERS: Final = 12


@dataclass(frozen=True, slots=True)
class JudgedCommand:
    """One command that would run, with the class it was put into."""

    raw: str
    words: tuple[Word, ...]
    classed: Classed
    writes: bool = True
    need: str = ""
    """Why it needs the network, if it does by nature."""


class SimpleJudge:
    """Judges the simple commands of one scene; ``below`` judges a text within a command."""

    def __init__(
        self, scene: Scene, below: Callable[[Word, Scene], Iterator[JudgedCommand]]
    ) -> None:
        self._scene = scene
        self._below = below

    def judge(self, command: Simple, given: CommandInput) -> Iterator[JudgedCommand]:
        """Judge a command with everything that stands around its words."""
        loop = command.raw.startswith("for ") and not command.words
        given_names = _without_separators(command)
        bare = not command.words and not loop
        around = check_assignments(given_names, self._scene, loop=loop, bare=bare)
        for redirection in command.redirections:
            around += self._judge_redirection(redirection)
        if command.background:
            around.append(other("shell.background", "it would be left running"))
        if not command.words:
            nothing = harmless("shell.assignment", "it sets variables and runs nothing")
            yield self._make_judgement(command.raw, (), [nothing, *around])
            return
        for each in self._layers(command.words, command.raw, given, 0):
            yield self._make_judgement(each.raw, each.words, [each.classed, *around])

    def _make_judgement(
        self, raw: str, words: tuple[Word, ...], found: Iterable[Classed]
    ) -> JudgedCommand:
        classed = strictest(found)
        exists = self._scene.settings.harmless_commands
        writes = classed.level > CommandClass.HARMLESS or not exists
        if classed.level is CommandClass.OTHER:
            classed = _find_embedded(words) or classed
        if classed.level is CommandClass.HARMLESS and not exists:
            classed = replace(classed, level=CommandClass.ALLOWED)
        return JudgedCommand(raw, words, classed, writes)

    def _judge_redirection(self, redirection: Redirection) -> list[Classed]:
        word = redirection.target
        if word is None:
            return []
        duplicate = redirection.operator in {">&", "<&"} and not redirection.writes
        if (
            duplicate
            and word.text is not None
            and word.text.rstrip("-").isdecimal() | (word.text == "-")
        ):
            return []
        if word.text is None or word.globs:
            reason = f"where {word.raw!r} leads is known only when it runs"
            return [other("redirect.dynamic", reason), *check_mentions(word, self._scene)]
        if is_device(word.text):
            return [denial("destructive.device", f"{redirection.operator} {word.text}")]
        if word.text in STREAMS:
            return []
        if not redirection.writes:
            return check_read(word.text, self._scene)
        into = make_allowed("redirect.write", f"writes {word.text!r}")
        return [into, *check_write(word.text, self._scene)]

    def _layers(
        self, words: tuple[Word, ...], raw: str, given: CommandInput, depth: int
    ) -> Iterator[JudgedCommand]:
        """Judge a program and everything that it would run in turn."""
        if not words or words[0].text is None or words[0].globs or not words[0].text:
            reason = "which program would run is known only when it runs"
            yield JudgedCommand(raw, words, unknown("shell.dynamic", reason))
            return
        if depth > MAX_LAYERS:
            reason = "there are too many programs within programs"
            yield JudgedCommand(raw, words, unknown("shell.bound", reason))
            return
        around = self._about_program(words, words[0].text)
        if any(each.forbidden for each in around):
            yield JudgedCommand(raw, words, strictest(around))
            return
        name = program_name(words[0].text)
        if name == "git":
            yield from self._git(words, raw, around, depth)
            return
        streamed = check_stream_program(family_name(name), words)
        if streamed:
            yield JudgedCommand(raw, words, strictest([*around, *streamed]))
            return
        peeled = _peel(family_name(name), words, given)
        if peeled is None:
            yield from self._itself(words, raw, around, depth)
        else:
            yield from self._judge_unwrapped(peeled, words, raw, around, given, depth)

    def _about_program(self, words: Sequence[Word], text: str) -> list[Classed]:
        """Say what speaks against the program itself, whatever its words."""
        settings = self._scene.settings
        worst = destructive_command(words)
        found = [] if worst is None else [worst]
        argv = [
            program_name(text),
            *("$…" if word.text is None else word.text for word in words[1:]),
        ]
        denying = [rule for rule in self._scene.rules.deny if rule.denies(argv)]
        found += [forbidden(rule.id, rule.reason) for rule in denying]
        if is_forbidden(program_name(text), settings.forbidden_commands):
            reason = f"{program_name(text)!r} is one of the forbidden commands"
            found.append(forbidden("command.forbidden", reason))
        variables = declared_variables(program_name(text), words)
        found += [
            each
            for each in check_assignments(variables, self._scene)
            if each.forbidden or each.rule == "command.environment"
        ]
        if not is_bare(text):
            found.append(other("command.path", f"{text!r} is a program outside the system's own"))
            installed = text.startswith(_SYSTEM) or self._links_to_namesake(text)
            binding = _ALWAYS_PATHS if installed else _ALWAYS_PATHS | {"path.outside"}
            found += [each for each in check_read(text, self._scene) if each.rule in binding]
        return found

    def _links_to_namesake(self, text: str) -> bool:
        """Whether a link in the workspace leads to the program it is named after, as in a venv."""
        workspace = self._scene.settings.workspace
        own = family_name(program_name(text))
        return all(
            under(place.lexical, workspace)
            and place.kind == "file"
            and family_name(program_name(place.real or "")) == own
            for place in self._scene.places(text)
        )

    def _itself(
        self, words: tuple[Word, ...], raw: str, around: list[Classed], depth: int
    ) -> Iterator[JudgedCommand]:
        """Judge a program by the rules, and the commands that its words carry as well."""
        name = program_name(words[0].text or "")
        yield JudgedCommand(raw, words, strictest([judge_by_rules(words, self._scene), *around]))
        reason = other("command.carried", f"{name} would run it")
        for inner in carried_commands(name, words):
            looks = name == "find" and self._has_harmless_rule(inner)
            for each in self._layers(inner, raw, CommandInput("pipe"), depth + 1):
                if not looks or each.classed.level > CommandClass.HARMLESS:
                    each = replace(each, classed=strictest([each.classed, reason]))
                yield each
        for text in carried_texts(name, words):
            for each in self._below(text, self._scene):
                yield replace(each, classed=_at_most_worth(each.classed, reason))

    def _has_harmless_rule(self, words: Sequence[Word], *, any_option: bool = False) -> bool:
        """Tell whether a program that runs no other is in the table of harmless ones.

        ``any_option``: it does no harm with whatever words it is given besides its own.
        """
        name = words[0].text if words else None
        if name is None or not is_bare(name) or program_name(name) == "git":
            return False
        rules = self._scene.rules.harmless.get(program_name(name), ())
        return any(rule.any_option or not any_option for rule in rules)

    def _git(
        self, words: tuple[Word, ...], raw: str, around: list[Classed], depth: int
    ) -> Iterator[JudgedCommand]:
        command = GitCommand.read(words)
        if isinstance(command, UnwrappedCommand):
            yield JudgedCommand(raw, words, strictest([command.floor, *around]))
            return
        scene = self._scene
        for directory in command.directories:
            if directory.text is None:
                around = [*around, other("command.git", "where git would run cannot be told")]
                continue
            around = [*around, *check_read(directory.text, scene)]
            scene = scene.at(directory.text)
        if command.floor.level > CommandClass.HARMLESS:
            for word in words[1:]:
                around = [*around, *check_mentions(word, self._scene)]
        found = [judge_by_rules(command.words, scene), command.floor, *around]
        yield JudgedCommand(raw, command.words, strictest(found))
        reason = other("command.git", "git would run it")
        below = SimpleJudge(scene, self._below)
        for inner in command.commands:
            for each in below._layers(inner, raw, CommandInput("pipe"), depth + 1):
                yield replace(each, classed=strictest([each.classed, reason]))
        for text in command.scripts:
            for each in self._below(text, scene):
                yield replace(each, classed=_at_most_worth(each.classed, reason))

    def _judge_unwrapped(
        self,
        peeled: UnwrappedCommand,
        words: tuple[Word, ...],
        raw: str,
        around: list[Classed],
        given: CommandInput,
        depth: int,
    ) -> Iterator[JudgedCommand]:
        scene = self._scene
        floor = [peeled.floor, *around, *check_assignments(peeled.assignments, scene)]
        inner_words = {id(word) for inner in peeled.commands for word in inner}
        inner_words |= {id(word) for word in (*peeled.scripts, *peeled.codes)}
        for word in words[1:]:
            if id(word) not in inner_words and not peeled.itself:
                attached = bool(peeled.codes) and (word.text or "").startswith("-")
                floor += (check_real_mentions if attached else check_mentions)(word, scene)
        scene, found = _enter_directory(peeled, scene)
        floor += found
        for code in peeled.codes:
            floor += _check_text(code, scene)
        if peeled.itself:
            floor.insert(0, judge_by_rules(words, scene))
        if not peeled.passes_input and not all(
            self._has_harmless_rule(inner, any_option=True) for inner in peeled.commands
        ):
            floor.append(other("command.wrapper", "what its words become is known when it runs"))
        base = strictest(floor)
        if peeled.itself or not (peeled.commands or peeled.scripts):
            yield JudgedCommand(raw, words, base)
        below = SimpleJudge(scene, self._below)
        passed = given if peeled.passes_input else CommandInput("pipe")
        for inner in peeled.commands:
            for each in below._layers(inner, raw, passed, depth + 1):
                yield replace(each, classed=strictest([each.classed, base]))
        for text in peeled.scripts:
            for each in self._below(text, scene):
                yield replace(each, classed=strictest([each.classed, base]))


_ALWAYS_PATHS: Final = frozenset({"path.forbidden", "path.state"})
_SYSTEM: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/")
"""System-wide program directories: running one does not lead out of the workspace."""


def is_forbidden(name: str, commands: Iterable[str]) -> bool:
    """Whether a program is one of the named, also as ``mkfs.ext4``, ``grm`` or ``rm-9``."""
    plain = name.casefold()
    names = {plain, family_name(plain), plain.partition(".")[0]}
    wanted = {command.casefold() for command in commands}
    return not names.isdisjoint(wanted) or any(f"g{each}" == plain for each in wanted)


def _peel(name: str, words: tuple[Word, ...], given: CommandInput) -> UnwrappedCommand | None:
    for peeled in (
        peel_shell(name, words, given),
        peel_wrapper(name, words),
        peel_interpreter(name, words, given),
    ):
        if peeled is not None:
            return peeled
    return None


def _enter_directory(peeled: UnwrappedCommand, scene: Scene) -> tuple[Scene, list[Classed]]:
    if peeled.directory is None:
        return scene, []
    if peeled.directory.text is None:
        return scene, [other("command.wrapper", "where it would run cannot be told")]
    return scene.at(peeled.directory.text), check_read(peeled.directory.text, scene)


def _check_text(code: Word, scene: Scene) -> list[Classed]:
    if code.text is None:
        return [unknown("shell.dynamic", f"the program text {code.raw!r} cannot be seen")]
    return check_code(code.text, scene)


def _without_separators(command: Simple) -> tuple[tuple[str, Word], ...]:
    """Leave out the ``IFS`` of a ``read``, which says how that one line is split."""
    reads = bool(command.words) and command.words[0].text == "read"
    return tuple(
        (name, value)
        for name, value in command.assignments
        if not (reads and name == "IFS" and value.text is not None)
    )


def _find_embedded(words: Sequence[Word]) -> Classed | None:
    """Find a destructive command line within a word of a command that is not understood."""
    for word in words:
        if word.text is not None and any(char in word.text for char in " ;|&\n"):
            found = destructive_text(word.text)
            if found is not None:
                return found
    return None


def _at_most_worth(found: Classed, reason: Classed) -> Classed:
    """A value that only may be a command counts when it holds something forbidden."""
    if found.level is CommandClass.UNKNOWN:
        return reason
    return strictest([found, reason])


_HARMLESS: Final = frozenset(
    {
        *("LC_ALL", "LANG", "LANGUAGE", "LC_CTYPE", "LC_COLLATE", "LC_NUMERIC", "LC_TIME"),
        *("LC_MESSAGES", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"),
        *("COLORTERM", "COLUMNS", "LINES", "CI", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
        *("PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "RUST_BACKTRACE", "DEBIAN_FRONTEND"),
        *("SOURCE_DATE_EPOCH", "LS_COLORS", "BLOCK_SIZE", "QUOTING_STYLE", "TIME_STYLE", "DEBUG"),
        *("VERBOSE", "RUST_LOG"),
        *("NODE_ENV", "GOOS", "GOARCH", "CGO_ENABLED", "CARGO_TERM_COLOR", "PY_COLORS"),
    }
)
_TUNING: Final = frozenset({"GIT_PAGER_IN_USE", "GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"})
"""They run nothing, and differ from what the tool sets."""
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
    assignments: Sequence[tuple[str, Word]], scene: Scene, *, loop: bool = False, bare: bool = False
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


def declared_variables(name: str, words: Sequence[Word]) -> tuple[tuple[str, Word], ...]:
    """Return the variables that a builtin sets, such as ``export A=1`` and ``read A``."""
    if name not in _DECLARERS and name not in _SETTERS:
        return ()
    if name == "printf" and not any((word.text or "").startswith("-v") for word in words[1:2]):
        return ()
    found = []
    for word in words[1:]:
        bare = (word.text or word.raw).removeprefix("-v").lstrip("\"'")
        variable, _, value = bare.partition("=")
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\+?", variable):
            found.append((variable.rstrip("+"), Word(value, value)))
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
