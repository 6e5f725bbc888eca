"""Credentials in URLs, and keys: hidden in every message and wherever an address is kept.

Errors of fmtkit hide them on construction (`fmtkit.core.errors`), names of sources and outputs when they are
made, so that reports, quarantines, journals and pages never have them.
"""

import re

from fmtkit.core.secret_keys import hidden

STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""Schemes of object stores; the names of objects may contain "?"."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(:/+)([^\s'\"<>]+)")
"""Also with one slash, to which a path shortens two."""
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose URLs name a container where others have a user: abfs://CONTAINER@ACCOUNT/PATH."""
_SHOWN = frozenset({"versionid", "version_id", "generation", "snapshot", "revision", "download"})
"""Query parameters whose values are not secret; any other may be a signature or a token."""
_HIDDEN = "***"
_PARAMETER = re.compile(r"([^&=]+)=([^&]*)")
_SECRET = re.compile(r"(?i)^x-|sig|token|secret|key|credential|password|auth")
_NAMED = re.compile(
    r"(?i)((?:hub|hf|access|auth|api|wandb|secret)_?(?:token|key)|password|secret)(['\"]?\s*[:=]\s*)"
    r"(['\"]?)(?!\s|null\b|\$|\*\*\*)[^\s'\"&,;}]+"
)
"""A value that is named as secret: a line of a config, or a setting."""


def public(text: str) -> str:
    """Return a URL or a message without users, passwords and query values, and without keys and tokens."""
    if ":/" in text:
        text = _URL.sub(_public, text)
    return hidden(_NAMED.sub(rf"\1\2\3{_HIDDEN}", text))


def has_credentials(url: str) -> bool:
    """Return whether a URL has a user, a password or a query value that `public` hides."""
    return public(url) != url


def _public(found: re.Match[str]) -> str:
    scheme, slashes, rest = found.groups()
    rest, asked, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at and (scheme.lower() not in _CONTAINERS or ":" in user):
        authority = host
    is_object = scheme.lower() in STORES
    return f"{scheme}{slashes}{authority}{slash}{path}{asked}{_public_query(query, is_object=is_object)}"


def _public_query(query: str, *, is_object: bool) -> str:
    """Hide the values of a query.

    Object names may contain "?", so for an object store only the values of parameters that look secret
    are hidden.
    """
    if query and "=" not in query and not is_object:
        return _HIDDEN  # no key=value pairs: it may be the secret itself
    return _PARAMETER.sub(
        lambda found: (
            found[0]
            if found[1].lower() in _SHOWN or (is_object and not _SECRET.search(found[1]))
            else f"{found[1]}={_HIDDEN}"
        ),
        query,
    )
