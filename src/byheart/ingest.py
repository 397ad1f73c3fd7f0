"""Documents into a knowledge base: load, split, encode, write; one batch of documents is one epoch.

Owns the order of these steps and what an add or a removal changes together: documents, passages, terms and vectors,
in one transaction. Part of the composition root; `knowledge` is its only caller.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from byheart.config import Config
from byheart.corpus import files
from byheart.corpus.passages import content_hash, split_many
from byheart.errors import DocumentError
from byheart.interfaces import Encoder, IndexEntry, VectorIndex
from byheart.retrieval.analyzer import analyze_passage
from byheart.retrieval.bm25 import passage_vector
from byheart.retrieval.terms import TermTable
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.types import AddReport, Document, Passage, Progress, Refusal, RemoveReport

PASSAGES_PER_EPOCH = 512
READER_VERSION = 1  # raise it when a loader or the splitter changes what it gives: files are then read anew


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
    seen: set[str] = field(default_factory=set)

    def report(self, epoch: int) -> AddReport:
        return AddReport(
            tuple(self.added),
            tuple(self.updated),
            tuple(self.unchanged),
            tuple(self.removed),
            tuple(self.refused),
            tuple(self.notices),
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
    """A file whose documents have all gone before: it may be marked as added."""

    origin: str
    file_hash: str


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes documents into one knowledge base.

    Attributes:
        root: Folder that ids are relative to: the one that holds the knowledge base.
        config: Settings.
        database: Where it writes.
        encoder: Turns passages into vectors.
        index: Holds the vectors.
    """

    root: Path
    config: Config
    database: Database
    encoder: Encoder
    index: VectorIndex

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
        tally.refused += refused
        known = Documents(self.database.connection).origins()
        self._write_all(self._changed(found, known, tally, progress), tally, progress)
        gone = self._gone(paths, found)
        if prune:
            removed = self.remove_pages(gone, gone)
            tally.removed += removed.removed
            tally.passages_removed += removed.passages_removed
        elif gone:
            tally.notices.append(f"{len(gone)} files added before are gone ({_some(gone)}); --prune removes them")
        return tally.report(self.database.epoch)

    def add_documents(self, documents: Iterable[Document], origin: str, progress: Progress) -> AddReport:
        """Add documents that were made elsewhere.

        Args:
            documents: The documents; their pages are their ids.
            origin: Where they come from; `remove` takes it as a name for all of them.
            progress: Told of every batch encoded.

        Returns:
            What happened to every document.
        """
        tally = _Tally()
        self._write_all((self._prepared(batch, origin, tally) for batch in _batches(documents)), tally, progress)
        return tally.report(self.database.epoch)

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
        with self.database.write() as connection:
            documents = Documents(connection)
            there = sorted(documents.content_hashes(pages))
            removed = self._remove(documents, there)
            documents.forget_origins([*origins, *pages])
        return RemoveReport(tuple(there), (), removed, self.database.epoch)

    def _changed(
        self, found: Sequence[Path], known: dict[str, str], tally: _Tally, progress: Progress
    ) -> Iterator[list[_Ready | _Whole]]:
        """Yield, file by file, what must be written; unchanged and unreadable files go into the tally."""
        for done, path in enumerate(found, start=1):
            origin = self.page_of(path)
            progress(done, len(found), "files read")
            try:
                digest = self._file_hash(path)
                if known.get(origin) == digest:
                    tally.unchanged += Documents(self.database.connection).pages_of(origin)
                    continue
                documents = files.load(path, origin, self.config.corpus)
            except (DocumentError, OSError) as error:
                tally.refused.append(Refusal(str(path), str(error)))
                continue
            for batch in _batches(documents):
                yield self._prepared(batch, origin, tally)
            yield [_Whole(origin, digest)]
            self._drop_stale(origin, {document.page for document in documents}, tally)

    def _prepared(self, documents: Sequence[Document], origin: str, tally: _Tally) -> list[_Ready | _Whole]:
        held = Documents(self.database.connection).content_hashes([document.page for document in documents])
        changed: list[tuple[Document, str]] = []
        for document in documents:
            digest = f"{content_hash(document)}/{self.config.corpus.words}/{self.config.corpus.max_tokens}"
            owner, before = held.get(document.page, (origin, ""))
            if owner != origin or document.page in tally.seen:
                taken = f"the id {document.page!r} is taken by {owner}; remove that first, or give this one another id"
                tally.refused.append(Refusal(origin, taken))
                continue
            tally.seen.add(document.page)
            if before == digest:
                tally.unchanged.append(document.page)
            else:
                (tally.updated if before else tally.added).append(document.page)
                changed.append((document, digest))
        pieces = split_many([document for document, _ in changed], self.config.corpus, self.encoder.count_tokens)
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
        vectors = self.encoder.encode_passages([passage.indexed_text for passage in passages], progress)
        terms = [analyze_passage(passage) for passage in passages]
        with self.database.write() as connection:
            documents, table = Documents(connection), TermTable(connection)
            tally.passages_removed += self._remove(documents, [ready.document.page for ready in fresh])
            for ready in fresh:
                documents.put(ready.document, ready.passages, ready.origin, ready.content_hash)
            for whole in (item for item in batch if isinstance(item, _Whole)):
                documents.mark_origin(whole.origin, whole.file_hash)
            numbers = table.assign(terms)
            sparse = [passage_vector(found, numbers, self.config.retrieval) for found in terms]
            table.count([vector.terms for vector in sparse], 1)
            rows = zip(passages, vectors, sparse, strict=True)
            self.index.add([IndexEntry(passage.id, dense, vector) for passage, dense, vector in rows])
        tally.passages_added += len(passages)

    def _remove(self, documents: Documents, pages: Sequence[str]) -> int:
        """Remove documents inside the open transaction and return the number of their passages."""
        ids = documents.remove(pages)
        table = TermTable(documents.connection)
        table.count([entry.sparse.terms for entry in self.index.fetch(ids)], -1)
        self.index.remove(ids)
        return len(ids)

    def _drop_stale(self, origin: str, pages: set[str], tally: _Tally) -> None:
        """Remove the records that a changed file no longer holds."""
        stale = [page for page in Documents(self.database.connection).pages_of(origin) if page not in pages]
        if stale:
            removed = self.remove_pages(stale)
            tally.removed += stale
            tally.passages_removed += removed.passages_removed

    def _gone(self, paths: Sequence[Path], found: Sequence[Path]) -> list[str]:
        """Return the files added before, below the folders now added, that are no longer there."""
        seen = {self.page_of(path) for path in found}
        documents = Documents(self.database.connection)
        folders = [self.page_of(path) for path in paths if path.is_dir()]
        below = {o for o in documents.origins() for f in folders if f == "." or o.startswith(f + "/")}
        return sorted(below - seen)

    def _file_hash(self, path: Path) -> str:
        settings = f"{READER_VERSION} {self.config.corpus}"
        return hashlib.sha256(path.read_bytes() + settings.encode()).hexdigest()


def _batches(documents: Iterable[Document], size: int = 256) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
