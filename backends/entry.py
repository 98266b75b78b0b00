"""The entry of a backend in the registry: facts that are known before it is loaded. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from vebench.backends.bracketed import OptionValue
from vebench.backends.environments.suites import BURST, MIB, SUITES, literal
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import Installation, Package, how_to_install, importable

Options = Mapping[str, OptionValue]
Role = Literal["contestant", "reference", "ceiling", "null", "yardstick", "device", "rollout"]

MAX_COUNT = 1 << 16  # a larger number is a typing error: no machine has more CPUs


def whole_number(text: str) -> int:
    """Return the number in a text of digits. Raises ValueError for other texts, as an option's ``parse`` must."""
    # int() also accepts underscores and other scripts' digits, and fails late for thousands of digits.
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_COUNT)) and 1 <= int(text) <= MAX_COUNT:
        return int(text)
    raise ValueError(f"a whole number from 1 to {MAX_COUNT}")


@dataclass(frozen=True)
class Option:
    """A setting of a backend that ``-b NAME[KEY=VALUE]`` can change."""

    parse: Callable[[str], OptionValue]  # raises ValueError, with a text that describes a good value after "must be"
    default: OptionValue | None
    meaning: str


def alive_per_row(ratio: int) -> dict[str, Option]:
    """Return the option ``ratio``, with its default: the number of environments alive for each row of a batch."""
    return {"ratio": Option(whole_number, ratio, "environments per row of a batch")}


@dataclass(frozen=True)
class Shape:
    """The counts of a cell, as planned or built."""

    num_envs: int
    batch_size: int
    processes: int
    threads: int


