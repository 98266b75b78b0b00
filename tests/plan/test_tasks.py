"""Names of environments: what is known of them, and the lookup of all others."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import ale_py
import gymnasium
import pytest
from gymnasium.envs.registration import find_highest_version, parse_env_id
from support import places

from vebench.backends import pools
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.errors import UsageError
from vebench.interpreters import look_up
from vebench.plan.grammar import BackendChoice
from vebench.plan.tasks import KNOWN, recorded_task, resolve

PONG = Task("ALE/Pong-v5", "atari", 4)
CARTS = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv[max_episode_steps=50]"
USER_MODULE = """
    import gymnasium
    from gymnasium import spaces

    class Mine(gymnasium.Env):
        observation_space = spaces.MultiBinary(3)
        action_space = spaces.MultiDiscrete([2, 3])
        frame_skip = 7

    class Keyed(Mine):
        observation_space = spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))))})

    class Nested(Mine):
        observation_space = spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1)))})
        action_space = spaces.Tuple((spaces.Discrete(2), spaces.Dict({"b": spaces.MultiBinary(2)})))

    class Spoken(Mine):
        action_space = spaces.Text(5)

    class Needy(Mine):
        def __init__(self):
            import no_such_simulator

    class Tuned(Mine):
        def __init__(self, size=1, title="none", scale=1.0, render_mode=None):
            assert (type(size), type(title), type(scale)) == (int, str, float)

    class CartPole(Mine):
        pass

    def make_nested():
        return Nested()

    def make_env(size=1):
        return gymnasium.wrappers.TimeLimit(Tuned(size), 5)

    def make_number():
        return 3

    def make_trouble():
        raise RuntimeError("no screen")

    print("a library that prints")
    for env in (Mine, Tuned, Keyed, Spoken, Needy):
        gymnasium.register(f"user/{env.__name__}-v3", entry_point=env)
"""
ADAPTER_MODULE = """
    class Adapter:
        def __init__(self, setup): ...
        def reset(self, seed): ...
        def send(self, actions): ...
        def recv(self): ...
        def close(self): ...

    class Half:
        def reset(self, seed): ...
        def recv(self): ...

    class Tuned(Adapter):
        def __init__(self, setup, depth=1, *, width): ...

    class Open(Adapter):
        def __init__(self, setup, **options): ...

    def build(setup):
        return Adapter(setup)

    size = 3
