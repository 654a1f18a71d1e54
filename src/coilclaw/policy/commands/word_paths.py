"""The paths that words of a command name, openly or inside other text, and what they may do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import CommandClass, forbidden, of_path, other
from coilclaw.policy.path_rules import judge_path, under

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import Locate, Place
    from coilclaw.policy.commands.command_class import Classed
    from coilclaw.policy.commands.rule import Rule, RuleSet
    from coilclaw.policy.settings import SecuritySettings
    from coilclaw.policy.shell.script import Simple, Word


MAX_SPELLINGS: Final = 64
MAX_PATH: Final = 4096
MAX_RANGE: Final = 10_000
MAX_PIECES: Final = 2000
STREAMS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
"""Devices that only name what a process has open anyway."""

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_SEQUENCE: Final = re.compile(r"(\w+)\.\.(\w+)(?:\.\.\d+)?")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_ADDRESS: Final = re.compile(r"file:(?://[^/]*)?(/.*)", re.IGNORECASE)
_SEPARATORS: Final = re.compile(r"[=:,@;|<>]")
_ATTACHED: Final = re.compile(r"-{1,2}[A-Za-z]+?(?=[/~.])")
_HOME: Final = re.compile(r"[\"']?\$\{?(?:HOME|OLDPWD|TMPDIR|XDG_\w+)\b")
_PARAMETER: Final = re.compile(r"\$(?:\{[^{}]*\}|\w+|[?#$!*@-])|[\"']")
_ALWAYS: Final = frozenset({"path.forbidden", "path.state"})
_EXPANSION: Final = re.compile(r"[$`]|[<>]\(")


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a command would run: every directory that it may be in at that point."""

    settings: SecuritySettings
    locate: Locate
    rules: RuleSet
    entries: tuple[Rule, ...] = ()
    """What ``allowed_commands`` adds."""
    directories: tuple[str, ...] = ("",)
    lost: bool = False
    """Whether it may be in yet another directory."""
    variables: Mapping[str, bool] = field(default_factory=dict)
    """What the line itself sets, and whether none of it can be an option."""

    def at(self, directory: str) -> Scene:
        """Return the scene after entering a directory."""
        return replace(
            self, directories=tuple(join_path(base, directory) for base in self.directories)
        )

    def places(self, path: str) -> tuple[Place, ...]:
        return tuple(self.locate(join_path(base, path)) for base in self.directories)


def join_path(base: str, path: str) -> str:
    """Put a path below a directory, unless it is absolute."""
    return path if not base or path.startswith("/") else f"{base.rstrip('/')}/{path}"


def check_read(path: str, scene: Scene, *, tree: bool = False) -> list[Classed]:
    """Say what speaks against reading a path without being asked."""
    if path in STREAMS or path == "-":
        return []
    found = _strange(path) or _adrift(path, scene)
    for place in () if found else scene.places(path):
        finding = of_path(judge_path(place, scene.settings, writes=False))
        if finding.level > CommandClass.HARMLESS:
            found.append(finding)
        elif place.kind == "other":
            found.append(
                other("path.special", f"{path!r} is neither a file nor a directory; it may block")
            )
        elif tree:
            found += _covers(place, scene.settings)
    return found


def check_write(path: str, scene: Scene) -> list[Classed]:
    """Say what speaks against writing a path after having asked."""
    found = _strange(path) or _adrift(path, scene)
    for place in () if found else scene.places(path):
        finding = of_path(judge_path(place, scene.settings, writes=True))
        if finding.level > CommandClass.ALLOWED:
            found.append(finding)
        elif place.kind == "other":
            found.append(other("path.special", f"{path!r} is a device, a pipe or a socket"))
    return found


def check_mentions(word: Word, scene: Scene) -> list[Classed]:
    """Say which paths hidden in a word of unknown meaning are out of bounds."""
    if word.text is None:
        return _dynamic(word, scene)
    found = []
    for index, candidate in enumerate(_candidates(word.text)):
        if looks_like_path(candidate) or (index == 0 and _leads_away(candidate, scene)):
            found += _out_of_bounds(candidate, scene)
    return found


def check_real_mentions(word: Word, scene: Scene) -> list[Classed]:
    """Likewise, for text that is likely no path: only what is there, or forbidden by name."""
    if word.text is None:
        return _dynamic(word, scene)
    found = []
    for candidate in dict.fromkeys(_candidates(word.text)):
        if looks_like_path(candidate) and candidate.strip("/") and is_real(candidate, scene):
            found += _out_of_bounds(candidate, scene)
    return found


def check_data(text: str, scene: Scene) -> list[Classed]:
    """Say which paths in data that becomes arguments, or a program's text, are out of bounds."""
    found = []
    for piece in dict.fromkeys(text.split()[:MAX_PIECES]):
        bare = piece.strip("\"'`;,()[]{}")
        if looks_like_path(bare) and bare.strip("/") and is_real(bare, scene):
            found += _out_of_bounds(bare, scene)
    return found


