r"""A file's bytes, and the text in them.

Owns decoding and cleaning: what leaves here is NFC, has `\n` line ends and can be written as UTF-8.
Knows no format: not what a heading is, nor where a file came from.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from byheart.errors import DocumentError

# UTF-32 before UTF-16: the little-endian mark of the first begins with that of the second.
BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
CONTROLS = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f]")
INVISIBLE = re.compile("[\x00\u00ad\ufeff\ufffe\uffff]")
SURROGATES = re.compile("[\ud800-\udfff]")
DECLARED = re.compile(rb"""charset=["']?\s*([\w.:-]+)""", re.IGNORECASE)
MAX_CONTROL_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Source:
    """What a loader is given.

    Attributes:
        page: Id of the document, or of the file that holds many.
        name: File name without its suffix, the title of last resort.
        raw: The file's content, unpacked.
    """

    page: str
    name: str
    raw: bytes

    @property
    def text(self) -> str:
        """The content decoded and cleaned; DocumentError when it is binary or in no known encoding."""
        return clean(self.decoded)

    @property
    def decoded(self) -> str:
        """The content decoded but not cleaned; DocumentError when it is binary or in no known encoding."""
        for mark, encoding in BYTE_ORDER_MARKS:
            if self.raw.startswith(mark):
                return self._decode_as(encoding)
        if b"\x00" in self.raw:
            raise DocumentError(
                f"{self.page} is binary, byte {self.raw.index(0):,} is zero; convert it to text, PDF, DOCX or HTML"
            )
        try:
            text = self.raw.decode("utf-8")
        except UnicodeDecodeError:
            text = self._guess()
        self._check_controls(text)
        return text

    def _decode_as(self, encoding: str) -> str:
        try:
            return self.raw.decode(encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise DocumentError(f"{self.page} is not valid {encoding}: {error}; save it as UTF-8") from error

    def _guess(self) -> str:
        from charset_normalizer import from_bytes

        declared = DECLARED.search(self.raw[:2048])
        if declared:
            try:
                return self.raw.decode(declared[1].decode("ascii"))
            except (UnicodeDecodeError, LookupError):
                pass  # a wrong declaration is common: go by the bytes
        matches = from_bytes(self.raw, cp_exclusion=["utf_16", "utf_16_be", "utf_16_le", "utf_32"])
        best = matches.best()
        if best is None:
            raise DocumentError(f"{self.page} is in no encoding that could be recognised; save it as UTF-8")
        # A few accents fit many code pages about equally well; then the one of Western Europe is the likeliest by far.
        is_tied = any(
            match.chaos - best.chaos + best.coherence - match.coherence < 0.1
            for match in matches
            if "cp1252" in match.could_be_from_charset
        )
        return self.raw.decode("cp1252", "replace") if is_tied else str(best)

    def _check_controls(self, text: str) -> None:
        controls = len(CONTROLS.findall(text))
        if controls > MAX_CONTROL_SHARE * len(text):
            raise DocumentError(
                f"{self.page} is binary, {controls:,} of its {len(text):,} characters are control characters; "
                "convert it to text, PDF, DOCX or HTML"
            )


def clean(text: str) -> str:
    r"""Return `text` as byheart keeps it: NFC, `\n` line ends, no control characters, no lone surrogates.

    Args:
        text: Any string.

    Returns:
        Text that can be written as UTF-8. Soft hyphens, byte order marks and NUL are gone, lone surrogates are U+FFFD.
    """
    text = SURROGATES.sub("\ufffd", text)
    text = INVISIBLE.sub("", LINE_ENDS.sub("\n", text))
    return unicodedata.normalize("NFC", CONTROLS.sub(" ", text))


def one_line(text: str) -> str:
    """Return `text` cleaned, every run of white space as one space: a title, a heading, a table cell."""
    return " ".join(clean(text).split())


def is_blank(text: str) -> bool:
    """Return whether there is nothing to see: only white space and invisible format characters."""
    return all(character.isspace() or unicodedata.category(character) == "Cf" for character in text)
