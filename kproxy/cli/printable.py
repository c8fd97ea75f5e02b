"""Text that clients chose, for a terminal: control characters and escape sequences are shown, not obeyed."""

from rich.text import Text


def printable(text: str) -> Text:
    """The text with ``\\x1b`` and the like in place of what a terminal would act on; line breaks stay."""
    return Text("".join(sign if sign.isprintable() or sign == "\n" else _escaped(sign) for sign in text))


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
