"""A recording inside a Modal sandbox: made there, watched from here, and cleaned up after.

Modal's SDK is an optional package, imported when it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from coilclaw.kernel import CoilClawError, EnvironmentFault, Stopped
from coilclaw.runners import runner
from coilclaw.traces import modal_payload
from coilclaw.traces.artifacts import place as artifacts
from coilclaw.traces.artifacts import store as keys
from coilclaw.traces.artifacts.store import (
    MAX_LISTED,
    MAX_OBJECT_BYTES,
    conflict,
    too_large,
    too_many,
)
from coilclaw.traces.modal_payload import (
    ARTIFACTS,
    INPUTS,
    ROOT,
    ModalExtras,
    ModalPayload,
    make_image,
)
from coilclaw.traces.trajectory.plan import FOLDER, TrajectoryPlan
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from coilclaw.traces.artifacts.store import ArtifactStore, ArtifactVersion

APP: Final = "coilclaw"
LOOK_S: Final = 0.2
COPY_EVERY_S: Final = 30.0
STOP_S: Final = 600.0
"""How long a recording may take to hand everything over after a stop."""
COMMAND_S: Final = 300
"""For a short command in the sandbox."""
MAX_LINE: Final = 2**16
MAX_WORDS: Final = 500
MOST_CODE: Final = 5

_PACKED: Final = f"{ROOT}/inputs.tar"
_READY: Final = f"{ROOT}/ready"
_PID: Final = f"{ROOT}/recording.pid"
_UNPACK: Final = f"umask 077 && mkdir -p {INPUTS} && tar -xf {_PACKED} -C {INPUTS} && rm {_PACKED}"
_START: Final = f'echo $$ >{_PID} && exec "$@"'
_WAIT_AND_START: Final = f'until [ -e {_READY} ]; do sleep 1; done; exec "$@"'
_STOP: Final = f'kill -s TERM "$(cat {_PID})"'
_ANNOUNCED: Final = ("TRAJECTORY_ID=", "TRACE_S3_URI=", "BUNDLE_S3_URI=")
"""Printed on this side already, before the sandbox exists."""
_MAX_DEPTH: Final = 3

_log = logging.getLogger(__name__)

Side: TypeAlias = Literal["out", "err"]


@dataclass(slots=True, kw_only=True)
class ModalBox:
    """Records one trajectory in a Modal sandbox."""

    plan: TrajectoryPlan
    store: str
    """A directory of this machine, or a bucket."""
    environ: Mapping[str, str]
    start: Path
    extras: ModalExtras = field(default_factory=ModalExtras)
    say: Callable[[str, Side], None]
    """Takes each line that the recording prints."""
    cancel: Cancellation = field(default_factory=Cancellation)
    copy_every_s: float = COPY_EVERY_S
    stop_s: float = STOP_S

    def record(self) -> int:
        """Record to the end, and return the exit code of the recording."""
        cargo, sdk = self._load(), load_sdk()
        prefix, ours = f"{FOLDER}/{self.plan.trajectory_id}", None
        if not is_bucket(self.store):
            ours = artifacts.open_store(self.store, self.environ)
            if ours.list(prefix):
                raise conflict(ours.uri(prefix))
        with self._sandbox(sdk, cargo, ("sleep", "infinity")) as sandbox:
            self._upload(sdk, sandbox, cargo)
            copies = None if ours is None else Copies(sdk, sandbox.filesystem, ours, prefix)
            with sdk_errors(sdk, "the recording was lost", cargo):
                process = sandbox.exec(
                    *("sh", "-c", _START, "sh", *cargo.words),
                    env=dict(cargo.env),
                    secrets=_make_secrets(sdk, cargo),
                    text=True,
                    bufsize=1,
                )
                try:
                    code = self._watch(sandbox, process, cargo, copies)
                except Exception:
                    # Copy what is left; the error that lost it is raised anyway.
                    if copies is not None:
                        copies.try_to_bring(Cancellation())
                    raise
                if copies is not None:
                    copies.bring()
        if 0 <= code <= MOST_CODE:
            return code
        message = f"the recording in the sandbox was ended from outside (code {code})"
        hint = "what it had recorded until then is in the store"
        raise EnvironmentFault(message, rule="modal.ended", hint=hint)

    def leave(self) -> str:
        """Start a detached recording, and return the id of its sandbox."""
        cargo, sdk = self._load(), load_sdk()
        entry = ("sh", "-c", _WAIT_AND_START, "sh", *cargo.words)
        with self._sandbox(sdk, cargo, entry, stays=True) as sandbox:
            self._upload(sdk, sandbox, cargo)
            with sdk_errors(sdk, "the recording could not be started", cargo):
                _run(sandbox, "touch", _READY)
                name = str(sandbox.object_id)
                sandbox.detach()
        return name

    def _load(self) -> ModalPayload:
        store = self.store if is_bucket(self.store) else ""
        return modal_payload.load_payload(
            self.plan, store, self.extras, environ=self.environ, start=self.start
        )

    @contextmanager
    def _sandbox(
        self, sdk: Any, cargo: ModalPayload, entry: tuple[str, ...], *, stays: bool = False
    ) -> Iterator[Any]:
        """Create a sandbox, and terminate it at the end; one that stays, only after a failure.

        One whose own command is the recording gets the secrets; else only the recording does.
        """
        with sdk_errors(sdk, "the sandbox could not be created", cargo):
            sandbox = sdk.Sandbox.create(
                *entry,
                app=sdk.App.lookup(APP, create_if_missing=True),
                image=make_image(sdk, runner.parse(self.plan.agent).kind, self.environ),
                tags={"trajectory": self.plan.trajectory_id},
                env=dict(cargo.env) if stays else None,
                secrets=_make_secrets(sdk, cargo) if stays else [],
                timeout=cargo.life_s,
            )
        named = {"sandbox": sandbox.object_id}
        extra = {"event": "modal_created", "fields": named}
        _log.info("Modal sandbox created: %s", sandbox.object_id, extra=extra)
        failed = True
        try:
            yield sandbox
            failed = False
        finally:
            if failed or not stays:
                try:
                    sandbox.terminate(wait=True)
                    sandbox.detach()
                except (sdk.exception.Error, OSError) as problem:
                    # It is named, because it costs until its time is up.
                    _log.error(
                        "the Modal sandbox %s could not be terminated (%s): end it with Modal's "
                        "own tools",
                        sandbox.object_id,
                        type(problem).__name__,
                        extra={"event": "modal_left", "fields": named},
                    )

    def _upload(self, sdk: Any, sandbox: Any, cargo: ModalPayload) -> None:
        with (
            sdk_errors(sdk, "the inputs could not be copied to the sandbox", cargo),
            tempfile.TemporaryDirectory(prefix="coilclaw-modal-") as scratch,
        ):
            packed = Path(scratch, "inputs.tar")
            cargo.pack(packed)
            sandbox.filesystem.copy_from_local(str(packed), _PACKED)
            _run(sandbox, "sh", "-c", _UNPACK)

    def _watch(self, sandbox: Any, process: Any, cargo: ModalPayload, copies: Copies | None) -> int:
        """Wait for the recording; meanwhile show what it says, copy, and pass a stop on."""
        waited: Future[int] = Future()

        def wait() -> None:
            try:
                waited.set_result(process.wait())
            except Exception as problem:  # noqa: BLE001 - carried over to the thread that raises it
                waited.set_exception(problem)

        shown = ((process.stdout, "out", cargo), (process.stderr, "err", cargo))
        threads = [threading.Thread(target=wait, daemon=True)]
        threads += [threading.Thread(target=self._show, args=one, daemon=True) for one in shown]
        for thread in threads:
            thread.start()
        copied, stopped, told = time.monotonic(), None, False
        while threads[0].is_alive():
            threads[0].join(LOOK_S)
            now = time.monotonic()
            if self.cancel.cancelled and not told:
                # It fails while the recording has no id yet, or has just ended.
                stopped = stopped or now
                told = sandbox.exec("sh", "-c", _STOP, timeout=COMMAND_S).wait() == 0
            if stopped is not None and now > stopped + self.stop_s:
                raise Stopped(
                    f"the recording did not end within {self.stop_s:g} s after "
                    f"{self.cancel.reason}, so its sandbox is terminated",
                    rule="modal.stop",
                )
            if copies is not None and stopped is None and now > copied + self.copy_every_s:
                copies.try_to_bring(self.cancel)
                copied = time.monotonic()
        for thread in threads[1:]:
            thread.join(COMMAND_S)
        return waited.result()

    def _show(self, lines: Iterable[str], side: Side, cargo: ModalPayload) -> None:
        place = "" if is_bucket(self.store) else str(Path(self.store).expanduser().absolute())
        shown = json.dumps(place)[1:-1] if self.extras.as_json else place
        try:
            for line in lines:
                text = cargo.redact(line.rstrip("\r\n"))[:MAX_LINE]
                if not text.startswith(_ANNOUNCED):
                    self.say(text.replace(ARTIFACTS, shown) if place else text, side)
        except Exception as problem:  # noqa: BLE001 - waiting shows whether it still runs
            _log.warning(
                "the output of the recording was lost: %s",
                type(problem).__name__,
                extra={"event": "modal_unheard", "fields": {"side": side}},
            )


class Copies:
    """Copies the artifacts of a recording from its sandbox to our store.

    Each round brings what is new or has changed. Keys begin with ``prefix`` there as in our store.
    """

    def __init__(self, sdk: Any, files: Any, store: ArtifactStore, prefix: str) -> None:
        self._errors = sdk.exception
        self._files = files
        self._store = store
        self._prefix = keys.check_key(prefix)
        self._versions: dict[str, ArtifactVersion] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def try_to_bring(self, cancel: Cancellation) -> None:
        """Copy for the case that the sandbox is lost; the copy at the end counts."""
        try:
            self.bring(lambda: cancel.cancelled)
        except (self._errors.Error, CoilClawError, OSError) as problem:
            _log.warning(
                "artifacts were not copied from the sandbox: %s",
                type(problem).__name__,
                extra={"event": "modal_uncopied", "fields": {}},
            )

    def bring(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Bring everything that is new.

        Documents are fetched before pieces are listed, and kept after them: what a document of
        ours speaks of is there.
        """
        with tempfile.TemporaryDirectory(prefix="coilclaw-modal-") as scratch:
            documents: list[tuple[str, Path, Any]] = []
            folders: list[str] = []
            for number, entry in enumerate(self._list(self._prefix)):
                key = f"{self._prefix}/{entry.name}"
                if entry.is_dir():
                    folders.append(key)
                elif entry.is_file() and self._is_new(key, entry):
                    path = Path(scratch, f"document-{number}")
                    self._files.copy_to_local(f"{ARTIFACTS}/{key}", str(path))
                    documents.append((key, path, entry))
            for folder in folders:
                self._bring_folder(folder, Path(scratch, "piece"), stop)
            if not stop():
                for key, path, entry in documents:
                    self._keep(key, path, entry)

    def _bring_folder(
        self, folder: str, piece: Path, stop: Callable[[], bool], depth: int = 1
    ) -> None:
        for entry in self._list(folder):
            if stop():
                return
            key = f"{folder}/{entry.name}"
            if entry.is_dir() and depth < _MAX_DEPTH:
                self._bring_folder(key, piece, stop, depth + 1)
            elif entry.is_file() and self._is_new(key, entry):
                self._files.copy_to_local(f"{ARTIFACTS}/{key}", str(piece))
                self._keep(key, piece, entry)

    def _list(self, folder: str) -> list[Any]:
        try:
            entries = self._files.list_files(f"{ARTIFACTS}/{folder}")
        except self._errors.SandboxFilesystemNotFoundError:
            return []
        if len(entries) > MAX_LISTED:
            raise too_many(folder)
        # What is being written there has a name that no key has.
        fit = [
            one
            for one in entries
            if "/" not in one.name and keys.is_safe_key(f"{folder}/{one.name}")
        ]
        return sorted(fit, key=lambda one: str(one.name))

    def _is_new(self, key: str, entry: Any) -> bool:
        if entry.size > MAX_OBJECT_BYTES:
            raise too_large(key, MAX_OBJECT_BYTES)
        return self._seen.get(key) != _read_state(entry)

    def _keep(self, key: str, path: Path, entry: Any) -> None:
        self._versions[key] = self._store.put(key, path, previous=self._versions.get(key))
        self._seen[key] = _read_state(entry)


