"""The paper's four models by name."""

VARIANTS: dict[str, dict[str, bool]] = {
    "smg": {"multi_channel": False, "jk": False},
    "smg-jk": {"multi_channel": False, "jk": True},
    "m-smg": {"multi_channel": True, "jk": False},
    "m-smg-jk": {"multi_channel": True, "jk": True},
}
