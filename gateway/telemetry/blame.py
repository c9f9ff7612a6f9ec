"""Who is to blame for an error: the first thing that whoever is called at night wants to know.

    caller_*    the client asked for what cannot be, or left
    policy_*    a limit or a permission that the operator set did what it is for
    upstream_*  a backend was full, slow, broken or not there
    gateway_*   this gateway: its capacity, its configuration, its stores, its bugs

One table from error codes. Its keys are also the error codes that metrics know; others are counted as `other`, and blamed by
their status.
"""

from collections.abc import Mapping

OTHER_CODE = "other"
NO_CODE = "none"

_CODES_BY_BLAME: Mapping[str, str] = {
    "caller_request": "invalid_type invalid_value missing_required_parameter unknown_parameter unsupported_parameter"
    " unsupported_value request_too_large unsupported_media_type unknown_url method_not_supported model_not_found"
    " no_matching_deployment context_length_exceeded context_too_large context_conflict previous_response_not_found"
    " response_not_found conversation_not_found",
    "caller_auth": "invalid_api_key",
    "caller_gone": "client_closed_request request_timeout",
    "caller_deadline": "deadline_exceeded",
    "policy_access": "model_not_allowed priority_not_allowed admin_key_required",
    "policy_rate": "rate_limit_exceeded concurrency",
    "policy_budget": "insufficient_quota",
    "upstream_overloaded": "upstream_overloaded deployments_paused",
    "upstream_timeout": "timeout upstream_timeout",
    "upstream_failed": "engine_failed engine_crashed upstream_error upstream_protocol_error upstream_empty"
    " upstream_connection_lost",
    "upstream_unavailable": "model_unavailable model_loading upstream_unavailable upstream_unreachable no_healthy_deployment",
    "gateway_capacity": "engine_overloaded queue_timeout",
    "gateway_setup": "upstream_auth_failed upstream_not_found upstream_quota_exceeded",
    "gateway_store": "key_store_unavailable context_unavailable",
    "gateway_bug": "internal_error",
}

BLAME: Mapping[str, str] = {code: blame for blame, codes in _CODES_BY_BLAME.items() for code in codes.split()}
"""By error code."""

ERROR_CODES = frozenset({*BLAME, NO_CODE})
"""What may become a label value."""

_BY_STATUS: Mapping[int, str] = {
    401: "caller_auth",
    403: "policy_access",
    429: "policy_rate",
    499: "caller_gone",
    502: "upstream_failed",
    503: "upstream_unavailable",
    504: "upstream_timeout",
}


def known_code(code: str | None) -> str:
    """The code as a label value: itself, `none` or `other`."""
    if code is None:
        return NO_CODE
    return code if code in ERROR_CODES else OTHER_CODE


def blame_for(code: str, status: int) -> str:
    """Say who is to blame for an error with this code and HTTP status (400 to 599)."""
    found = BLAME.get(code) or _BY_STATUS.get(status)
    return found or ("gateway_bug" if status >= 500 else "caller_request")
