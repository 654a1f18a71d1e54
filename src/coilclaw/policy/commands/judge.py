"""Judge a command line or an argv by what it would really run; the strictest part decides."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import (
    CONTAINED_RULE,
    Classed,
    CommandClass,
    CommandInput,
    contain,
    family_name,
    of_path,
    other,
    program_name,
    strictest,
    unknown,
)
from coilclaw.policy.commands.destructive import Ran, destructive_line, destructive_text
from coilclaw.policy.commands.policy_file import read_entry
from coilclaw.policy.commands.rule_lookup import network_need
from coilclaw.policy.commands.simple_command import JudgedCommand, SimpleJudge
from coilclaw.policy.commands.word_paths import (
    Scene,
    after_command,
    check_data,
    check_mentions,
    check_real_mentions,
    is_chain,
)
from coilclaw.policy.judgement import CommandSegment, Terms
from coilclaw.policy.shell.expansions import set_variables
from coilclaw.policy.shell.script import NotUnderstood, Script, Simple, Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.kernel import Locate, Risk, Runs
    from coilclaw.policy.settings import SecuritySettings

MAX_DEPTH: Final = 5
PROTECTED: Final = re.compile(
    r"(?:^|[\s/\"'=:(,])\.git(?:/+(?:hooks|config|info|modules|worktrees|objects|refs|HEAD|index)|/?"
    r"(?=[\s\"')]|$))|(?:^|[\s/\"'=:(,])\.coilclaw(?=[\s/\"')]|$)",
    re.IGNORECASE,
)
"""Names of what belongs to git or to us, in a command that may do more than read them."""
_LEFT_OUT: Final = re.compile(r"--(?:exclude|ignore|glob)[\w-]*[= ]['\"!/]*\.git/?(?=['\"\s]|$)")
_SETTING_SUBCOMMANDS: Final = frozenset({"config", "remote", "submodule", "branch", "push"})
_TAKERS: Final = frozenset({"xargs", "parallel"})
MAX_NAMES: Final = 2000
_FILE_NAMES: Final = re.compile(r"[\w.@+/-]+")
MAX_ARGV: Final = 4096
MAX_ARGV_CHARS: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class CommandFinding:
    """What was found about everything that a command would start."""

    segments: tuple[CommandSegment, ...]
    risk: Risk
    rule: str
    reason: str
    forbidden: bool
    terms: Terms
    asks: bool = False
    """Whether a person is asked even where the level would let it run."""


def judge_command(runs: Runs, settings: SecuritySettings, locate: Locate) -> CommandFinding:
    """Judge a command line or an argv; what is not understood is forbidden."""
    if settings.rules is None:
        reason = "no rules about commands exist, so no command may run"
        return _conclude(
            [JudgedCommand("", (), unknown("policy.rules", reason))], Terms(False, False)
        )
    rules = settings.rules.rules
    settings = replace(settings, contained=settings.contained and rules.contained)
    entries = tuple(read_entry(entry) for entry in settings.allowed_commands)
    scene = Scene(settings, locate, rules, entries)
    if runs.command is not None:
        judged = list(_LineJudge(0).text(runs.command, scene))
    else:
        judged = list(_LineJudge(0).script(_of_argv(runs.argv or ()), scene))
    if not judged:
        judged = [JudgedCommand("", (), unknown("shell.empty", "there is nothing to run"))]
    judged += _named_secrets(judged, runs, scene)
    if settings.contained:
        judged = _contain_commands(judged, runs)
    return _conclude(judged, _terms(judged, settings))


def _contain_commands(judged: Sequence[JudgedCommand], runs: Runs) -> list[JudgedCommand]:
    """Let the sandbox answer what it can; a wish for the network makes a command one of these."""
    text = runs.command if runs.command is not None else "\n".join(runs.argv or ())
    worst = strictest(each.classed for each in judged)
    named = PROTECTED.search(_LEFT_OUT.sub("", text))
    if worst.containable and named is not None:
        reason = f"{worst.reason}; and {named[0].strip()!r} is not for commands to change"
        return [*judged, JudgedCommand("", (), other("path.protected", reason))]
    held = [replace(each, classed=contain(each.classed)) for each in judged]
    if runs.network and worst.level is not CommandClass.UNKNOWN:
        asked = Classed(CommandClass.CONTAINED, CONTAINED_RULE, "the network is asked for")
        held.append(JudgedCommand("", (), asked, need="the agent asks for it"))
    return held


def _named_secrets(
    judged: Sequence[JudgedCommand], runs: Runs, scene: Scene
) -> list[JudgedCommand]:
    """Find the files with secrets that a command names which may do anything with them."""
    worst = max(each.classed.level for each in judged)
    if not CommandClass.HARMLESS < worst < CommandClass.UNKNOWN:
        return []
    text = runs.command if runs.command is not None else " ".join(runs.argv or ())
    for name in dict.fromkeys(_FILE_NAMES.findall(text)[:MAX_NAMES]):
        if scene.settings.secrets.covers(name):
            for place in scene.places(name):
                finding = scene.settings.secrets.judge(place) if place.kind == "file" else None
                if finding is not None:
                    return [JudgedCommand("", (), of_path(finding))]
    return []


def _terms(judged: Sequence[JudgedCommand], settings: SecuritySettings) -> Terms:
    """Say what the command runs under: the network only by a rule, or where a person grants it."""
    worst = strictest(each.classed for each in judged)
    granted = [each.classed.rule for each in judged if each.classed.network]
    needs = [each.need for each in judged if each.need]
    held = worst.level is CommandClass.CONTAINED
    asked = ""
    if needs and settings.contained and (held or worst.level is CommandClass.ALLOWED):
        asked = "" if granted and not held else needs[0]
    elif granted and held:
        asked = f"{granted[0]} grants it"
    return Terms(
        writable=any(each.writes for each in judged),
        network=not worst.forbidden and (bool(granted) or bool(asked)),
        contained=held or bool(asked),
        sweeps=any(_sweeps([word.text or "" for word in each.words]) for each in judged),
        sets_git=held and _set_git([each.words for each in judged]),
        asked_for=asked,
    )


def _sweeps(words: Sequence[str]) -> bool:
    """Whether a command comes across files that it does not name.

    Other commands of git compare: a file that is not shown would be a removed one, told in full.
    """
    searches = words[1:2] == ["grep"] or any(word.startswith("--no-i") for word in words)
    return bool(words) and (words[0] != "git" or searches)


def _set_git(commands: Sequence[Sequence[Word]]) -> bool:
    """Whether nothing but git runs, and some of it writes git's own settings."""
    named = [[word.text for word in words[:2]] for words in commands]
    return all(words[:1] == ["git"] for words in named) and any(
        words[1:] and words[1] in _SETTING_SUBCOMMANDS for words in named
    )


