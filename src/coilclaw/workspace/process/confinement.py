"""What a child may touch, as asked for, as resolved on this machine, and as enforced."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import EnvironmentFault, ProcessFault, UsageError, is_below, is_below_any
from coilclaw.workspace.process import toolchain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind: TypeAlias = Literal["none", "auto", "landlock", "bubblewrap"]
EnforcedKind: TypeAlias = Literal["none", "landlock", "bubblewrap"]
NetworkState: TypeAlias = Literal["open", "tcp-blocked", "blocked"]
MAX_SHOWN: Final = 256
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108 - mount points, not files
_SOCKETS: Final = "/run"
_RESOLVER: Final = "/etc/resolv.conf"
_View: TypeAlias = Literal["visible", "covered", "hidden"]

SYSTEM_PATHS: Final = tuple(
    Path(path)
    for path in (
        *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
        # Where one distribution keeps its programs; the rest of /run is mostly sockets of services.
        *("/nix/store", "/run/current-system"),
    )
)
"""What most programs need to run at all."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file that a child finds at another path, in place of what is there."""

    source: Path
    target: Path
    private: bool = False
    """A copy made for the child, which it may write wherever it may write at all."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Directories that a child finds as one, the later above the earlier; what it writes is lost.

    Only a bubblewrap that can do it shows them: ``SandboxSupport.layers`` says so.
    """

    sources: tuple[Path, ...]
    target: Path


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a child may touch. Of two places that overlap, the deeper one decides.

    What no field names is not there: neither files nor the sockets among them. A ``kind`` that is
    named is used or the child is not started; ``auto`` takes the best one available and, unless
    ``required``, starts the child unconfined, with a warning, where none is available.
    """

    kind: Kind
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = SYSTEM_PATHS
    hidden: tuple[Path, ...] = ()
    """What is withheld of places that are shown; it need not exist."""
    network: bool = False
    private_tmp: bool = True
    narrow: bool = False
    """Whether not even the programs on PATH are shown, nor /proc where it cannot be private."""
    required: bool = False
    nested: bool = False
    """What runs in it may put up sandboxes of its own, inside this one."""
    replaced: tuple[tuple[Path, Path], ...] = ()
    """Files, each with another one that is in its place; Landlock can only hide them."""
    shown: tuple[Path, ...] = ()
    """Places that can be read although they lie in a /tmp that is the child's own; what is
    installed in them does not say what else is shown."""
    programs: tuple[Path, ...] = ()
    """What it may start beside what is on its PATH; each is shown with all that it needs."""
    mounts: tuple[Mount, ...] = ()
    """What a child finds elsewhere. A mount is writable where its source is. Whatever lies below a
    target on this machine is gone, however it was named, unless a mount shows it. Landlock cannot
    mount: it hides each target that is not its own source."""
    layers: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UsageError(f"{self.kind!r} is not a kind of sandbox.", rule="sandbox.kind")
        pairs = [path for pair in self.replaced for path in pair]
        pairs += [path for mount in self.mounts for path in (mount.source, mount.target)]
        pairs += [path for layer in self.layers for path in (*layer.sources, layer.target)]
        named = (*self.writable, *self.readable, *self.hidden, *self.shown, *self.programs)
        for path in (*named, *pairs):
            if not os.path.isabs(path) or "\0" in str(path):
                what = f"The sandbox path {str(path)!r} is not absolute."
                raise UsageError(what, rule="sandbox.path")

    def showing(self, program: str | Path, *words: str) -> Sandbox:
        """Return this sandbox with a program that the user named, wherever it is installed.

        ``words`` are its arguments: files among them are shown too, unless they are hidden.
        """
        hidden = [os.path.realpath(path) for path in self.hidden]
        files = [
            Path(word)
            for word in words
            if os.path.isabs(word)
            and os.path.isfile(word)
            and not is_below_any(os.path.realpath(word), hidden)
        ]
        # What is named without a directory is looked for on PATH, and shown with it.
        own = [Path(program)] if os.path.isabs(program) else []
        return replace(self, programs=(*self.programs, *own, *files))


NO_SANDBOX: Final = Sandbox(kind="none", network=True, private_tmp=False)


@dataclass(frozen=True, slots=True)
class Enforced:
    """What held for a child while it ran; ``processes`` is a process namespace of its own."""

    kind: EnforcedKind = "none"
    filesystem: bool = False
    network: NetworkState = "open"
    processes: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """What this machine offers; ``bubblewrap`` is the path of a program that was seen to work."""

    bubblewrap: str | None = None
    bubblewrap_proc: bool = False
    landlock_abi: int = 0
    notes: tuple[str, ...] = ()
    seccomp: bool = False
    """Whether internet sockets can be refused beside Landlock, which blocks TCP only."""
    layers: bool = False
    """Whether this bubblewrap can put a layer over a directory."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """A sandbox whose paths are real paths that exist; ``notes`` say what was left out.

    ``shown`` are places that can be read although they lie in what is covered, hidden or not among
    the readable. For a sandbox with mounts of its own: ``covered`` are directories
    that it shows empty and writable, ``links`` are symbolic links, each with its target, that lead
    to what it shows.
    """

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden_directories: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    network: bool = False
    private_tmp: bool = True
    processes: bool = False
    """Whether /proc can be read where it cannot be private."""
    nested: bool = False
    covered: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()
    mounted: tuple[tuple[str, str, bool], ...] = ()
    """Source, target, and whether it can be written; for a sandbox with mounts of its own."""
    layers: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Sources, the lowest first, and the target."""
    notes: tuple[str, ...] = ()

    @property
    def hidden(self) -> tuple[str, ...]:
        return (*self.hidden_directories, *self.hidden_files)

    def inside(self, path: str) -> str:
        """Return where the child finds a path of this machine."""
        return _translate(path, ((source, target) for source, target, _ in self.mounted))

    def outside(self, path: str) -> str:
        """Return where a path of the child lies on this machine."""
        return _translate(path, ((target, source) for source, target, _ in self.mounted))


