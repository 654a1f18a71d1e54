"""Where the policies of a repository come from: its control root, its baseline, or CoilClaw.

One known file is enough to make a place the source. Whatever is missing there is an error: a
repository that meant to have policies of its own is never judged by others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import UsageError
from coilclaw.runs.contracts.policy_set import FOLDER, REQUIRED, SHIPPED, PolicySet

if TYPE_CHECKING:
    from coilclaw.workspace import Repository

Source: TypeAlias = Literal["directory", "commit", "shipped"]
UNCLAIMED: Final = tuple(f"{FOLDER}/{name}" for name in REQUIRED)
"""Where policies would be found in a repository that has none."""
MAX_POLICY_BYTES: Final = 2**20
MAX_POLICY_FILES: Final = 200


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Finds and reads the policies of one repository."""

    repository: Repository

    @property
    def folder(self) -> Path:
        """The control root, which no contract can allow to be changed."""
        return self.repository.top / FOLDER

    def find(self, commit: str) -> Source:
        """Return what the policies of a run from this commit are read from."""
        if any(os.path.lexists(self.folder / name) for name in SHIPPED):
            return "directory"
        known = {f"{FOLDER}/{name}" for name in SHIPPED}
        return "shipped" if known.isdisjoint(self.repository.files(commit)) else "commit"

    def read(self, commit: str) -> PolicySet:
        """Read all of them; raises for a file that is missing, too large or malformed."""
        source = self.find(commit)
        if source == "shipped":
            return PolicySet.read_shipped()
        if source == "directory":
            files, where = _read_folder(self.folder), str(self.folder)
        else:
            files, where = self._read_commit(commit), f"{FOLDER} of commit {commit[:12]}"
        missing = [f"{FOLDER}/{name}" for name in REQUIRED if name not in files]
        if missing:
            raise UsageError(
                f"{where} holds policies, but not all of them: "
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                rule="policy.missing",
                hint=f"restore it (git restore {missing[0]}), have 'coilclaw init --repo' write "
                f"the missing files as they come with CoilClaw, or remove {FOLDER}/ altogether",
            )
        return PolicySet.of(files)

    def _read_commit(self, commit: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name in self.repository.files(commit):
            if name.startswith(f"{FOLDER}/") and len(found) < MAX_POLICY_FILES:
                data = self.repository.read(commit, name, MAX_POLICY_BYTES)
                if data is not None:
                    found[name.removeprefix(f"{FOLDER}/")] = data
        return found


def _read_folder(folder: Path) -> dict[str, bytes]:
    """Read the files of a control root; links are not followed."""
    found: dict[str, bytes] = {}
    for top, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(top) / name
            if path.is_symlink() or len(found) >= MAX_POLICY_FILES:
                continue
            data = path.read_bytes()
            if len(data) > MAX_POLICY_BYTES:
                raise UsageError(
                    f"the policy {path} is larger than {MAX_POLICY_BYTES} bytes",
                    rule="policy.large",
                )
            found[path.relative_to(folder).as_posix()] = data
    return found
