"""Questions as people put them to a help desk, made from acts and things: ways to ask the same, and near misses.

Owns the words. A near miss differs in one respect: the opposite act, another thing, another aspect (cost, time,
reason), or another condition. Written for byheart; no help desk that is reported on was read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

# Each row: ways to say an act, ways to say its opposite or its nearest neighbour.
ACTS = (
    (("turn on", "switch on", "enable", "activate"), ("turn off", "switch off", "disable", "deactivate")),
    (("add", "register", "set up"), ("remove", "delete", "get rid of")),
    (("open", "create", "set up"), ("close", "shut down", "delete")),
    (("start", "begin"), ("stop", "end", "cancel")),
    (("lock", "freeze"), ("unlock", "unfreeze")),
    (("increase", "raise"), ("decrease", "lower", "reduce")),
    (("upload", "send in", "submit"), ("download", "get a copy of")),
    (("connect", "link", "pair"), ("disconnect", "unlink")),
    (("show", "display"), ("hide",)),
    (("allow", "permit"), ("block", "forbid")),
    (("log in to", "sign in to", "get into"), ("log out of", "sign out of")),
    (("subscribe to", "sign up for"), ("unsubscribe from", "opt out of")),
    (("join",), ("leave", "quit")),
    (("borrow", "rent"), ("return", "give back", "bring back")),
    (("buy", "order", "purchase"), ("sell", "return")),
    (("change", "update", "edit"), ("check", "view", "see")),
    (("change", "replace"), ("verify", "confirm")),
    (("recover", "restore", "get back"), ("delete", "erase")),
    (("pause", "put on hold"), ("resume", "continue")),
    (("install",), ("uninstall", "remove")),
    (("renew", "extend"), ("cancel", "end")),
    (("import",), ("export",)),
    (("print",), ("scan",)),
    (("pay", "settle"), ("dispute", "contest")),
    (("accept", "approve"), ("reject", "decline", "refuse")),
    (("receive", "get"), ("send",)),
    (("book", "reserve"), ("cancel", "give up")),
    (("save", "keep"), ("discard", "delete")),
    (("mute", "silence"), ("unmute",)),
    (("share",), ("stop sharing",)),
)
_THINGS = (
    "notifications|automatic backups|location sharing|two-step verification|the night light|dark mode|"
    "voice mail|the alarm|my account|a second account|a child's account|my phone number|my email address|"
    "my home address|my password|my PIN|a backup code|a security key|an authentication app|my fingerprint|"
    "a payment card|a bank account|direct debit|a gift card|an invoice|a receipt|a refund|my subscription|"
    "the newsletter|the monthly pass|a student discount|a parking permit|a library card|a book|an e-book|"
    "an audiobook|a room|a meeting room|a bike|an electric scooter|a car|a tool|a locker|a ticket|"
    "a season ticket|an appointment|a table|a reservation|my order|a delivery|a parcel|a letter|"
    "a passport|an identity card|a driving licence|a visa|a birth certificate|a tax return|a claim|"
    "an insurance policy|a prescription|a test result|a vaccination record|the heating|the air conditioning|"
    "the dishwasher|the router|the printer|the camera|the microphone|the speaker|Bluetooth|Wi-Fi|"
    "mobile data|roaming|a SIM card|the screen lock|parental controls|cookies|pop-ups|an extension|"
    "an app|a plugin|a template|a spreadsheet|a document|a photo album|a calendar|a contact|a group|"
    "a channel|a mailing list|a forum post|a review|a comment|a profile picture|my username|my time zone|"
    "the language|subtitles|captions|a playlist|a download|the trial|a licence key|a workspace|"
    "an API key|a webhook|a report|an export|a data set|a trusted device|a shared folder|"
    "a household member|an emergency contact"
)
THINGS = tuple(_THINGS.split("|"))
ASPECTS: dict[str, tuple[str, ...]] = {
    "how": (
        "How do I {act} {thing}?",
        "how can I {act} {thing}",
        "What is the way to {act} {thing}?",
        "{act} {thing} how to",
        "I want to {act} {thing}, what do I do?",
        "steps to {act} {thing}",
        "Please explain how to {act} {thing}.",
        "Where in the settings can I {act} {thing}?",
        "need help trying to {act} {thing}",
        "how does one {act} {thing}",
    ),
    "cost": (
        "How much does it cost to {act} {thing}?",
        "What is the fee to {act} {thing}?",
        "price to {act} {thing}",
        "Do I have to pay to {act} {thing}, and how much?",
        "what will it cost me to {act} {thing}",
    ),
    "time": (
        "How long does it take to {act} {thing}?",
        "time needed to {act} {thing}",
        "How many days until I can {act} {thing}?",
        "how fast can I {act} {thing}",
        "If I {act} {thing}, how long will that take?",
    ),
    "permission": (
        "Can I {act} {thing}?",
        "Am I allowed to {act} {thing}?",
        "is it possible to {act} {thing}",
        "do you let people {act} {thing}",
        "May one {act} {thing}?",
    ),
    "who": ("Who can {act} {thing}?", "who is allowed to {act} {thing}", "Which people may {act} {thing}?"),
    "reason": (
        "Why can't I {act} {thing}?",
        "I am unable to {act} {thing}, what is the reason?",
        "why does it fail when I {act} {thing}",
    ),
    "need": (
        "What do I need to {act} {thing}?",
        "which documents are required to {act} {thing}",
        "requirements to {act} {thing}",
        "What must I have ready when I {act} {thing}?",
    ),
    "after": (
        "What happens after I {act} {thing}?",
        "consequences if I {act} {thing}",
        "once I {act} {thing}, what happens?",
    ),
    "limit": (
        "How often can I {act} {thing}?",
        "how many times may I {act} {thing}",
        "is there a limit on how often I {act} {thing}",
    ),
    "place": (
        "Where do I go to {act} {thing}?",
        "which office lets me {act} {thing}",
        "at what place can I {act} {thing}",
    ),
}
ANSWERS: dict[str, tuple[str, ...]] = {
    "how": (
        "Open Settings and choose Manage.",
        "Press the key for {n} seconds.",
        "Call us at +00 555 {n}{n}.",
        "On your account page.",
    ),
    "cost": ("{n} euros.", "It is free.", "${n}.50", "{n} per cent of the price."),
    "time": ("{n} days.", "Up to {n} hours.", "At once.", "About {n} minutes."),
    "permission": ("Yes.", "No.", "Yes, once a year.", "No, never."),
    "who": ("Only adults.", "Account holders.", "Anyone over {n}."),
    "reason": ("The service is down.", "Your card has expired.", "There is an open fee."),
    "need": ("An identity card.", "Your password and a phone.", "Nothing.", "{n} photos."),
    "after": ("You get an email.", "Your data is kept for {n} days.", "Nothing changes."),
    "limit": ("{n} times a year.", "As often as you like.", "Once."),
    "place": ("At the front desk.", "Online only.", "Room {n}."),
}
# Conditions that exclude one another.
CONDITIONS = (
    ("on my phone", "on a computer"), ("on the website", "in the app"), ("for children", "for adults"),
    ("as a student", "as a senior"), ("from abroad", "at home"), ("with a phone", "without a phone"),
    ("before the due date", "after the due date"), ("on weekdays", "at weekends"), ("for one person", "for two people"),
    ("for the first time", "a second time"), ("with an account", "without an account"), ("in cash", "by card"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matter:
    """What a made-up question is about.

    Attributes:
        acts: Ways to say the act.
        opposites: Ways to say its opposite.
        thing: What is acted on.
        aspect: What is asked of it.
        condition: A condition, empty for none.
        others: Conditions that exclude it.
    """

    acts: tuple[str, ...]
    opposites: tuple[str, ...]
    thing: str
    aspect: str
    condition: str
    others: tuple[str, ...]

    def wording(self, rng: random.Random) -> str:
        """Return one way to ask."""
        text = rng.choice(ASPECTS[self.aspect]).format(act=rng.choice(self.acts), thing=self.thing)
        if not self.condition:
            return text
        stem = text.rstrip("?.")
        return f"{stem} {self.condition}{text[len(stem) :]}"

    def answer(self, rng: random.Random) -> str:
        """Return an answer of the right kind."""
        return rng.choice(ANSWERS[self.aspect]).format(n=rng.randint(2, 90))


def matter(rng: random.Random) -> Matter:
    """Return a matter at random."""
    acts, opposites = rng.choice(ACTS)
    if rng.random() < 0.5:
        acts, opposites = opposites, acts
    condition, others = "", tuple[str, ...]()
    if rng.random() < 0.3:
        pair = rng.choice(CONDITIONS)
        side = rng.randrange(2)
        condition, others = pair[side], (pair[1 - side],)
    aspect = "how" if rng.random() < 0.4 else rng.choice(sorted(ASPECTS))
    return Matter(acts, opposites, rng.choice(THINGS), aspect, condition, others)


def near_misses(held: Matter, rng: random.Random) -> Iterator[Matter]:
    """Yield matters that differ in one respect: always the opposite, then another thing, aspect or condition."""
    yield replace(held, acts=held.opposites, opposites=held.acts)
    if held.others:
        yield replace(held, condition=held.others[0], others=(held.condition,))
    elif rng.random() < 0.5:
        yield replace(held, thing=rng.choice([thing for thing in THINGS if thing != held.thing]))
    else:
        yield replace(held, aspect=rng.choice([aspect for aspect in sorted(ASPECTS) if aspect != held.aspect]))