@dataclass(frozen=True)
class Built(Shape):
    """The counts of a built cell, as its backend reports them. ``options`` differ from their defaults."""

    task: Task
    options: Options
    of_library: bool = False  # whether a library trains: environments reset in the same step, and arrays are copied
    then: tuple[str, ...] = ()  # lines that follow in the same script

    def given(self, *names: str) -> list[str]:
        """Return the options among ``names`` that the user has set, as arguments of the same names."""
        return [f"{name}={literal(self.options[name])}" for name in names if name in self.options]

    def guarded(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Return ``lines`` and the lines that follow, guarded by ``__name__`` if processes import the script again."""
        lines = (*lines, *self.then)
        # Libraries have start methods of their own.
        if self.options.get("context", "fork") == "fork" and not self.of_library:
            return lines
        return ('if __name__ == "__main__":', *(f"    {line}" for line in lines))

    def script(self, imports: Iterable[str], lines: Iterable[str]) -> tuple[str, ...]:
        """Return lines that define ``make_env``, followed by ``lines``. Return none if the task has no recipe."""
        recipe = SUITES[self.task.suite].recipe(self.task)
        if not recipe.function:
            return ()
        imported = sorted((*recipe.imports, *imports), key=lambda line: (line.startswith("from"), line))
        return (*imported, "", *recipe.function, "", *lines)  # the interactive interpreter requires the empty lines


@dataclass(frozen=True)
class Library:
    """The library that an adapter uses."""

    title: str = ""  # its usual name
    packages: tuple[Package, ...] = ()  # the packages that the backend itself needs
    installation: Installation | None = None  # how to install another project's library in its own environment
    # Modules to import before cells are forked. They start no threads and keep nothing that breaks in a forked process.
    # None: each cell needs a fresh interpreter, as do cells of other projects' libraries.
    preloads: tuple[str, ...] | None = ()
    import_bytes: int = 0  # memory of the loaded library, counted once
    worker_bytes: int | None = None  # memory of one more worker process; None: depends on the start method
    spins: bool = False  # its processes poll without sleeping, so rates on shared CPUs mean nothing


@dataclass(frozen=True)
class Scope:
    """The tasks that a backend can step, and how comparable its rows are with the reference's."""

    suites: frozenset[str] | None = None  # names of suites; None: all
    name_of: Callable[[Task], str | None] = attrgetter("id")  # the library's name for a task, None if it has none
    # Why rows differ from the reference's by chance alone, even with the same seed; None if they must be the same. Only
    # this text excuses a backend from comparison. Its adapter's report does not.
    chance: Callable[[Task], str | None] = lambda _task: None
    no_ops: int = 1  # no-ops at each reset of a game's exact variant
    # Returns the backend's own class for a task, as far as known before loading. None: the backend has no own classes.
    own_classes: Callable[[Task], OwnClasses | None] | None = None
    without_own: str = ""  # the name of the same backend with Gymnasium's classes

    def steps(self, suite: str) -> bool:
        """Return whether the backend steps some task of a suite."""
        return self.suites is None or suite in self.suites


@dataclass(frozen=True)
class BackendEntry:
    """One row of the table of backends."""

    name: str
    target: str  # ``module:Class`` of the adapter
    summary: str  # one line for users
    # Where steps run. ``process each``: one per environment. ``processes``, ``threads``: ``Setup.at_once`` of them.
    steppers: Literal["caller", "process each", "process per worker", "processes", "threads"] = "caller"
    # Users choose among contestants and the reference. Contestants' rows must equal the reference's, and speedups are
    # relative to it. Rows that stay on a device (``device``) must be equal, too, but serve only a policy on the device.
    # The ceiling, null, the yardstick, and rollouts with actions of their own are only measured for comparison.
    role: Role = "contestant"
    roles: Mapping[str, Role] = field(default_factory=dict)  # the role with an option, by the option's name
    library: Library = Library()
    scope: Scope = Scope()
    steps_gymnasium: bool = True  # whether Gymnasium makes its environments, with the packages of the task's suite
    # ``ratio``: environments alive for each row of a batch; ``max_concurrency``: how many step at the same time;
    # ``context``: the start method of processes; ``spares``: of each environment; ``rollout``: steps in a batch. Other
    # options are the adapter's own.
    options: Mapping[str, Option] = field(default_factory=dict)
    # CPU seconds to make and reset one environment, by suite, if unlike Gymnasium's. Measured: 64 of Pong, HalfCheetah.
    environment_seconds: Mapping[str, float] = field(default_factory=dict)
    worth_trying: tuple[Options, ...] = ()  # options that ``tune`` tries, since they are faster on some machines
    asynchronous: bool = False  # whether environments outside the last batch step while a policy acts
    by_default: bool = True  # whether a run that names no backends measures it
    competes: bool = True  # a library's sampler does not: it is compared with its other releases
    gymnasium_api: bool = False  # whether users need only Gymnasium's ``Env`` or ``VectorEnv``
    lines: Callable[[Built], tuple[str, ...]] = lambda _built: ()  # returns a script that builds the same environments

    def shape_of(self, workers: int, envs_per_worker: int, cpus: int, options: Options, waits: bool = False) -> Shape:
        """Return the planned counts. An option that is missing in ``options`` has the backend's default."""
        batch, at_once = workers * envs_per_worker, workers if waits else min(workers, cpus)
        if self.role == "ceiling":  # processes that make bursts of steps. Each counts as an environment.
            return Shape(at_once, BURST * at_once, processes=at_once, threads=1)
        ratio = self.options.get("ratio")
        alive = batch if ratio is None else batch * int(options.get("ratio", ratio.default or 1))
        processes, threads = {
            "caller": (1, 1),
            "process each": (alive, 1),
            "process per worker": (workers, 1),
            "processes": (at_once, 1),
            "threads": (1, at_once),
        }[self.steppers]
        return Shape(alive, batch * int(options.get("rollout", 1)), processes, threads)

    def preloaded(self, task: Task) -> tuple[str, ...] | None:
        """Return the modules to import before cells on ``task`` are forked, None if each needs a fresh interpreter."""
        keeps_threads = bool(SUITES[task.suite].make_vec)  # JAX and Warp do
        if self.library.preloads is None or self.library.installation is not None or keeps_threads:
            return None
        needed = SUITES[task.suite].packages if self.steps_gymnasium else ()
        return (*self.library.preloads, *(package.module for package in needed))

    def at_work(self, processes: int, threads: int, options: Options) -> int:
        """Return how many of the threads in these processes step environments at the same time."""
        limit = options.get("max_concurrency") if "max_concurrency" in self.options else None
        return (min(processes, limit) if isinstance(limit, int) else processes) * threads

    def process_bytes(self, options: Options) -> int:
        """Return the memory of one more worker process, its environment included."""
        if self.library.worker_bytes is not None:
            return self.library.worker_bytes
        # Measured proportional set sizes: at most 7.2 MiB for a forked worker, 30 MiB for a fresh interpreter.
        return (7 if options.get("context", "fork") == "fork" else 40) * MIB

    @property
    def family(self) -> str:
        """The name without ``-sync`` or ``-async``: ``gym`` for ``gym-sync`` and ``gym-async``."""
        return self.name.removesuffix("-async").removesuffix("-sync")

    @property
    def is_async(self) -> bool:
        """Whether the name ends with ``-async``. Such a backend may still wait for all environments: ``gym-async``."""
        return self.name.endswith("-async")

    @property
    def reference_row(self) -> bool:
        """Whether the backend is only measured for comparison: ceiling, null, yardstick or a rollout."""
        return self.role in ("ceiling", "null", "yardstick", "rollout")

    @property
    def candidate(self) -> bool:
        """Whether an answer may recommend the backend: no reference row, and its rows do not stay on a device."""
        return not self.reference_row and self.role != "device"

    @property
    def is_peer(self) -> bool:
        """Whether a user may choose the backend: a run measures it by default, or it is another project's."""
        of_others = bool(self.library.title) or self.library.installation is not None
        return self.competes and not self.reference_row and (self.by_default or of_others)

    @property
    def builds_environments(self) -> bool:
        """Whether the backend builds environments, which take memory."""
        return self.role not in ("null", "yardstick")

    def has(self, task: Task) -> bool:
        """Return whether the backend can step a task once everything is installed."""
        # In a library's interpreter, only contestants that name its suite step its tasks.
        can = not SUITES[task.suite].installation or self.scope.suites is not None or self.role != "contestant"
        return can and self.scope.steps(task.suite) and self.scope.name_of(task) is not None

    def means_nothing_for(self, task: Task) -> bool:
        """Return whether the backend cannot step this task, and only users who name the backend want to know that."""
        special = self.reference_row or self.scope.own_classes is not None or bool(self.roles)
        return not self.has(task) and (special or bool(SUITES[task.suite].installation))

    def is_usual_for(self, task: Task) -> bool:
        """Return whether the backend is measured on a task without being named.

        Not if it steps copies of a batch in other processes: JAX and Warp keep threads, which forked processes lose.
        """
        forks = bool(SUITES[task.suite].make_vec) and "process" in self.steppers
        return not (forks or self.means_nothing_for(task))

    def why_not(self, task: Task, has: Callable[[str], bool] | None = None) -> str | None:
        """Return why this backend cannot step ``task``, or None if it can.

        ``has`` says whether another interpreter can import a module. Without ``has``, this interpreter is asked.
        """
        if not self.has(task):
            who = self.library.title or self.family
            what = f"{who} has no" if self.scope.own_classes is None else "vebench has no class for"
            suites = ", ".join(sorted(SUITES[suite].title for suite in self.scope.suites or ()))
            return f"{what} {task.id}{'' if self.scope.steps(task.suite) else f': it steps {suites} only'}"
        missing = self.missing(task, has or importable)
        if not missing:
            return None
        if self.library.installation is not None and any(package in self.library.packages for package in missing):
            return "not installed (vebench install NAME)"  # one text for all, which a report joins to one line
        names = ", ".join(package.name for package in missing)
        return f"not installed: {names} ({how_to_install(missing, beside_vebench=has is None)})"

    def missing(self, task: Task, has: Callable[[str], bool] = importable) -> tuple[Package, ...]:
        """Return the packages that ``task`` needs and that are not installed."""
        needed = (*self.library.packages, *(SUITES[task.suite].packages if self.steps_gymnasium else ()))
        return tuple(package for package in dict.fromkeys(needed) if not has(package.module))
