# Every message that a model can provoke is the expected text of a test (messages.py says which are not), and every
# rule of doc/language.md has an error test in rules.md.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/language/messages.py" "$SRC" || fail "messages or rules without a test"
