"""What the vendor refuses with 400 before anything is generated."""

from typing import Any

from agentruns.demo.errors import ApiError

LEAST_OUTPUT_TOKENS = 16  # the vendor's own least
METADATA = {"pairs": 16, "key": 64, "value": 512}
PARAMETERS: dict[str, Any] = {
    "model": str,
    "input": str | list,
    "instructions": str,
    "metadata": dict,
    "tools": list,
    "text": dict,
    "previous_response_id": str,
    "background": bool,
    "stream": bool,
    "store": bool,
}


def check(request: dict[str, Any], *, has_background: bool) -> None:
    """Raises ApiError that names the parameter."""
    check_types(request)
    for name in ("model", "input"):
        if not request.get(name):
            raise refused(name, "missing_required_parameter", f"Missing required parameter: '{name}'.")
    most = request.get("max_output_tokens")
    if most is not None and (not isinstance(most, int) or most < LEAST_OUTPUT_TOKENS):
        message = f"Invalid 'max_output_tokens': expected a value >= {LEAST_OUTPUT_TOKENS}, got {most!r}."
        raise refused("max_output_tokens", "integer_below_min_value", message)
    metadata = request.get("metadata") or {}
    if len(metadata) > METADATA["pairs"] or not all(fits(*pair) for pair in metadata.items()):
        raise refused("metadata", "invalid_metadata", f"Invalid 'metadata': its limits are {METADATA}.")
    if request.get("background") and not has_background:
        message = "Unsupported parameter: 'background' is not supported with this model."
        raise refused("background", "unsupported_parameter", message)


def check_types(request: dict[str, Any]) -> None:
    for name, kind in PARAMETERS.items():
        value = request.get(name)
        members_fit = not isinstance(value, list) or all(isinstance(member, dict) for member in value)
        inner_fits = name != "text" or not isinstance(value, dict) or isinstance(value.get("format") or {}, dict)
        if value is not None and not (isinstance(value, kind) and members_fit and inner_fits):
            raise refused(name, "invalid_type", f"Invalid type for '{name}'.")


def fits(key: str, value: Any) -> bool:
    return isinstance(value, str) and len(key) <= METADATA["key"] and len(value) <= METADATA["value"]


def refused(parameter: str, code: str, message: str) -> ApiError:
    return ApiError(400, message, code=code, param=parameter)
