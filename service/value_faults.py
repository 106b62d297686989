"""What is wrong with a value of a request, in words of ours: pydantic's speak of inputs, strings and extra inputs.

The value itself is never told, but its limit always.
"""

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, str] = {
    "missing": "It is missing.",
    "extra_forbidden": "There is no field of this name.",
    "string_type": "It must be a text.",
    "int_type": "It must be a whole number.",
    "int_from_float": "It must be a whole number.",
    "int_parsing": "It must be a whole number.",
    "int_parsing_size": "It must be a whole number of fewer digits.",
    "float_type": "It must be a number.",
    "float_parsing": "It must be a number.",
    "finite_number": "It must be a finite number.",
    "bool_type": "It must be true or false.",
    "bool_parsing": "It must be true or false.",
    "list_type": "It must be a list.",
    "tuple_type": "It must be a list.",
    "dict_type": "It must be an object.",
    "model_type": "It must be an object.",
    "model_attributes_type": "It must be an object.",
    "dataclass_type": "It must be an object.",
    "none_required": "It must be null.",
    "literal_error": "It must be {expected}.",
    "enum": "It must be {expected}.",
    "greater_than": "It must be more than {gt}.",
    "greater_than_equal": "It must be at least {ge}.",
    "less_than": "It must be less than {lt}.",
    "less_than_equal": "It must be at most {le}.",
    "string_too_short": "It must have at least {min_length} {parts}.",
    "string_too_long": "It must have at most {max_length} {parts}.",
    "too_short": "It must have at least {min_length} {parts}.",
    "too_long": "It must have at most {max_length} {parts}.",
    "string_pattern_mismatch": "It must match `{pattern}`.",
}


def plain(fault: Mapping[str, Any]) -> str:
    """Return what one of pydantic's faults says, as a sentence; a ValueError of ours speaks for itself."""
    words = _WORDS.get(fault.get("type", ""))
    if words is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    parts = "characters" if isinstance(fault.get("input"), str) else "items"
    sentence = words.format_map({"parts": parts, **fault.get("ctx", {})})
    return sentence.replace(f" 1 {parts}.", f" 1 {parts[:-1]}.")