def _translate(path: str, ways: Iterable[tuple[str, str]]) -> str:
    """Return a path with its deepest mounted prefix replaced."""
    found = max(
        ((start, end) for start, end in ways if is_below(path, start)),
        key=lambda way: len(way[0]),
        default=None,
    )
    return path if found is None else found[1] + path[len(found[0]) :]


def resolve(
    sandbox: Sandbox, path: str = "", cwd: str = "", *, mounting: bool = True
) -> Confinement:
    """Resolve the paths of ``sandbox`` on this machine.

    Unless it is narrow, the programs on ``path``, the PATH of what runs in it, and the interpreter
    of a virtual environment in ``cwd`` are shown, wherever they lie. ``mounting`` is whether mounts
    can be made.
    """
    if sandbox.mounts:
        sandbox = _cover_targets(sandbox) if mounting else _hide_targets(sandbox)
    # A system path that this distribution does not have is nothing to read.
    readable = [path for path in sandbox.readable if path not in SYSTEM_PATHS or path.exists()]
    resolver = os.path.realpath(_RESOLVER)
    if sandbox.network and resolver != _RESOLVER and os.path.isfile(resolver):
        # What says which servers know names lies among what is not shown.
        readable.append(Path(resolver))
    confinement = _look_up(sandbox, readable, mounting=mounting)
    given = tuple(map(_require_path, sandbox.shown))
    shown = {place for place in given if _find_view(place, confinement) == "covered"}
    if not mounting:
        # Of a place that is withheld for want of a mount, what was named is shown.
        shown |= {place for place in given if is_below_any(place, _list_targets(sandbox))}
    ways = [toolchain.follow(str(path)) for path in (*readable, *sandbox.writable, *sandbox.shown)]
    # What can only be read now may have been written by an earlier command.
    around = toolchain.follow(cwd) if cwd else None
    inside = [around.real] if around and around.real != "/" else []
    # It is run in, so that it is there.
    here = (confinement.inside(path) for path in inside)
    shown |= {path for path in here if _find_view(path, confinement) == "covered"}
    moved = [path for way in confinement.mounted if way[0] != way[1] for path in way[:2]]
    untrusted = (*confinement.writable, *given, *inside, *moved)
    apart = (*confinement.covered, *confinement.hidden, *untrusted)
    for found, named in _find_programs(sandbox, path, confinement.inside(cwd), untrusted):
        place = toolchain.find_installation(found, apart, named=named)
        ways.append(found)
        if place is None or len(shown) >= MAX_SHOWN:
            continue
        view = _find_view(place, confinement)
        # What is hidden, or among sockets, is shown only if it was named.
        apart_from_all = view == "hidden" or is_below(place, _SOCKETS)
        missing = named and view != "visible" if apart_from_all else view == "covered"
        if missing and _is_reachable(place):
            shown.add(place)
            for path in toolchain.credentials_in(place):
                confinement = _hide(path, confinement)
    confinement = _drop_idle(replace(confinement, shown=tuple(sorted(shown))))
    # The links on these ways that nothing else shows.
    found_links = dict(link for way in ways if way for link in way.links)
    wanted = (
        (link, target)
        for link, target in sorted(found_links.items())
        if not link.startswith(("/proc/", "/dev/")) and _find_view(link, confinement) != "visible"
    )
    return replace(confinement, links=tuple(islice(wanted, MAX_SHOWN)))


