"""A mask as a file without its key, and the key as a file that only its owner can read.

The file names the channel and the key by their hashes, so that a change of groups or budget under
the same version, or another key, is refused instead of drawing everybody's label again.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from deniable._types import Record
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.masks.mask import KEY_BYTES, Mask

KEY_VARIABLE = "DENIABLE_MASK_KEY"
"""The environment variable with the key in hexadecimal, used if no file is named."""


class MaskFileError(DeniableError, ValueError):
    """A mask's file, or its key, is not what it should be."""


def read_key(path: str | Path | None, environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the key from a file of 64 hex digits, or from the environment variable.

    Raises:
        MaskFileError: no key, a wrong one, or a file that others can read.
    """
    if path is None:
        if KEY_VARIABLE not in environment:
            raise MaskFileError(f"no key: name a file with --key-file, or set {KEY_VARIABLE}")
        return _parsed(KEY_VARIABLE, environment[KEY_VARIABLE])
    file = Path(path)
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        raise MaskFileError(f"{file}: others can read the key (mode {mode:o}): chmod 600 {file}")
    return _parsed(str(file), file.read_text())


def new_key(path: str | Path) -> bytes:
    """Write 32 random bytes to a new file that only its owner can read, and return them."""
    key = secrets.token_bytes(KEY_BYTES)
    _write_secret(path, key.hex() + "\n")
    return key


def write_key_pads(path: str | Path, pads: tuple[str, str]) -> None:
    """Write the padded key as a CSV file for a warehouse, readable only by its owner."""
    _write_secret(path, f"inner_pad,outer_pad\n{pads[0]},{pads[1]}\n")


def _write_secret(path: str | Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def write_mask(mask: Mask, path: str | Path) -> None:
    """Write a mask's file; an existing one may only be followed by a higher version."""
    file = Path(path)
    if file.exists():
        before = _read(file)
        if before.get("version") == mask.version and before.get("channel") != mask.channel_hash:
            raise MaskFileError(
                f"{file}: version {mask.version} has another channel; a change of segments, groups or "
                f"budget needs --version {mask.version + 1}, and spends a budget of its own"
            )
        if before.get("period") == mask.period and before.get("key") != mask.fingerprint:
            raise MaskFileError(
                f"{file}: its key is {before.get('key')}, this one is {mask.fingerprint}; a new key "
                "needs a new --period, and spends a budget of its own"
            )
    record = definition(mask)
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(file)


def definition(mask: Mask) -> Record:
    """Return what is written of a mask: all but its key, of which only the fingerprint."""
    return {
        "mask": mask.name,
        "version": mask.version,
        "period": mask.period,
        "budget": str(mask.budget),
        "groups": {label: list(members) for label, members in mask.groups.items()},
        "segments": list(mask.segments),
        "own": f"{mask.entries[0][0]:016x}",
        "other": f"{mask.entries[0][1]:016x}",
        "channel": mask.channel_hash,
        "key": mask.fingerprint,
    }


def read_mask(path: str | Path, key: bytes) -> Mask:
    """Return the mask of a file, with its key.

    Raises:
        MaskFileError: the file is damaged, its channel was changed, or the key is another one.
    """
    return defined_mask(_read(Path(path)), key, str(path))


def defined_mask(record: Record, key: bytes, file: str) -> Mask:
    """Return the mask of a `definition`, with its key; errors name the file, or another source."""
    try:
        mask = Mask(
            segments=record["segments"],
            budget=record["budget"],
            key=key,
            name=record["mask"],
            version=record["version"],
            period=record["period"],
            groups=record["groups"],
        )
    except (KeyError, InvalidArgumentError) as error:
        raise MaskFileError(f"{file}: not a mask: {error}") from None
    if mask.channel_hash != record.get("channel"):
        raise MaskFileError(
            f"{file}: segments, groups or budget were changed under version {mask.version}: create a "
            "new version, or undo the change"
        )
    if mask.fingerprint != record.get("key"):
        raise MaskFileError(
            f"{file}: its key is {record.get('key')}, this one is {mask.fingerprint}: another key draws "
            "every label again"
        )
    return mask


def _read(file: Path) -> Record:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise MaskFileError(f"{file}: not a mask's file") from None
    if not isinstance(record, dict):
        raise MaskFileError(f"{file}: not a mask's file")
    return record


def _parsed(source: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise MaskFileError(f"{source}: expected {2 * KEY_BYTES} hex digits")
    return key
