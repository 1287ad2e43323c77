# What the recipes share; sourced, not run.

fail() {
    echo "error: $1" >&2
    exit 2
}

require() {
    for name in "$@"; do
        [ -n "${!name:-}" ] || fail "--$name is missing. The first lines of the recipe say what it is."
    done
}

need_file() {
    [ -f "$1" ] || fail "$1 is missing. The first lines of the recipe say which files are needed."
}

# Run a command of alembert; one whose result is complete costs nothing. Exit code 3 is a result too: some records could not
# be read, and the command has said which.
run() {
    echo "alembert $*" >&2
    .venv/bin/alembert "$@" || [ $? -eq 3 ]
}

# Keep the scores of a model on a file as <model>.scores.json beside its folder.
score() {
    local scores=$1.scores.json
    [ -f "$scores" ] && return
    run evaluate "$1" "$2" --json > "$scores.partial"
    mv "$scores.partial" "$scores"
}