def _look_up(sandbox: Sandbox, readable: list[Path], *, mounting: bool) -> Confinement:
    """Return what the sandbox itself names, without what programs need."""
    private = _PRIVATE if sandbox.private_tmp else ()
    covered = [os.path.realpath(path) for path in private if os.path.isdir(path)]
    confinement = Confinement(
        writable=tuple(map(_require_path, sandbox.writable)),
        readable=_keep_outermost(map(_require_path, readable), sandbox),
        network=sandbox.network,
        private_tmp=sandbox.private_tmp,
        processes=not sandbox.narrow,
        nested=sandbox.nested,
        covered=tuple(dict.fromkeys(covered)),
        replaced=tuple(
            (_require_path(path), _require_path(other)) for path, other in sandbox.replaced
        ),
        mounted=_find_mounts(sandbox) if mounting else (),
        layers=tuple(
            (tuple(map(_require_path, layer.sources)), _require_path(layer.target))
            for layer in sandbox.layers
        ),
    )
    for hidden in map(os.path.realpath, sandbox.hidden):
        confinement = _hide(hidden, confinement)
    return confinement


def _drop_idle(confinement: Confinement) -> Confinement:
    """Leave out hidden paths where nothing is shown, so that not even their names are visible."""
    visible = (
        *(*confinement.readable, *confinement.shown, *confinement.writable),
        *(target for _, target, _ in confinement.mounted),
    )

    def keep(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in paths if is_below_any(path, visible))

    directories, files = keep(confinement.hidden_directories), keep(confinement.hidden_files)
    return replace(confinement, hidden_directories=directories, hidden_files=files)


def _keep_outermost(paths: Iterable[str], sandbox: Sandbox) -> tuple[str, ...]:
    """Leave out what another path shows already, where nothing is hidden between the two."""
    found = tuple(dict.fromkeys(paths))
    apart = [*map(os.path.realpath, sandbox.hidden), *_list_targets(sandbox)]

    def shows(one: str, other: str) -> bool:
        between = (path for path in apart if is_below(one, path) and is_below(path, other))
        return one != other and is_below(one, other) and not any(between)

    return tuple(one for one in found if not any(shows(one, other) for other in found))


def _cover_targets(sandbox: Sandbox) -> Sandbox:
    """Leave out what the mounts cover."""
    targets = _list_targets(sandbox)
    places = [os.path.realpath(path) for path in sandbox.writable]

    def keep(paths: Iterable[Path]) -> tuple[Path, ...]:
        return tuple(p for p in paths if not is_below_any(os.path.realpath(p), targets))

    def writable(mount: Mount) -> bool:
        """Whether the child may write the source, by the sandbox as requested."""
        below = mount.private or is_below_any(os.path.realpath(mount.source), places)
        return bool(places) and below

    return replace(
        sandbox,
        writable=keep(sandbox.writable),
        readable=keep(sandbox.readable),
        hidden=keep(sandbox.hidden),
        shown=keep(sandbox.shown),
        mounts=tuple(replace(mount, private=writable(mount)) for mount in sandbox.mounts),
    )