def _conclude(judged: Sequence[JudgedCommand], terms: Terms) -> CommandFinding:
    worst = strictest(each.classed for each in judged)
    segments = tuple(
        CommandSegment(
            each.raw,
            tuple("$…" if word.text is None else word.text for word in each.words),
            each.classed.kind,
            each.classed.risk,
            each.classed.rule,
            each.classed.reason,
        )
        for each in judged
    )
    secret = next((each.classed for each in judged if each.classed.asks), None)
    reason = worst.reason
    if secret is not None and secret.rule != worst.rule:
        reason = f"{reason}; and {secret.reason}"
    asks = bool(terms.asked_for) or secret is not None
    return CommandFinding(segments, worst.risk, worst.rule, reason, worst.forbidden, terms, asks)


def _of_argv(argv: Sequence[str]) -> Script | NotUnderstood:
    if not argv or not argv[0]:
        return NotUnderstood("there is nothing to run", "", "shell.syntax")
    if len(argv) > MAX_ARGV or sum(map(len, argv)) > MAX_ARGV_CHARS:
        return NotUnderstood("the argv is too long", argv[0][:60], "shell.bound")
    if any("\0" in word for word in argv):
        return NotUnderstood("the argv holds a NUL", argv[0][:60], "shell.text")
    words = tuple(Word(raw=word, text=word) for word in argv)
    return Script((Simple(raw=" ".join(argv), words=words),))


