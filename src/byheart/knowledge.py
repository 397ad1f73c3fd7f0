"""A knowledge base as a folder: database, settings, weights. The composition root.

Owns which class stands behind each Protocol, and the public API. What belongs together changes in one epoch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from byheart.config import FIXED_ONCE_FILLED, Config
from byheart.engine import Engine
from byheart.errors import AlreadyExistsError, ConfigError, EncoderMismatchError, InputError
from byheart.ingest import Ingest
from byheart.interfaces import Encoder, Reader
from byheart.library import Library
from byheart.reader.compact import CompactReader
from byheart.reports import AddReport, Progress, RemoveReport, Status, no_progress
from byheart.retrieval.analyzer import ANALYZER_VERSION
from byheart.retrieval.fitting import FittedWeight, fit_dense_weight
from byheart.store import database
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.store.settings import is_free, read_config, write_config
from byheart.text.encoder import SentenceEncoder
from byheart.types import Answer, Document, Hit, Kind, Passage, Question


class KnowledgeBase:
    """A body of documents that answers questions."""

    def __init__(
        self,
        path: str | Path,
        *,
        wait_seconds: float = 10.0,
        encoder: Encoder | None = None,
        reader: Reader | None = None,
    ) -> None:
        """Open a knowledge base that `init` created; models are loaded when first needed.

        Args:
            path: Its folder.
            wait_seconds: How long a writer waits for another one.
            encoder: Encoder to use instead of the configured one; the one the knowledge base was built with.
            reader: Reader to use instead of the configured one.

        Raises:
            NotAKnowledgeBaseError: The folder holds none.
            ConfigError: `config.toml` has an unknown setting or one out of range.
            EncoderMismatchError: `encoder` is not the one the knowledge base was built with.
            FormatError: The database is damaged, of a newer version, or indexed by another analyzer.
        """
        self.path, self.config = Path(path), read_config(Path(path))
        self._database = Database(self.path / database.FILE, wait_seconds=wait_seconds)
        try:
            self._state = self._database.state(ANALYZER_VERSION)
            self._library = Library(self._database, self.config.retrieval, int(str(self._state["width"])))
            if encoder is not None:
                self.encoder = self._matching(encoder)
            if reader is not None:
                self.reader = reader
        except Exception:
            self._database.close()
            raise

    def __enter__(self) -> KnowledgeBase:
        """Return the knowledge base itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def epoch(self) -> int:
        """Number of the last committed transaction."""
        return self._database.epoch

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, checked to be the one the knowledge base was built with."""
        return self._matching(SentenceEncoder(self.config.encoder))

    def _matching(self, encoder: Encoder) -> Encoder:
        if encoder.fingerprint != self._state["encoder_fingerprint"]:
            raise EncoderMismatchError(
                f"{self.path} was built with {self._state['encoder']} ({self._state['encoder_fingerprint']}), "
                f"now it is given {encoder.name} ({encoder.fingerprint}); set it back, or build a new one"
            )
        return encoder

    @cached_property
    def reader(self) -> Reader:
        """The configured reader."""
        chosen = self.config.reader
        if chosen.name == "causal-lm":
            from byheart.reader.causal_lm import CausalLMReader

            return CausalLMReader(chosen, self.config.encoder.device)
        if chosen.name == "openai":
            from byheart.reader.openai import OpenAIReader

            return OpenAIReader(chosen, os.environ.get(chosen.api_key_variable))
        return CompactReader(chosen, device=self.config.encoder.device)

    def add(self, *paths: str | Path, prune: bool = False, progress: Progress = no_progress) -> AddReport:
        """Add files and folders; adding again changes only what has changed.

        Args:
            *paths: Markdown, text, HTML, PDF, DOCX or JSONL files, or folders that hold such.
            prune: Also remove the pages of files below these folders that are gone.
            progress: Called with how much is done.

        Returns:
            What happened to every file: added, updated, unchanged, removed or refused with a reason.

        Raises:
            InputError: No path was given, or an empty one.
            BusyError: Another process is writing.
        """
        if not paths or not all(str(path).strip() for path in paths):  # an empty name is not the working directory
            raise InputError(f"nothing to add, got {paths!r}; pass at least one file or folder, each with a name")
        return self._ingest.add([Path(path) for path in paths], prune, progress)

    def add_documents(
        self, documents: Iterable[Document], origin: str = "api", progress: Progress = no_progress
    ) -> AddReport:
        """Add documents made elsewhere; a page that is there with the same content is left alone.

        Args:
            documents: The documents.
            origin: A name for all of them, which `remove` understands.
            progress: Called with how much is done.

        Returns:
            What happened to every document.
        """
        return self._ingest.add_documents(documents, origin, progress)

    def remove(self, *names: str | Path) -> RemoveReport:
        """Remove documents, with their passages, vectors and index terms; their text leaves the file.

        Args:
            *names: Pages, files or folders, as they were added.

        Returns:
            What is gone, and which names matched nothing.

        Raises:
            InputError: A name is empty, or means one document by its id and another by its path.
            BusyError: Another process is writing.
        """
        return self._ingest.remove([str(name) for name in names])

    def ask(self, text: str, *, claim: bool = False) -> Answer:
        """Return the answer to one question.

        Args:
            text: The question, or a claim to check.
            claim: Whether `text` is a claim: the answer is then SUPPORTS or REFUTES.

        Returns:
            The answer with its sources.

        Raises:
            QuestionError: The text is empty, too long, or no text.
        """
        return self.ask_many([Question.parse(text, Kind.CLAIM if claim else Kind.QUESTION)])[0]

    def ask_many(self, questions: Sequence[Question], *, closed_book: bool = False) -> list[Answer]:
        """Return one answer per question.

        Args:
            questions: Parsed questions and claims.
            closed_book: Answer without any passage; a baseline.

        Returns:
            Answers in order.
        """
        return self._engine.answer_closed_book(questions) if closed_book else self._engine.answer_many(questions)

    def search(self, text: str, k: int = 5) -> list[tuple[Hit, Passage]]:
        """Return the `k` best passages for a question, best first, each with its scores.

        Args:
            text: The question.
            k: Passages wanted.

        Returns:
            Hits with their passages; fewer than `k` where there are no more.
        """
        question = Question.parse(text)
        queries = self.encoder.encode_queries([question.text])
        with self._library.hold():
            hits = self._library.search([question], queries, k)[0]
            passages = self._library.passages([hit.passage_id for hit in hits])
        return list(zip(hits, passages, strict=True))

    def search_many(
        self, questions: Sequence[Question], k: int, *, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        """Return hits per question.

        Args:
            questions: Parsed questions.
            k: Hits per question.
            dense_weight: 0 for BM25 alone, 1 for dense alone, None for the fitted weight.

        Returns:
            Hits, best first.
        """
        queries = self.encoder.encode_queries([question.text for question in questions])
        with self._library.hold():
            return self._library.search(questions, queries, k, dense_weight)

    def passages(self, passage_ids: Sequence[str]) -> list[Passage]:
        """Return passages by id.

        Args:
            passage_ids: Ids, as in `Hit.passage_id`.

        Returns:
            The passages in order.

        Raises:
            PassageError: An id is not there any more, or never was.
        """
        with self._database.read():
            return self._library.passages(passage_ids)

    def documents(self) -> list[tuple[str, str, int]]:
        """Return page, title and passage count of all."""
        with self._database.read() as connection:
            return Documents(connection).pages()

    def tune(self, questions: Sequence[Question], passage_ids: Sequence[str]) -> FittedWeight:
        """Fit the share of the cosine in the fused score, and keep it as a new epoch.

        Args:
            questions: Training questions.
            passage_ids: For each, the id of the passage that answers it.

        Returns:
            The weight and its recall on these questions.
        """
        queries = self.encoder.encode_queries([question.text for question in questions])
        self.passages(passage_ids)  # an id that is not there is an error here, not a miss in the figures
        with self._library.hold():
            candidates = self._library.candidates(questions, queries)
        fitted = fit_dense_weight(candidates, passage_ids)
        weight = json.dumps(fitted.dense_weight)
        with self._database.write() as connection:
            connection.execute("INSERT OR REPLACE INTO parameters VALUES ('dense_weight', ?)", (weight,))
        return fitted

    def configure(self, key: str, value: object) -> Config:
        """Change one setting in `config.toml`; it holds from the next `open`.

        Args:
            key: Dotted name, such as `reader.name`.
            value: New value.

        Returns:
            The new settings.

        Raises:
            ConfigError: There is no such setting, or what is stored depends on it.
        """
        changed = self.config.replace(key, value)
        if key in FIXED_ONCE_FILLED and changed != self.config and self.status().passages:
            raise ConfigError(f"{key} holds for what is stored; set it in a new one: byheart init FOLDER --set {key}=…")
        write_config(self.path, changed)
        return changed

    def status(self) -> Status:
        """Return sizes and versions, all of one epoch."""
        with self._database.read() as connection:
            epoch, (documents, passages) = self._database.epoch, Documents(connection).counts()
            terms = connection.execute("SELECT count(*) FROM terms").fetchone()[0]
        encoder, digest = str(self._state["encoder"]), str(self._state["encoder_fingerprint"])
        size, index, reader = database.folder_bytes(self.path), self.config.retrieval.index, self.config.reader.name
        return Status(
            str(self.path), epoch, database.FORMAT_VERSION, documents, passages, 0, terms, size,
            encoder, digest, index, reader,
        )  # fmt: skip

    def snapshot(self, target: str | Path) -> Path:
        """Write a whole copy of this epoch to a new folder, itself a knowledge base.

        Args:
            target: Folder to create.

        Returns:
            The folder.

        Raises:
            AlreadyExistsError: The folder exists and is not empty.
        """
        folder = Path(target)
        if not is_free(folder):
            raise AlreadyExistsError(f"{folder} exists and is not empty; pass a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, self.config)
        self._database.copy_to(folder / database.FILE)
        return folder

    def restore(self, source: str | Path) -> int:
        """Take over the content of a snapshot as one new epoch.

        Args:
            source: Folder that `snapshot` wrote.

        Returns:
            The new epoch.

        Raises:
            NotAKnowledgeBaseError: The folder holds none.
            EncoderMismatchError: It was built with another encoder.
        """
        with KnowledgeBase(source) as other:
            if other._state["encoder_fingerprint"] != self._state["encoder_fingerprint"]:
                raise EncoderMismatchError(
                    f"{source} was built with {other._state['encoder']}, {self.path} with {self._state['encoder']}; "
                    "open the snapshot in its own folder instead"
                )
        self._database.replace_by(Path(source) / database.FILE)
        self._library.rebuild_mirror()
        return self.epoch

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self._database.close()

    @cached_property
    def _ingest(self) -> Ingest:
        root, library = self.path.resolve().parent, self._library
        return Ingest(root, self.config, self._database, lambda: self.encoder, library.index, library.suspect_mirror)

    @property
    def _engine(self) -> Engine:
        k, n_read = self.config.retrieval.k, self.config.reader.passages
        return Engine(self.encoder, self._library, self._library, self.reader, k, n_read, self._library.hold)


def init(
    path: str | Path, config: Config | None = None, *, encoder: Encoder | None = None, reader: Reader | None = None
) -> KnowledgeBase:
    """Create an empty knowledge base.

    Args:
        path: Folder to create; it may exist if it is empty.
        config: Settings, the defaults if None.
        encoder: Encoder to use instead of the configured one; pass it to every later `open` too.
        reader: Reader to use instead of the configured one.

    Returns:
        The open knowledge base.

    Raises:
        AlreadyExistsError: The folder holds one already, or other files.
    """
    folder, config = Path(path), config or Config()
    if (folder / database.FILE).exists():
        raise AlreadyExistsError(f"{folder} holds a knowledge base already; open it, or pass another folder")
    if not is_free(folder):
        raise AlreadyExistsError(f"{folder} holds other files; pass a new or empty folder")
    chosen = encoder or SentenceEncoder(config.encoder)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config)
    database.create(folder / database.FILE, chosen.name, chosen.fingerprint, ANALYZER_VERSION, chosen.width)
    return KnowledgeBase(folder, encoder=encoder, reader=reader)


def open_knowledge(path: str | Path, *, encoder: Encoder | None = None, reader: Reader | None = None) -> KnowledgeBase:
    """Open a knowledge base.

    Args:
        path: Its folder.
        encoder: Encoder to use instead of the configured one.
        reader: Reader to use instead of the configured one.

    Returns:
        The open knowledge base; it is a context manager.
    """
    return KnowledgeBase(path, encoder=encoder, reader=reader)
