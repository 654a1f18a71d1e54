"""A recording inside a Modal sandbox: made there, watched from here, and cleaned up after.

Modal's SDK is an optional package, imported when it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from coilclaw import artifacts
from coilclaw.agents import naming
from coilclaw.app import modalcargo, modalcopies, modalimage
from coilclaw.app.modalcargo import ARTIFACTS, INPUTS, Cargo, Extras
from coilclaw.app.modalcopies import Copies
from coilclaw.errors import CoilClawError, EnvironmentFault, Stopped
from coilclaw.trajectory.places import FOLDER
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from coilclaw.app.modalcopies import Files
    from coilclaw.artifacts.store import Store
    from coilclaw.trajectory.plan import Plan

APP: Final = "coilclaw"
LOOK_S: Final = 0.2
COPY_EVERY_S: Final = 30.0
STOP_S: Final = 600.0
"""How long a recording that was told to stop may take to hand everything over."""
COMMAND_S: Final = 300
"""For a short command in the sandbox."""
MAX_LINE: Final = 2**16
MAX_WORDS: Final = 500
MOST_CODE: Final = 5

_PACKED: Final = f"{modalimage.ROOT}/inputs.tar"
_READY: Final = f"{modalimage.ROOT}/ready"
_PID: Final = f"{modalimage.ROOT}/recording.pid"
_UNPACK: Final = f"umask 077 && mkdir -p {INPUTS} && tar -xf {_PACKED} -C {INPUTS} && rm {_PACKED}"
_START: Final = f'echo $$ >{_PID} && exec "$@"'
_WAIT_AND_START: Final = f'until [ -e {_READY} ]; do sleep 1; done; exec "$@"'
_STOP: Final = f'kill -s TERM "$(cat {_PID})"'
_ANNOUNCED: Final = ("TRAJECTORY_ID=", "TRACE_S3_URI=", "BUNDLE_S3_URI=")
"""Said on this side already, when the sandbox was not there yet."""

_log = logging.getLogger(__name__)

Side: TypeAlias = Literal["out", "err"]


class Process(Protocol):
    """What is used of a process in a Modal sandbox."""

    @property
    def stdout(self) -> Iterable[str]: ...

    @property
    def stderr(self) -> Iterable[str]: ...

    def wait(self) -> int: ...


class Sandbox(Protocol):
    """What is used of a Modal sandbox."""

    @property
    def object_id(self) -> str: ...

    @property
    def filesystem(self) -> Files: ...

    def exec(
        self,
        *args: str,
        timeout: int | None = None,
        env: dict[str, str | None] | None = None,
        secrets: list[Any] | None = None,
        text: bool = True,
        bufsize: Literal[-1, 1] = -1,
    ) -> Process: ...

    def terminate(self, *, wait: bool = False) -> int | None: ...

    def detach(self) -> None: ...


@dataclass(slots=True)
class _Outcome:
    code: int | None = None
    problem: Exception | None = None


@dataclass(slots=True, kw_only=True)
class ModalBox:
    """Records one trajectory in a Modal sandbox."""

    plan: Plan
    store: str
    """A directory of this machine, or a bucket."""
    environ: Mapping[str, str]
    start: Path
    extras: Extras = field(default_factory=Extras)
    say: Callable[[str, Side], None]
    """Takes each line that the recording prints."""
    cancel: Cancellation = field(default_factory=Cancellation)
    copy_every_s: float = COPY_EVERY_S
    stop_s: float = STOP_S

    @property
    def remote_store(self) -> bool:
        return is_bucket(self.store)

    def record(self) -> int:
        """Record to the end, and return the exit code of the recording."""
        cargo, sdk = self._cargo(), load_sdk()
        if not self.remote_store:
            modalcopies.refuse_another(self._ours, self._prefix)
        with self._sandbox(sdk, cargo, ("sleep", "infinity")) as sandbox:
            self._upload(sdk, sandbox, cargo)
            copies = None
            if not self.remote_store:
                copies = Copies(sandbox.filesystem, ARTIFACTS, self._ours, self._prefix)
            with sdk_errors(sdk, "the recording was lost", cargo):
                process = sandbox.exec(
                    *("sh", "-c", _START, "sh", *cargo.words),
                    env=dict(cargo.env),
                    secrets=_secrets(sdk, cargo),
                    text=True,
                    bufsize=1,
                )
                try:
                    code = self._watched(sdk, sandbox, process, cargo, copies)
                except Exception:
                    self._rescue(sdk, copies)
                    raise
                if copies is not None:
                    copies.bring(_absent(sdk))
        return _checked(code)

    def leave(self) -> str:
        """Start a recording that goes on by itself, and return the id of its sandbox."""
        cargo, sdk = self._cargo(), load_sdk()
        entry = ("sh", "-c", _WAIT_AND_START, "sh", *cargo.words)
        with self._sandbox(sdk, cargo, entry, stays=True) as sandbox:
            self._upload(sdk, sandbox, cargo)
            with sdk_errors(sdk, "the recording could not be started", cargo):
                _run(sandbox, "touch", _READY)
                name = sandbox.object_id
                sandbox.detach()
        return name

    def _cargo(self) -> Cargo:
        store = self.store if self.remote_store else ""
        return modalcargo.load(
            self.plan, store, self.extras, environ=self.environ, start=self.start
        )

    @property
    def _ours(self) -> Store:
        return artifacts.open_store(self.store, self.environ)

    @property
    def _prefix(self) -> str:
        return f"{FOLDER}/{self.plan.trajectory_id}"

    @contextmanager
    def _sandbox(
        self, sdk: Any, cargo: Cargo, entry: tuple[str, ...], *, stays: bool = False
    ) -> Iterator[Sandbox]:
        """Create a sandbox, and terminate it at the end; one that stays, only after a failure.

        One whose own command is the recording gets the secrets; else only the recording does.
        """
        with sdk_errors(sdk, "the sandbox could not be created", cargo):
            app = sdk.App.lookup(APP, create_if_missing=True)
            kind = naming.parse(self.plan.agent).kind
            sandbox: Sandbox = sdk.Sandbox.create(
                *entry,
                app=app,
                image=modalimage.made(sdk, kind, self.environ),
                tags={"trajectory": self.plan.trajectory_id},
                env=dict(cargo.env) if stays else None,
                secrets=_secrets(sdk, cargo) if stays else [],
                timeout=cargo.life_s,
            )
        _log.info(
            "Modal sandbox created: %s",
            sandbox.object_id,
            extra={"event": "modal_created", "fields": {"sandbox": sandbox.object_id}},
        )
        try:
            yield sandbox
        except BaseException:
            _terminate(sdk, sandbox)
            raise
        if not stays:
            _terminate(sdk, sandbox)

    def _upload(self, sdk: Any, sandbox: Sandbox, cargo: Cargo) -> None:
        with (
            sdk_errors(sdk, "the inputs could not be brought to the sandbox", cargo),
            tempfile.TemporaryDirectory(prefix="coilclaw-modal-") as scratch,
        ):
            packed = Path(scratch, "inputs.tar")
            cargo.pack(packed)
            sandbox.filesystem.copy_from_local(str(packed), _PACKED)
            _run(sandbox, "sh", "-c", _UNPACK)

    def _watched(
        self, sdk: Any, sandbox: Sandbox, process: Process, cargo: Cargo, copies: Copies | None
    ) -> int:
        """Wait for the recording; meanwhile show what it says, copy, and pass a stop on."""
        outcome = _Outcome()
        tell = self._teller(cargo)
        threads = [
            threading.Thread(target=_waited, args=(process, outcome), daemon=True),
            threading.Thread(target=_shown, args=(process.stdout, "out", tell), daemon=True),
            threading.Thread(target=_shown, args=(process.stderr, "err", tell), daemon=True),
        ]
        for thread in threads:
            thread.start()
        copied, stopped, told = time.monotonic(), None, False
        while threads[0].is_alive():
            threads[0].join(LOOK_S)
            now = time.monotonic()
            if self.cancel.cancelled and not told:
                # Not told while the recording has no id yet, or has just ended.
                stopped = stopped or now
                told = sandbox.exec("sh", "-c", _STOP, timeout=COMMAND_S).wait() == 0
            if stopped is not None and now > stopped + self.stop_s:
                raise Stopped(
                    f"the recording did not end within {self.stop_s:g} s after "
                    f"{self.cancel.reason}, so its sandbox is terminated",
                    rule="modal.stop",
                )
            if copies is not None and stopped is None and now > copied + self.copy_every_s:
                _copied(sdk, copies, self.cancel)
                copied = time.monotonic()
        for thread in threads[1:]:
            thread.join(COMMAND_S)
        if outcome.problem is not None:
            raise outcome.problem
        assert outcome.code is not None
        return outcome.code

    def _teller(self, cargo: Cargo) -> Callable[[str, Side], None]:
        import json

        place = "" if self.remote_store else str(Path(self.store).expanduser().absolute())
        shown = json.dumps(place)[1:-1] if self.extras.as_json else place

        def tell(line: str, side: Side) -> None:
            text = cargo.redact(line.rstrip("\r\n"))[:MAX_LINE]
            if text.startswith(_ANNOUNCED):
                return
            self.say(text.replace(ARTIFACTS, shown) if place else text, side)

        return tell

    def _rescue(self, sdk: Any, copies: Copies | None) -> None:
        """Bring what can still be had of a recording that was lost; why it was is told anyway."""
        if copies is not None:
            _copied(sdk, copies, Cancellation())


def is_bucket(store: str) -> bool:
    """Whether a store can be written from anywhere."""
    return store.startswith("s3:")


def require_sdk() -> None:
    """Raise unless the SDK is installed; it is not imported yet."""
    if importlib.util.find_spec("modal") is None:
        raise _missing()


def load_sdk() -> Any:
    """Import the SDK."""
    try:
        return importlib.import_module("modal")
    except ImportError as problem:
        raise _missing() from problem


def _missing() -> EnvironmentFault:
    return EnvironmentFault(
        "a Modal sandbox needs the package modal, which is not installed",
        rule="modal.missing",
        hint="install it with: pip install 'coilclaw[modal]'; then log in with: modal setup",
    )


@contextmanager
def sdk_errors(sdk: Any, what: str, cargo: Cargo) -> Iterator[None]:
    """Say what the SDK reports in our own errors, without any secret."""
    try:
        yield
    except sdk.exception.AuthError:
        raise EnvironmentFault(
            "Modal does not know who we are, or does not let us",
            rule="modal.login",
            hint="log in with: modal setup; or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
        ) from None
    except (sdk.exception.Error, OSError) as problem:
        words = " ".join(cargo.redact(str(problem)).split())[:MAX_WORDS]
        # Not chained: a traceback would show the SDK's words as they are.
        raise EnvironmentFault(
            f"{what}: {type(problem).__name__}: {words}", rule="modal.service"
        ) from None


def _secrets(sdk: Any, cargo: Cargo) -> list[Any]:
    return [sdk.Secret.from_dict(dict(cargo.secrets))] if cargo.secrets else []


def _absent(sdk: Any) -> type[Exception]:
    found: type[Exception] = sdk.exception.SandboxFilesystemNotFoundError
    return found


def _run(sandbox: Sandbox, *words: str) -> None:
    code = sandbox.exec(*words, timeout=COMMAND_S).wait()
    if code != 0:
        raise EnvironmentFault(
            f"a command of ours ended with {code} in the sandbox {sandbox.object_id}",
            rule="modal.command",
        )


def _waited(process: Process, outcome: _Outcome) -> None:
    try:
        outcome.code = process.wait()
    except Exception as problem:  # noqa: BLE001 - carried over to the thread that raises it
        outcome.problem = problem


def _shown(lines: Iterable[str], side: Side, tell: Callable[[str, Side], None]) -> None:
    try:
        for line in lines:
            tell(line, side)
    except Exception as problem:  # noqa: BLE001 - whether the recording goes on is told by waiting
        _log.warning(
            "what the recording says is no longer heard: %s",
            type(problem).__name__,
            extra={"event": "modal_unheard", "fields": {"side": side}},
        )


def _copied(sdk: Any, copies: Copies, cancel: Cancellation) -> None:
    """Copy for the case that the sandbox is lost; the copy at the end is the one that counts."""
    try:
        copies.bring(_absent(sdk), lambda: cancel.cancelled)
    except (sdk.exception.Error, CoilClawError, OSError) as problem:
        _log.warning(
            "artifacts were not copied from the sandbox: %s",
            type(problem).__name__,
            extra={"event": "modal_uncopied", "fields": {}},
        )


def _terminate(sdk: Any, sandbox: Sandbox) -> None:
    """End a sandbox; one that cannot be ended is named, because it costs until its time is up."""
    try:
        sandbox.terminate(wait=True)
        sandbox.detach()
    except (sdk.exception.Error, OSError) as problem:
        _log.error(
            "the Modal sandbox %s could not be terminated (%s): end it with Modal's own tools",
            sandbox.object_id,
            type(problem).__name__,
            extra={"event": "modal_left", "fields": {"sandbox": sandbox.object_id}},
        )


def _checked(code: int) -> int:
    if 0 <= code <= MOST_CODE:
        return code
    raise EnvironmentFault(
        f"the recording in the sandbox was ended from outside (code {code})",
        rule="modal.ended",
        hint="what it had recorded until then is in the store",
    )
