#!/usr/bin/env bash
# A steward writes a policy, reads it in words, and checks a job against it before any analyst submits one.
# Nothing is sent and nothing is spent. Usage: examples/steward.sh [FOLDER]
set -euo pipefail
folder=${1:-out/examples/steward}
mkdir -p "$folder"

echo "1. Start from the sample, which explains every key."
dpspca config sample policy > "$folder/policy.toml"
dpspca config sample job > "$folder/job.toml"

echo
echo "2. Read the policy in words, as an ethics board would."
dpspca policy check "$folder/policy.toml"

echo
echo "3. Check a job: is it allowed, and how many such jobs fit into the lifetime budget?"
dpspca policy check "$folder/policy.toml" --job "$folder/job.toml" --analyst ada

echo
echo "4. See each query of the job with its noise and its price."
dpspca plan "$folder/job.toml"

echo
echo "5. A job that asks for too much is refused, with the rule and the numbers."
sed 's/^epsilon = 1.0/epsilon = 2.0/' "$folder/job.toml" > "$folder/greedy.toml"
if dpspca policy check "$folder/policy.toml" --job "$folder/greedy.toml" --analyst ada; then
    echo "This job should have been refused." >&2
    exit 1
fi
