"""Settings: one frozen dataclass per part, TOML in and out.

Owns defaults, units and ranges. Building a config changes nothing in the world: no seed, no folder, no device.
An unknown key is an error that names the nearest key.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import typing
from dataclasses import dataclass, field

from byheart.errors import ConfigError

# What is stored depends on these: they are chosen before the first document and kept.
FIXED_ONCE_FILLED = frozenset(
    {
        *(f"encoder.{name}" for name in ("name", "query_prefix", "passage_prefix")),
        *(f"retrieval.{name}" for name in ("k1", "b", "average_terms")),
        "memory.cell_slots",
        "ledger.text",
    }
)


def _setting(
    default: typing.Any, doc: str, *, low: float | None = None, high: float | None = None, choices: tuple[str, ...] = ()
) -> typing.Any:
    """Declare one setting: its default, a line for `byheart config`, and what is allowed."""
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """How text becomes vectors."""

    name: str = _setting("all-MiniLM-L6-v2", "sentence-transformers model: a name, or a folder that holds one")
    device: str = _setting("cpu", "torch device: cpu, cuda, cuda:1, mps")
    batch: int = _setting(32, "texts encoded at once", low=1, high=4096)
    query_prefix: str = _setting("", "text put before every question (e5: 'query: ')")
    passage_prefix: str = _setting("", "text put before every passage (e5: 'passage: ')")
    precision: str = _setting(
        "fp32",
        "arithmetic of the network; bf16 indexes about twice as fast where the processor has it, auto then takes it",
        choices=("auto", "fp32", "bf16"),
    )


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """How documents become passages."""

    words: int = _setting(
        100, "words a passage should have; a section of up to 1.5 times as many stays whole", low=20, high=400
    )
    max_tokens: int = _setting(
        224, "encoder tokens a passage may have, title and headings not counted", low=32, high=8192
    )
    max_megabytes: int = _setting(200, "larger files are refused, in MiB", low=1, high=10_000)


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """How passages are found."""

    index: str = _setting("sqlite", "engine that stores the vectors", choices=("sqlite", "qdrant"))
    url: str = _setting("", "address of the Qdrant cluster; :memory: for tests")
    collection: str = _setting("byheart", "name of the Qdrant collection")
    k: int = _setting(20, "passages returned", low=1, high=1000)
    depth: int = _setting(100, "candidates taken from each of the two searches before fusing", low=1, high=10_000)
    dense_weight: float = _setting(0.7, "share of the cosine in the fused score; `byheart tune` fits it", low=0, high=1)
    k1: float = _setting(1.2, "BM25 term saturation", low=0, high=10)
    b: float = _setting(0.9, "BM25 length normalisation", low=0, high=1)
    average_terms: float = _setting(60.0, "BM25 average passage length, frozen, in index terms", low=1, high=10_000)


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """How passages become answers."""

    name: str = _setting("compact", "who reads", choices=("compact", "causal-lm", "openai"))
    passages: int = _setting(5, "passages read per question", low=1, high=100)
    claim_passages: int = _setting(3, "passages read per claim: more of them outvote the right one", low=1, high=100)
    model: str = _setting("", "causal-lm: model name or folder; openai: model name on the server; empty is the default")
    url: str = _setting("http://localhost:8080/v1", "openai: address of the server, up to and with /v1")
    api_key_variable: str = _setting("OPENAI_API_KEY", "openai: environment variable that holds the key")
    timeout_seconds: float = _setting(60.0, "openai: seconds to wait for an answer", low=0.1, high=3600)
    retries: int = _setting(2, "openai: tries after the first", low=0, high=20)
    max_answer_tokens: int = _setting(64, "tokens an answer may have", low=1, high=4096)
    max_prompt_tokens: int = _setting(1800, "tokens a prompt may have", low=128, high=1_000_000)
    precision: str = _setting(
        "auto",
        "compact: arithmetic of the network; auto is bf16 where the processor has it (about twice as fast), else fp32",
        choices=("auto", "fp32", "bf16"),
    )
    min_confidence: float = _setting(
        0.2, "compact, and memory: answers less likely to be right become abstentions", low=0, high=1
    )


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How facts are held and recalled."""

    candidates: int = _setting(4, "facts that the memory reader weighs against a question", low=1, high=64)
    cells: int = _setting(256, "product-key cells visited by a read", low=1, high=65_536)
    cell_slots: int = _setting(64, "slots that a cell holds", low=1, high=4096)
    reach: float = _setting(0.15, "how much farther than the nearest fact another may lie to be weighed", low=0, high=2)
    least_cosine: float = _setting(0.25, "least cosine of a question's and a fact's key to weigh it", low=-1, high=1)
    precision: str = _setting(
        "auto",
        "arithmetic of the network; auto is bf16 where the processor has it (three times as fast), else fp32",
        choices=("auto", "fp32", "bf16"),
    )
    threshold: float = _setting(0.5, "least probability at which memory answers", low=0, high=1)
    max_answer_tokens: int = _setting(64, "tokens an answer may have; longer ones are refused", low=1, high=64)


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """What is kept of facts beside their slots."""

    text: bool = _setting(True, "keep questions and answers as text; false keeps slots and digests only")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How memory, retriever and gate are trained jointly: docs/joint-training.md. Every term can be switched off."""

    steps: int = _setting(400, "steps over all questions", low=1, high=100_000)
    learning_rate: float = _setting(0.01, "peak rate of the gate; the other parts have a tenth", low=0, high=100)
    seed: int = _setting(7, "of everything random", low=0, high=2**31)
    budget: float = _setting(
        1.0, "retrievals per question at most, on average; 1 leaves retrieving free", low=0, high=1
    )
    leave_one_out: float = _setting(0.5, "share of the questions whose own fact is hidden", low=0, high=1)
    cost: bool = _setting(True, "charge for retrievals, at a price found by dual ascent to the budget")
    gate: bool = _setting(True, "train the gate; off leaves its curves to `byheart calibrate`")
    memory: bool = _setting(True, "train the calibration of the memory's judgement")
    retriever: bool = _setting(True, "train the query adapter, through p(passage | question)")
    retriever_start: float = _setting(0.3, "share of the steps before the retriever is trained, too", low=0, high=1)
    rank: int = _setting(8, "inner width of the query adapter", low=1, high=256)
    anchor: float = _setting(
        0.3, "weight of the terms that hold parts near where they began; 0 is off", low=0, high=100
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a knowledge base."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    reader: ReaderConfig = field(default_factory=ReaderConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def replace(self, key: str, value: object) -> Config:
        """Return a copy in which the setting `part.name` is `value`.

        Args:
            key: Dotted name, such as `reader.name`.
            value: New value, of the setting's type.

        Returns:
            The changed copy.

        Raises:
            ConfigError: There is no such setting, or the value is of another type or out of range.
        """
        part, _, name = key.partition(".")
        tables = _tables(self)
        if not name:
            raise ConfigError(f"a setting is written part.name, got {key!r}; parts are {', '.join(tables)}")
        return from_tables({**tables, part: {**tables.get(part, {}), name: value}})


def _tables(config: Config) -> dict[str, dict[str, object]]:
    return {f.name: dataclasses.asdict(getattr(config, f.name)) for f in dataclasses.fields(config)}


def from_tables(tables: dict[str, dict[str, object]]) -> Config:
    """Return the config written in `tables`, defaults filled in.

    Args:
        tables: One table per part, as TOML reads them.

    Returns:
        The checked config.

    Raises:
        ConfigError: A key is unknown, a value has another type or is out of range.
    """
    parts = typing.get_type_hints(Config)
    built = {}
    for name, table in tables.items():
        if name not in parts:
            raise ConfigError(f"unknown table [{name}]; did you mean [{_nearest(name, parts)}]?")
        if not isinstance(table, dict):
            raise ConfigError(f"[{name}] must be a table, got {table!r}; write the settings below the line [{name}]")
        built[name] = _build(parts[name], name, table)
    return Config(**built)


def _build(part: type[typing.Any], name: str, table: dict[str, object]) -> typing.Any:
    settings = {f.name: f for f in dataclasses.fields(part)}
    types = typing.get_type_hints(part)
    for key in table:
        if key not in settings:
            raise ConfigError(f"unknown setting {name}.{key}; did you mean {name}.{_nearest(key, settings)}?")
    return part(
        **{key: _checked(f"{name}.{key}", value, types[key], settings[key].metadata) for key, value in table.items()}
    )


def _checked(key: str, value: object, kind: type, allowed: typing.Mapping[str, typing.Any]) -> object:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key} must be {kind.__name__}, got {value!r}; {allowed['doc']}")
    if allowed["choices"] and value not in allowed["choices"]:
        raise ConfigError(f"{key} must be one of {', '.join(allowed['choices'])}, got {value!r}")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{key} holds a lone surrogate, got {value!r}; write it in valid UTF-8")
    low, high = allowed["low"], allowed["high"]
    if low is not None and not low <= value <= high:
        raise ConfigError(f"{key} must be from {low:g} to {high:g}, got {value!r}; {allowed['doc']}")
    return value


def _nearest(key: str, keys: typing.Iterable[str]) -> str:
    names = list(keys)
    return (difflib.get_close_matches(key, names, n=1, cutoff=0.0) or names)[0]


def loads(text: str) -> Config:
    """Return the config written in TOML.

    Args:
        text: The TOML text.

    Returns:
        The checked config.

    Raises:
        ConfigError: The text is no TOML, or a setting is unknown or out of range.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration is not valid TOML: {error}; correct that line") from error
    return from_tables(tables)


def dumps(config: Config) -> str:
    """Return the config as TOML, every setting with a comment that says what it does."""
    lines: list[str] = []
    for part in dataclasses.fields(config):
        values = getattr(config, part.name)
        lines += [f"[{part.name}]"]
        lines += [
            f"{f.name} = {_toml(getattr(values, f.name))}  # {f.metadata['doc']}" for f in dataclasses.fields(values)
        ]
        lines += [""]
    return "\n".join(lines)


def _toml(value: object) -> str:
    """Write a string, number or boolean as TOML: JSON's spelling, but for surrogate pairs and the delete character."""
    import json

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
