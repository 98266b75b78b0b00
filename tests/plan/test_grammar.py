"""Values of options: numbers, counts, times and sizes, and environments, backends, pinning and hosts."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends import bracketed, registry
from vebench.backends.interface import Task
from vebench.errors import UsageError
from vebench.plan import grammar
from vebench.plan.grammar import BackendChoice, Hosts, Kind, Option, Pinning, Tolerance, parse_backends, parse_envs
from vebench.plan.spec import OPTIONS


def option(kind: Kind) -> Option:
    return Option("some", ("--some",), "", "", "", kind)


def refusal(option: Option, given: object) -> str:
    """Return the one line of an error that names the option."""
    with pytest.raises(UsageError) as raised:
        option.value(given)
    text = str(raised.value)
    assert text.startswith(f"{option.flags[0]} ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("08", (8,)), ("4,1, 2,4", (1, 2, 4)), ("65536", (65536,)), (3, (3,)), ([4, 2], (2, 4)), ("5..5", (5,)),
        ("1..256", (1, 2, 4, 8, 16, 32, 64, 128, 256)), ("3..20", (3, 6, 12, 20)), (["1..4", "3"], (1, 2, 3, 4)),
        ("1..16:+5", (1, 6, 11, 16)), ("1..17:+5", (1, 6, 11, 16, 17)), ("1..100:*3", (1, 3, 9, 27, 81, 100)),
        ("4..6:+1,1..4", (1, 2, 4, 5, 6)),
    ],
)  # fmt: skip
def test_counts_are_numbers_and_ranges(given: object, value: tuple[int, ...]) -> None:
    assert option(grammar.counts()).value(given) == value


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (grammar.share(), "5%", 0.05), (grammar.share(), " 12.5 % ", 0.125), (grammar.share(), "0.05", 0.05),
        (grammar.share(), 0.2, 0.2), (grammar.seconds(), "250ms", 0.25), (grammar.seconds(), "2m", 120.0),
        (grammar.seconds(), "1.5h", 5400.0), (grammar.seconds(), "90", 90.0), (grammar.seconds(), 3, 3.0),
        (grammar.seconds(or_none=True), "0", 0.0), (grammar.size(), "8G", 8 << 30), (grammar.switch(), "true", True),
        (grammar.size(), "512MiB", 512 << 20), (grammar.size(), 1 << 20, 1 << 20), (grammar.switch(), False, False),
        (grammar.whole(1, 1024, "node"), "1024", 1024), (grammar.whole(1, 1024, "node"), "node", "node"),
        (grammar.word("auto", "off"), "off", "off"),
    ],
)  # fmt: skip
def test_a_value_is_read_from_text_and_from_python(kind: Kind, given: Any, value: object) -> None:
    found = option(kind).value(given)
    assert (type(found), found) == (type(value), value)
    assert option(kind).value(kind.written(found)) == found
    option(kind).check(found)


BAD_COUNTS = " 1, 0 0..4 -4 1..-4 256..1 65537 1..4:+0 1..4:+-1 1..4:*1 all 1.. 8:+5 1_0 ٣ ²"
BAD: dict[str, tuple[Kind, tuple[object, ...]]] = {
    "counts": (grammar.counts(), (*BAD_COUNTS.split(" "), 0, [1.5], [], None, "1..99999999999999999999", "9" * 10_000)),
    "share": (
        grammar.share(),
        ("", "%", "0", "0%", "1", "100%", "-5%", "nan", "inf", "5%%", "1e400", "five", "5 5", 1.0, None),
    ),
    "seconds": (
        grammar.seconds(),
        ("", "s", "soon", "1 parsec", "nan", "inf", "0", "-1", "1e-12", 0, -1.0, math.nan, "9999h"),
    ),
    "size": (grammar.size(), ("", "8", "-8G", "0G", "much", "9" * 30 + "G", 0, 1.5)),
    "whole": (
        grammar.whole(1, 1024, "node"),
        ("0", "1025", "-1", "two", "1.5", "\u0663", "", "1_0", 2.5, True, "9" * 10_000),
    ),
    "switch": (grammar.switch(), ("yes", 3, None)),
    "word": (grammar.word("auto", "off"), ("Auto", "", 3, "\udcff")),
}


@pytest.mark.parametrize(("name", "given"), [(name, one) for name, (_, bad) in BAD.items() for one in bad])
def test_a_bad_value_is_refused_in_one_line(name: str, given: object) -> None:
    refusal(option(BAD[name][0]), given)


@pytest.mark.parametrize(
    ("name", "alphabet"),
    [("workers", "0123456789.,:+*- \n"), ("envs", "Pong[]=,m:/1 \n"), ("backends", "null:[]=,m \n")],
)
@given(data=st.data())
def test_any_text_is_read_or_one_line(name: str, alphabet: str, data: st.DataObject) -> None:
    text = data.draw(st.text() | st.text(alphabet=alphabet, max_size=40))
    try:
        assert OPTIONS[name].value([text])
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either way is right


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ([], ()),
        (["Pong, Ant", "mine:A/B-v0"], ("Pong", "Ant", "mine:A/B-v0")),
        (["Ant[x=1,y=2],mine:make", "Pong[z=a:b]"], ("Ant[x=1,y=2]", "mine:make", "Pong[z=a:b]")),
        (["Ant[ y = TRUE , x=+1.50 , z = True ] ,Pong"], ("Ant[x=1.5,y=TRUE,z=true]", "Pong")),
    ],
)
def test_environments_are_joined_by_commas_or_repeated(texts: list[str], names: tuple[str, ...]) -> None:
    assert parse_envs(texts) == names


@pytest.mark.parametrize(
    "text",
    ["", "Pong,", "[x=1]", "Pong[x=1", "Pong[x=1]y", "Pong[x=[1]]", "Pong[]", "Pong[x=1,]", "Pong[x]", "Pong[x=1,x=2]"],
)
def test_bad_environments_are_refused(text: str) -> None:
    refusal(OPTIONS["envs"], ["Ant", text])


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("for-loop,for-loop", [BackendChoice("for-loop")]),
        ("envpool-async[ratio=3],envpool-async", [BackendChoice("envpool-async")]),  # its default
        ("m:C[a=1,b=2],m:C[b=2,a=1]", [BackendChoice("m:C", {"a": 1, "b": 2})]),
        (
            "gym-async[max_concurrency=2,context=spawn]",
            [BackendChoice("gym-async", {"max_concurrency": 2, "context": "spawn"})],
        ),
        (" envpool-async [ ratio = 2 ] , null ", [BackendChoice("envpool-async", {"ratio": 2}), BackendChoice("null")]),
        (
            "m:C[on=true,off=False,n=-3,x=2.5,y=1e3,name=a b=c]",
            [BackendChoice("m:C", {"n": -3, "name": "a b=c", "off": False, "on": True, "x": 2.5, "y": 1000.0})],
        ),
        (
            "m:C[a=1e999,b=nan,c=99999999999999999999,d=٣]",
            [BackendChoice("m:C", {"a": "1e999", "b": "nan", "c": 1e20, "d": "٣"})],
        ),
    ],
)
def test_backends_are_read_with_their_options(text: str, choices: list[BackendChoice]) -> None:
    assert parse_backends([text]) == tuple(choices)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[ratio=2]", "a name is missing"),
        ("envpol", "no such backend (did you mean envpool-sync or envpool-async?)"),
        ("Gym-Sync", "did you mean gym-sync"),
        ("for-loop[ratio=2]", "no option ratio; it has none"),
        ("envpool-async[ration=2]", "no option ration (did you mean ratio?); it has ratio"),
        ("envpool-async[ratio=99999999]", "a whole number from 1 to 65536"),
        ("gym-async[context=thread]", "fork, forkserver or spawn"),
        (":Class", "is named module:Class"),
        *(
            (f"envpool-async[{bad}]", "")
            for bad in ("ratio=0", "ratio=1_0", "ratio=٣", "ratio=", "", "ratio=2,ratio=3")
        ),
        *((bad, "") for bad in ("null,", "zzz", "null]", "envpool-async[ratio=2]x", "mod:A:B")),
    ],
)
def test_bad_backends_are_refused(text: str, complaint: str) -> None:
    assert complaint in refusal(OPTIONS["backends"], text)


known_choices = st.one_of(
    st.sampled_from([BackendChoice(entry.name) for entry in registry.ENTRIES]),
    st.integers(1, 9).map(lambda ratio: BackendChoice("envpool-async", {} if ratio == 3 else {"ratio": ratio})),
)
values = st.one_of(
    st.booleans(),
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.from_regex(re.compile(r"[a-z][a-z_/ ]*[a-z]", re.ASCII), fullmatch=True).filter(
        lambda text: text not in ("true", "false")
    ),
)
keys = st.from_regex(re.compile(r"[a-z_]\w{0,8}", re.ASCII), fullmatch=True)
foreign_choices = st.dictionaries(keys, values, max_size=4).map(
    lambda options: BackendChoice("some.module:Adapter", dict(sorted(options.items())))
)
env_names = st.sampled_from(["Pong", "ALE/Pong-v5", "mymodule:make_env", "my.tasks:user/Mine-v3"])
arguments = st.dictionaries(keys, values, max_size=4).map(lambda given: dict(sorted(given.items())))


@given(st.lists(st.tuples(env_names, arguments)))
def test_environments_read_back_as_they_are_written(
    envs: list[tuple[str, dict[str, bool | int | float | str]]],
) -> None:
    labels = tuple(bracketed.written(name, values) for name, values in envs)
    assert parse_envs(labels) == parse_envs([",".join(labels)] if labels else []) == labels
    OPTIONS["envs"].check(labels)
    for label, (name, values) in zip(labels, envs, strict=True):
        task = Task(label, "gymnasium", 1)
        assert (task.name, task.arguments) == (name, values)
        assert list(map(type, task.arguments.values())) == list(map(type, values.values()))


@given(st.lists(known_choices | foreign_choices, unique_by=lambda choice: choice.label))
def test_backends_read_back_as_they_are_written(choices: list[BackendChoice]) -> None:
    assert parse_backends([",".join(choice.label for choice in choices)] if choices else []) == tuple(choices)
    OPTIONS["backends"].check(tuple(choices))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("envs", (name,)) for name in ("Pong,Ant", "Ant[y=1,x=2]", "Ant[x=1.0e3]", " Ant", "Ant[x]")),
        *(("backends", (BackendChoice(name),)) for name in ("nothing", "for-loop,null")),
        *(("backends", (BackendChoice("envpool-async", {"ratio": ratio}),)) for ratio in ("abc", 3)),
        ("backends", (BackendChoice("m:C", {"x": "1"}),)),
        *(("pin", pin) for pin in (Pinning(smt="on"), Pinning("none", memory="bind"))),
        *(("hosts", hosts) for hosts in (Hosts(("-oProxyCommand=x",)), Hosts(("a", "a")), Hosts(("a",), counts=(2,)))),
        ("workers", (2, 1)),
    ],
)
def test_values_of_a_file_as_nobody_writes_them_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        OPTIONS[name].check(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("compact[smt=off", "brackets do not match"),
        ("compact[smt=off,smt=last]", "smt is given twice"),
        ("compact[men=bind]", "no detail men (did you mean mem?); it has smt, reserve, mem"),
        ("compact[reserve=some]", "reserve some: must be a whole number from 0 to 65536"),
    ],
)
def test_bad_details_of_pinning_are_refused(text: str, problem: str) -> None:
    assert refusal(OPTIONS["pin"], text) == f"--pin {text}: {problem}"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a, b", Hosts(("a", "b"))),
        ("@machines,c[via=srun,count=1,3]", Hosts(("one", "two", "c"), counts=(1, 3), via="srun")),
        ("a,b[python=/opt/bin/python,unlike=true]", Hosts(("a", "b"), python="/opt/bin/python", unlike=True)),
        ("ray", Hosts(via="ray")),
        ("ray[address=head:6379]", Hosts(via="ray", address="head:6379")),
        ("n1[via=ray]", Hosts(("n1",), via="ray")),
    ],
)
def test_hosts_are_names_a_file_or_a_cluster(text: str, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.files.contents", lambda _path: b"one slots=4\n\n# not this one\ntwo\n")
    assert OPTIONS["hosts"].value(text) == hosts
    OPTIONS["hosts"].check(hosts)


def tolerance(given: object) -> Tolerance:
    found = option(grammar.tolerance(0.1)).value(given)
    assert isinstance(found, Tolerance)
    return found


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (0.05, Tolerance(0.05)),
        ("5%", Tolerance(0.05)),
        ("Ant=off", Tolerance(0.1, (("Ant", None),))),
        ("off, Pong = 5%", Tolerance(None, (("Pong", 0.05),))),
        ("CartPole[max_episode_steps=50,a=b]=5%,20%", Tolerance(0.2, (("CartPole[max_episode_steps=50,a=b]", 0.05),))),
    ],
)
def test_a_tolerance_is_of_all_tasks_or_of_each(given: object, value: Tolerance) -> None:
    assert tolerance(given) == value


def test_a_task_is_found_by_its_short_name_and_by_its_full_name() -> None:
    found = tolerance("10%,pong=5%,Ant-v5=off")
    assert [found.of(env) for env in ("ALE/Pong-v5", "Ant-v5", "Hopper-v5")] == [0.05, None, 0.1]


SHARES = st.none() | st.integers(1, 99).map(lambda number: number / 100)
TASKS = st.from_regex(r"[A-Za-z]\w{0,8}(:\w{1,8})?(\[[a-z]{1,4}=[0-9]{1,3}(,[a-z]=[a-z]{1,4})?\])?", fullmatch=True)


@given(SHARES, st.dictionaries(TASKS, SHARES, max_size=4))
def test_a_tolerance_reads_back_as_it_is_written(usual: float | None, of_tasks: dict[str, float | None]) -> None:
    value = Tolerance(usual, tuple(of_tasks.items()))
    assert tolerance(value.label) == value


@given(st.text("P=1%,[] .off-", max_size=16) | st.text(max_size=8))
def test_any_text_is_a_tolerance_or_an_error_of_one_line(text: str) -> None:
    try:
        found = tolerance(text)
    except UsageError as refused:
        error = str(refused)
    else:
        error = ""
        assert all(most is None or 0 < most < 1 for most in (found.usual, *(most for _, most in found.of_tasks)))
    assert len(error.splitlines()) <= 1
