"""Reads a body that is one object of a known shape."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from domain.model.errors import FieldError
from domain.model.validation import field_error, shown
from services.api.failures import ApiError

_Wanted = TypeVar("_Wanted", bound=msgspec.Struct)
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)


def struct_of(body: bytes, wanted: type[_Wanted], of_what: str) -> _Wanted:
    """Return what a body says.

    Raises
    ------
    FieldError
        A field is wrong, missing, or none ``of_what``, as ``a key``.
    ApiError
        The body is not JSON.
    """
    try:
        return msgspec.json.decode(body, type=wanted)
    except msgspec.ValidationError as error:
        if unknown := _UNKNOWN.search(str(error)):
            message = f"is no field of {of_what}; allowed are {', '.join(wanted.__struct_fields__)}"
            raise FieldError(shown(unknown[1])[1:-1], message) from None
        raise field_error(error, "") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("not-json", f"the body is not JSON: {error}") from None
