"""Names the fault of a backend whose rows differ from the reference's: each known fault is a hypothesis to test.

A hypothesis says what the backend's rows would be. It is tested where rows differ, from the first such row on; what it
says of the rows before tells whether the fault was there from the beginning. What was recorded is used as far as it
goes; the backend is only stepped again, up to there, to see what actions and seeds change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.child.proof.again import ANOTHER, actions_ignored, chance, right_again
from vebench.child.proof.case import Case, TimeUpError, both, near, sees, where
from vebench.child.proof.casts import cast
from vebench.child.proof.pictures import picture as as_picture
from vebench.child.proof.rows import FIELDS, Row, alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, ActionSpaceTree, ArrayTree
    from vebench.child.proof.bench import Bench
    from vebench.child.proof.case import Again

NAMING_S = 10.0  # how long a name is sought
NOT_SOUGHT_FURTHER = f"the search for its name was ended after {NAMING_S:g} s"
FRAME_SKIPS = range(1, 9)
LATEST = 4  # observations this many steps late are recognised
# Where nothing but observations differs, so many steps are to say that rewards and ends agree.
PICTURE_STEPS = 200
MOST_ACTIONS = 20  # of a space of whole numbers, each of which is tried
# So many more steps are looked at, a few first, where rewards and ends do not tell yet whether whole rows are late.
FURTHER = (200, 2000, 20_000)


def name_fault(bench: Bench, again: Again | None, look: Callable[[int], None], until: float) -> str:
    """Return the first known fault that explains the backend's rows, or what can be said of them without one.

    ``until``, by ``time.monotonic``, is when the search ends; ``again`` steps the backend once more, if it can, and
    ``look`` takes the rows of more steps after the first that differs.
    """
    if bench.mismatch is None:
        return ""
    case = Case(bench, bench.mismatch, again, until, look)
    for hypothesis in HYPOTHESES:
        try:
            case.check_time()
            fault = hypothesis(case)
        except TimeUpError:
            return f"{pattern(case)} ({NOT_SOUGHT_FURTHER})"
        except Exception as error:  # noqa: BLE001 - a hypothesis may ask of an environment what it cannot do
            print(f"{hypothesis.__name__}: {type(error).__name__}: {error}")  # noqa: T201 - for the log
            continue
        if fault is not None:
            return fault
    if case.differs_in_sight_alone:
        look(PICTURE_STEPS)
    return pattern(case)


def stale_leaf(case: Case) -> str | None:
    """Return the fault if one array of observations is some steps late, or stands still, and the others are not."""
    fault = None if case.of_leaf is case else stale(case.of_leaf)
    return None if fault is None else _with_place(case, fault)


def _with_place(case: Case, fault: str) -> str:
    """Return a fault of one array of observations with the name of that."""
    return fault.replace("observations", case.mismatch.place, 1)


def miscounted_frames(case: Case) -> str | None:
    """Return the fault if rows agree but frames do not."""
    mismatch = case.mismatch
    if any(not alike(found, expected) for found, expected in both(case, case.later)):
        return None
    if mismatch.field == "frames":
        return f"simulates {mismatch.found} frames of {mismatch.expected} claimed"
    if mismatch.field == "claimed frames":
        return f"claims {mismatch.found} frames in a step where the reference simulates {mismatch.expected}"
    return None


def row_of_reset(case: Case) -> str | None:
    """Return the fault if nothing but rewards or flags of the row of a reset is wrong."""
    found, expected = case.found(0), case.expected(0)
    if case.step or case.begins_otherwise or found is None or expected is None:
        return None
    if any(not alike(*pair) for pair in both(case, case.later[1:])):
        return None
    differ = [name for name in FIELDS[1:] if _field(found, name) != _field(expected, name)]
    if not differ:
        return None
    what = " and ".join(dict.fromkeys(name if name == "rewards" else "flags" for name in differ))
    if case.bench.are_kept(case.env_id, differ):
        return f"{what} in the row of a reset are those of the step before"
    return f"{what} in the row of a reset are wrong: observations agree"


def _field(row: Row, name: str) -> float | bool:
    """Return a row's reward or one of its flags, by its name in a batch."""
    value: float | bool = getattr(row, "reward" if name == "rewards" else name)
    return value