"""
ENVIRONMENTS = {
    "FrozenLake": Task("FrozenLake-v1", "gymnasium", 1),
    "PongNoFrameskip-v4": Task("PongNoFrameskip-v4", "gymnasium", 1, module="ale_py"),
    "ale_py:ALE/Pong-v5": PONG,
    "CartPole-v1[max_episode_steps=50,render_mode=rgb_array]": Task(
        "CartPole-v1[max_episode_steps=50,render_mode=rgb_array]", "classic", 1
    ),
    "HalfCheetah-v5[forward_reward_weight=2.5]": Task("HalfCheetah-v5[forward_reward_weight=2.5]", "mujoco", 5),
    "ALE/Pong-v5[difficulty=1]": Task("ALE/Pong-v5[difficulty=1]", "atari", 4),
    "FrozenLake[is_slippery=false]": Task("FrozenLake-v1[is_slippery=false]", "gymnasium", 1),
    "mine:user/Tuned-v3[scale=0.5,size=3,title=a:b]": Task(
        "user/Tuned-v3[scale=0.5,size=3,title=a:b]", "gymnasium", 7, module="mine"
    ),
    "mine:make_env[size=3]": Task("mine:make_env[size=3]", "callable", 7),
    "mine:make_nested": Task("mine:make_nested", "callable", 7),
    CARTS: Task(CARTS, "vectors", 1, drawn_together=True),  # one generator draws all starts
}
REFUSED_ENVIRONMENTS = {
    "pong": "no such environment (did you mean Pong?);",
    "PongDeterministic-v4": "no such environment (did you mean Pong?);",
    "mine:user/Mime-v3": "did you mean user/Mine-v3",
    "mine:Nope": "has no callable or environment Nope; it registers user/Keyed-v3, user/Mine-v3, user/Needy-v3",
    "adapters_of_mine:Nope": "module adapters_of_mine has no callable or environment Nope; it registers none",
    "a\nb": "'a\\nb': no such environment",
    "breaks:Thing-v0": "module breaks cannot be imported: ZeroDivisionError: division by zero",
    "mine:user/Keyed-v3": "observations/a/1 are Sequence, not an array: make arrays of them",
    "mine:user/Spoken-v3": "actions are Text, not an array: make arrays of them with gymnasium.wrappers.TransformAct",
    "mine:user/Needy-v3": "it cannot be created: ModuleNotFoundError: No module named 'no_such_simulator'",
    "CartPole-v1[sutton=3]": "it cannot be created: TypeError: CartPoleEnv.__init__() got an unexpected keyword",
    "Pong[frameskip=2]": "--env Pong[frameskip=2]: vebench sets frameskip itself",
    "mine:make_number": "it returns a int, not a Gymnasium environment",
    "mine:make_trouble": "it cannot be created: RuntimeError: no screen",
    "batched:lacks_spaces": "has no single_observation_space, single_action_space",
    "batched:miscounts": "makes 3 environments instead of 2",
    "batched:faulty[size=3]": "unexpected keyword argument 'size'",
    "batched:faulty[num_envs=3]": "vebench sets num_envs itself",
}
# An adapter and the names of the options that it is given, and what is said of it.
REFUSED_ADAPTERS: dict[tuple[str, tuple[str, ...]], str] = {
    ("adapters_of_mine:Adaptor", ()): "module adapters_of_mine has no Adaptor (did you mean Adapter?)",
    ("adapters_of_mine:Half", ()): "Half has no method send, close: write an adapter",
    ("adapters_of_mine:Adapter", ("depth",)): "no option depth; it has none",
    ("adapters_of_mine:Tuned", ("dept", "width")): "no option dept; known: depth, width (did you mean depth?)",
    ("adapters_of_mine:Tuned", ("depth",)): "it cannot be created: missing a required argument: 'width'",
}
TAKEN: list[tuple[str, tuple[str, ...]]] = [
    ("Adapter", ()),
    ("build", ()),
    ("Tuned", ("width", "depth")),
    ("Open", ("anything",)),
]


def with_modules(folder: Path) -> Path:
    """Write the user's modules into a folder."""
    (folder / "mine.py").write_text(dedent(USER_MODULE))
    (folder / "adapters_of_mine.py").write_text(dedent(ADAPTER_MODULE))
    (folder / "breaks.py").write_text("1 / 0")
    (folder / "hangs.py").write_text("import time\ntime.sleep(600)")
    (folder / "crashes.py").write_text("import os\nprint('the end is near', flush=True)\nos.abort()")
    return folder


