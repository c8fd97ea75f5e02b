"""The one exception of the demonstration."""


class DemoFailed(RuntimeError):
    """A step did not do what it should; the message is one line for the user."""
