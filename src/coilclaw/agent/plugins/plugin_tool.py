"""A tool of a plugin: check its files, copy them, and run the copy in the sandbox.

The hashed bytes are the bytes that run: they are written to a fresh directory, and the sandbox
shows that directory. The plugin answers with one JSON object on its standard output.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agent.plugins import installation, manifest, pins
from coilclaw.agent.settings import PluginSettings
from coilclaw.agent.tools import command_environment, output
from coilclaw.agent.tools.contract import ReadyCall, Tool
from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    External,
    JsonFault,
    Runs,
    ToolResult,
    Writes,
    explain_os_errors,
    quote_text,
    read_json_object,
)
from coilclaw.policy import Terms
from coilclaw.workspace import WARDENS, KernelLimits, ProcessBounds, command, limit_command, sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.agent.plugins.files import PluginFile
    from coilclaw.agent.plugins.manifest import PluginTool
    from coilclaw.agent.plugins.pins import Pin
    from coilclaw.agent.plugins.store import PluginStore
    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.kernel import Effect, Json
    from coilclaw.workspace import Enforced, ProcessResult, Sandbox, SandboxSupport

_EXCEEDED: Final = frozenset({"too_much_output", "too_much_memory", "too_many_processes"})
_NO_MEMORY: Final = (b"MemoryError", b"out of memory", b"annot allocate memory", b"bad_alloc")
"""Messages of programs that the kernel denied more memory."""
MAX_LINE: Final = 200
MAX_STDERR: Final = 1000
"""Bytes of the standard error that an error message quotes."""
MAX_ERROR: Final = 2000
_KEYS: Final = ("success", "output", "error", "metadata")
_NETWORK: Final = tuple(
    Path("/etc", name)
    for name in (
        *("resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services"),
        *("ssl", "ca-certificates", "pki"),
    )
)
"""The files that are needed to find and to authenticate a server."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The terms of one call, known before it runs."""

    args: Arguments
    writable: bool
    timeout_s: float
    support: SandboxSupport
    held: Enforced


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """A well-formed answer."""

    success: bool
    output: str
    error: str | None
    metadata: Mapping[str, Json]


