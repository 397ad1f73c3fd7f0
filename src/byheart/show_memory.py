"""What memory says and holds, as text for the command line.

Owns wording and layout. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.reports import Calibrated, Capacity, LearnReport, Trained
from byheart.show import citation, line
from byheart.types import Fact, FactState, Kind, Recall

TRACES = "another process holds the file: traces of what was forgotten stay in it until the next add, remove or forget"


def learned(report: LearnReport) -> str:
    """Return what learning did, with the reason of every refusal and conflict."""
    counts = (
        f"{len(report.memorised)} memorised, {len(report.extended)} extended, {len(report.unchanged)} unchanged, "
        f"{len(report.refused)} refused, {len(report.conflicts)} in conflict"
    )
    corrected = f"; {report.refined} corrected after reading back" if report.refined else ""
    lines = [f"{counts}{corrected}; {report.seconds:.1f} s; epoch {report.epoch}"]
    lines += [f"refused   {refusal.source}: {refusal.reason}" for refusal in report.refused]
    lines += [f"conflict  {refusal.source}: {refusal.reason}" for refusal in report.conflicts]
    lines += [f"note      {notice}" for notice in report.notices]
    return "\n".join(map(line, lines))


def recalled(found: Recall, threshold: float, is_empty: bool) -> str:
    """Return a recall for people: the answer where it is likely enough, the shares, the fact and its source."""
    if found.answer is None:
        answer = (
            "Memory holds no fact yet; byheart learn KB FACTS" if is_empty else "Memory does not know: nothing near."
        )
    elif found.probability < threshold:
        answer = f"Memory does not know. (Nearest answer: {found.answer})"
    else:
        answer = found.answer
    steps = ", ".join(f"{step.name} {1000 * step.seconds:.1f}" for step in found.seconds)
    total = 1000 * sum(step.seconds for step in found.seconds)
    lines = [line(answer), "", f"memory · probability {found.probability:.3f} · {total:.1f} ms ({steps})", ""]
    lines += [
        line(f"  {share.probability:.3f}  {share.fact_id}  (cosine {share.cosine:.2f})") for share in found.shares
    ]
    lines.append(f"  {found.not_known:.3f}  not known")
    if found.fact is not None:
        lines += ["", "Fact" if found.probability >= threshold else "Nearest fact", *_fact(found.fact)]
    for number, place in enumerate(found.citations, start=1):
        lines += ["", "Source", *citation(number, place)]
    return "\n".join(lines)


def facts(found: Sequence[Fact]) -> str:
    """Return facts for people, or that there are none."""
    return "\n".join(text for fact in found for text in _fact(fact)) or "no facts"


def forgotten(n: int, epoch: int, is_clean: bool) -> str:
    """Return how many facts were forgotten, and whether what they held is still in the file."""
    said = f"{n} facts forgotten; epoch {epoch}"
    return said if is_clean else f"{said}\nnote      {TRACES}"


def capacity(found: Capacity) -> str:
    """Return how full memory is, one figure to a line."""
    rows = {
        "facts": f"{found.facts}, {found.memorised} memorised",
        "slots": f"{found.slots}",
        "cells": f"{found.cells_used} of {found.cells} used, {found.cells_full} full",
        "bytes per fact": f"{found.bytes_per_fact:.0f}",
        "recall": _share(found.recall),
        "recall at 10x": f"{_share(found.recall_at_ten_times)} (predicted)",
    }
    return "\n".join(f"{name:<16} {value}" for name, value in rows.items())


def calibrated(report: Calibrated) -> str:
    """Return how often each route was right on the calibration questions."""
    routes = ", ".join(f"{name} {share:.3f}" for name, share in report.right.items())
    return (
        f"{report.n} questions, of which memory had a candidate for {report.recalled} ({report.new} different ones in "
        f"words it did not learn); right: {routes}; epoch {report.epoch}. {_promise(report.lowest_risk)}"
    )


def trained(report: Trained) -> str:
    """Return what joint training gave."""
    routes = ", ".join(f"{name} {share:.3f}" for name, share in report.routes.items())
    undone = "".join(f"; {name} as it was, for that did not help there" for name in report.undone)
    return "\n".join(
        [
            f"{report.n} questions trained on, {report.held_out} held out, {report.unanswered} without answers, which "
            "calibrate only; nats per question:",
            f"  trained on  {report.loss_before:.4f} before, {report.loss_after:.4f} after",
            f"  held out    {report.held_out_before:.4f} before, {report.held_out_after:.4f} after{undone}",
            f"routes: {routes}; a retrieval costs {report.price:.3f}; epoch {report.epoch}",
            f"calibrated anew, so earlier promises are gone. {_promise(report.lowest_risk)}",
        ]
    )


def _promise(lowest_risk: float | None) -> str:
    if lowest_risk is None:
        return "No risk up to 0.2 can be promised: memory was wrong too often, or asked too little; calibrate with more"
    return (
        f"The lowest usual risk that can be promised is {lowest_risk:g}: byheart ask KB QUESTION --risk {lowest_risk:g}"
    )


def _share(value: float | None) -> str:
    return "unknown: no fact has a paraphrase" if value is None else f"{value:.4f}"


def _fact(fact: Fact) -> list[str]:
    first, *others = fact.questions or ("(texts are not kept)",)
    kind = " · claim" if fact.kind is Kind.CLAIM else ""
    state = "" if fact.state is FactState.MEMORISED else f" · {fact.state.value}: {fact.reason}"
    place = fact.source.passage_id or fact.source.page or fact.source.note
    source = f" · from {place}" if place else ""
    texts = [f"{fact.id}  {first}", *(f"    or: {other}" for other in others), f"    {fact.answer or '(not kept)'}"]
    return [line(t) for t in (*texts, f"    version {fact.version} · used {fact.uses} times{kind}{source}{state}")]
