"""API keys: the text that a client sends, and the record that is kept of it.

    tercet_<id>_<secret><checksum>

id        8 of 0-9 a-z; public, and what logs name
secret    43 of 0-9 A-Z a-z, 256 random bits
checksum  6 of 0-9 A-Z a-z: CRC-32 of all before it, which tells a mistyped key from an unknown one

The whole text is kept as HMAC-SHA256 under a salt of its own (docs/adr/0015-api-keys.md).
"""

import hmac
import re
import secrets
import string
import zlib
from collections.abc import Collection
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.scopes import KeyScope

KEY_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MOST_REQUESTS = 1_000_000  # a minute, or at once

_ID_CHARACTERS = string.digits + string.ascii_lowercase
_CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_LENGTH = 43  # log2(62**43) = 256.03
_CHECKSUM_LENGTH = 6  # 62**6 > 2**32
_TEXT = re.compile(r"tercet_([0-9a-z]{8})_[0-9A-Za-z]{49}")


class Limits(BaseModel):
    """How much a key may ask for; None sets no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    concurrent: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)


class ApiKey(BaseModel):
    """What is kept of a key. Times are UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key_id: str = Field(pattern=r"^[0-9a-z]{8}$")
    name: str = Field(pattern=KEY_NAME)
    scopes: tuple[KeyScope, ...] = Field(min_length=1)
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    limits: Limits
    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")

    def is_of(self, text: str) -> bool:
        """Return whether this is the record of a key, in a time that does not depend on where they differ."""
        return hmac.compare_digest(_hash(bytes.fromhex(self.salt), text), bytes.fromhex(self.hash))

    def is_expired(self, now: float) -> bool:
        """Return whether its time is over; now is in seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at.timestamp()


def new_key(
    name: str, scopes: Collection[KeyScope], *, limits: Limits, expires_at: datetime | None = None
) -> tuple[str, ApiKey]:
    """Return the text of a new key and its record; the text is kept nowhere."""
    key_id = _random(8, _ID_CHARACTERS)
    unchecked = f"tercet_{key_id}_{_random(_SECRET_LENGTH, _CHARACTERS)}"
    text = unchecked + _checksum(unchecked)
    salt = secrets.token_bytes(16)
    record = ApiKey(
        key_id=key_id,
        name=name,
        scopes=tuple(scope for scope in KeyScope if scope in scopes),
        created_at=datetime.now(UTC).replace(microsecond=0),
        expires_at=expires_at,
        limits=limits,
        salt=salt.hex(),
        hash=_hash(salt, text).hex(),
    )
    return text, record


def id_in(text: str) -> str | None:
    """Return the id that a key's text names, None if it is no key or has a typo."""
    found = _TEXT.fullmatch(text)
    if found is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        return None
    return found[1]


def _random(length: int, characters: str) -> str:
    return "".join(secrets.choice(characters) for _ in range(length))


def _checksum(text: str) -> str:
    """Return CRC-32 in base 62, the most significant digit first."""
    rest, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        rest, digit = divmod(rest, len(_CHARACTERS))
        digits = _CHARACTERS[digit] + digits
    return digits


def _hash(salt: bytes, text: str) -> bytes:
    return hmac.digest(salt, text.encode(), "sha256")