def is_real(path: str, scene: Scene) -> bool:
    """Whether a path is there, or may never be named."""
    return (
        path.startswith("~")
        or any(each.rule in {"path.forbidden", "path.state"} for each in check_read(path, scene))
        or any(place.kind != "missing" for place in scene.places(path))
    )


def check_revision(word: Word, scene: Scene) -> list[Classed]:
    """Likewise for a revision or a path as git understands them."""
    text = word.text or ""
    if text.startswith(":/"):
        return []
    bare = re.sub(r"\A:(?:\([^)]*\)|[!^]+)?", "", text)
    pieces = dict.fromkeys((bare, bare.partition(":")[2]))
    found = [
        each
        for one in pieces
        if looks_like_path(one) or _leads_away(one, scene)
        for each in _out_of_bounds(one, scene)
    ]
    for one in filter(None, pieces):
        found += [each for each in check_read(one, scene) if each.rule in _ALWAYS or each.asks]
        found += _could_match(one, scene)
    return found


def check_pattern(word: Word, scene: Scene) -> list[Classed]:
    """Say which places an unquoted pattern would look into that it must not."""
    if not word.globs or set("*?[").isdisjoint(word.text or ""):
        return []
    found = []
    for text in spellings(word):
        found += check_read(text, scene)
        found += check_read(text.rstrip("*?"), scene) if text.rstrip("*?/") else []
        found += _could_match(text, scene)
    return found


def _could_match(text: str, scene: Scene) -> list[Classed]:
    """A pattern may become the name of a place inside the workspace that is not to be read."""
    if set("*?[").isdisjoint(text):
        return []
    for base in (*scene.settings.forbidden_paths, *scene.settings.own_paths):
        names = base.strip("/").split("/")
        for place in scene.places(text):
            pattern = place.lexical.strip("/").split("/")
            common = list(zip(pattern, names, strict=False))
            fits = all(one == name or matches(one, name) for one, name in common)
            if fits and len(pattern) >= len(names):
                reason = f"{text!r} may become {base}, which is not to be read"
                return [other("path.pattern", reason)]
    return []


def looks_like_path(text: str) -> bool:
    """Whether text leaves the directory it stands in, if it is a path at all."""
    return text.startswith(("/", "~")) or ".." in text.split("/")


def spellings(word: Word) -> tuple[str, ...]:
    """Return what braces make of a word; patterns stay. Nothing means too many to look at."""
    text = word.text or ""
    if not word.globs or "{" not in text:
        return (text,)
    done: dict[str, None] = {text: None}
    todo = [text]
    while todo:
        current = todo.pop()
        match = next((m for m in _BRACES.finditer(current) if _alternatives(m[1])), None)
        if match is None:
            done[current] = None
            continue
        head, tail = current[: match.start()], current[match.end() :]
        todo += [head + each + tail for each in _alternatives(match[1])]
        if len(done) + len(todo) > MAX_SPELLINGS:
            return ()
    return tuple(done)


def pattern_problem(word: Word, *, literal: bool, any_option: bool) -> str | None:
    """Say what an unquoted pattern could become that was not judged."""
    if not word.globs:
        return None
    variants = spellings(word)
    if not variants:
        return f"{word.raw!r} becomes too many words"
    for variant in variants:
        if not literal and not any_option and variant[:1] in set("*?[-"):
            return f"{word.raw!r} may become an option; put './' before it, or '--'"
        for name in variant.split("/"):
            if name.startswith(".") and name != ".." and matches(name, ".."):
                return f"{word.raw!r} also means '..'"
    return None


def matches(pattern: str, name: str) -> bool:
    """Whether a shell pattern with something in it to expand matches a name."""
    return not set("*?[").isdisjoint(pattern) and fnmatchcase(name, pattern.replace("[^", "[!"))


def _alternatives(inside: str) -> tuple[str, ...]:
    if "," in inside:
        return tuple(inside.split(","))
    ends = _SEQUENCE.fullmatch(inside)
    if ends and _span(ends[1], ends[2]) > MAX_RANGE:
        return tuple("" for _ in range(MAX_SPELLINGS + 1))
    return (ends[1], ends[2]) if ends else ()


def _span(first: str, last: str) -> int:
    if not (first.isdecimal() and last.isdecimal()):
        return 0
    return abs(int(last[:9]) - int(first[:9])) if max(len(first), len(last)) < 10 else MAX_RANGE + 1


def _strange(path: str) -> list[Classed]:
    if path.startswith("~"):
        return [forbidden("path.home", f"{path!r} starts at a home directory; write it out")]
    if len(path) > MAX_PATH or "\0" in path:
        return [forbidden("path.long", "a path is too long, or holds a NUL")]
    return []


