"""Why there is no login."""


class LoginRefused(OSError):
    """The broker does not let kproxy in, or is not one to give a password to; the text says what to do."""
