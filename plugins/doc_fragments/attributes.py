# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module of the collection says of itself."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change, without changing it.
    support: full
  diff_mode:
    description: Will return details on what has changed or would be changed, when in C(diff) mode.
    support: full
  platform:
    description: Target systems.
    platforms: linux
    support: full
"""
    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    description: Changes nothing, so it runs in C(check_mode) as ever.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  platform:
    description: Target systems.
    platforms: linux
    support: full
"""