def wrong_ends(case: Case) -> str | None:
    """Return the fault if an episode ends and the backend does not report it, or reports it otherwise."""
    if case.mismatch.field == "ends":
        return f"reports {case.mismatch.found} ends where there were {case.mismatch.expected}"
    expected, found = case.expected(case.step), case.found(case.step)
    if case.mismatch.field not in ("terminated", "truncated") or expected is None or found is None:
        return None
    if not found.ended:
        return "an end is not reported"
    if not expected.ended:
        how = "by a limit on time" if found.truncated and not found.terminated else "as a terminal state"
        return f"an end is reported where there is none, {how}"
    if (expected.terminated, expected.truncated) == (found.truncated, found.terminated):
        return "terminated and truncated are confused"
    real, reported = (
        " and ".join(name for name in ("terminated", "truncated") if getattr(row, name)) for row in (expected, found)
    )
    return f"an end is reported as {reported} that is {real}"


def no_reset(case: Case) -> str | None:
    """Return the fault if the row after an end continues the episode that is over."""
    before = case.expected(case.step - 1)
    if case.same_step or before is None or not before.ended:
        return None
    *_, continued = case.stepped(case.actions[: case.step], runs_on_at=case.step)
    found = case.found(case.step)
    return "no reset after the end" if found is not None and alike(found, continued) else None


def other_autoreset(case: Case) -> str | None:
    """Return the fault if resets have their own rows but the backend reports that they do not, or vice versa."""
    ends = [case.expected(step) for step in range(max(0, case.step - 1), case.step + 1)]
    if not any(row is not None and row.ended for row in ends):
        return None
    if not case.explained_by(case.stepped(case.actions, other_autoreset=True)):
        return None
    real, reported = ("next_step", "same_step") if case.same_step else ("same_step", "next_step")
    return f"resets as {real}, but reports {reported}"


def wrong_seed(case: Case) -> str | None:
    """Return the fault if the row of a reset is one of another seed: of the constructor's, or another environment's."""
    found, expected = case.found(0), case.expected(0)
    if not case.begins_otherwise or found is None or expected is None:
        return None
    given = case.bench.about.constructor_seed
    another = given if given != case.seed else case.seed + ANOTHER  # a measured cell has only one
    if alike(_first(case, another), expected):
        return None  # on this task, no seed shows in the first row
    if alike(next(case.stepped((), resets_at=0)), found):
        return "the environment is reset twice: the second time without a seed"
    ignores = "the reset ignores its seed:"
    others = {
        ((case.seed + case.env_id) % (1 << bits)) - case.env_id: f"only {bits} bits of the seed count"
        for bits in (16, 8)
    }
    others |= {seed: f"{ignores} rows are those of seed {seed}, an earlier reset's" for seed in case.bench.seeds[:-1]}
    others[given] = f"{ignores} rows are those of seed {given}, the constructor's"
    for seed, fault in others.items():
        if alike(_first(case, seed), found):
            return fault
    if any(alike(found, row) for row in case.bench.first_rows(case.env_id)):
        return f"{ignores} it begins as an earlier one did"
    return _seed_of_another(case)


def later_reset(case: Case) -> str | None:
    """Return the fault if the first reset began as its seed says, and a later one does not."""
    if not case.begins_otherwise or not case.in_later_reset:
        return None
    others = [each for each in case.bench.followed if each != case.env_id]
    rows = [(case.found(0, each), case.expected(0, each)) for each in others]
    known = [(found, expected) for found, expected in rows if found is not None and expected is not None]
    text = "a later reset does not begin as its seed says"
    if known and all(alike(*pair) for pair in known):
        return f"{text} in environment {case.env_id} alone, which may have been wrong before"
    return text


