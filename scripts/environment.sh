# Sourced by the other scripts: makes a virtual environment and installs into it only what has changed.
# It needs a Python 3.11 or later and nothing else.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

say() { printf '%s\n' "$*" >&2; }

# Prints the first Python that is new enough.
find_python() {
    local candidate
    for candidate in "${PYTHON:-python3.11}" python3 python3.13 python3.12 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    say "No Python 3.11 or later was found. Install one, or name it: PYTHON=/path/to/python $0"
    return 1
}

# environment DIRECTORY PIP-ARGUMENT...: a virtual environment with these things installed.
# Nothing is done where the same was done before with the same pyproject.toml.
environment() {
    local venv=$1 stamp file
    shift
    # Without pip it is one whose making was broken off.
    if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
        local python
        python=$(find_python)
        say "Making $(basename "$venv") with $python"
        rm -rf "$venv"
        if ! "$python" -m venv "$venv" >&2; then
            rm -rf "$venv"
            say "$python cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)."
            return 1
        fi
    fi
    file="$venv/installed-$(printf '%s ' "$@" | cksum | cut -d ' ' -f 1)"
    stamp="$root $("$venv/bin/python" -V) $(cksum <"$root/pyproject.toml")"
    if [ "$(cat "$file" 2>/dev/null)" != "$stamp" ]; then
        # What is installed there would be missing, or another, where the link leads to: in another checkout.
        if [ -L "$venv" ]; then
            say "$venv is a link to $(readlink "$venv"), and something has to be installed: nothing is installed" \
                "through a link. Remove the link (rm $venv), and this makes an environment of its own."
            return 1
        fi
        say "Installing into $(basename "$venv") (a minute the first time) ..."
        "$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
        "$venv/bin/python" -m pip install --quiet "$@"
        # pip compiles what it copies, not what it installs as it lies here; where no bytecode may be written later
        # (PYTHONDONTWRITEBYTECODE) every start would compile it anew.
        "$venv/bin/python" -m compileall -q "$root/ollama_gate" || true
        printf '%s\n' "$stamp" >"$file"
    fi
}