def _list_targets(sandbox: Sandbox) -> list[str]:
    return [os.path.realpath(mount.target) for mount in sandbox.mounts]


def _hide_targets(sandbox: Sandbox) -> Sandbox:
    """Hide the targets of mounts that cannot be made; a mount onto itself stays readable."""
    moved = [mount.target for mount in sandbox.mounts if mount.target != mount.source]
    left = [mount.source for mount in sandbox.mounts if mount.target == mount.source]
    return replace(sandbox, hidden=(*moved, *sandbox.hidden), shown=(*sandbox.shown, *left))


def _find_mounts(sandbox: Sandbox) -> tuple[tuple[str, str, bool], ...]:
    ways = tuple(
        (_require_path(mount.source), os.path.realpath(mount.target), mount.private)
        for mount in sandbox.mounts
    )
    for _, target, _ in ways:
        # A mount inside another one is refused where a link would lead elsewhere: bubblewrap
        # follows the links of an agent that writes there, out of the sandbox as well.
        outer = [(to, way) for way, to, _ in ways if to != target and is_below(target, to)]
        around, place = max(outer, key=lambda one: len(one[0]), default=(target, ""))
        for name in target[len(around) :].strip("/").split("/"):
            place = os.path.join(place, name)
            if name and os.path.islink(place):
                what = f"Nothing can be mounted at {target!r}: {place!r} is a link."
                raise ProcessFault(what, rule="sandbox.link")
    return ways


def _find_programs(
    sandbox: Sandbox, path: str, cwd: str, untrusted: tuple[str, ...]
) -> Iterator[tuple[toolchain.FollowedPath, bool]]:
    """Yield the programs to show, and whether the caller named that place."""
    for program in sandbox.programs:
        for number, found in enumerate(toolchain.of_program(str(program), untrusted)):
            yield found, number == 0
    if not sandbox.narrow:
        for found in toolchain.on_path(path, untrusted):
            yield found, False
        for found in toolchain.project_pythons(cwd, untrusted):
            yield found, False


def _is_reachable(place: str) -> bool:
    """Whether a child without capabilities gets there; root in a sandbox has none."""
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    while place != "/":
        try:
            found = os.stat(place)
        except OSError:
            return False
        bit = 0o100 if found.st_uid == user else 0o010 if found.st_gid in groups else 0o001
        if stat.S_ISDIR(found.st_mode) and not found.st_mode & bit:
            return False
        place = os.path.dirname(place)
    return True


def _find_view(path: str, confinement: Confinement) -> _View:
    """Return how a path is shown: the deepest place that holds it decides."""
    kinds: tuple[tuple[_View, tuple[str, ...]], ...] = (
        # Of two at the same place the later one decides, as with mounts.
        ("covered", ("/", *confinement.covered)),
        ("visible", confinement.readable),
        ("visible", tuple(target for _, target, _ in confinement.mounted)),
        ("visible", confinement.shown),
        ("hidden", confinement.hidden),
        ("visible", confinement.writable),
    )
    depth, view = -1, kinds[0][0]
    for kind, places in kinds:
        for place in places:
            if is_below(path, place) and len(place) >= depth:
                depth, view = len(place), kind
    return view


def _hide(path: str, confinement: Confinement) -> Confinement:
    if path == "/" or path in confinement.writable:
        what = f"The sandbox cannot hide {path!r}, which it also has to show."
        raise UsageError(what, rule="sandbox.hidden")
    if os.path.isdir(path):
        return replace(confinement, hidden_directories=(*confinement.hidden_directories, path))
    if os.path.lexists(path):
        return replace(confinement, hidden_files=(*confinement.hidden_files, path))
    note = f"Nothing was hidden at {path!r}: it does not exist."
    return replace(confinement, notes=(*confinement.notes, note))


def _require_path(path: Path) -> str:
    real = os.path.realpath(path)
    if not os.path.exists(real):
        what = f"The sandbox path {str(path)!r} does not exist."
        raise EnvironmentFault(what, rule="sandbox.path")
    return real