def _seed_of_another(case: Case) -> str | None:
    for other in sorted(case.bench.followed):
        if other != case.env_id and case.explained_by(case.stepped(case.actions, seed=case.seed + other - case.env_id)):
            return _seed_of(case, other)
    return None


def _seed_of(case: Case, other: int) -> str:
    """Return the fault of an environment that is seeded as another one."""
    back, own, first = case.found(0, other), case.expected(0), case.expected(0, other)
    if back is not None and own is not None and alike(back, own):
        return f"env ids are swapped: environment {case.env_id} shows the rows of environment {other}"
    shown = [row for env_id in case.bench.followed if (row := case.found(0, env_id)) is not None]
    if first is not None and len(shown) > 1 and all(alike(row, first) for row in shown):
        return f"every environment gets the seed of environment {other}"
    return f"environment {case.env_id} gets the seed of environment {other}"


def _first(case: Case, seed: int) -> Row:
    """Return the first row after a reset with another seed."""
    rows = case.stepped((), seed=seed)
    row = next(rows)
    rows.close()
    return row


def wrong_rewards(case: Case) -> str | None:
    """Return the fault if rewards are the reference's, but changed: clipped, scaled, of another step."""
    if case.mismatch.field != "rewards":
        return None
    pairs = list(both(case, case.later))
    one, other = pairs[0][0].reward, pairs[0][1].reward
    # Functions of the reference's reward and of that one step before.
    changes: dict[str, Callable[[float, float], float]] = {
        "rewards are clipped to their signs": lambda now, _: float(np.sign(now)),
        "rewards are clipped to [-1, 1]": lambda now, _: float(np.clip(now, -1, 1)),
        "rewards are always 0": lambda _now, _: 0.0,
        "rewards are one step stale": lambda _, before: before,
        "rewards have the wrong sign": lambda now, _: -now,
        "rewards are rounded to float16": lambda now, _: float(np.float16(now)),
        "rewards are rounded to whole numbers": lambda now, _: float(np.round(now)),
        "rewards are cut to whole numbers": lambda now, _: float(np.trunc(now)),
        "rewards are rounded down to whole numbers": lambda now, _: float(np.floor(now)),
    }
    if other:
        changes[f"rewards are multiplied by {one / other:.6g}"] = lambda now, _: now * (one / other)
    changes[f"rewards are off by {one - other:.6g}"] = lambda now, _: now + (one - other)
    late = None
    for fault, change in changes.items():
        if all(near(found, expected) for found, expected in _rewards(case, case.later, change)):
            if all(near(found, expected) for found, expected in _rewards(case, case.earlier, change)):
                return fault
            late = late or case.late(fault)
    if late is None and all(near(row.reward, case.returned(step)) for step in case.later if (row := case.found(step))):
        return "rewards are summed over the episode"
    return late


def rows_of_others(case: Case) -> str | None:
    """Return the fault if the environment shows the rows of another one, or every environment those of one."""
    others = [env_id for env_id in case.bench.followed if env_id != case.env_id]
    for other in others:
        shows = [(case.found(step), case.expected(step, other)) for step in case.later]
        known = [(found, row) for found, row in shows if found is not None and row is not None]
        if not known or known[0][0] is not case.found(case.step) or not all(sees(*pair) for pair in known):
            continue
        text = f"environment {case.env_id} shows the rows of environment {other}"
        for_all = [
            sees(found, row)
            for env_id in case.bench.followed
            if (found := case.found(case.step, env_id)) and (row := case.expected(case.step, other))
        ]
        if len(for_all) > 1 and all(for_all):
            text = f"row {other} stands for every environment"
        elif (back := case.found(case.step, other)) and (own := case.expected(case.step)) and sees(back, own):
            text = f"env ids are swapped: {text}"
        before = [(case.found(step), case.expected(step, other)) for step in case.earlier]
        there = all(sees(found, row) for found, row in before if found is not None and row is not None)
        return text if there else case.late(text)
    return None


