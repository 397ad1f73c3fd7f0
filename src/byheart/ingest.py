"""Documents into a knowledge base: load, split, encode, write; one batch of documents is one epoch.

Owns the order of these steps and what an add or a removal changes together: documents, passages, terms and vectors,
in one transaction. Part of the composition root; `knowledge` is its only caller.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from byheart import imprint
from byheart.config import Config
from byheart.corpus import files
from byheart.corpus.passages import content_hash, split_many
from byheart.errors import DocumentError, InputError, MissingExtraError
from byheart.interfaces import Encoder, IndexEntry, VectorIndex
from byheart.learning import Upkeep
from byheart.memory.ledger import Ledger
from byheart.memory.slots import erase_slots
from byheart.notices import forgotten, skipped, some, stale
from byheart.reports import AddReport, Progress, Refusal, RemoveReport
from byheart.retrieval.analyzer import analyze_passage
from byheart.retrieval.bm25 import passage_vector
from byheart.retrieval.terms import TermTable
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.types import Document, Passage

PASSAGES_PER_EPOCH = 512
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
LOADER_VERSION = 1  # raise it when a loader or the splitter changes what it gives: files are then read anew


@dataclass(slots=True)
class _Tally:
    """What has happened so far, in the groups of an `AddReport`."""

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    passages_added: int = 0
    passages_removed: int = 0
    stale: int = 0  # facts
    forgotten: int = 0  # facts
    seen: dict[str, str] = field(default_factory=dict)  # page: origin

    def report(self, epoch: int, notices: Sequence[str]) -> AddReport:
        return AddReport(
            tuple(self.added),
            tuple(self.updated),
            tuple(self.unchanged),
            tuple(self.removed),
            tuple(self.refused),
            (*self.notices, *stale(self.stale), *forgotten(self.forgotten), *notices),
            self.passages_added,
            self.passages_removed,
            epoch,
        )


@dataclass(frozen=True, slots=True)
class _Ready:
    """A document that is new or changed, split, waiting to be encoded and written."""

    document: Document
    passages: list[Passage]
    origin: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class _Whole:
    """A file whose documents have all gone before: it may be marked as added, and records that it lost be removed."""

    origin: str
    file_hash: str  # empty where a record was refused: the file is then read again
    pages: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes documents into one knowledge base.

    Attributes:
        root: Folder that ids are relative to: the one that holds the knowledge base.
        config: Settings.
        database: Where it writes.
        encoder: Gives what turns passages into vectors, when there is something to add; removing needs none.
        index: Holds the vectors.
        rolled_back: Told that a write left no trace in the database, but perhaps in a mirror of the index.
    """

    root: Path
    config: Config
    database: Database
    encoder: Callable[[], Encoder]
    index: VectorIndex
    rolled_back: Callable[[], None]

    def page_of(self, path: Path) -> str:
        """Return a file's id: its path relative to the folder that holds the knowledge base, wherever we run."""
        return Path(os.path.relpath(os.path.realpath(path), self.root)).as_posix()

    def add(self, paths: Sequence[Path], prune: bool, progress: Progress) -> AddReport:
        """Add files and folders; what has not changed is not read again.

        Args:
            paths: Files and folders.
            prune: Remove the pages of files below these folders that are gone.
            progress: Told of every file and of every batch encoded.

        Returns:
            What happened to every file.
        """
        tally = _Tally()
        found, refused = files.find(paths)
        named = {str(path) for path in paths}
        tally.refused += [refusal for refusal in refused if refusal.source in named]
        tally.notices += skipped([refusal for refusal in refused if refusal.source not in named])
        with self._reading() as documents:
            known = documents.origins()
        self._write_all(self._changed(found, known, tally, progress), tally, progress)
        gone = self._gone(paths, found)
        if prune:
            with self._reading() as documents:
                pages = [page for origin in gone for page in documents.pages_of(origin)]
            removed = self.remove_pages(pages, gone)
            tally.removed += removed.removed
            tally.passages_removed += removed.passages_removed
            tally.notices += removed.notices
        elif gone:
            tally.notices.append(f"{len(gone)} files added before are gone ({some(gone)}); --prune removes them")
        return tally.report(self.database.epoch, self._scrubbed())

    def add_documents(self, documents: Iterable[Document], origin: str, progress: Progress) -> AddReport:
        """Add documents that were made elsewhere.

        Args:
            documents: The documents; their pages are their ids.
            origin: Where they come from; `remove` takes it as a name for all of them.
            progress: Told of every batch encoded.

        Returns:
            What happened to every document.

        Raises:
            InputError: `origin` is blank or no valid Unicode.
        """
        if not origin.strip() or UNSTORABLE.search(origin):
            raise InputError(f"{origin!r} is no name for documents; pass words in valid Unicode")
        tally = _Tally()
        self._write_all((self._prepared(batch, origin, tally) for batch in _batches(documents)), tally, progress)
        return tally.report(self.database.epoch, self._scrubbed())

    def remove(self, names: Sequence[str]) -> RemoveReport:
        """Remove what these names mean: pages, files or folders, with everything that came from them.

        Args:
            names: Ids as `documents` lists them, or paths from where we run.

        Returns:
            What is gone, and which names matched nothing.

        Raises:
            InputError: A name is empty, or means one document by its id and another by its path.
        """
        with self._reading() as documents:
            meant = {name: self._meant(name, documents) for name in names}
        pages = {page for found, _ in meant.values() for page in found}
        origins = {origin for _, found in meant.values() for origin in found}
        report = self.remove_pages(sorted(pages), sorted(origins))
        missing = tuple(name for name, found in meant.items() if not any(found))
        return replace(report, missing=missing, notices=(*report.notices, *self._scrubbed()))

    def _meant(self, name: str, documents: Documents) -> tuple[list[str], list[str]]:
        """Return the pages and the files that a name means, as an id or, if it is none, as a path."""
        if not name.strip() or UNSTORABLE.search(name):
            raise InputError(f"{name!r} names no document; pass a page, a file or a folder")
        path = self.page_of(Path(name))
        by_id, by_path = documents.matching(name), documents.matching(path)
        if by_id and by_path and by_id != by_path:
            raise InputError(
                f"{name!r} is the id of {some(by_id)} and the path of {some(by_path)}; pass the absolute path"
            )
        if not by_id and set(path.split("/")) <= {".", ".."}:
            raise InputError(f"{name!r} holds the whole knowledge base; pass the pages, files or folders to remove")
        return by_id or by_path, documents.matching_origins(name if by_id else path)

    def remove_pages(self, pages: Sequence[str], origins: Sequence[str] = ()) -> RemoveReport:
        """Remove documents with everything that came from them, in one epoch.

        Args:
            pages: Pages to remove; those that are not there are ignored.
            origins: Files to forget, so that adding them again reads them.

        Returns:
            What is gone.
        """
        if not pages and not origins:
            return RemoveReport(epoch=self.database.epoch)
        with self._writing() as connection:
            documents = Documents(connection)
            there = documents.content_hashes(pages)
            removed = self._remove(documents, list(there))
            n_facts = self._upkeep(connection).removed(list(there))
            documents.forget_origins({*origins, *(origin for origin, _ in there.values())})
        return RemoveReport(tuple(sorted(there)), (), removed, self.database.epoch, tuple(forgotten(n_facts)))

    def _changed(
        self, found: Sequence[Path], known: dict[str, str], tally: _Tally, progress: Progress
    ) -> Iterator[list[_Ready | _Whole]]:
        """Yield, file by file, what must be written; unchanged and unreadable files go into the tally."""
        for done, path in enumerate(found, start=1):
            origin = self.page_of(path)
            if UNSTORABLE.search(origin):
                tally.refused.append(Refusal(ascii(str(path)), "its name is not valid UTF-8; rename it"))
                continue
            progress(done, len(found), "files read")
            try:
                digest = self._file_hash(path)
                if known.get(origin) == digest:
                    with self._reading() as held:
                        tally.unchanged += held.pages_of(origin)
                    continue
                documents = files.load(path, origin, self.config.corpus)
            except (DocumentError, MissingExtraError, OSError) as error:
                tally.refused.append(Refusal(str(path), str(error)))
                continue
            n_refused = len(tally.refused)
            for batch in _batches(documents):
                yield self._prepared(batch, origin, tally)
            pages = frozenset(document.page for document in documents)
            yield [_Whole(origin, digest if len(tally.refused) == n_refused else "", pages)]

    def _prepared(self, documents: Sequence[Document], origin: str, tally: _Tally) -> list[_Ready | _Whole]:
        fit = [document for document in documents if not _is_refused(document, tally)]
        with self._reading() as stored:
            held = stored.content_hashes([document.page for document in fit])
        changed: list[tuple[Document, str]] = []
        for document in fit:
            digest = f"{content_hash(document)}/{self.config.corpus.words}/{self.config.corpus.max_tokens}"
            owner, before = held.get(document.page, (origin, ""))
            owner = tally.seen.get(document.page, owner)
            if owner != origin or document.page in tally.seen:
                taken = f"the id {document.page!r} is taken by {owner}; remove that first, or give this one another id"
                tally.refused.append(Refusal(origin, taken))
                continue
            tally.seen[document.page] = origin
            if before == digest:
                tally.unchanged.append(document.page)
            else:
                (tally.updated if before else tally.added).append(document.page)
                changed.append((document, digest))
        pieces = split_many([document for document, _ in changed], self.config.corpus, self.encoder().count_tokens)
        tally.notices += [notice for _, notices in pieces for notice in notices]
        return [
            _Ready(document, passages, origin, digest)
            for (document, digest), (passages, _) in zip(changed, pieces, strict=True)
        ]

    def _write_all(self, batches: Iterable[list[_Ready | _Whole]], tally: _Tally, progress: Progress) -> None:
        waiting: list[_Ready | _Whole] = []
        for batch in batches:
            waiting += batch
            if sum(len(item.passages) for item in waiting if isinstance(item, _Ready)) >= PASSAGES_PER_EPOCH:
                self._write(waiting, tally, progress)
                waiting = []
        if waiting:
            self._write(waiting, tally, progress)

    def _write(self, batch: Sequence[_Ready | _Whole], tally: _Tally, progress: Progress) -> None:
        """Encode outside the transaction, which takes long, and write inside, which does not."""
        fresh = [item for item in batch if isinstance(item, _Ready)]
        passages = [passage for ready in fresh for passage in ready.passages]
        vectors = self.encoder().encode_passages([passage.indexed_text for passage in passages], progress)
        terms = [analyze_passage(passage) for passage in passages]
        with self._writing() as connection:
            if passages:
                imprint.note(connection, self.config.retrieval, self.encoder(), self.database.path.parent)
            documents, table, upkeep = Documents(connection), TermTable(connection), self._upkeep(connection)
            before = upkeep.texts([ready.document.page for ready in fresh], documents)
            tally.passages_removed += self._remove(documents, [ready.document.page for ready in fresh])
            for ready in fresh:
                documents.put(ready.document, ready.passages, ready.origin, ready.content_hash)
            tally.stale += sum(upkeep.written(r.document, r.passages, before, documents) for r in fresh)
            for whole in (item for item in batch if isinstance(item, _Whole)):
                self._finish(whole, documents, upkeep, tally)
            numbers = table.assign(terms)
            sparse = [passage_vector(found, numbers, self.config.retrieval) for found in terms]
            table.count([vector.terms for vector in sparse], 1)
            rows = zip(passages, vectors, sparse, strict=True)
            self.index.add([IndexEntry(passage.id, dense, vector) for passage, dense, vector in rows])
        tally.passages_added += len(passages)

    def _remove(self, documents: Documents, pages: Sequence[str]) -> int:
        """Remove documents inside the open transaction and return the number of their passages."""
        n_changes = documents.connection.total_changes
        ids = documents.remove(pages)
        if documents.connection.total_changes > n_changes:
            self.database.owe_scrub()
        table = TermTable(documents.connection)
        table.count([entry.sparse.terms for entry in self.index.fetch(ids)], -1)
        self.index.remove(ids)
        return len(ids)

    def _upkeep(self, connection: sqlite3.Connection) -> Upkeep:
        return Upkeep(Ledger(connection, self.config.ledger.text), partial(erase_slots, connection))

    def _finish(self, whole: _Whole, documents: Documents, upkeep: Upkeep, tally: _Tally) -> None:
        """Remove the records that a changed file no longer holds, and mark it as added, inside the transaction."""
        gone = [page for page in documents.pages_of(whole.origin) if page not in whole.pages]
        tally.passages_removed += self._remove(documents, gone)
        tally.forgotten += upkeep.removed(gone)
        tally.removed += gone
        documents.mark_origin(whole.origin, whole.file_hash)

    def _scrubbed(self) -> list[str]:
        """Have the text that was deleted leave the file; return a notice if that must wait."""
        if self.database.scrub():
            return []
        return ["another process holds the file: traces of deleted text stay in it until the next add or remove"]

    @contextmanager
    def _reading(self) -> Iterator[Documents]:
        with self.database.read() as connection:
            yield Documents(connection)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        is_begun = False
        try:
            with self.database.write() as connection:
                is_begun = True
                yield connection
        except BaseException:
            if is_begun:  # also when the commit itself fails
                self.rolled_back()
            raise

    def _gone(self, paths: Sequence[Path], found: Sequence[Path]) -> list[str]:
        """Return the files added before, below the folders now added, that are no longer there."""
        seen = {self.page_of(path) for path in found}
        with self._reading() as documents:
            origins = documents.origins()
        folders = [os.path.realpath(path) for path in paths if path.is_dir()]
        # By place, not by name: "../other/a.md" is not below ".", but "docs/a.md" is below "..".
        places = {origin: Path(os.path.normpath(self.root / origin)) for origin in origins if origin not in seen}
        below = {o: p for o, p in places.items() if any(p.is_relative_to(folder) for folder in folders)}
        return sorted(origin for origin, place in below.items() if _is_gone(place))

    def _file_hash(self, path: Path) -> str:
        settings = f"{LOADER_VERSION} {self.config.corpus}"
        if path.stat().st_size > self.config.corpus.max_megabytes * files.MEBIBYTE:
            return "too large"  # loading it says so, without the minutes that reading it would take
        with path.open("rb") as file:  # in pieces: it may grow meanwhile
            digest = hashlib.file_digest(file, "sha256")
        digest.update(settings.encode())
        return digest.hexdigest()


def _is_gone(place: Path) -> bool:
    """Return whether there surely is no such file: one that is hidden, or in a folder that is shut, is not gone."""
    try:
        return not stat.S_ISREG(place.stat().st_mode)
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)


def _batches(documents: Iterable[Document], size: int = 256) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_refused(document: Document, tally: _Tally) -> bool:
    """Return whether a document cannot be stored as it is, and say so in the tally."""
    texts = (document.page, document.title, document.text, *(h for s in document.sections for h in s.headings))
    if document.page.strip() and not any(UNSTORABLE.search(text) for text in texts):
        return False
    reason = "its id is blank, or it holds NUL or a lone surrogate; clean it, and decode its source as UTF-8"
    tally.refused.append(Refusal(ascii(document.page), reason))
    return True
