from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """A bundle on each of these nodes, all of them or none."""

    nodes: tuple[str, ...]

    def wait(self, timeout_seconds: float) -> bool:
        """Say at once whether they are free, since nobody wants to wait for it."""
        assert timeout_seconds > 0
        return not any("-busy" in node for node in self.nodes)


def placement_group(
    bundles: list[dict[str, float]], strategy: str, bundle_label_selector: list[dict[str, str]]
) -> Group:
    """Claim CPUs on the nodes that the selectors name, which have two each."""
    assert bundles == [{"CPU": 2.0}] * len(bundle_label_selector)
    assert strategy == "STRICT_SPREAD"
    return Group(tuple(node for selector in bundle_label_selector for node in selector.values()))


def remove_placement_group(group: Group) -> None:
    assert group.nodes
