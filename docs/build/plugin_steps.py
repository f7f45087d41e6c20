"""The steps that add a plugin, as docs/plugins.md shows them; a test follows them."""

from __future__ import annotations

STEPS = r"""## Write your own filter

A plugin is one file and two lines. The steps below add a filter, and those behind them a score; they are
commands for a shell in the project's folder after `make dev` and `. .venv/bin/activate` (with GNU
sed, as on Linux), and `tests/unit/test_own_plugin.py` runs them as they stand here.

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

## Write your own score

A score takes the same steps, in `domain/plugins/scores/` and `SCORES`.

**1. Copy the [template](../domain/plugins/template_score.py)** and give the copy a name:

```sh
cp domain/plugins/template_score.py domain/plugins/scores/my_score.py
sed -i -e 's/TemplateScore/MyScore/' domain/plugins/scores/my_score.py
```

**2. Add it to the registry**, `domain/plugins/registry.py`:

```sh
sed -i -e '/^from domain.plugins.scores.node_affinity import/i \
from domain.plugins.scores.my_score import MyScore' \
  -e '/^    GpuPacking,$/a \
    MyScore,' domain/plugins/registry.py
```

**3. Try it** in a profile, without any server:

```sh
cat > my_scores.json <<'END'
{"objects": [{"kind": "Node", "metadata": {"name": "a", "labels": {"worn": "yes"}},
              "status": {"capacity": {"cpu": "4", "pods": "110"}}},
             {"kind": "Node", "metadata": {"name": "b"}, "status": {"capacity": {"cpu": "4", "pods": "110"}}},
             {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}],
 "profile": {"filters": ["NodeResourcesFit"],
             "scores": [{"name": "MyScore", "args": {"label": "worn", "priority": 0}}]}}
END
berth plan -f my_scores.json -o json
```

`b` has 100 points, `a` none:

```json
{"node": "b", "scores": {"a": 0.0, "b": 100.0}}
```

**4. Change what it does.** The kernel takes a static score's points as they are, and the explanation names
them: both need nothing else. Let this page and the tests know of it:

```sh
python -m docs.build.plugin_pages
python -m pytest -q tests/unit/test_plugin_contract.py tests/unit/test_plugin_pages.py -k "MyScore or page"
```

To stay in the project a plugin also has its formula in the oracle (`_SCORES` in `tests/oracle/scoring.py`,
`STATIC_SCORES` in `placing.py`), a place in the profiles that the oracle draws (`profiles.py` beside them), a
test of its own in `tests/unit/test_scores.py`, and a line in `CHANGELOG.md`. `ruff check --fix` sorts the
imports; `make check` and `make test` say what is missing.

A score whose points are not 0..100 by themselves has a `normaliser`, which brings them there over the
feasible nodes ([domain/plugins/normaliser.py](../domain/plugins/normaliser.py)).

## Other kinds

| what the answer depends on | base | where the formula is |
|---|---|---|
| a node's spec, or what was measured on it | `StaticFilter`, `StaticScore` | in the plugin, in numpy |
| what the node's pods request | `LimitFilter`, `ResourceScore` | numbers; of a score a term, see below |
| all nodes | `RelativeScore` | `domain/kernels/variance.py`, `closeness.py`, `power.py` |
| pods of the same zone, rack or node | `CountFilter`, `CountScore` | `domain/kernels/counting.py` |

[domain/plugins/base.py](../domain/plugins/base.py) and [counting.py](../domain/plugins/counting.py) say what
each has to answer. A `ResourceScore` hands numbers to one of the kernel's *terms*, which rates a node again
whenever a pod is placed on it; most new scores are another choice of numbers for one of these:

| kind of term | formula for a node, with the pod on it | used by |
|---|---|---|
| `LEAST_ALLOCATED`, `MOST_ALLOCATED` | weighted mean of free (used) shares, in percent | `Allocated`, `LRA` |
| `BALANCED`, `BALANCED_CHANGE` | `100 * (1 - std)` of used shares; how the pod betters that | `Balanced` |
| `CAPACITY_RATIO` | weighted mean of a curve through given points | `RequestedToCapacityRatio` |
| `TARGET_LOAD` | rises up to a target of measured use, then falls | `TargetLoadPacking` |
| `LOW_RISK` | the risk that use passes requests, as measured | `LowRiskOverCommitment` |
| `LOAD_VARIATION` | mean plus deviation of use, pods in flight with it | `LoadVariationInFlight` |
| `ROOM` | the scarcest share of what a node lends | `ColocationScore` |
| `BALANCED_PAIR` | how near the shares of two resources are to each other | `BRA` |
| `SEARCH` | the fitness of the searches of [search.md](search.md) | `SearchScore` |
| `DEVICES` and the four behind it | what is left of devices: see each plugin | `FGD`, `GpuPacking`, ... |

A new kind of term has four places: its constant in `domain/kernels/arrays.py`, a branch of
`rate_other_term` in `domain/kernels/terms.py`, the same formula in plain Python in
`tests/oracle/scoring.py`, and the plugin; the contract of all plugins compares kernel and numpy to the last
bit.

A worker takes a new plugin when it is started anew.
"""