class _LineJudge:
    """Judges all commands of one text, at one depth of texts within texts."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def text(self, text: str, scene: Scene) -> Iterator[JudgedCommand]:
        """Judge the text of a command line."""
        from coilclaw.policy.shell import reader

        if self._depth > MAX_DEPTH:
            reason = "there are too many command lines within command lines"
            yield JudgedCommand(text, (), unknown("shell.bound", reason))
            return
        reading = reader.read_script(text)
        if isinstance(reading, NotUnderstood):
            worst = destructive_text(text)
            if worst is not None:
                yield JudgedCommand(text, (), worst)
                return
        yield from self.script(reading, scene, chain=is_chain(text))

    def script(
        self, reading: Script | NotUnderstood, scene: Scene, *, chain: bool = False
    ) -> Iterator[JudgedCommand]:
        """Judge every command of a text that has been read."""
        if isinstance(reading, NotUnderstood):
            reason = f"it is not understood: {reading.reason}"
            yield JudgedCommand(reading.excerpt, (), unknown(reading.rule, reason))
            return
        ran: list[Ran] = []
        judged: list[JudgedCommand] = []
        scene = replace(scene, variables=set_variables(reading.commands))
        for index, command in enumerate(reading.commands):
            given = _input(reading.commands, index)
            found = list(SimpleJudge(scene, self._judge_nested).judge(command, given))
            found += _printed_paths(command, scene)
            need = network_need(command.words)
            found = [replace(each, need=need or network_need(each.words)) for each in found]
            ran += _ran(command, found)
            judged += found
            scene = after_command(scene, reading.commands, index, chain=chain)
        yield from judged
        together = destructive_line(ran)
        if together is not None:
            yield JudgedCommand("", (), together)
        yield from _pipes(reading, judged, scene)

    def _judge_nested(self, text: Word, scene: Scene) -> Iterator[JudgedCommand]:
        if text.text is None:
            reason = f"the command line {text.raw!r} is known only when it runs"
            yield JudgedCommand(text.raw, (), unknown("shell.dynamic", reason))
            return
        yield from _LineJudge(self._depth + 1).text(text.text, scene)


def _ran(command: Simple, found: Sequence[JudgedCommand]) -> list[Ran]:
    targets = tuple(
        each.target.text for each in command.redirections if each.target and each.target.text
    )
    own = [command.words] if command.words else []
    names = dict.fromkeys((*own, *(each.words for each in found if each.words)))
    return [
        Ran(
            family_name(program_name(words[0].text or "")),
            words,
            command.piped_into,
            command.nested,
            targets,
        )
        for words in names
    ]


def _input(commands: Sequence[Simple], index: int) -> CommandInput:
    """Say where the input of a command comes from."""
    command = commands[index]
    for redirection in reversed(command.redirections):
        if redirection.body is not None:
            return CommandInput("text", redirection.body)
        if redirection.operator.startswith("<") and redirection.descriptor in {None, "0"}:
            return CommandInput("file")
    if not command.piped_into:
        return CommandInput()
    before = [each for each in commands[:index] if each.pipeline == command.pipeline]
    if len(before) == 1 and before[0].words and before[0].words[0].text in {"echo", "printf"}:
        return CommandInput("text", _predict_output(before[0].words))
    return CommandInput("pipe")


def _predict_output(words: Sequence[Word]) -> Word:
    """Return what ``echo`` or ``printf`` would print, or an unknown word."""
    texts = [word.text for word in words[1:]]
    raw = " ".join(word.raw for word in words)
    if any(text is None for text in texts) or any(word.globs for word in words):
        return Word(raw, None)
    known = [text for text in texts if text is not None]
    if words[0].text == "echo":
        flags = len(known) and known[0] in {"-n", "-e", "-E", "-ne", "-en"}
        known = known[1:] if flags else known
    elif len(known) > 1:
        return Word(raw, None)
    text = " ".join(known)
    return Word(raw, None if "\\" in text or "%" in text else text)


def _printed_paths(command: Simple, scene: Scene) -> Iterator[JudgedCommand]:
    """What a substitution prints becomes a word of another command: a path, as likely as not."""
    name = command.words[0].text if command.words else None
    if command.nested and name in {"echo", "printf"}:
        for word in command.words[1:]:
            for each in check_data(word.text or "", scene):
                yield JudgedCommand(command.raw, command.words, each)


def _pipes(
    reading: Script, judged: Sequence[JudgedCommand], scene: Scene
) -> Iterator[JudgedCommand]:
    """Look at the text of a pipe that ends in something which is not judged word by word."""
    worst = max((each.classed.level for each in judged), default=CommandClass.HARMLESS)
    if worst > CommandClass.OTHER:
        return
    numbers = {
        command.pipeline
        for command in reading.commands
        if command.words and family_name(program_name(command.words[0].text or "")) in _TAKERS
    }
    for command in reading.commands:
        if command.pipeline in numbers:
            prints = command.words and command.words[0].text in {"echo", "printf"}
            check = check_mentions if prints else check_real_mentions
            found = [each for word in command.words[1:] for each in check(word, scene)]
            for redirection in command.redirections:
                body = redirection.body
                found += check_data(body.text or "", scene) if body is not None else []
            for each in found:
                yield JudgedCommand(command.raw, command.words, each)