def stale(case: Case) -> str | None:
    """Return the fault if observations are some steps late, or stand still."""
    if case.mismatch.field != "observations":
        return None
    for by in range(1, LATEST + 1):
        pairs = [(case.found(step), case.expected(step - by)) for step in case.later if not _end_near(case, step, by)]
        known = [(found, row) for found, row in pairs if found is not None and row is not None]
        moves = any(
            not sees(row, now)
            for step in case.later
            if (row := case.expected(step - by)) and (now := case.expected(step))
        )
        if known and moves and all(sees(*pair) for pair in known):
            text = _what_is_late(case, by)
            before = [(case.found(step), case.expected(step - by)) for step in case.earlier]
            there = all(sees(found, row) for found, row in before if found is not None and row is not None)
            return text if there else case.late(text)
    first, last = case.found(case.step), case.expected(case.step - 1)
    frozen = [found for step in case.later if (found := case.found(step))]
    shown = [row for step in case.later if (row := case.expected(step))]
    moves = any(not sees(shown[0], row) for row in shown)
    if first is not None and moves and len(frozen) > 1 and all(sees(first, found) for found in frozen):
        if last is not None and sees(first, last):
            return case.late("observations stand still")
        return case.late("observations are always the same") if case.step else "observations are always the same"
    return None


def _what_is_late(case: Case, by: int) -> str:
    """Return the fault of an environment whose observations are these steps late: rewards and ends may be so, too."""
    number = "one step" if by == 1 else f"{by} steps"
    on_time, late = _on_time_or_late(case, by)
    for steps in FURTHER:
        if on_time and late:
            case.look(steps)
            on_time, late = _on_time_or_late(case, by)
    if late and not on_time:
        return f"whole rows are {number} late: actions are applied, or rows returned, so late"
    doubt = ", or whole rows are: rewards and ends do not tell" if late else ""
    return f"observations are {number} stale{doubt}"


def _on_time_or_late(case: Case, by: int) -> tuple[bool, bool]:
    """Return whether rewards and ends agree where observations are late, and whether they do if they are late, too."""
    on_time = late = True
    for step in case.later:
        found, now, then = case.found(step), case.expected(step), case.expected(step - by)
        if found is not None and now is not None and then is not None and sees(found, then):
            on_time, late = on_time and _agree_out_of_sight(found, now), late and _agree_out_of_sight(found, then)
    return on_time, late


def wrong_reset(case: Case) -> str | None:
    """Return the fault if an environment is reset where it must not be, or not as it must be after an end."""
    found, before, first = case.found(case.step), case.expected(case.step - 1), case.expected(0)
    if case.step == 0 or found is None or before is None:
        return None
    if before.ended:
        *_, stepped_on = case.stepped([*case.actions[: case.step], case.actions[case.step - 1]], resets_at=case.step)
        if alike(found, stepped_on):
            return "the row of the reset after an end is left out"
        again = first is not None and sees(found, first)
        return "the reset after an end begins as the first one did: it is seeded again" if again else None
    *_, anew = case.stepped(case.actions[: case.step], resets_at=case.step)
    return f"at step {case.step} an environment is reset that has not ended" if sees(found, anew) else None


def given_twice(case: Case) -> str | None:
    """Return the fault if the row of the step before is returned again, and the action of this step is lost."""
    found, before = case.found(case.step), case.expected(case.step - 1)
    if case.step == 0 or found is None or before is None or not alike(found, before):
        return None
    if case.found(case.step - 1) is None:
        return None  # nobody has seen whether that one was right
    actions = case.actions
    rows = list(case.stepped([*actions[: case.step - 1], *actions[case.step :]]))
    if not case.explained_by([*rows[: case.step], *rows[case.step - 1 :]]):
        return None
    return f"at step {case.step} the row of the step before is returned again, and an action is lost"


