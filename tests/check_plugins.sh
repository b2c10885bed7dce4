#!/usr/bin/env bash
# gantry plugin check: passes our plugins, and finds in each broken one the rule that it breaks.   tests/check_plugins.sh [BUILD]
set -u
cd "$(dirname "$0")/.."
build=${1:-build/release} bad=0
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$build/pocl-cache}
say() { echo "check_plugins: $*"; bad=1; }

# passes FILE [CONFIG]
passes() {
    local said
    said=$("$build/gantry" plugin check "$1" --config "${2:-}" 2>&1) || say "${1##*/} ${2:-} does not pass: $(grep -v '^pass ' <<<"$said")"
}

# fails RULE WORDS FILE [CONFIG]: exit status 1, and that rule fails with those words.
fails() {
    local said status
    said=$("$build/gantry" plugin check "$3" --config "${4:-}" 2>&1)
    status=$?
    [ $status = 1 ] || say "${3##*/} ${4:-} ends with $status: $said"
    grep -E "^FAIL +$1 .*$2" >/dev/null <<<"$said" || say "${3##*/} ${4:-}: no failed rule \"$1\" with \"$2\": $said"
}

fake=$build/tests/libgantry_fake.so refused=$build/tests/refused
# quirk NAME RULE WORDS: the fake device with spoilt tables.
quirk() { fails "$2" "$3" "$fake" '{"devices":[{"name":"fake","ops":{"Add":["float32"]},"quirk":"'"$1"'"}]}'; }

passes "$build/examples/libgantry_example.so"
passes "$fake"
[ ! -e "$build/libgantry_opencl.so" ] || passes "$build/libgantry_opencl.so"

fails manifest 'no section .gantry_manifest' "$refused/libgantry_no_manifest.so"
fails manifest 'needs ABI level 7' "$refused/libgantry_newer_abi.so"
fails loads libgantry_missing_library.so "$refused/libgantry_needs_missing.so"
fails exports 'not exported' "$refused/libgantry_odd_cpu.so"
quirk plugin_size_zero opens 'struct_bytes of 0'
quirk plugin_abi_newer opens 'level 2'
quirk plugin_abi_zero opens 'level 0'
quirk provider_size_zero tables 'struct_bytes is 0'
quirk provider_judge_null tables 'judge is NULL'
quirk provider_run_cut tables 'run is NULL'
quirk domain_size_zero tables 'struct_bytes is 0'
quirk domain_copy_null tables 'copy is NULL'
quirk domain_events_partly tables 'event_wait is NULL'
quirk provider_info_size_zero describe 'struct_bytes of 0'
fails 'Add f\[n,3,4\] f\[n,3,4\]' 'element 0 of 36 is' "$fake" '{"devices":[{"name":"fake","ops":{"Add":["float32"]},"faults":[{"op":"Add","kind":"offset"}]}]}'

"$build/gantry" plugin check "$build/examples/libgantry_example.so" --json | python3 -c 'import json, sys; r = json.load(sys.stdin); assert r["failed"] == 0 and r["passed"] == sum(x["state"] == "pass" for x in r["rules"]) > 20' ||
    say "--json is not what it should be"
exit $bad
