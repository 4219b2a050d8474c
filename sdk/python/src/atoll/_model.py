"""The base of the generated models: from JSON to frozen dataclasses.

Fields that a newer server adds are ignored, fields that an older one does not send have their empty
value, so that a client and a server of neighbouring releases understand each other.
"""
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Dict, Mapping, Type, TypeVar

M = TypeVar("M", bound="Model")
Special = Dict[str, type]


class Nothing(Enum):
    """What takes a value back where None leaves it as it is: `box.update(idle=atoll.NOTHING)`."""
    NOTHING = None


NOTHING = Nothing.NOTHING


def parse_time(text: str) -> datetime:
    # Python before 3.11 does not read the Z of UTC.
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _convert(kind: type, value: Any) -> Any:
    if value is None:
        return None
    if kind is datetime:
        return parse_time(value)
    if isinstance(value, list):
        return [_convert(kind, one) for one in value]
    return kind.from_json(value)  # type: ignore[attr-defined]


class Model:
    _special: ClassVar[Special] = {}  # fields that are times or models themselves

    @classmethod
    def from_json(cls: Type[M], data: Mapping[str, Any]) -> M:
        found = {}
        for one in fields(cls):
            key = one.name.rstrip("_")
            if data.get(key) is not None:
                value = data[key]
                found[one.name] = _convert(cls._special[key], value) if key in cls._special else value
        return cls(**found)
