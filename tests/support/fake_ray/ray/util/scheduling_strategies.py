from dataclasses import dataclass

from ray.util.placement_group import Group


@dataclass(frozen=True)
class PlacementGroupSchedulingStrategy:
    placement_group: Group
    placement_group_bundle_index: int
