"""Datasets of the Hugging Face hub as outputs: a complete local folder is uploaded as one commit.

The output is written to a folder on this machine first. Large files are uploaded before the commit, which
adds all files and the manifest at once: no partial state is visible. The card of the repository (README.md)
says which files are which split, so that `load_dataset` finds them.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fmtkit.core import storage
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError, OutputExistsError, WriteError
from fmtkit.core.records import entries_of, read_json
from fmtkit.writing.dataset_card import CARD, body_of, is_own, marked, metadata_of, rows_of
from fmtkit.writing.outputs import HUB, HubFolder
from fmtkit.writing.working_folder import MANIFEST, REPORT

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")

_OWN = frozenset({CARD, ".gitattributes"})
"""Files that the hub adds to a repository by itself."""
_REFUSED = {
    401: "the token is not accepted; log in again (`hf auth login`) or set HF_TOKEN",
    403: "the token may not write there; give one that may",
    404: "there is no such user or organization, or the token does not see it",
    412: "another commit came meanwhile; run again with --resume",
}
"""HTTP status -> why the hub refused."""


class _AbsentError(WriteError):
    """There is no such repository or file."""


@dataclass
class HubOutput:
    """A folder of a dataset repository, before it is written.

    Raises:
        DependencyError: if huggingface_hub is not installed.
        OptionError: if there is no token.
        OutputExistsError: if there is a file that fmtkit did not write, or may not replace.
        WriteError: if the hub refuses or cannot be reached.
    """

    place: HubFolder
    overwrite: bool = False
    resume: bool = False
    is_finished: bool = False
    """Whether the folder has a finished, unchanged output; checked when a run is resumed."""
    head: str | None = None
    """The last commit of the repository; None where there is no repository yet."""
    old: list[str] = field(default_factory=list)
    """Files of an earlier output, which are replaced."""
    api: "HfApi" = field(init=False)
    token: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            from huggingface_hub import HfApi, constants, get_token
        except ImportError as error:
            raise DependencyError(
                f"writing {self.place} needs the package huggingface_hub: pip install 'fmtkit[hub]'"
            ) from error
        if constants.HF_HUB_OFFLINE:
            raise OptionError(
                f"OUT {self.place}: HF_HUB_OFFLINE is set; unset it, or write locally"
            )
        token = get_token()
        if not token:
            raise OptionError(
                f"OUT {self.place}: writing to the hub needs a token: set HF_TOKEN, or log in with "
                "`hf auth login`"
            )
        self.token = token
        self.api = HfApi(token=token, endpoint=constants.ENDPOINT)
        self._look()

    @property
    def folder(self) -> Path:
        """Return where the folder is made; the same for each run, so that one may be resumed."""
        from huggingface_hub import constants

        name = hashlib.sha256(f"{constants.ENDPOINT} {self.place}".encode()).hexdigest()[:16]
        return Path(constants.HF_HOME) / "fmtkit" / name

    def forget(self) -> None:
        """Delete the folder, and what an interrupted run left of it."""
        for left in self._left():
            shutil.rmtree(left, ignore_errors=True)

    def _look(self) -> None:
        """Query the repository."""
        try:
            self.head = self._ask(lambda: self.api.dataset_info(self.place.repository)).sha
            found = self._ask(
                lambda: list(
                    self.api.list_repo_tree(
                        self.place.repository,
                        self.place.path or None,
                        recursive=True,
                        repo_type="dataset",
                    )
                )
            )
        except _AbsentError:
            return
        sizes = {file.path: file.size for file in found if hasattr(file, "size")}
        self._refuse({name: size for name, size in sizes.items() if name not in _OWN})

    def _refuse(self, sizes: Mapping[str, int]) -> None:
        if not sizes:
            return
        if not (self.overwrite or self.resume):
            raise self._exists()
        entries = entries_of(self._read(REPORT)) or {}
        known = {self._path(name): entry["bytes"] for name, entry in entries.items()}
        if self.resume:
            written = {name: size for name, size in sizes.items() if name != self._path(REPORT)}
            self.is_finished = written == known and self._path(MANIFEST) in known
            if not self.is_finished or self._left():
                raise self._exists()
            return
        for name, size in sizes.items():
            if name != self._path(REPORT) and known.get(name) != size:
                raise OutputExistsError(
                    f"{HUB}{self.place.repository}/{name} exists already, and fmtkit did not write "
                    "it, or it was changed since; choose another OUT or move it away"
                )
        self.old = list(sizes)

    def _exists(self) -> OutputExistsError:
        return OutputExistsError(f"{self.place} exists already; --overwrite replaces it")

    def _left(self) -> list[Path]:
        """Return what unfinished runs have left on this machine."""
        folder = self.folder
        return [*folder.parent.glob(folder.name), *folder.parent.glob(f".{folder.name}.*")]

    def bring_report(self) -> None:
        """Write report and manifest of the finished run into the folder, as if it had been made there."""
        self.folder.mkdir(parents=True)
        for name in (REPORT, MANIFEST):
            shutil.copyfile(self._download(self._path(name)), self.folder / name)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return read_json(Path(self._download(self._path(name))))
        except _AbsentError:
            return {}

    def _download(self, path: str) -> str:
        found: str = self._ask(
            lambda: self.api.hf_hub_download(
                self.place.repository, path, repo_type="dataset", revision=self.head
            )
        )
        return found

    def _path(self, name: str) -> str:
        return f"{self.place.path}/{name}" if self.place.path else name

    def commit(self) -> str:
        """Upload the folder as one commit; return its address."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        manifest = read_json(self.folder / MANIFEST)
        names = sorted(
            (file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*.*")),
            key=lambda name: (name == MANIFEST, name),
        )
        files = {self._path(name): self.folder / name for name in names}
        # The repository has one card, which is not that of the folder.
        own_card = self.folder / CARD
        files = {name: file for name, file in files.items() if file.is_file() and file != own_card}
        if self.head is None:
            # What becomes public is for the user to decide.
            self._ask(
                lambda: self.api.create_repo(
                    self.place.repository, repo_type="dataset", private=True, exist_ok=True
                )
            )
        operations: list[Any] = [
            CommitOperationAdd(CARD, self._card(manifest).encode()),
            *(CommitOperationAdd(name, str(file)) for name, file in files.items()),
            *(CommitOperationDelete(name) for name in self.old if name not in files),
        ]
        adds = [one for one in operations if isinstance(one, CommitOperationAdd)]
        asked: dict[str, Any] = {"repo_type": "dataset"}
        with _without_bars():
            self._ask(lambda: self.api.preupload_lfs_files(self.place.repository, adds, **asked))
            made = self._ask(
                lambda: self.api.create_commit(
                    self.place.repository,
                    operations,
                    commit_message=f"Convert as {manifest['type']} with fmtkit",
                    parent_commit=self.head,
                    **asked,
                )
            )
            self._check(files, str(made.oid))
        return str(made.commit_url)

    def _check(self, names: Iterable[str], commit: str) -> None:
        """Raise WriteError for a file that is not in the commit: a .gitignore there may exclude it."""
        asked = list(names)
        found = self._ask(
            lambda: self.api.get_paths_info(
                self.place.repository, asked, repo_type="dataset", revision=commit
            )
        )
        left = sorted({*asked} - {file.path for file in found})
        if left:
            raise WriteError(
                f"{self.place}: the repository took the commit without {left[0]}"
                f"{f' and {len(left) - 1} more' if left[1:] else ''}; see its .gitignore"
            )

    def _card(self, manifest: Mapping[str, Any]) -> str:
        """Return the card with the splits of this folder; of a card that somebody wrote the rest is kept."""
        from huggingface_hub import DatasetCard

        report = read_json(self.folder / REPORT)
        title = self.place.repository.partition("/")[2]
        text = old = ""
        if self.head is not None:
            with suppress(_AbsentError):
                text = old = Path(self._download(CARD)).read_text(encoding="utf-8")
        name = self.place.path.replace("/", "-") or "default"
        has_data = old.startswith("---\n")
        told = DatasetCard(old, ignore_metadata_errors=True).data.get("configs") if has_data else []
        others = [one for one in told or [] if one.get("config_name") != name]
        is_ours = not old or (is_own(old) and not others)
        if is_ours:
            text = f"---\nconfigs: []\n---\n\n{body_of(title, report, manifest)}"
        elif not has_data:
            text = f"---\nconfigs: []\n---\n\n{old}"
        card = DatasetCard(text, ignore_metadata_errors=True)
        own = {
            "config_name": name,
            "data_files": [
                {"split": split, "path": self._path(f"data/{split}-*")}
                for split in rows_of(manifest)
            ],
        }
        card.data["configs"] = [*others, own]
        for key, value in metadata_of(report, manifest).items() if is_ours else ():
            card.data[key] = [value]
        return marked(str(card)) if is_ours or is_own(old) else str(card)

    def _ask(self, call: Callable[[], T]) -> T:
        """Call the hub; raise WriteError if it refuses, _AbsentError for something missing."""
        from huggingface_hub.errors import (
            EntryNotFoundError,
            HfHubHTTPError,
            RepositoryNotFoundError,
        )

        absent = (EntryNotFoundError, RepositoryNotFoundError)

        def asked() -> T:
            try:
                return call()
            except HfHubHTTPError as error:
                status = error.response.status_code
                # The hub answers 401 for a bad token, whatever was requested.
                if isinstance(error, absent) and status != 401:
                    raise _AbsentError(f"cannot write {self.place}: {_REFUSED[404]}") from error
                if status < 500 and status not in (408, 429):
                    raise self._refused(status) from error
                raise

        try:
            return storage.repeated(asked)
        except WriteError:
            raise
        except OSError as error:
            reason = re.sub(r"\s*\(Request ID:[^)]*\)", "", str(error)).replace(self.token, "***")
            raise WriteError(
                f"cannot write {self.place}: {reason}; nothing was committed"
            ) from error

    def _refused(self, status: int) -> WriteError:
        reason = _REFUSED.get(status, f"the hub answers {status}")
        return WriteError(f"cannot write {self.place}: {reason}; nothing was committed")


@contextmanager
def _without_bars() -> Iterator[None]:
    """Suppress the progress bars of huggingface_hub."""
    from huggingface_hub import utils

    if utils.are_progress_bars_disabled():  # type: ignore[attr-defined]
        yield
        return
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        utils.enable_progress_bars()  # type: ignore[attr-defined]
