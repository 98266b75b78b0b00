"""Where an actor is to run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeAffinitySchedulingStrategy:
    """On this node and on no other."""

    node_id: str
    soft: bool
