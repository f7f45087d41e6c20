"""Top-k: the best rows seen so far, best first, while blocks of scored rows go by."""

from __future__ import annotations

from domain.kernels.arrays import TOP
from domain.kernels.compiling import helper
from domain.kernels.ties import mix


@helper
def insert_ranked(rows, scores, ties, most, row, score, tie, kept):  # type: ignore[no-untyped-def]
    """Insert a row into a list of at most ``most``, best first; return how many rows the list has then."""
    at = kept
    if kept == most:
        at = most - 1
        if score < scores[at] or (score == scores[at] and tie >= ties[at]):
            return kept
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and tie < ties[at - 1])):
        rows[at] = rows[at - 1]
        scores[at] = scores[at - 1]
        ties[at] = ties[at - 1]
        at -= 1
    rows[at] = row
    scores[at] = score
    ties[at] = tie
    return min(kept + 1, most)


@helper
def _count_as_good(total, fits, score):  # type: ignore[no-untyped-def]
    """Return how many rows of a scored block reach ``score``; mostly none does."""
    found = 0
    for i in range(len(total)):
        found += (total[i] >= score) & (fits[i] != 0)
    return found


@helper
def keep_best(  # type: ignore[no-untyped-def]
    columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
):
    """Keep the best ``wanted`` rows of those kept so far and of a scored block.

    Return how many are kept, and the score and the tie value of the last one kept.
    """
    salt = groups.salt[g]
    hopeful = _count_as_good(scratch.total[:n], scratch.fits[:n], last_score) > 0
    for i in range(n if hopeful else 0):
        score = scratch.total[i]
        if scratch.fits[i] == 0 or score < last_score:
            continue
        tie = mix(columns.tie[first + i] ^ salt)
        if score == last_score and tie >= last_tie:
            continue
        if wanted == 1:
            scratch.row[0] = first + i
            kept, last_score, last_tie = 1, score, tie
        else:
            kept = insert_ranked(
                placed.top_row[attempt], placed.top_score[attempt], scratch.ties, TOP,
                first + i, score, tie, kept,
            )  # fmt: skip
            if kept == TOP:
                last_score = placed.top_score[attempt, TOP - 1]
                last_tie = scratch.ties[TOP - 1]
    return kept, last_score, last_tie