def _adrift(path: str, scene: Scene) -> list[Classed]:
    if scene.lost and not path.startswith("/"):
        return [other("path.adrift", f"from which directory {path!r} is meant cannot be told")]
    return []


def _covers(place: Place, settings: SecuritySettings) -> list[Classed]:
    roots = {place.lexical, place.real or place.lexical}
    for base in (*settings.own_paths, *settings.forbidden_paths):
        if any(base != root and under(base, root) for root in roots):
            return [other("path.covers", f"{place.given!r} holds {base}, which is not to be read")]
    return []


def _leads_away(path: str, scene: Scene) -> bool:
    """Whether a name that looks like nothing special is a link, or below one."""
    places = scene.places(path) if path else ()
    return any(place.real is not None and place.real != place.lexical for place in places)


def _out_of_bounds(path: str, scene: Scene) -> list[Classed]:
    return [each for each in check_read(path, scene) if each.level > CommandClass.ALLOWED]


def _dynamic(word: Word, scene: Scene) -> list[Classed]:
    if _HOME.match(word.raw):
        return [forbidden("path.home", f"{word.raw!r} starts at a home directory; write it out")]
    bare = word.raw.strip("\"'")
    prefix = _EXPANSION.split(bare, maxsplit=1)[0]
    found = _out_of_bounds(prefix, scene) if looks_like_path(prefix) else []
    # What stands before may be empty: then the rest is an absolute path.
    rest = _PARAMETER.sub("", bare)
    if rest != bare and looks_like_path(rest) and rest.strip("/") and is_real(rest, scene):
        found += _out_of_bounds(rest, scene)
    return found


def _candidates(text: str) -> Iterator[str]:
    yield text[:MAX_PATH]
    if (local := _FILE_ADDRESS.search(text)) is not None:
        yield local[1]
    if _ADDRESS.search(text):
        return
    yield from _SEPARATORS.split(text)
    if (attached := _ATTACHED.match(text)) is not None:
        yield text[attached.end() :]


MAX_DIRECTORIES: Final = 8
_MOVERS: Final = frozenset({"cd", "chdir"})
_ELSEWHERE: Final = frozenset({"eval", "source", ".", "pushd", "popd", "trap", "alias", "shopt"})
_BEFORE: Final = frozenset({"command", "builtin", "time", "-p", "--"})
_AMPERSANDS: Final = re.compile(r"[0-9]*>&[0-9-]|&>|&&")


def is_chain(text: str) -> bool:
    """Whether every command of a text runs only if the one before it succeeded."""
    return not any(sign in _AMPERSANDS.sub("", text) for sign in (";", "&", "||", "\n", "!"))


def after_command(scene: Scene, commands: Sequence[Simple], index: int, *, chain: bool) -> Scene:
    """Return the scene after a command: both directories when it is not sure to have moved."""
    words = _own_words(commands[index])
    if not words or words[0].text not in _MOVERS:
        return replace(scene, lost=scene.lost or (bool(words) and words[0].text in _ELSEWHERE))
    directory = _target(words[1:])
    if directory is None:
        return replace(scene, lost=True)
    moved = tuple(join_path(base, directory) for base in scene.directories)
    if _is_sure(scene, commands, index, directory, chain=chain):
        return replace(scene, directories=moved)
    both = tuple(dict.fromkeys((*scene.directories, *moved)))
    if len(both) > MAX_DIRECTORIES:
        return replace(scene, lost=True)
    return replace(scene, directories=both)


def _own_words(command: Simple) -> Sequence[Word]:
    """Return the words without those that leave a builtin where it is."""
    words = list(command.words)
    while words and words[0].text in _BEFORE:
        del words[0]
    return words


def _target(operands: Sequence[Word]) -> str | None:
    """Return where a ``cd`` goes, if its words tell."""
    words = [word for word in operands if word.text not in {"--", "-L", "-P"}]
    if len(words) != 1 or words[0].text is None or words[0].globs or words[0].text == "-":
        return None
    return words[0].text


def _is_sure(
    scene: Scene, commands: Sequence[Simple], index: int, directory: str, *, chain: bool
) -> bool:
    """Whether it is in the open, and either first and possible, or the rest hangs on it."""
    command = commands[index]
    alone = sum(each.pipeline == command.pipeline for each in commands) == 1
    if not alone or any(each.compound or each.nested or each.background for each in commands):
        return False
    if chain:
        return True
    first = all(each.words and each.words[0].text in _MOVERS for each in commands[: index + 1])
    exists = all(place.kind == "directory" for place in scene.places(directory))
    return first and exists and not any(each.redirections for each in commands[: index + 1])
