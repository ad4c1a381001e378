# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""pydantic and its neighbours, or a clear word about their absence.

This collection's other plugins work without them, and Ansible's own checks import every file; so the
absence is told when the plan is made, not when a file is read.
"""

from __future__ import annotations

import typing as t

__all__ = (
    "MISSING",
    "BaseModel",
    "BeforeValidator",
    "ConfigDict",
    "Field",
    "InvalidSpecifier",
    "InvalidVersion",
    "SecretStr",
    "SpecifierSet",
    "ValidationError",
    "Version",
    "field_validator",
    "yaml",
)

try:
    import yaml
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version
    from pydantic import (
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        SecretStr,
        ValidationError,
        field_validator,
    )

    MISSING: str | None = None
except ImportError as error:
    MISSING = (
        f"{error}. The plan is made on the controller and needs pydantic 2, packaging and PyYAML there: "
        "pip install pydantic packaging PyYAML"
    )

    def _nothing(*args: t.Any, **kwargs: t.Any) -> t.Any:
        return lambda function: function

    yaml = None  # type: ignore[assignment]
    BaseModel = object  # type: ignore
    SecretStr = str  # type: ignore
    Version = SpecifierSet = str  # type: ignore
    InvalidSpecifier = InvalidVersion = ValidationError = ValueError  # type: ignore
    ConfigDict = dict  # type: ignore
    BeforeValidator = _nothing  # type: ignore
    Field = field_validator = _nothing
