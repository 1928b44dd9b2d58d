# The source distribution, and wheels of the oldest and the newest Python that are here.
# `WHEEL_PYTHONS=all .ci/run wheel`, as for a release, builds those between them too, and everything
# twice.
source .ci/common.sh
need_debian g++ # for the test driver
need_tools

out=$wheels
mkdir -p "$out/other" "$out/empty"

echo "-- version $("$tools/bin/python" .ci/version.py)"

# What git has, but for what only its users need; the same bytes from another folder.
python3 .ci/wheels.py sdist --out "$out"
sdist=$(echo "$out"/*.tar.gz)
if [ -d .git ]; then
  tar tzf "$sdist" | sed 's|^[^/]*/||' | grep -vx 'PKG-INFO' | sort >"$out/in-sdist"
  git ls-files | grep -vxE '\.clang-(format|tidy)|\.gitignore' | sort >"$out/in-git"
  diff "$out/in-git" "$out/in-sdist"
  if [ -z "$(git status --porcelain)" ]; then
    git clone -q . "$out/other/clone"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$CI_OUT/../wheels/tools/bin/python" -m build --sdist \
      --no-isolation --outdir "$out/other" "$out/other/clone" >/dev/null
    cmp "$sdist" "$out"/other/*.tar.gz
    echo "-- twice the same bytes: $(sha256sum "$sdist" | cut -d' ' -f1)  ${sdist##*/}"
  fi
fi
rm -rf "$out/source"
mkdir "$out/source"
tar xzf "$sdist" --strip-components 1 -C "$out/source"

echo "-- what cibuildwheel would build"
"$tools/bin/python" -m venv --clear "$out/cibuildwheel"
install "$out/cibuildwheel/bin/python" -c .ci/constraints.txt cibuildwheel
for machine in x86_64 aarch64; do
  "$out/cibuildwheel/bin/cibuildwheel" --platform linux --archs "$machine" --print-build-identifiers .
done >"$out/identifiers"
for python in cp310 cp311 cp312 cp313 cp314 cp314t; do
  printf '%s-manylinux_%s\n' "$python" x86_64 "$python" aarch64
done | sort | diff - <(sort "$out/identifiers")

# The suite runs in the step "tests". `WHEEL_SUITE=whole .ci/run wheel` also runs it against the
# wheel of 3.12, but for what compiles the C++ library, of which a wheel has nothing, and what opens
# the pages in a browser.
apart=(--ignore tests/cpp_package --ignore tests/docs/test_site.py)
# Of `gpuprof run`, what differs between Pythons: how a program is run and ends, and --scopes.
few=(tests/package/test_stubs.py tests/timing/test_scope.py tests/trace/test_writer.py
  tests/run/test_script.py tests/run/test_function_scopes.py
  tests/benchmark/test_benchmark.py tests/benchmark/test_modes.py)
versions=$(wheel_pythons)
for version in $versions; do
  python=$(python3 .ci/wheels.py find --python "$version")
  echo "-- Python $version"
  build_wheel "$version"
  grep -E '^(compiled in|twice)' "$out/build-$version.log"
  wheel=$(echo "$out"/*-cp"${version/./}"-cp"${version/./}"-manylinux_*.whl)
  venv=$CI_OUT/python$version
  "$python" -m venv --clear "$venv"
  # No compiler, no index, no settings: a wheel and Python are enough.
  TIMEFORMAT='installed without a compiler in %R s, of which CPU %U s (wanted: under 5 s)'
  time env -i PATH="$out/empty" "$venv/bin/python" -m pip install -q --no-index --no-deps "$wheel"
  env -i PATH="$out/empty" "$venv/bin/gpuprof" demo
  # The tests of the source distribution, where no other gpuprof is.
  if [ "$version" = 3.12 ] && [ "${WHEEL_SUITE:-}" = whole ]; then
    requirements test >"$CI_OUT/wheel-requirements.txt"
    install "$venv/bin/python" -r "$CI_OUT/wheel-requirements.txt"
    (cd "$out/source" && "$venv/bin/python" -m pytest -q -n auto -p no:cacheprovider "${apart[@]}")
  else
    install "$venv/bin/python" 'pytest>=8.0' 'pytest-timeout>=2.3' 'pytest-xdist>=3.5' \
      'pybind11-stubgen>=2.5'
    (cd "$out/source" && "$venv/bin/python" -m pytest -q -n auto -p no:cacheprovider "${few[@]}" \
      tests/package/test_installed.py)
  fi
done
