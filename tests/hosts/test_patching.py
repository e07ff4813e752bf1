"""Patches on a made-up host: before and after import, copies, twice, taken back, and a host that changed."""

from __future__ import annotations

import sys

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.patching import Patch, PatchSet, bound

LIBRARY = """
def f(a, b=2):
    return a + b

class C:
    def __getitem__(self, key):
        return key

class D(C):
    pass
"""
PROGRAM = "from fakehost_lib import f\n\ndef g(x):\n    return f(x)\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Two modules on disk; ``program`` copies ``f`` from ``lib``."""
    (tmp_path / "fakehost_lib.py").write_text(LIBRARY)
    (tmp_path / "fakehost_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("fakehost_lib", "fakehost_program"):
        sys.modules.pop(name, None)


def ten_times(wrapped, instance, args, kwargs):
    return 10 * wrapped(*args, **kwargs)


def patches(**changes):
    parameters = changes.pop("parameters", ("a", "b"))
    return [
        Patch("fakehost_lib", "f", ten_times, "why", parameters),
        Patch("fakehost_program", "f", ten_times, "copy"),
        Patch("fakehost_lib", "C.__getitem__", ten_times, "item"),
        Patch("fakehost_lib", "absent", ten_times, "not there", required=False),
    ]


def state():
    import fakehost_lib
    import fakehost_program

    return fakehost_lib.f(1), fakehost_program.g(1), fakehost_lib.C()[3], fakehost_lib.D()[4]


@pytest.mark.parametrize("when", ["before", "after"])
def test_patch_behave_unpatch(host, when):
    if when == "after":
        import fakehost_lib
        import fakehost_program

        originals = (fakehost_lib.f, fakehost_lib.C.__getitem__)
    patched = PatchSet("fake", patches())
    patched.apply()
    assert state() == (30, 30, 30, 40)
    patched.apply()
    assert state() == (30, 30, 30, 40)
    patched.restore()
    assert state() == (3, 3, 3, 4)
    patched.restore()
    import fakehost_lib
    import fakehost_program

    assert fakehost_program.f is fakehost_lib.f
    if when == "after":
        assert (fakehost_lib.f, fakehost_lib.C.__getitem__) == originals
    patched.apply()
    assert state() == (30, 30, 30, 40)
    patched.restore()


def test_restored_before_import_means_never_patched(host):
    patched = PatchSet("fake", patches())
    patched.apply()
    patched.restore()
    assert state() == (3, 3, 3, 4)


def test_another_wrapper_on_top_is_left_alone(host):
    import fakehost_lib

    patched = PatchSet("fake", patches())
    patched.apply()
    ours = fakehost_lib.f
    fakehost_lib.f = lambda a: -ours(a)
    patched.restore()
    assert fakehost_lib.f(1) == -30


def test_a_host_that_changed_is_refused_with_what_was_found(host):
    import fakehost_lib  # noqa: F401

    with pytest.raises(AmpError) as caught:
        PatchSet("fake", patches(parameters=("a", "scaler"))).apply()
    assert caught.value.code == "AMP040" and "scaler" in str(caught.value) and "fakehost_lib:f" in str(caught.value)
    with pytest.raises(AmpError, match="does not exist"):
        PatchSet("fake", [Patch("fakehost_lib", "gone", ten_times, "")]).apply()


def test_listing(host):
    patched = PatchSet("fake", patches())
    assert {row[1] for row in patched.listing()} == {"when imported"}
    patched.apply()
    state()
    assert [row[1] for row in patched.listing()] == ["patched", "patched", "patched", "absent"]
    patched.restore()
    assert [row[1] for row in patched.listing()][:3] == ["not patched"] * 3


def test_bound_gives_arguments_by_name_with_defaults():
    def f(a, b=2, *, c=3):
        return a, b, c

    assert bound(f, (1,), {"c": 4}) == {"a": 1, "b": 2, "c": 4}
