"""The packages: the folders ``backends`` and ``reports`` install as parts of ``vebench``. See pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {"vebench": "vebench", "backends": "vebench.backends", "reports": "vebench.reports"}

packages = list(FOLDERS.values())
for folder, package in FOLDERS.items():
    packages += [f"{package}.{inner}" for inner in find_packages(folder)]
setup(packages=packages)