def _read_state(entry: Any) -> tuple[int, float]:
    return int(entry.size), float(entry.modified_time)


def is_bucket(store: str) -> bool:
    """Return whether a store is a bucket, which can be written from anywhere."""
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
    message = "a Modal sandbox needs the package modal, which is not installed"
    hint = "install it with: pip install 'coilclaw[modal]'; then log in with: modal setup"
    return EnvironmentFault(message, rule="modal.missing", hint=hint)


@contextmanager
def sdk_errors(sdk: Any, what: str, cargo: ModalPayload) -> Iterator[None]:
    """Raise our errors for those of the SDK, without any secret."""
    try:
        yield
    except sdk.exception.AuthError:
        message = "Modal refused the login or the permission"
        hint = "log in with: modal setup; or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
        raise EnvironmentFault(message, rule="modal.login", hint=hint) from None
    except (sdk.exception.Error, OSError) as problem:
        words = " ".join(cargo.redact(str(problem)).split())[:MAX_WORDS]
        # Not chained: a traceback would show the SDK's words as they are.
        message = f"{what}: {type(problem).__name__}: {words}"
        raise EnvironmentFault(message, rule="modal.service") from None


def _make_secrets(sdk: Any, cargo: ModalPayload) -> list[Any]:
    return [sdk.Secret.from_dict(dict(cargo.secrets))] if cargo.secrets else []


def _run(sandbox: Any, *words: str) -> None:
    code = sandbox.exec(*words, timeout=COMMAND_S).wait()
    if code != 0:
        message = f"a setup command failed with {code} in the sandbox {sandbox.object_id}"
        raise EnvironmentFault(message, rule="modal.command")