class ExternalTool(Tool):
    """Passes a call to a program of a plugin."""

    def __init__(
        self, store: PluginStore, pin: Pin, entry: PluginTool, settings: PluginSettings
    ) -> None:
        self._store = store
        self._pin = pin
        self._entry = entry
        self._settings = settings
        self.name = entry.name
        self.description = entry.description
        self.parameters_schema = entry.schema
        self.owner = f"plugin:{pin.name}"

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Return the plugin itself and what it declares, which can only make it stricter."""
        handed = External(self.owner, self._settings.risk)
        return (handed, *self._entry.declared.effects(args))

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        if self._entry.network and not self._settings.network:
            raise DeniedError(
                f"{self.name} needs the network, but plugins.{self._pin.name}.network is not true",
                rule="plugin.network",
            )
        with self._store.lock(shared=True):
            self._read_files()
        effects = self.effects(args)
        runs_writable = context.judge(effects).terms.writable
        writable = any(
            isinstance(effect, Writes) or (isinstance(effect, Runs) and runs_writable)
            for effect in effects
        )
        support = context.probe_sandboxes()
        files = self._store.place(self._pin.name)
        planned = _hold(self._entry, context, files=files, scratch=None, writable=writable)
        held = sandbox.choose_sandbox(planned, support).enforced
        most = context.limits.tool_timeout_s
        call = _Call(args, writable, min(self._entry.timeout_s or most, most), support, held)
        bounds = f"{self._settings.memory_mb} MiB, {self._settings.processes} processes"
        bounds += f", {self._entry.output_bytes} bytes of output"
        detail = (
            f"plugin: {self._pin.name} {self._pin.version}, files {self._pin.digest}",
            f"argv: {json.dumps(self._entry.command, ensure_ascii=False)}",
            f"declares: {self._entry.declared}",
            f"sandbox: {command_environment.describe_sandbox(held, writable=writable)}",
            f"at most: {call.timeout_s:g} s, {bounds}",
        )
        return ReadyCall(detail, lambda: self._run(call, context), lookup="start")

    def _read_files(self) -> tuple[PluginFile, ...]:
        """Return the files; raise ``DeniedError`` if they are not those of this tool's pin."""
        pin = self._store.pin(self._pin.name, pins.load(self._store.home))
        if not pin.enabled:
            raise DeniedError(
                f"the plugin {quote_text(pin.name)} is disabled; 'coilclaw plugin enable "
                f"{pin.name}'",
                rule="plugin.disabled",
            )
        if pin.digest != self._pin.digest:
            raise DeniedError(
                f"another version of the plugin {quote_text(pin.name)} was approved since this "
                "program started",
                rule="plugin.changed",
            )
        return self._store.read_verified(pin)

    def _run(self, call: _Call, context: ToolContext) -> ToolResult:
        entry, settings = self._entry, self._settings
        question = {
            "tool": self.name,
            "arguments": dict(call.args),
            "conversation_id": context.conversation_id,
            "workspace": str(context.root.path),
        }
        bounds = ProcessBounds(entry.output_bytes, settings.memory_mb * 2**20, settings.processes)
        # Without a process namespace the kernel would count all processes of the user.
        counted = bounds.processes + WARDENS if call.held.processes else None
        with ExitStack() as stack:
            with self._store.lock(shared=True):
                own, scratch = _copy(stack, self._store.folder, self._read_files())
            argv = [str(own / entry.command[0]), *entry.command[1:]]
            context.starting()
            result = command.run(
                limit_command(argv, KernelLimits(bounds.memory_bytes, counted)),
                cwd=own,
                timeout_s=call.timeout_s,
                env=_environment(context, scratch),
                stdin=json.dumps(question).encode("ascii") + b"\n",
                limit_bytes=entry.output_bytes,
                sandbox=_hold(entry, context, files=own, scratch=scratch, writable=call.writable),
                support=call.support,
                cancel=context.cancel,
                bounds=bounds,
            )
        return self._report(result, call, context)

    def _report(self, result: ProcessResult, call: _Call, context: ToolContext) -> ToolResult:
        ended = self._explain_bound(result)
        ended = ended or command_environment.explain_end(result, call.timeout_s, context)
        given = "" if result.outcome in _EXCEEDED else read_answer(result.stdout.data)
        metadata: dict[str, Json] = {
            "plugin": self._pin.name,
            "version": self._pin.version,
            "exit_code": result.exit_code,
            "outcome": result.outcome,
            "duration_ms": round(result.duration_s * 1000),
            "sandbox": command_environment.describe_sandbox(
                result.enforced, writable=call.writable
            ),
            "leftovers": len(result.leftovers) + len(result.unkillable),
        }
        if isinstance(given, PluginAnswer) and ended is None:
            # Nested, so that the plugin cannot set a key of CoilClaw.
            metadata["metadata"] = dict(given.metadata)
            shortened = output.middle_cut(given.output, context.limits.output_bytes)
            return ToolResult(given.success, shortened, given.error, metadata)
        said = given if isinstance(given, str) else given.error
        error = "; ".join(filter(None, (ended, said)))
        tail = result.stderr.data[-MAX_STDERR:].decode("utf-8", "replace").strip()
        lines = [quote_text(line[-MAX_LINE:])[1:-1] for line in tail.splitlines() if line.strip()]
        error += f" [stderr: {' | '.join(lines)}]" if lines else ""
        rule = "plugin.failed" if ended else "plugin.answer"
        rule = "plugin.bounds" if result.outcome in _EXCEEDED else rule
        return ToolResult(False, "", f"{self._pin.name}: {error}", {**metadata, "rule": rule})

    def _explain_bound(self, result: ProcessResult) -> str | None:
        """Return the bound at which the call was ended, or ``None``."""
        memory = f"more than {self._settings.memory_mb} MiB (plugins.{self._pin.name}.memory_mb)"
        most = f"{self._settings.processes} processes at once (plugins.{self._pin.name}.processes)"
        said = {
            "too_much_output": f"wrote more than {self._entry.output_bytes} bytes",
            "too_much_memory": f"used {memory}",
            "too_many_processes": f"had more than {most}",
        }.get(result.outcome)
        if said is not None:
            return f"it {said} and was ended"
        refused = any(word in result.stderr.data for word in _NO_MEMORY)
        return f"it was refused {memory}" if refused and result.exit_code != 0 else None


