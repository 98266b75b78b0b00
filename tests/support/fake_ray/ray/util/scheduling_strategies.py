"""Where an actor is to run."""

from dataclasses import dataclass

from ray.util.placement_group import Group


@dataclass(frozen=True)
class NodeAffinitySchedulingStrategy:
    """On this node and on no other."""

    node_id: str
    soft: bool


@dataclass(frozen=True)
class PlacementGroupSchedulingStrategy:
    """In a bundle of this group."""

    placement_group: Group
    placement_group_bundle_index: int

    @property
    def node_id(self) -> str:
        return self.placement_group.nodes[self.placement_group_bundle_index]
