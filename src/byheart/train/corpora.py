"""Knowledge bases over the public corpora, for training parts on what retrieval really returns.

Owns building one in a work folder, and the encoder that does not encode again what is encoded already.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from byheart.config import Config
from byheart.corpus.collections import WHOLE, fever_documents, nq_documents
from byheart.corpus.datasets import fever_claims, nq_gold, plain
from byheart.corpus.splits import FeverSplit, fever_split, is_nq_training
from byheart.folder import init
from byheart.interfaces import Encoder, Floats
from byheart.knowledge import KnowledgeBase
from byheart.reports import Progress, no_progress
from byheart.store.database import FILE
from byheart.text.encoder import SentenceEncoder
from byheart.train.checkpoint import VectorCache
from byheart.train.reader_calibration import Asked
from byheart.train.reader_examples import is_held_out, passage_of
from byheart.types import Document, Kind, Question


class RememberingEncoder:
    """An encoder that looks passages up among known vectors first."""

    def __init__(self, encoder: Encoder, texts: Sequence[str], vectors: Floats) -> None:
        """Keep the encoder and what is known.

        Args:
            encoder: Encodes what is not known.
            texts: Known passages.
            vectors: Their vectors. Shape `passages width`.
        """
        self.encoder = encoder
        self.known = dict(zip(texts, vectors, strict=True))

    @property
    def name(self) -> str:
        """Name of the encoder."""
        return self.encoder.name

    @property
    def fingerprint(self) -> str:
        """Hash of the encoder."""
        return self.encoder.fingerprint

    @property
    def width(self) -> int:
        """Length of a vector."""
        return self.encoder.width

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return self.encoder.count_tokens(texts)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per question. Shape `batch width`."""
        return self.encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str], progress: Progress = no_progress) -> Floats:
        """Return one unit vector per passage. Shape `batch width`."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        fresh = dict(zip(new, self.encoder.encode_passages(new, progress), strict=True)) if new else {}
        return np.stack([self.known[text] if text in self.known else fresh[text] for text in texts])


def corpus_base(
    folder: Path, documents: Sequence[Document], encoder: Encoder, progress: Progress = no_progress
) -> KnowledgeBase:
    """Return a knowledge base that holds the documents unsplit; built, or finished, if need be.

    Args:
        folder: Its folder.
        documents: What it shall hold.
        encoder: Encodes what is new.
        progress: Told of every batch.

    Returns:
        The open knowledge base.
    """
    config = Config()
    for key, value in WHOLE.items():
        config = config.replace(key, value)
    is_there = (folder / FILE).is_file()
    kb = KnowledgeBase(folder, encoder=encoder) if is_there else init(folder, config, encoder=encoder)
    kb.add_documents(documents, origin=folder.name, progress=progress)
    return kb


def nq_base(data: Path, work: Path, encoder: SentenceEncoder, progress: Progress = no_progress) -> KnowledgeBase:
    """Return a knowledge base of the NQ corpus; vectors that training has cached are not computed again."""
    documents = nq_documents(data)
    texts = [passage_of(document.title, document.text).indexed_text for document in documents]
    vectors = VectorCache(encoder, work / "vectors")("nq.texts", texts)
    return corpus_base(work / "kb-nq", documents, RememberingEncoder(encoder, texts, vectors), progress)


def fever_base(data: Path, work: Path, encoder: SentenceEncoder, progress: Progress = no_progress) -> KnowledgeBase:
    """Return a knowledge base of FEVER's evidence sentences."""
    return corpus_base(work / "kb-fever", fever_documents(data), encoder, progress)


def held_out_questions(data: Path) -> list[Asked]:
    """Return the NQ training questions that the reader was not trained on."""
    return [
        Asked(Question.parse(row.question), row.answers)
        for row in nq_gold(data)
        if is_nq_training(row.id, data) and is_held_out(row.question)
    ]


def memory_claims(data: Path, n: int = 1_500) -> list[Asked]:
    """Return the first dev claims of the memory half, on which nothing is trained; none is in split `evaluation`."""
    return [
        Asked(Question.parse(plain(row.claim), Kind.CLAIM), (row.verdict.value,))
        for row in fever_claims(data)
        if fever_split(row.id) is FeverSplit.MEMORY
    ][:n]
