# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take the results of a sweep over into evidence/, once somebody has looked through them: python -m tools.evidence FILE...

What evidence has already, under the same id, is left as it is. A broken file changes nothing.
"""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "collections"))

from ansible_collections.blackwell.sglang.plugins.plugin_utils import evidence  # noqa: E402

SITE = evidence.EVIDENCE_DIRECTORY / "site.yml"
HEAD = "---\n# What this site's own sweeps saw, looked through before it was taken over.\n"


def merge(files: t.Sequence[Path], into: Path = SITE) -> int:
    """How many entries are new in C(into); EvidenceError if a file is broken."""
    known = {entry.id for entry in [*evidence.load(), *(evidence.load_file(into) if into.exists() else [])]}
    new: dict[str, dict[str, t.Any]] = {}
    for file in files:
        for entry in evidence.load_file(file):
            if entry.id not in known:
                new[entry.id] = entry.model_dump(mode="json", exclude_defaults=True)
    if new:
        text = into.read_text(encoding="utf-8") if into.exists() else HEAD
        text += yaml.safe_dump(list(new.values()), sort_keys=False, allow_unicode=True, width=118)
        into.write_text(text, encoding="utf-8")
    return len(new)


def main() -> int:
    files = [Path(word) for word in sys.argv[1:]]
    if not files:
        print(__doc__, file=sys.stderr)
        return 3
    try:
        count = merge(files)
    except (evidence.EvidenceError, OSError) as error:
        print(f"Nothing was taken over: {error}", file=sys.stderr)
        return 2
    print(f"{count} new in {SITE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
