"""A knowledge base as a folder: database, settings, weights. The composition root.

Owns which class stands behind each Protocol, and the public API. What belongs together changes in one epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from byheart import imprint
from byheart.asking import Asking
from byheart.calibrating import calibrate
from byheart.config import FIXED_ONCE_FILLED, Config
from byheart.corpus.facts import read_facts
from byheart.decisions import Decision, Wishes
from byheart.errors import ConfigError, InputError
from byheart.facts import Facts
from byheart.ingest import Ingest
from byheart.interfaces import Encoder, Reader
from byheart.library import Library
from byheart.readers import chosen_reader
from byheart.reports import AddReport, Calibrated, Capacity, LearnReport, Progress, RemoveReport, Status, no_progress
from byheart.retrieval.analyzer import ANALYZER_VERSION
from byheart.retrieval.fitting import FittedWeight
from byheart.sizes import described
from byheart.snapshots import check_snapshot, copy_weights, write_snapshot
from byheart.store.database import FILE, Database
from byheart.store.documents import Documents
from byheart.store.settings import read_config, write_config
from byheart.text.encoder import SentenceEncoder
from byheart.types import Answer, Document, Fact, Hit, Kind, NewFact, Passage, Question, Recall, Route


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
            ConfigError: `config.toml` has a setting that is unknown, out of range, or not what is stored was made with.
            EncoderMismatchError: `encoder` is not the one the knowledge base was built with.
            FormatError: The database is damaged, of a newer version, or indexed by another analyzer.
        """
        self.path, self.config = Path(path), read_config(Path(path))
        self._database = Database(self.path / FILE, wait_seconds=wait_seconds)
        try:
            self._state = self._database.state(ANALYZER_VERSION)
            with self._database.read() as connection:
                imprint.check_constants(connection, self.config.retrieval, self.path)
            self._library = Library(self._database, self.config.retrieval, int(str(self._state["width"])))
            self._given = None if encoder is None else imprint.matching(encoder, self._state, self.path)
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
        """The encoder, checked to be the one the knowledge base was built with, and to give what it gave then."""
        encoder = self._given or imprint.matching(SentenceEncoder(self.config.encoder), self._state, self.path)
        with self._database.read() as connection:
            imprint.check_encoder(connection, encoder, self.path)
        return encoder

    @cached_property
    def reader(self) -> Reader:
        """The configured reader."""
        return chosen_reader(self.config)

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

    def ask(self, text: str, *, claim: bool = False, risk: float | None = None, budget: float | None = None) -> Answer:
        """Return the answer to one question, from memory or from documents, with its sources.

        Args:
            text: The question, or a claim to check.
            claim: Whether `text` is a claim: the answer is then SUPPORTS or REFUTES.
            risk: Largest share of memory's answers that may be wrong, as calibrated; else it is looked up.
            budget: Retrievals per question at most, on average.

        Returns:
            The answer.

        Raises:
            QuestionError: The text is empty, too long, or no text.
            ConfigError: The calibration set cannot promise the risk.
        """
        question = Question.parse(text, Kind.CLAIM if claim else Kind.QUESTION)
        return self.ask_many([question], wishes=Wishes(risk, budget=budget))[0]

    def ask_many(
        self,
        questions: Sequence[Question],
        *,
        closed_book: bool = False,
        wishes: Wishes | None = None,
        route: Route | None = None,
    ) -> list[Answer]:
        """Return one answer per question.

        Args:
            questions: Parsed questions and claims.
            closed_book: Answer without any passage; a baseline.
            wishes: Risk and budget; those of the settings if None.
            route: One way for all of them, whatever the gate says.

        Returns:
            Answers in order.
        """
        if closed_book:
            return self.asking.answer_closed_book(questions)
        routes = None if route is None else [route] * len(questions)
        return self.asking.answer_many(questions, wishes or Wishes(), routes)

    def decide_many(
        self, questions: Sequence[Question], wishes: Sequence[Wishes]
    ) -> list[list[Decision] | ConfigError]:
        """Return which way questions would go under each wish, or why it cannot be kept; nothing is retrieved."""
        return self.asking.decide_many(questions, wishes)

    def calibrate(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], progress: Progress = no_progress
    ) -> Calibrated:
        """Fit the gate to held-out questions with their accepted answers, and return how each route did."""
        return calibrate(self.asking, questions, gold, progress)

    def search(self, text: str, k: int = 5) -> list[tuple[Hit, Passage]]:
        """Return the `k` best passages for a question, best first, each with its scores; fewer where there are none."""
        return self.asking.search([Question.parse(text)], k)[0]

    def search_many(
        self, questions: Sequence[Question], k: int, *, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        """Return hits, best first, per question; `dense_weight` is 0 for BM25 alone, 1 for dense alone."""
        return [tuple(hit for hit, _ in found) for found in self.asking.search(questions, k, dense_weight)]

    def learn(self, facts: str | Path | Iterable[NewFact], progress: Progress = no_progress) -> LearnReport:
        """Learn facts by heart; learning again changes nothing.

        Args:
            facts: A JSONL or CSV file of `question, answer, paraphrases?, source?, evidence?, id?, kind?`, or facts.
            progress: Called with how much is done.

        Returns:
            What happened to every fact: memorised, unchanged, extended, refused with a reason, or in conflict.

        Raises:
            FactError: The file is missing, no text, or holds no fact.
            BusyError: Another process is writing.
        """
        if not isinstance(facts, str | Path):
            return self.memory.learn(facts, progress)
        found, refused = read_facts(Path(facts))
        return self.memory.learn(found, progress, refused)

    def recall(self, text: str, *, claim: bool = False) -> Recall:
        """Return what memory alone says to a question, with how likely each fact is to answer it.

        Args:
            text: The question, or a claim.
            claim: Whether `text` is a claim.

        Returns:
            The recall.

        Raises:
            QuestionError: The text is empty, too long, or no text.
        """
        return self.recall_many([Question.parse(text, Kind.CLAIM if claim else Kind.QUESTION)])[0]

    def recall_many(self, questions: Sequence[Question]) -> list[Recall]:
        """Return one recall per question."""
        return self.memory.recall(questions)

    def facts(self, search: str = "", limit: int | None = None) -> list[Fact]:
        """Return facts, memorised or not, in the order they were learned.

        Args:
            search: Words that id, question, answer or source holds; all facts where empty.
            limit: Facts at most.

        Returns:
            The facts.
        """
        return self.memory.listed(search, limit)

    def forget(self, *fact_ids: str) -> int:
        """Remove facts: slots, texts and history; what they held leaves the file, as `memory.is_clean` tells.

        Args:
            *fact_ids: Ids, as `facts` lists them.

        Returns:
            How many were removed.

        Raises:
            FactError: There is no such fact; then none is removed.
            BusyError: Another process is writing.
        """
        return self.memory.forget(fact_ids)

    def capacity(self) -> Capacity:
        """Return how full the memory is, and its recall now and with ten times as many facts."""
        return self.memory.capacity()

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
        """Fit the fusion weight to questions and the ids of the passages that answer them, and keep it."""
        return self.asking.tune(questions, passage_ids)

    def configure(self, key: str, value: object) -> Config:
        """Change one setting in `config.toml`; it holds from the next `open`, one of `train` at once.

        Args:
            key: Dotted name, such as `reader.name`.
            value: New value.

        Returns:
            The new settings.

        Raises:
            ConfigError: There is no such setting, or what is stored depends on it.
        """
        changed = self.config.replace(key, value)
        if key in FIXED_ONCE_FILLED and changed != self.config and self._is_filled():
            raise ConfigError(f"{key} holds for what is stored; set it in a new one: byheart init FOLDER --set {key}=…")
        write_config(self.path, changed)
        if key.startswith("train."):  # nothing that is open was made with it
            self.config = self.config.replace(key, value)
        if key in FIXED_ONCE_FILLED:  # nothing is stored yet: what this process writes next must follow
            self.config, self._library = changed, Library(self._database, changed.retrieval, self._library.width)
            self.__dict__.pop("_ingest", None)
            self._let_go_of_memory()
        return changed

    def _is_filled(self) -> bool:
        status = self.status()
        return status.passages + status.facts > 0

    def _let_go_of_memory(self) -> None:
        """Have the uses counted; what is asked of the facts next is asked with the settings as they are then."""
        if "memory" in self.__dict__:
            self.memory.close()
            del self.__dict__["memory"]

    def status(self) -> Status:
        """Return sizes and versions, all of one epoch."""
        return described(self.path, self._database, self._state, self.config)

    def snapshot(self, target: str | Path) -> Path:
        """Write a whole copy of this epoch to a new folder, itself a knowledge base.

        Args:
            target: Folder to create.

        Returns:
            The folder.

        Raises:
            AlreadyExistsError: The folder exists and is not empty.
        """
        return write_snapshot(self._database, self.config, Path(target))

    def restore(self, source: str | Path) -> int:
        """Take over the content of a snapshot as one new epoch.

        Args:
            source: Folder that `snapshot` wrote.

        Returns:
            The new epoch.

        Raises:
            NotAKnowledgeBaseError: The folder holds none.
            EncoderMismatchError: It was built with another encoder.
            ConfigError: It was indexed with other BM25 constants, or keeps the texts of facts, and this one does not.
        """
        check_snapshot(Path(source), self._state, self.config, self.path)
        copy_weights(Path(source), self.path)
        self._database.replace_by(Path(source) / FILE)
        self._library.rebuild_mirror()
        return self.epoch

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self._let_go_of_memory()
        self._database.close()

    @cached_property
    def memory(self) -> Facts:
        """The facts, with the networks that write and read them."""
        return Facts(self.path, self._database, self.config, lambda: self.encoder)

    @cached_property
    def _ingest(self) -> Ingest:
        root, library = self.path.resolve().parent, self._library
        return Ingest(root, self.config, self._database, lambda: self.encoder, library.index, library.suspect_mirror)

    @property
    def asking(self) -> Asking:
        """How questions are answered here, and what decides it: for training and evaluation."""
        given = (self._database, self._library, self.memory, self.config)
        return Asking(*given, lambda: self.encoder, lambda: self.reader)
