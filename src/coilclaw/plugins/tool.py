"""A tool of a plugin: its files are checked, copied, and the copy is run in the sandbox.

What runs is what was checked: the bytes that were hashed are the bytes that are written into a
fresh directory of ours, and that directory is what the sandbox shows.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import External
from coilclaw.domain.toolcalls import ToolResult
from coilclaw.domain.treepath import shown
from coilclaw.errors import DeniedError, EnvironmentFault
from coilclaw.plugins import pins
from coilclaw.tools.basis import Basis, Ready

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.plugins.answer import Answer
    from coilclaw.plugins.files import PluginFile
    from coilclaw.plugins.manifest import PluginTool
    from coilclaw.plugins.pins import Pin
    from coilclaw.plugins.settings import PluginSettings
    from coilclaw.plugins.store import Store
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.workspace.process import ProcessResult
    from coilclaw.workspace.process_bounds import ProcessBounds
    from coilclaw.workspace.sandbox import Enforced, SandboxSupport

_EXCEEDED: Final = frozenset({"too_much_output", "too_much_memory", "too_many_processes"})
_NO_MEMORY: Final = (b"MemoryError", b"out of memory", b"annot allocate memory", b"bad_alloc")
"""How programs say that the kernel gave them no more memory."""
MAX_LINE: Final = 200
MAX_STDERR: Final = 1000
"""Bytes of what a plugin wrote beside its answer that an error tells."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Everything about one call that is known before it runs."""

    args: Arguments
    effects: tuple[Effect, ...]
    writable: bool
    timeout_s: float
    support: SandboxSupport
    held: Enforced


class ExternalTool(Basis):
    """Hands a call to a program of a plugin."""

    def __init__(self, store: Store, pin: Pin, entry: PluginTool, settings: PluginSettings) -> None:
        self._store = store
        self._pin = pin
        self._entry = entry
        self._settings = settings

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def description(self) -> str:
        return self._entry.description

    @property
    def parameters_schema(self) -> Mapping[str, Json]:
        return self._entry.schema

    @property
    def owner(self) -> str:
        return f"plugin:{self._pin.name}"

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """The plugin itself, and whatever it declares: that can only make things stricter."""
        handed = External(self.owner, self._settings.risk)
        return (handed, *self._entry.declared.effects(args))

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.plugins import box
        from coilclaw.tools import shellbox
        from coilclaw.workspace import sandbox

        if self._entry.network and not self._settings.network:
            raise DeniedError(
                f"{self.name} needs the network, and plugins.{self._pin.name}.network is not true",
                rule="plugin.network",
            )
        with self._store.lock(shared=True):
            self._verified()
        effects = self.effects(args)
        limits = context.limits
        writable = box.writes(effects, context.judge(effects).terms)
        support = sandbox.probe() if context.support is None else context.support()
        planned = box.sandbox(
            self._entry,
            context,
            files=self._store.place(self._pin.name),
            scratch=None,
            writable=writable,
        )
        held = sandbox.choose(planned, support).enforced
        timeout_s = min(self._entry.timeout_s or limits.tool_timeout_s, limits.tool_timeout_s)
        call = _Call(args, effects, writable, timeout_s, support, held)
        detail = (
            f"plugin: {self._pin.name} {self._pin.version}, files {self._pin.digest}",
            f"argv: {json.dumps(self._entry.command, ensure_ascii=False)}",
            f"declares: {self._entry.declared}",
            f"sandbox: {shellbox.described(held, writable=writable)}",
            self._limits_line(call),
        )
        return Ready(detail, lambda: self._run(call, context), lookup="start")

    def _verified(self) -> tuple[PluginFile, ...]:
        """Read the files, if they are still those that this tool was made from."""
        pin = self._store.pin(self._pin.name, pins.load(self._store.home))
        if not pin.enabled:
            raise DeniedError(
                f"the plugin {shown(pin.name)} is disabled; 'coilclaw plugin enable {pin.name}'",
                rule="plugin.disabled",
            )
        if pin.digest != self._pin.digest:
            raise DeniedError(
                f"the plugin {shown(pin.name)} was approved anew since this program started",
                rule="plugin.changed",
            )
        return self._store.verified(pin)

    def _run(self, call: _Call, context: ToolContext) -> ToolResult:
        from coilclaw.plugins import box
        from coilclaw.workspace import process

        with ExitStack() as stack:
            with self._store.lock(shared=True):
                files = self._verified()
                own, scratch = _copied(stack, self._store.folder, files)
            bounds = self._bounds()
            context.starting()
            result = process.run(
                self._argv(own, call, bounds),
                cwd=own,
                timeout_s=call.timeout_s,
                env=box.environment(context, scratch),
                stdin=self._question(call.args, context),
                limit_bytes=self._entry.output_bytes,
                sandbox=box.sandbox(
                    self._entry, context, files=own, scratch=scratch, writable=call.writable
                ),
                support=call.support,
                cancel=context.cancel,
                bounds=bounds,
            )
        return self._told(result, call, context)

    def _limits_line(self, call: _Call) -> str:
        most = self._settings
        return (
            f"at most: {call.timeout_s:g} s, {most.memory_mb} MiB, {most.processes} processes, "
            f"{self._entry.output_bytes} bytes of output"
        )

    def _bounds(self) -> ProcessBounds:
        from coilclaw.workspace.process_bounds import ProcessBounds

        settings = self._settings
        return ProcessBounds(
            self._entry.output_bytes, settings.memory_mb * 2**20, settings.processes
        )

    def _argv(self, own: Path, call: _Call, bounds: ProcessBounds) -> list[str]:
        """Return what is started: the program, behind what sets its limits in the kernel."""
        from coilclaw.workspace.process_bounds import WARDENS, KernelLimits, limit_command

        # Elsewhere the kernel would count all processes of the user.
        counted = bounds.processes + WARDENS if call.held.processes else None
        limits = KernelLimits(bounds.memory_bytes, counted)
        program = str(own / self._entry.command[0])
        return limit_command([program, *self._entry.command[1:]], limits)

    def _question(self, args: Arguments, context: ToolContext) -> bytes:
        value = {
            "tool": self.name,
            "arguments": dict(args),
            "conversation_id": context.conversation_id,
            "workspace": str(context.root.path),
        }
        return json.dumps(value).encode("ascii") + b"\n"

    def _told(self, result: ProcessResult, call: _Call, context: ToolContext) -> ToolResult:
        from coilclaw.plugins.answer import Answer
        from coilclaw.tools import output, shellbox

        ended = self._exceeded(result) or _trouble(result, call, context)
        given = "" if result.outcome in _EXCEEDED else _answer(result)
        metadata: dict[str, Json] = {
            "plugin": self._pin.name,
            "version": self._pin.version,
            "exit_code": result.exit_code,
            "outcome": result.outcome,
            "duration_ms": round(result.duration_s * 1000),
            "sandbox": shellbox.described(result.enforced, writable=call.writable),
            "leftovers": len(result.leftovers) + len(result.unkillable),
        }
        if isinstance(given, Answer) and ended is None:
            # Nested, so that nothing it says passes for something of ours.
            metadata["metadata"] = dict(given.metadata)
            shortened = output.middle_cut(given.output, context.limits.output_bytes)
            return ToolResult(given.success, shortened, given.error, metadata)
        said = given if isinstance(given, str) else given.error
        error = "; ".join(filter(None, (ended, said))) + _beside(result)
        rule = "plugin.failed" if ended else "plugin.answer"
        rule = "plugin.bounds" if result.outcome in _EXCEEDED else rule
        return ToolResult(False, "", f"{self._pin.name}: {error}", {**metadata, "rule": rule})

    def _exceeded(self, result: ProcessResult) -> str | None:
        """Say which bound it was ended at."""
        key, settings = f"plugins.{self._pin.name}", self._settings
        said = {
            "too_much_output": f"wrote more than {self._entry.output_bytes} bytes",
            "too_much_memory": f"used more than {settings.memory_mb} MiB ({key}.memory_mb)",
            "too_many_processes": f"had more than {settings.processes} processes at once "
            f"({key}.processes)",
        }.get(result.outcome)
        if said is not None:
            return f"it {said}, and was ended"
        refused = any(word in result.stderr.data for word in _NO_MEMORY)
        if refused and result.exit_code != 0:
            return f"it was refused more than {settings.memory_mb} MiB ({key}.memory_mb)"
        return None