@pytest.fixture
def beside_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user stands in, with modules of his own."""
    monkeypatch.chdir(with_modules(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Look up everything that tests ask for in one interpreter, and return what answers each of them from that."""
    envs = [*ENVIRONMENTS, *REFUSED_ENVIRONMENTS]
    adapters = [*REFUSED_ADAPTERS, *((f"adapters_of_mine:{target}", options) for target, options in TAKEN)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(with_modules(tmp_path_factory.mktemp("user")))
        patch.setenv("PYTHONPATH", str(places.ENVIRONMENTS))
        answer = look_up(sys.executable, envs=envs, adapters=adapters)
    env_facts = dict(zip(envs, answer["envs"], strict=True))
    adapter_facts = dict(zip(adapters, answer["adapters"], strict=True))

    def answered(*_: object, envs: list[str], adapters: list[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
        facts = {"envs": [env_facts[name] for name in envs], "adapters": [adapter_facts[asked] for asked in adapters]}
        return {**answer, **facts}

    return answered


@pytest.fixture
def at_once(answers: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the facts from the one interpreter that was asked for all, rather than to start one for each test."""
    monkeypatch.setattr("vebench.plan.tasks.look_up", answers)


def refusal(*names: str, backend: str | None = None, **options: int) -> str:
    """Return the error that resolving gives."""
    with pytest.raises(UsageError) as raised:
        resolve(names, [BackendChoice(backend, {**options})] if backend else [])
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_every_atari_game_of_the_table_is_in_both_packages_and_no_other_is() -> None:
    gymnasium.register_envs(ale_py)
    pooled = set(pytest.importorskip("envpool").list_all_envs())
    emulated = [name for name in gymnasium.registry if name.startswith("ALE/")]
    in_both = [name for name in emulated if name.removeprefix("ALE/").replace("3D", "3d") in pooled]
    assert sorted(SUITES["atari"].tasks) == sorted(in_both)
    named = {pools.envpool_name(task) for task in KNOWN if task.suite in pools.STEPPED}
    assert named <= pooled


@pytest.mark.parametrize("name", SUITES["mujoco"].tasks)
def test_a_mujoco_tasks_frame_skip_is_that_of_its_environment(name: str) -> None:
    env = gymnasium.make(name)
    assert getattr(env.unwrapped, "frame_skip") == SUITES["mujoco"].tasks[name]  # noqa: B009 - Env does not declare it
    env.close()


def test_the_table_has_the_latest_versions() -> None:
    for name in (*SUITES["mujoco"].tasks, *SUITES["classic"].tasks):
        assert name in gymnasium.registry
        namespace, bare, version = parse_env_id(name)
        assert version == find_highest_version(namespace, bare)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("Pong", PONG),
        ("ALE/Pong-v5", PONG),
        ("TicTacToe3D", Task("ALE/TicTacToe3D-v5", "atari", 4)),
        ("Hopper", Task("Hopper-v5", "mujoco", 4)),
        ("MountainCar", Task("MountainCar-v0", "classic", 1)),
    ],
)
def test_a_known_task_needs_no_lookup(name: str, task: Task) -> None:
    assert resolve([name], python="/no/such/python") == (task,)
    with pytest.raises(UsageError, match="/no/such/python does not start: No such file"):
        resolve(["FrozenLake"], python="/no/such/python")


@pytest.mark.parametrize(("name", "task"), ENVIRONMENTS.items())
@pytest.mark.usefixtures("at_once")
def test_any_registered_environment_of_arrays_is_looked_up(name: str, task: Task) -> None:
    assert resolve([name]) == (task,)


@pytest.mark.usefixtures("at_once")
def test_a_task_named_twice_is_one_and_with_arguments_it_is_another() -> None:
    assert resolve(["Pong", "Ant", "ALE/Pong-v5"]) == resolve(["Pong", "Ant"])
    plain, harder = resolve(["Pong", "Pong[difficulty=1]", "ALE/Pong-v5[difficulty=1]"])
    assert (plain, harder) == (PONG, Task("ALE/Pong-v5[difficulty=1]", "atari", 4))
    assert (harder.name, harder.arguments) == ("ALE/Pong-v5", {"difficulty": 1})


def test_a_known_id_that_a_users_module_registers_anew_is_his(beside_user: Path) -> None:
    (beside_user / "usurper.py").write_text(
        "import gymnasium, mine\ngymnasium.registry.pop('CartPole-v1')\n"
        "gymnasium.register('CartPole-v1', entry_point=mine.Mine)\n"
    )
    assert resolve(["usurper:CartPole-v1"]) == (Task("CartPole-v1", "gymnasium", 7, module="usurper"),)
    assert "CartPole-v1: named twice" in refusal("CartPole", "usurper:CartPole-v1")


@pytest.mark.parametrize(("name", "complaint"), REFUSED_ENVIRONMENTS.items())
@pytest.mark.usefixtures("at_once")
def test_an_environment_that_cannot_be_stepped_is_refused(name: str, complaint: str) -> None:
    assert complaint in refusal(name)


@pytest.mark.usefixtures("beside_user")
def test_a_lookup_that_crashes_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "crashes:Thing-v0: Python was ended by SIGABRT: the end is near" in refusal("crashes:Thing-v0")
    monkeypatch.setattr("vebench.interpreters._LOOK_UP_S", 0.5)
    assert "looking up hangs:Thing-v0: no answer within 0.5 s" in refusal("hangs:Thing-v0")


@pytest.mark.parametrize(("asked", "complaint"), REFUSED_ADAPTERS.items())
@pytest.mark.usefixtures("at_once")
def test_an_adapter_that_cannot_be_loaded_or_lacks_an_option_is_refused(
    asked: tuple[str, tuple[str, ...]], complaint: str
) -> None:
    target, options = asked
    assert f"--backend {target}: {complaint}" in refusal("Pong", backend=target, **dict.fromkeys(options, 1))


@pytest.mark.parametrize(("target", "options"), TAKEN)
@pytest.mark.usefixtures("at_once")
def test_options_that_an_adapters_signature_takes_pass(target: str, options: tuple[str, ...]) -> None:
    choice = BackendChoice(f"adapters_of_mine:{target}", dict.fromkeys(options, 1))
    assert resolve(["Pong"], [choice]) == (PONG,)


def test_the_users_folder_does_not_shadow_a_library_and_stays_clean(beside_user: Path) -> None:
    (beside_user / "gymnasium.py").write_text("1 / 0")
    (beside_user / "tasks.py").write_text("import gymnasium\ngymnasium.register('Taken-v0', entry_point='mine:Mine')")
    before = sorted(beside_user.rglob("*"))
    assert resolve(["tasks:Taken-v0"]) == (Task("Taken-v0", "gymnasium", 7, module="tasks"),)
    assert sorted(beside_user.rglob("*")) == before


@pytest.mark.parametrize(
    ("env", "names", "task"),
    [
        ("ALE/Pong-v5", ("Pong",), PONG),
        ("ALE/Pong-v5", ("ale_py:ALE/Pong-v5",), PONG),
        ("ALE/Unheard-v5", ("ALE/Unheard-v5",), Task("ALE/Unheard-v5", "atari", 4)),
        ("user/Mine-v3", ("Pong", "my.tasks:user/Mine-v3"), Task("user/Mine-v3", "gymnasium", 4, "my.tasks")),
        ("CartPole-v1", ("mine:CartPole-v1",), Task("CartPole-v1", "gymnasium", 4, "mine")),
        ("CartPole-v1[a=1]", ("mine:CartPole-v1", "CartPole[a=1]"), Task("CartPole-v1[a=1]", "classic", 4)),
        ("user/Mine-v3[a=x:y/z]", ("my:user/Mine[a=x:y/z]",), Task("user/Mine-v3[a=x:y/z]", "gymnasium", 4, "my")),
        ("mine:make_env[a=1]", ("mine:make_env[a=1]",), Task("mine:make_env[a=1]", "callable", 4)),
        ("gymnax:CartPole-v1", ("CartPole", "gymnax:CartPole-v1"), Task("gymnax:CartPole-v1", "gymnax", 4)),
        ("CartPole-v1", ("gymnax:CartPole-v1", "CartPole"), Task("CartPole-v1", "classic", 4)),
    ],
)
def test_the_task_of_a_cell_in_a_run_file_is_what_was_measured(env: str, names: tuple[str, ...], task: Task) -> None:
    assert recorded_task(env, 4, names) == task
    assert recorded_task(CARTS, 1, (CARTS,), batched=True).suite == "vectors"