def read_answer(data: bytes) -> PluginAnswer | str:
    """Return the answer that a plugin wrote, or a text that describes its flaw."""
    if not data.strip():
        return "it wrote nothing"
    try:
        value = read_json_object(data)
    except JsonFault as problem:
        return f"what it wrote {str(problem)[:200]}"
    unknown = [quote_text(name) for name in value if name not in _KEYS]
    if unknown:
        return f"its answer has unknown keys: {', '.join(unknown[:5])}"
    success, told = value.get("success"), value.get("output", "")
    error, metadata = value.get("error"), value.get("metadata")
    if not isinstance(success, bool):
        return "its answer has no 'success' that is true or false"
    if not isinstance(told, str):
        return "the 'output' of its answer is not a text"
    if not isinstance(error, str | None):
        return "the 'error' of its answer is not a text"
    if not isinstance(metadata, dict | None):
        return "the 'metadata' of its answer is not an object"
    if success and error:
        return "its answer reports both success and an error"
    said = None if success else _whole_characters(error or "it reports a failure")[:MAX_ERROR]
    return PluginAnswer(success, _whole_characters(told), said, metadata or {})


def _whole_characters(text: str) -> str:
    """Return a text without lone surrogates, which JSON can express and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _hold(
    tool: PluginTool, context: ToolContext, *, files: Path, scratch: Path | None, writable: bool
) -> Sandbox:
    """Return the sandbox of a call: the system, its own files, and its declared effects.

    The call does not start if the sandbox cannot be enforced.
    """
    if context.sandbox == "none":
        message = "a plugin runs only in a sandbox, but security.sandbox is 'none'"
        raise DeniedError(message, rule="sandbox.none")
    workspace = context.root.path
    reading = command_environment.command_sandbox(Terms(writable=False, network=False), context)
    readable = [path for path in reading.readable if path != workspace]
    readable.append(files)
    if tool.declared.workspace and not writable:
        readable.append(workspace)
    if tool.network:
        readable += [path for path in _NETWORK if path.exists()]
    inside = [scratch] if scratch is not None else []
    if writable:
        inside.append(workspace)
        # Hooks and settings of git take effect later, outside of any sandbox.
        readable += [path for path in (workspace / ".git",) if path.exists()]
    visible = [Path(os.path.realpath(path)) for path in (*readable, *inside)]
    return replace(
        reading,
        readable=tuple(readable),
        writable=tuple(inside),
        hidden=tuple(p for p in reading.hidden if any(p.is_relative_to(s) for s in visible)),
        network=tool.network,
    )


def _environment(context: ToolContext, scratch: Path) -> dict[str, str]:
    """Return the environment of a plugin: the search path, and no other variable of the user."""
    ours = {"PATH": context.environ.get("PATH", "")}
    made = command_environment.tool_environment(context, only_reading=True, ours=ours)
    return {
        "PATH": made["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "NO_COLOR": "1",
        # The plugin's files are read-only.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _copy(stack: ExitStack, folder: Path, files: tuple[PluginFile, ...]) -> tuple[Path, Path]:
    """Write the checked files to a directory of this call, beside a scratch directory."""
    with explain_os_errors("copy the files of the plugin", rule=installation.WRITE_RULE):
        place = stack.enter_context(installation.running(folder))
        own, scratch = place / "files", place / "scratch"
        own.mkdir(0o700)
        scratch.mkdir(0o700)
        installation.write(own, files, sync=False)
        for file in files:
            if file.executable:
                installation.settle(own / file.path)
    return own, scratch


_log = logging.getLogger(__name__)


def offer_tools(
    store: PluginStore, settings: Mapping[str, PluginSettings], reserved: Iterable[str]
) -> tuple[ExternalTool, ...]:
    """Return the tools of all enabled plugins, as approved.

    Their files are checked when a tool is called. A tool that cannot be offered is logged, because
    a plugin must not keep an agent from starting.
    """
    taken = set(reserved)
    tools: list[ExternalTool] = []
    try:
        names = store.names()
        known = [pin for name, pin in pins.load(store.home).items() if name in names]
    except CoilClawError as problem:
        _log.warning("no plugin is offered: %s", problem.message)
        return ()
    for pin in known:
        if not pin.enabled:
            continue
        found, document = manifest.inspect(pin.manifest, approved=True)
        if document.problems:
            said = "; ".join(map(str, document.problems))
            _log.warning("the plugin %s is left out: %s", pin.name, said)
            continue
        for entry in found.tools:
            if entry.name in taken:
                _log.warning(
                    "the tool %s of the plugin %s is left out: the name is taken",
                    entry.name,
                    pin.name,
                )
                continue
            taken.add(entry.name)
            tools.append(ExternalTool(store, pin, entry, settings.get(pin.name, PluginSettings())))
    return tuple(tools)
