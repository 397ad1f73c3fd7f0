"""Training the answer codec on an invented list: it learns, it resumes, and it refuses another run's state."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from byheart.errors import EvaluationError

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from byheart.memory.answer_model import AnswerModel, AnswerShape  # noqa: E402
from byheart.memory.answers import AnswerCodec  # noqa: E402
from byheart.train import answers as training  # noqa: E402
from byheart.train.answer_texts import answer_texts, invented_texts  # noqa: E402
from byheart.train.answers import AnswerTraining, draw, fit_vocabulary, lay_out, random_groups, train_on  # noqa: E402

NAMES = ("Ada Brandt", "Oda Vance", "Tomas Vell", "Mara Oduya", "Ines Calder", "Jonas Felk")
TEXTS = [f"{name} of {town} in {1900 + i}" for i, name in enumerate(NAMES) for town in ("Lindwick", "Harrowmere")]
TINY = AnswerTraining(AnswerShape(400, 4, 24), steps=6, groups_per_step=16, noise=0.3, checkpoint_steps=2)


@pytest.fixture(autouse=True)
def few_inventions(monkeypatch: pytest.MonkeyPatch) -> None:
    few = invented_texts(7)[::200]
    monkeypatch.setattr(training, "invented_texts", lambda seed: few)


class StoppedError(Exception):
    """Raised in the middle of a run."""


def stop_after(steps: int):
    def progress(done: int, total: int, what: str) -> None:
        assert (total, what) == (6, "steps")
        if done == steps:
            raise StoppedError

    return progress


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, steps: int) -> None:
    whole = train_on(TEXTS, tmp_path / "whole", tmp_path / "whole.safetensors", TINY)
    with pytest.raises(StoppedError):
        train_on(TEXTS, tmp_path / "work", tmp_path / "a.safetensors", TINY, stop_after(steps))
    assert not (tmp_path / "a.safetensors").exists()
    resumed = train_on(TEXTS, tmp_path / "work", tmp_path / "a.safetensors", TINY)
    assert resumed.read_bytes() == whole.read_bytes()
    again = train_on(TEXTS, tmp_path / "work", tmp_path / "b.safetensors", TINY)  # nothing left to do
    assert again.read_bytes() == whole.read_bytes()


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    first = train_on(TEXTS, tmp_path / "1", tmp_path / "1.safetensors", TINY)
    second = train_on(TEXTS, tmp_path / "2", tmp_path / "2.safetensors", replace(TINY, seed=8))
    assert first.read_bytes() != second.read_bytes()


def test_a_work_folder_of_other_settings_or_texts_is_refused(tmp_path: Path) -> None:
    train_on(TEXTS, tmp_path, tmp_path / "a.safetensors", TINY)
    with pytest.raises(EvaluationError, match="another settings"):
        train_on(TEXTS, tmp_path, tmp_path / "a.safetensors", replace(TINY, learning_rate=1e-4))
    with pytest.raises(EvaluationError, match="another vocabulary"):
        train_on([*TEXTS, "zzyzx " * 50], tmp_path, tmp_path / "a.safetensors", TINY)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="lower the learning rate"):
        train_on(TEXTS, tmp_path, tmp_path / "a.safetensors", replace(TINY, noise=float("inf")))


def test_trained_embeddings_survive_more_noise_than_random_ones() -> None:
    shape = AnswerShape(400, 4, 16)
    run = AnswerTraining(shape, steps=150, groups_per_step=64, noise=0.6)
    generator = torch.Generator().manual_seed(1)
    tokenizer = fit_vocabulary(TEXTS, shape.padding)
    groups = lay_out(TEXTS, tokenizer, shape)
    torch.manual_seed(run.seed)
    model = AnswerModel(shape)
    tried = random_groups(2000, shape, torch.Generator().manual_seed(2))

    def exactness() -> float:
        with torch.inference_mode():
            vectors = model.write(tried)
            noise = 0.3 * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(3))
            return float((model.logits(vectors + noise).argmax(-1) == tried).all(1).float().mean())

    before = exactness()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(run.steps):
        training.train_step(model, optimizer, draw(groups, run, generator), run, generator)
    assert exactness() > 2 * before


def test_the_log_tells_loss_and_exactness(tmp_path: Path) -> None:
    texts = [*TEXTS, *(f"tower {i}" for i in range(200))]  # one in fifty is held out
    weights = train_on(texts, tmp_path, tmp_path / "a.safetensors", TINY)
    lines = [json.loads(line) for line in (tmp_path / "answers-log.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert lines[0]["loss"] > 0
    assert lines[-1]["held_out"] > 0
    assert 0 <= lines[-1]["held_out_exact"] <= 1
    assert 0 <= lines[-1]["random_exact"] <= 1
    assert AnswerCodec(weights).width == 24


def test_any_bytes_are_in_the_vocabulary_and_no_token_is_special() -> None:
    tokenizer = fit_vocabulary(["plain words only"], 300)
    for text in ("é", "👩‍👧", "\x00", "<pad>", "ﷺ", "𐍈"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_added_tokens_decoder() == {}


def test_groups_are_filled_up_and_random_ones_hold_every_length() -> None:
    shape = AnswerShape(400, 4, 16)
    tokenizer = fit_vocabulary(TEXTS, shape.padding)
    (row,) = lay_out(["\x01\x02"], tokenizer, shape).tolist()
    assert row[2:] == [399, 399]
    drawn = random_groups(1000, shape, torch.Generator().manual_seed(0))
    lengths = (drawn != shape.padding).sum(1)
    assert set(lengths.tolist()) == {1, 2, 3, 4}
    assert ((drawn == shape.padding).int().diff(dim=1) >= 0).all()  # padding stands at the end


def test_inventions_depend_on_the_seed_alone() -> None:
    assert invented_texts(3) == invented_texts(3)
    assert invented_texts(3) != invented_texts(4)
    assert all(text.encode() for text in invented_texts(3))


def test_nothing_that_is_reported_on_is_learned_from() -> None:
    import os

    if "BYHEART_DATA" not in os.environ:
        pytest.skip("needs the public data")
    from byheart.corpus.datasets import records
    from byheart.corpus.pararel import reported_statements

    data = Path(os.environ["BYHEART_DATA"])
    texts = set(answer_texts(data, 7))
    support = {row["answer"] for row in records(data / "support/support_faq.jsonl") if len(row["answer"]) > 20}
    assert not support & texts
    subjects = [s.subject for s, _ in reported_statements(data)]
    assert sum(subject in texts for subject in subjects) < 0.3 * len(subjects)  # some are of other facts, too
