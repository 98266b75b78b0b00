"""Environment classes of our own, with the same bytes as Gymnasium's: ``fast-sync`` and ``fast-async``.

Begin reading with ``task``: what the environments of one process are, as the rest sees them. What fills it in:

- ``atari``: the emulator, called straight; ``picture``: its screens made into observations;
- ``physics``: MuJoCo, many environments at a time; ``physics_tasks``: what each of its tasks shows and rewards, and
  when it ends, by the arithmetic of ``rewards``; ``physics_loops``: the loop over the environments;
  ``mujoco_library``: what a compiled loop must know of MuJoCo;
- ``native``: the compiled part, if there is one: ``picture.c`` and ``physics.c``.

What decides whether a class of ours may stand for Gymnasium's:

- ``classes``: the table of them, with the settings that each supports;
- ``verified``: the versions and the sources with which the same bytes were shown; ``guard``: whether they are these.

What is built on it: ``share``, the share of one process of a team, and ``backend``, both backends.
"""
