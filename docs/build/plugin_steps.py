"""The steps by which somebody adds a plugin, as docs/plugins.md shows them; a test follows them."""

from __future__ import annotations

STEPS = r"""## Write your own

A plugin is one file and two lines. The steps below add a filter; they are commands for a shell in the
project's folder after `make dev` and `. .venv/bin/activate` (with GNU sed, as on Linux), and
`tests/unit/test_own_plugin.py` runs them as they stand here.

**1. Copy the [template](../domain/plugins/template_filter.py)** and give the copy a name:

```sh
cp domain/plugins/template_filter.py domain/plugins/filters/my_filter.py
sed -i -e 's/TemplateFilter/MyFilter/; s/template-filter/my-reason/g' domain/plugins/filters/my_filter.py
```

**2. Add it to the registry**, `domain/plugins/registry.py`: an import, and a line in `FILTERS`, where the
order is that of this page:

```sh
sed -i -e '/^from domain.plugins.filters.node_affinity import/i \
from domain.plugins.filters.my_filter import MyFilter' \
  -e '/^    PeakUsage,$/a \
    MyFilter,' domain/plugins/registry.py
```

**3. Try it** in a profile, without any server:

```sh
cat > my_scenario.json <<'END'
{"objects": [{"kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4", "pods": "110"}}},
             {"kind": "Node", "metadata": {"name": "b", "labels": {"checked": "yes"}},
              "status": {"capacity": {"cpu": "4", "pods": "110"}}},
             {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}],
 "profile": {"filters": ["NodeResourcesFit", {"name": "MyFilter", "args": {"label": "checked"}}],
             "scores": ["NodeResourcesFit"]}}
END
berth plan -f my_scenario.json -o json
```

It refuses `a` with the new reason:

```json
{"node": "b", "infeasible": {"a": "my-reason"}}
```

**4. Change what it does**, and the phrase with which explanations say its reason. Then let this page and the
tests know of it: `docs/plugins.md` is made from the docstring, and the contract of all plugins (`reads` names
every field that the answer depends on, and no other) is tested for the new one as well:

```sh
python -m docs.build.plugin_pages
python -m pytest -q tests/unit/test_plugin_contract.py tests/unit/test_plugin_pages.py -k "MyFilter or page"
```

A plugin that cannot be without arguments, or reads more fields with some, gets a line in `ARGS` of
`tests/unit/test_plugin_contract.py`.

Other kinds, by what the answer depends on: `StaticFilter` and `StaticScore` (a node's spec, or what was
measured on it), `LimitFilter` and `ResourceScore` (what its pods request), `VarianceScore` and `IdealScore`
(all nodes), `CountFilter` and `CountScore` (pods of the same zone, rack or node).
[domain/plugins/base.py](../domain/plugins/base.py) and [counting.py](../domain/plugins/counting.py) say what
each has to answer; a score goes to `domain/plugins/scores/` and into `SCORES`. A worker takes the new plugin
when it is started anew.
"""
