"""Everything byheart raises on purpose.

    ByheartError
    ├── InputError                 what the caller passed is wrong
    │   ├── QuestionError          a question cannot be read
    │   ├── DocumentError          a document cannot be read
    │   ├── FactError              a fact cannot be read, or is not in the memory
    │   ├── PassageError           a passage id that is not in the knowledge base
    │   └── ConfigError            a setting is unknown or out of range
    ├── KnowledgeError             the knowledge base cannot do it
    │   ├── NotAKnowledgeBaseError the folder holds none
    │   ├── AlreadyExistsError     the folder holds one already
    │   ├── BusyError              another process is writing
    │   ├── FormatError            written by another version, or damaged
    │   └── EncoderMismatchError   opened with an encoder other than the one it was built with
    ├── VectorIndexError           vectors or the index engine are wrong
    ├── ReaderError                the reader or its server failed
    │   ├── ReaderTimeoutError     it did not answer in time
    │   └── ReaderProtocolError    it answered with something else than promised
    ├── KernelError                the memory's network or its weights are wrong
    ├── MissingExtraError          an optional package is not installed
    ├── TrainingError              training went wrong and was stopped
    └── EvaluationError            a suite or its data cannot be run

Every message says what was wrong, the value seen, and what to do next.
"""


class ByheartError(Exception):
    """Anything byheart raises on purpose."""


class InputError(ByheartError):
    """What the caller passed is wrong."""


class QuestionError(InputError):
    """A question cannot be read."""


class DocumentError(InputError):
    """A document cannot be read."""


class FactError(InputError):
    """A fact cannot be read, or is not in the memory."""


class PassageError(InputError):
    """A passage id that is not in the knowledge base."""


class ConfigError(InputError):
    """A setting is unknown or out of range."""


class KnowledgeError(ByheartError):
    """The knowledge base cannot do what was asked."""


class NotAKnowledgeBaseError(KnowledgeError):
    """The folder holds no knowledge base."""


class AlreadyExistsError(KnowledgeError):
    """The folder holds a knowledge base already."""


class BusyError(KnowledgeError):
    """Another process is writing."""


class FormatError(KnowledgeError):
    """The knowledge base was written by another version, or is damaged."""


class EncoderMismatchError(KnowledgeError):
    """The knowledge base was built with another encoder."""


class VectorIndexError(ByheartError):
    """Vectors, or the engine that stores them, are wrong."""


class ReaderError(ByheartError):
    """The reader or its server failed."""


class ReaderTimeoutError(ReaderError):
    """The reader's server did not answer in time."""


class ReaderProtocolError(ReaderError):
    """The reader's server answered with something else than promised."""


class KernelError(ByheartError):
    """The memory's network, or its weights, are wrong."""


class MissingExtraError(ByheartError):
    """An optional package is not installed."""


class TrainingError(ByheartError):
    """Training went wrong and was stopped; what it trains is as it was."""


class EvaluationError(ByheartError):
    """A suite, or the data it needs, cannot be run."""
