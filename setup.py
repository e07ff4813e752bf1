"""Only what pyproject.toml cannot say: a ``.pth`` at the top of site-packages, and the recipes inside the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PTH = "paddle_amp_plugin.pth"
RECIPES = Path("configs")


class BuildPy(build_py):
    """Also copies what lies outside the package. An editable install has the checkout, and needs neither."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._more():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def _more(self) -> list[tuple[Path, Path]]:
        build = Path(self.build_lib)
        recipes = [(path, build / "paddle_amp_plugin" / path) for path in sorted(RECIPES.rglob("*.yml"))]
        return [(Path(PTH), build / PTH), *recipes]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        more = [] if self.editable_mode else [str(target) for _, target in self._more()]
        return [*super().get_outputs(include_bytecode), *more]


setup(cmdclass={"build_py": BuildPy})