def _copied(stack: ExitStack, folder: Path, files: tuple[PluginFile, ...]) -> tuple[Path, Path]:
    """Write the checked files where only this call looks, with a place for its own beside."""
    from coilclaw.plugins import staging

    try:
        place = stack.enter_context(staging.running(folder))
        own, scratch = place / "files", place / "scratch"
        own.mkdir(0o700)
        scratch.mkdir(0o700)
        staging.write(own, files, sync=False)
        for file in files:
            if file.executable:
                staging.settle(own / file.path)
    except OSError as problem:
        raise EnvironmentFault(
            f"the files of the plugin cannot be copied: {problem.strerror}", rule="plugin.write"
        ) from problem
    return own, scratch


def _answer(result: ProcessResult) -> Answer | str:
    from coilclaw.plugins import answer

    return answer.parse(result.stdout.data)


def _trouble(result: ProcessResult, call: _Call, context: ToolContext) -> str | None:
    """Say how the program ended, unless that was well."""
    if result.outcome == "cancelled":
        return f"stopped: {context.cancel.reason or 'somebody asked for it'}"
    if result.outcome == "timed_out":
        return f"ended after the limit of {call.timeout_s:g} s"
    if result.unkillable:
        return "a process of it cannot be ended"
    if result.signal is not None:
        return f"ended by signal {result.signal}"
    return None if result.exit_code == 0 else f"exit code {result.exit_code}"


def _beside(result: ProcessResult) -> str:
    """Quote the end of what it wrote beside its answer."""
    tail = result.stderr.data[-MAX_STDERR:].decode("utf-8", "replace").strip()
    lines = [shown(line[-MAX_LINE:])[1:-1] for line in tail.splitlines() if line.strip()]
    return f" [stderr: {' | '.join(lines)}]" if lines else ""
