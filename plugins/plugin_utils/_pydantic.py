# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""pydantic and its neighbours, or a clear word about their absence.

This collection's other plugins work without them, and Ansible's own checks import every file; so the
absence is told when the plan is made, not when a file is read.
"""

from __future__ import annotations

import typing as t

try:
    import yaml as yaml
    from packaging.specifiers import InvalidSpecifier as InvalidSpecifier
    from packaging.specifiers import SpecifierSet as SpecifierSet
    from packaging.version import InvalidVersion as InvalidVersion
    from packaging.version import Version as Version
    from pydantic import BaseModel as BaseModel
    from pydantic import BeforeValidator as BeforeValidator
    from pydantic import ConfigDict as ConfigDict
    from pydantic import Field as Field
    from pydantic import SecretStr as SecretStr
    from pydantic import ValidationError as ValidationError
    from pydantic import field_validator as field_validator

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
    Field = field_validator = _nothing  # type: ignore
