"""Values with languages of their own: environments, backends, pinning and hosts."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends import bracketed, registry
from vebench.backends.interface import Task
from vebench.errors import UsageError
from vebench.plan.grammar import BackendChoice, Hosts, Pinning, parse_backends, parse_envs
from vebench.plan.spec import OPTIONS, RunSpec, check_names


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
        (["Pong"], ("Pong",)),
        (["Pong, Ant", "mine:A/B-v0"], ("Pong", "Ant", "mine:A/B-v0")),
        (["Ant[x=1,y=2],mine:make", "Pong[z=a:b]"], ("Ant[x=1,y=2]", "mine:make", "Pong[z=a:b]")),
        (["Ant[ y = TRUE , x=+1.50 , z = True ] ,Pong"], ("Ant[x=1.5,y=TRUE,z=true]", "Pong")),
    ],
)
def test_environments_are_joined_by_commas_or_repeated(texts: list[str], names: tuple[str, ...]) -> None:
    assert parse_envs(texts) == names


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a name is missing"),
        ("Pong,", "a name is missing"),
        ("[x=1]", "a name is missing"),
        ("Pong[x=1", r"brackets do not match; write NAME\[KEY=VALUE,...\]"),
        ("Pong[x=1]y", "brackets do not match"),
        ("Pong[x=[1]]", "brackets do not match"),
        ("Pong[]", "'' is not KEY=VALUE"),
        ("Pong[x=1,]", "'' is not KEY=VALUE"),
        ("Pong[x]", "x is not KEY=VALUE"),
        ("Pong[x=1,x=2]", "x is given twice"),
    ],
)
def test_bad_environments_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^--env.*{complaint}"):
        parse_envs(["Ant", text])


@pytest.mark.parametrize(
    ("texts", "choices"),
    [
        ([], ()),
        (["for-loop", "for-loop"], (BackendChoice("for-loop"),)),
        (["envpool-async[ratio=3]", "envpool-async"], (BackendChoice("envpool-async"),)),  # its default
        (["m:C[a=1,b=2]", "m:C[b=2,a=1]"], (BackendChoice("m:C", {"a": 1, "b": 2}),)),
        (["gym-sync,null", "for-loop"], (BackendChoice("gym-sync"), BackendChoice("null"), BackendChoice("for-loop"))),
        (
            ["envpool-async[ratio=2],shm-sync"],
            (BackendChoice("envpool-async", {"ratio": 2}), BackendChoice("shm-sync")),
        ),
        (
            ["gym-async[max_concurrency=2,context=spawn]"],
            (BackendChoice("gym-async", {"max_concurrency": 2, "context": "spawn"}),),
        ),
        (
            [" envpool-async [ ratio = 2 ] , null "],
            (BackendChoice("envpool-async", {"ratio": 2}), BackendChoice("null")),
        ),
        (
            ["mine.fast:Vector[on=true,off=False,n=-3,x=2.5,y=1e3,name=a b=c]"],
            (
                BackendChoice(
                    "mine.fast:Vector", {"n": -3, "name": "a b=c", "off": False, "on": True, "x": 2.5, "y": 1000.0}
                ),
            ),
        ),
        (
            ["m:C[a=1e999,b=nan,c=99999999999999999999,d=٣]"],
            (BackendChoice("m:C", {"a": "1e999", "b": "nan", "c": 1e20, "d": "٣"}),),
        ),
    ],
)
def test_backends_are_read_with_their_options(texts: list[str], choices: tuple[BackendChoice, ...]) -> None:
    assert parse_backends(texts) == choices


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a name is missing"),
        ("null,", "a name is missing"),
        ("[ratio=2]", "a name is missing"),
        ("envpol", "no such backend (did you mean envpool-sync or envpool-async?); vebench list shows them"),
        ("Gym-Sync", "did you mean gym-sync"),
        ("zzz", "no such backend; vebench list shows them"),
        ("for-loop[ratio=2]", "no option ratio; it has none"),
        ("envpool-async[ration=2]", "no option ration (did you mean ratio?); it has ratio"),
        ("envpool-async[ratio=0]", "ratio must be a whole number from 1"),
        ("envpool-async[ratio=1_0]", "ratio must be a whole number from 1"),
        ("envpool-async[ratio=٣]", "ratio must be a whole number from 1"),
        ("envpool-async[ratio=99999999]", "ratio must be a whole number from 1 to 65536"),
        ("gym-async[context=thread]", "context must be fork, forkserver or spawn"),
        ("envpool-async[ratio]", "ratio is not KEY=VALUE"),
        ("envpool-async[ratio=]", "ratio= is not KEY=VALUE"),
        ("envpool-async[]", "'' is not KEY=VALUE"),
        ("envpool-async[ratio=2,ratio=3]", "ratio is given twice"),
        ("envpool-async[ratio=2", "brackets do not match"),
        ("null]", "brackets do not match"),
        ("envpool-async[ratio=2]x", "brackets do not match"),
        (":Class", "is named module:Class"),
        ("mod:", "is named module:Class"),
        ("mod:A:B", "is named module:Class"),
        ("m:C[2x=1]", "2x=1 is not KEY=VALUE"),
    ],
)
def test_bad_backends_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match="--backend") as raised:
        parse_backends([text])
    assert complaint in str(raised.value)


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
    check_names(RunSpec(labels))
    for label, (name, values) in zip(labels, envs, strict=True):
        task = Task(label, "gymnasium", 1)
        assert (task.name, task.arguments) == (name, values)
        assert list(map(type, task.arguments.values())) == list(map(type, values.values()))


@pytest.mark.parametrize("names", [("Pong,Ant",), ("Ant[y=1,x=2]",), ("Ant[x=1.0e3]",), (" Ant",), ("Ant[x]",)])
def test_environments_as_nobody_writes_them_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--env"):
        check_names(RunSpec(names))


@given(st.lists(known_choices | foreign_choices, unique_by=lambda choice: choice.label))
def test_backends_read_back_as_they_are_written(choices: list[BackendChoice]) -> None:
    assert parse_backends([choice.label for choice in choices]) == tuple(choices)
    assert parse_backends([",".join(choice.label for choice in choices)] if choices else []) == tuple(choices)
    check_names(RunSpec(("Pong",), backends=tuple(choices)))


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (BackendChoice("nothing"), "no such backend"),
        (BackendChoice("envpool-async", {"ratio": "abc"}), "ratio must be a whole number"),
        (BackendChoice("envpool-async", {"ratio": 3}), "not as vebench writes it"),
        (BackendChoice("envpool-async", {"ratio": 2.0}), "ratio must be a whole number"),
        (BackendChoice("m:C", {"x": "1"}), "not as vebench writes it"),
        (BackendChoice("for-loop,null"), "not as vebench writes it"),
    ],
)
def test_backends_as_nobody_writes_them_are_refused(choice: BackendChoice, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        check_names(RunSpec(("Pong",), backends=(choice,)))


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("compact", Pinning()),
        ("0-3,8", Pinning("0-3,8")),
        ("scatter[smt=off]", Pinning("scatter", smt="off")),
        ("compact[reserve=2,mem=bind]", Pinning(reserve=2, memory="bind")),
    ],
)
def test_pinning_is_written_as_it_is_read(text: str, pin: Pinning) -> None:
    assert (OPTIONS["pin"].value(text), pin.label) == (pin, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("compact[smt=off", "--pin compact[smt=off: brackets do not match"),
        ("compact[smt]", "--pin compact[smt]: smt is not KEY=VALUE"),
        ("compact[smt=off,smt=last]", "--pin compact[smt=off,smt=last]: smt is given twice"),
        ("compact[men=bind]", "--pin compact[men=bind]: no detail men (did you mean mem?); it has smt, reserve, mem"),
        ("compact[reserve=some]", "--pin compact[reserve=some]: reserve some: must be a whole number from 0 to 65536"),
    ],
)
def test_bad_details_of_pinning_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(problem)}$"):
        OPTIONS["pin"].value(text)


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
def test_hosts_are_names_a_file_or_a_cluster(
    text: str, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("machines").write_text("one slots=4\n\n# not this one\ntwo\n")
    assert OPTIONS["hosts"].value(text) == hosts
