"""What is done once a module is imported: other finders are left as they are."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import check_python


def test_finders_before_it_are_asked_once_and_may_ask_all_others_themselves(
    tmp_path: Path,
) -> None:
    (tmp_path / "late.py").write_text("", encoding="utf-8")
    out = check_python(
        """
        from gpuprof._common.imports import when_imported
        asked = []
        class AsksTheOthers:
            def find_spec(self, name, path, target=None):
                asked.append(name)
                for finder in sys.meta_path:
                    if finder is not self and (spec := finder.find_spec(name, path, target)):
                        return spec
                return None
        when_imported("late", lambda: print("late"))
        sys.meta_path.insert(0, AsksTheOthers())
        import late
        print(asked.count("late"))
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out.split() == ["late", "1"]


def test_who_walks_through_the_finders_while_it_goes_still_meets_them_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "late.py").write_text("", encoding="utf-8")
    out = check_python(
        """
        from gpuprof._common.imports import when_imported
        before = list(sys.meta_path)
        when_imported("late", lambda: None)
        walk = iter(sys.meta_path)
        next(walk)
        import late
        print(list(walk) == before, sys.meta_path == before)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out.split() == ["True", "True"]
