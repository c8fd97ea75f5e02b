"""Base of the structs of the protocol: what data classes have, without the code that those compile on each import."""

from typing import Any, Final, Self

NEW: Final[Any] = object()
"""Default of a field that gets an empty list, dict or struct of its own."""


class ProtocolStruct:
    """Mutable fields, which a subclass names in ``__slots__``; equal to one of its class with equal fields."""

    __slots__: tuple[str, ...] = ()

    def replaced(self, **changes: Any) -> Self:
        """A copy with other values in some fields; the values of the others are shared. TypeError: no such field."""
        if unknown := changes.keys() - set(self.__slots__):
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}")
        copy = object.__new__(type(self))
        for name in self.__slots__:
            setattr(copy, name, changes[name] if name in changes else getattr(self, name))
        return copy

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"