def faulty_variant(case: Case) -> str | None:
    """Return the fault if observations are those of a variant that the task's suite knows as faulty."""
    if case.mismatch.field != "observations":
        return None
    for fault, variant in case.followed.reference.faulty_variants.items():
        if case.explained_by(case.stepped(case.actions, variant=variant)):
            return fault
    return None


def other_actions(case: Case) -> str | None:
    """Return the fault if the environment was stepped with other actions than it was sent."""
    actions = case.actions
    if not actions or case.step == 0:
        return None
    low = trees.mapped(np.zeros_like, actions[0])
    others: dict[str, list[ArrayTree]] = {
        "actions are ignored": [low] * len(actions),
        "actions are applied one step late": [low, *actions[:-1]],
        "actions are rounded to float32": [trees.mapped(_rounded, each) for each in actions],
    }
    if case.env_id and case.bench.now.in_one_order:
        first = list(case.followed.actions(case.bench.now, place=0))
        others["every environment is driven by the actions of environment 0"] = first
    if not any(leaf.dtype.kind == "f" for leaf in trees.leaves(actions[0])):
        del others["actions are rounded to float32"]
    for fault, instead in others.items():
        for since in dict.fromkeys((0, case.step - 1)):
            driven = [*actions[:since], *instead[since:]]
            if case.explained_by(case.stepped(driven)):
                return case.late(fault) if since else fault
    return None


