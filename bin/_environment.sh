# Shared by the commands in bin/: finds Python interpreters that work, and keeps one virtual environment for each use.
# Sourced, never run. Everything it writes is in .venv-* inside the checkout, which git ignores.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
SUPPORTED="3.13 3.12 3.11"
unset PYTHONHOME

say() { printf '%s\n' "$*" >&2; }

die() { say "$@"; exit 1; }

# runs CANDIDATE MINOR: it is a real interpreter of that version with all that we use. Found on PATH is not enough: a
# version manager's shim exists for versions that are not selected, and fails when it is run.
runs() {
    "$1" -I -c "import sys, fcntl, sqlite3, ssl, ctypes; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" >/dev/null 2>&1
}

makes_environments() {
    "$1" -I -c "import venv, ensurepip" >/dev/null 2>&1
}

# candidates MINOR: where an interpreter of that version may be, best first.
candidates() {
    type -ap "python$1" || true
    type -ap python3 || true
    local folder
    for folder in "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/"$1"*/bin; do
        printf '%s\n' "$folder/python$1"
    done
}

# python_of MINOR: prints the first interpreter of that version that works and can make environments.
python_of() {
    local candidate
    while IFS= read -r candidate; do
        if runs "$candidate" "$1" && makes_environments "$candidate"; then
            "$candidate" -I -c "import sys; print(sys.executable)"
            return 0
        fi
    done < <(candidates "$1")
    return 1
}

# choose_python: sets PYTHON and MINOR to the newest supported interpreter, or says what to install.
choose_python() {
    local minor candidate
    for minor in ${PLATFORM_WORKER_PYTHON:-$SUPPORTED}; do
        if PYTHON="$(python_of "$minor")"; then
            MINOR="$minor"
            return 0
        fi
    done
    for minor in $SUPPORTED; do
        while IFS= read -r candidate; do
            if runs "$candidate" "$minor"; then
                die "Python $minor is here, but it cannot make virtual environments. Install what is missing and run this again:" \
                    $'\n'"    apt-get install python$minor-venv"
            fi
        done < <(candidates "$minor")
    done
    die "Python 3.11 or newer is needed (with sqlite3 and ssl). On Debian 12, Ubuntu 24.04 or newer:" \
        $'\n'"    apt-get install python3 python3-venv"
}

# environment NAME PYTHON EXTRAS: sets VENV to .venv-NAME with this checkout installed in it, editable. It is installed
# again only when pyproject.toml or the interpreter changed.
environment() {
    local name="$1" python="$2" extras="$3" stamp wanted
    VENV="$ROOT/.venv-$name"
    stamp="$VENV/.installed"
    wanted="$python $extras $ROOT $(cksum <"$ROOT/pyproject.toml")"
    if command -v flock >/dev/null; then
        exec 9>"$VENV.lock"
        flock 9
    fi
    if ! [ -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ] || ! "$VENV/bin/python" -c "" 2>/dev/null; then
        say "Setting up .venv-$name ($("$python" -V)) ..."
        rm -f "$stamp"
        "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$VENV"
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$ROOT$extras" ||
            die "The packages could not be installed; pip's own message is above."
        printf '%s' "$wanted" >"$stamp"
    fi
    exec 9>&-
}
