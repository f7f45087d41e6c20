"""Places pods on devices by scores alone, one after another: compiled, over arrays and scalars only.

A pair of shape and node is rated again only after the node got a pod. The scores, and their source, are in
``domain/kernels/fragmentation.py``; GpuClustering, which looks at the pods of a node, is only here.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import entry, helper
from domain.kernels.device_arrays import CLUSTERING, LEAST_FRAGMENTATION, SCORES_COUNT, WHOLE_DEVICE
from domain.kernels.fragmentation import (
    gain_of,
    gradient_score,
    is_share,
    score_of,
    take_devices,
    tightest,
    unusable,
)


@helper
def fits(nodes, asked, shape, n):  # type: ignore[no-untyped-def]
    """Say whether node ``n`` has room for a pod of a shape: cpu, memory, devices of a model it may have."""
    if asked.cpu[shape] > nodes.cpu[n] or asked.memory[shape] > nodes.memory[n]:
        return False
    if asked.number[shape] == 0:
        return True
    enough = 0
    for d in range(nodes.devices[n]):
        enough += nodes.free[n, d] >= asked.milli[shape]
    return enough >= asked.number[shape] and (asked.models[shape] >> nodes.model[n]) & 1 == 1


@helper
def gain_on(mix, nodes, asked, shape, n, device, after):  # type: ignore[no-untyped-def]
    """Return the gain of a pod of a shape on node ``n`` and its ``device``."""
    return gain_of(
        mix, nodes.free[n], after, nodes.devices[n], nodes.model[n], nodes.cpu[n], nodes.memory[n],
        nodes.cpu[n] - asked.cpu[shape], nodes.memory[n] - asked.memory[shape], asked.number[shape],
        asked.milli[shape], device,
    )  # fmt: skip


@helper
def least_fragmented(mix, nodes, asked, shape, n, after):  # type: ignore[no-untyped-def]
    """Return the device of node ``n`` whose use leaves least unusable, the first of them, and the gain."""
    milli = asked.milli[shape]
    if not is_share(asked.number[shape], milli):
        return -1, gain_on(mix, nodes, asked, shape, n, -1, after)
    best, most = -1, 0
    for d in range(nodes.devices[n]):
        is_open = nodes.free[n, d] >= milli
        for other in range(d):
            is_open = is_open and nodes.free[n, other] != nodes.free[n, d]
        if is_open:
            gain = gain_on(mix, nodes, asked, shape, n, d, after)
            if best < 0 or gain > most:
                best, most = d, gain
    return best, most


@helper
def clustering_score(holds, count, milli, left, milli_max):  # type: ignore[no-untyped-def]
    """Rate by GpuClustering: nodes that hold pods with as many devices first, fuller ones before others."""
    own = 1 << (0 if milli < WHOLE_DEVICE else count)
    base = 25 if holds == 0 else 0
    if holds & own:
        base = 75 if holds == own else 50
    return float(base + 25 * (milli_max - left) // milli_max)


@helper
def score_on(kind, rating, nodes, asked, shape, n, device):  # type: ignore[no-untyped-def]
    """Return a score of node ``n`` other than ``LEAST_FRAGMENTATION``; ``device`` is where a share goes."""
    number, milli = asked.number[shape], asked.milli[shape]
    score = 0.0
    if kind != CLUSTERING:
        score = score_of(
            kind, rating, nodes.cpu[n], nodes.free[n], nodes.devices[n], asked.cpu[shape], number, milli,
            device,
        )  # fmt: skip
    elif number > 0:
        left = 0
        for d in range(nodes.devices[n]):
            left += nodes.free[n, d]
        score = clustering_score(nodes.holds[n], number, milli, left, rating.milli_max)
    return np.floor(score) if rating.whole[kind] else score


@helper
def rate(mix, rating, nodes, asked, shape, n, after):  # type: ignore[no-untyped-def]
    """Return the device that a share gets on node ``n``, and the node's score. The pod must fit."""
    total = 0.0
    device = -1
    if is_share(asked.number[shape], asked.milli[shape]):
        device = tightest(nodes.free[n], nodes.devices[n], asked.milli[shape])
    if rating.weight[LEAST_FRAGMENTATION] != 0.0:
        device, gain = least_fragmented(mix, nodes, asked, shape, n, after)
        score = gradient_score(mix, gain, rating.whole[LEAST_FRAGMENTATION] != 0, rating.milli_max)
        total += rating.weight[LEAST_FRAGMENTATION] * score
    for kind in range(1, SCORES_COUNT):
        if rating.weight[kind] != 0.0:
            total += rating.weight[kind] * score_on(kind, rating, nodes, asked, shape, n, device)
    return device, total


@helper
def choose(mix, rating, nodes, asked, shape, kept):  # type: ignore[no-untyped-def]
    """Return the node of the highest score, the first of them, -1 if a pod of the shape fits nowhere."""
    best = -1
    score, seen, version = kept.score[shape], kept.seen[shape], kept.version
    for n in range(len(version)):
        if seen[n] != version[n]:
            seen[n] = version[n]
            score[n] = -1.0
            if fits(nodes, asked, shape, n):
                kept.device[shape, n], score[n] = rate(mix, rating, nodes, asked, shape, n, kept.after)
        if score[n] >= 0.0 and (best < 0 or score[n] > score[best]):
            best = n
    return best


@entry
def fill(mix, rating, nodes, asked, kept, shape, node, device):  # type: ignore[no-untyped-def]
    """Place pods one after another and never again, each on the node of the highest score.

    ``shape`` int64[P] is each pod's. ``node`` and ``device`` int64[P] take where it went, -1 where it fits
    nowhere, and the device of a share. A pair of shape and node is rated again only after the node got a pod.
    """
    for i in range(len(shape)):
        s = shape[i]
        n = choose(mix, rating, nodes, asked, s, kept)
        node[i] = n
        device[i] = -1
        if n >= 0:
            count, milli = asked.number[s], asked.milli[s]
            if count > 0:
                device[i] = kept.device[s, n]
                take_devices(nodes.free[n], nodes.devices[n], count, milli, device[i])
                nodes.holds[n] |= 1 << (0 if milli < WHOLE_DEVICE else count)
            nodes.cpu[n] -= asked.cpu[s]
            nodes.memory[n] -= asked.memory[s]
            kept.version[n] += 1


@entry
def measure(mix, nodes, lost):  # type: ignore[no-untyped-def]
    """Write ``unusable`` of every node into ``lost`` int64[N]."""
    for n in range(len(lost)):
        lost[n] = unusable(
            mix, nodes.cpu[n], nodes.memory[n], nodes.free[n], nodes.devices[n], nodes.model[n]
        )
