"""The compiled part: arrays and scalars only.

numba reads its settings from a file in the current directory, at its import and at each compilation; one of
them names the directory from which machine code is loaded. Whoever can write where berth is started could
have it run their code, so that file is never read. The variables ``NUMBA_…`` count as ever.
"""

from __future__ import annotations

import sys
import warnings

_yaml = sys.modules.get("yaml")
sys.modules["yaml"] = None  # type: ignore[assignment]  # numba then says that it cannot read the file
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba.core import config
finally:
    del sys.modules["yaml"]
    if _yaml is not None:
        sys.modules["yaml"] = _yaml

config._config_fname = ""  # no file has this name