def _rounded(action: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.asarray(action.astype(np.float32).astype(action.dtype)) if action.dtype.kind == "f" else action


def another_action(case: Case) -> str | None:
    """Return the fault if another action than the one that was sent explains the first row that differs."""
    found = case.found(case.step)
    if case.step == 0 or found is None:
        return None
    *before, sent = case.actions[: case.step]
    now, place = case.bench.now, case.followed.place(case.step - 1)
    rows = [each for each in range(case.bench.about.batch_size) if each != place]
    instead: dict[str, ArrayTree] = {"the action of the step before": before[-1]} if before else {}
    instead |= {
        f"the action for row {each} of the batch": now.action(case.followed.batch(case.step - 1), each) for each in rows
    }
    instead |= dict(_altered(sent, case.bench.space))
    for words, action in instead.items():
        if all(map(np.array_equal, trees.leaves(action), trees.leaves(sent))):
            continue
        *_, row = case.stepped([*before, action])
        if alike(row, found):
            return f"environment {case.env_id} is stepped with {words}, first at step {case.step}"
    return None


def _altered(sent: ArrayTree, spaces: ActionSpaceTree) -> Iterator[tuple[str, ArrayTree]]:
    """Yield other actions by what they are, in which one array is another."""
    for (name, space), leaf in zip(trees.named_leaves(spaces), trees.leaves(sent), strict=True):
        for words, other in _altered_array(leaf, space):
            yield f"{words} ({name})" if name else words, trees.replaced(sent, name, other)


def _altered_array(sent: NDArray[np.generic], space: ActionSpace) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield other actions by what they are: all of a small space, or what changes one of real numbers."""
    if space.integer:
        if sent.ndim == 0 and int(space.high) - int(space.low) < MOST_ACTIONS:
            for value in range(int(space.low), int(space.high) + 1):
                yield f"action {value} where {sent} was sent", np.asarray(value, sent.dtype)
        return
    real = sent.astype(np.float64)
    for bound in (1.0, 0.5):
        yield f"an action clipped to {bound:g}", np.clip(real, -bound, bound).astype(sent.dtype)
    if np.isfinite(space.high).all():
        high = space.high.astype(np.float64)
        yield "an action scaled by the bounds", (np.clip(real, -1, 1) * high).astype(sent.dtype)
        yield "an action scaled by the bounds, not clipped", (real * high).astype(sent.dtype)
        yield "an action divided by the bounds", (real / high).astype(sent.dtype)
    yield "an action of the other sign", (-real).astype(sent.dtype)


def frame_skip(case: Case) -> str | None:
    """Return the fault if each step takes another number of frames."""
    first, same = case.found(0), case.expected(0)
    if SUITES[case.task.suite].frames is None or first is None or same is None or not alike(first, same):
        return None  # no suite repeats anything for its frame skip in a reset: that row is the same with any
    for frames in FRAME_SKIPS:
        if frames == case.task.frame_skip:
            continue
        if case.explained_by(case.stepped(case.actions, task=replace(case.task, frame_skip=frames))):
            return f"frame skip {frames} instead of {case.task.frame_skip}"
    return None


def pattern(case: Case) -> str:
    """Return what can be said of the rows that differ if no known fault explains them."""
    differ = [step for step in case.later for pair in both(case, [step]) if not alike(*pair)]
    fields = {field for pair in both(case, differ) for field in _fields_that_differ(*pair)}
    if fields == {"observation"}:
        text = _sight(case, differ)
    elif fields == {"reward"}:
        text = f"other rewards{where(case, differ)}: observations and ends agree"
    else:
        text = f"{_start(case)}no known fault explains it"
        return case.late(f"other rows: {text}") if case.begins_late and text.startswith("no") else text
    return case.late(text) if case.begins_late and len(differ) == len(case.later) else text


def _fields_that_differ(found: Row, expected: Row) -> Iterator[str]:
    if not sees(found, expected):
        yield "observation"
    for name in ("reward", "terminated", "truncated"):
        if getattr(found, name) != getattr(expected, name):
            yield name


def _sight(case: Case, differ: list[int]) -> str:
    """Return what can be said of observations that differ alone."""
    text = _sight_of_leaf(case, differ)
    return _with_place(case, text) if case.differs_in_leaf_alone else text


def _sight_of_leaf(case: Case, differ: list[int]) -> str:
    agree = "rewards and ends agree"
    if len(differ) < len(case.later):
        return f"other observations{where(case, differ)}: {agree}"
    rows = case.of_leaf.rows
    if rows is None or as_picture(rows[0].observation) is None:
        # With nobody to step the backend again, it is not known whether a seed changes anything in it.
        start = "another start than that of the seed, or " if case.step == 0 and case.again is None else ""
        return f"{start}other observations: {agree}"
    shown = "another picture in observations" if case.mismatch.leaf else "another picture"
    return f"{shown}: {agree}, so it is resized, cropped or coloured in another way"


def _start(case: Case) -> str:
    """Return whether rows differ from the start of an episode on, in words."""
    before = case.expected(case.step - 1)
    if case.begins_otherwise:
        return "another start than that of the seed: "
    found = case.found(case.step)
    if found is not None and before is not None and not before.ended and sees(found, before):
        return f"at step {case.step} the observations of the step before are shown again: "
    return "another start after an end: " if before is not None and before.ended and not case.same_step else ""


def _rewards(
    case: Case, steps: Iterable[int], change: Callable[[float, float], float]
) -> Iterator[tuple[float, float]]:
    """Yield the backend's reward of each step, and what the reference's becomes by a change."""
    for step in steps:
        found, expected, before = case.found(step), case.expected(step), case.expected(step - 1)
        if found is not None and expected is not None:
            yield found.reward, change(expected.reward, before.reward if before is not None else 0.0)


def _agree_out_of_sight(one: Row, other: Row) -> bool:
    return one[2:] == other[2:] and near(one.reward, other.reward)


def _end_near(case: Case, step: int, by: int) -> bool:
    rows = [case.expected(at) for at in range(step - by, step + 1)]
    return any(row is not None and row.ended for row in rows)


HYPOTHESES = (
    miscounted_frames,
    cast,
    row_of_reset,
    wrong_ends,
    no_reset,
    other_autoreset,
    wrong_rewards,
    rows_of_others,
    given_twice,
    wrong_reset,
    wrong_seed,
    stale,
    stale_leaf,
    faulty_variant,
    other_actions,
    actions_ignored,
    chance,
    frame_skip,
    another_action,
    right_again,
    later_reset,
)
