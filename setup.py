"""Kept for `pip install -e .` on old tools and for `python setup.py --version`; the metadata is in pyproject.toml."""

from setuptools import setup

setup()
