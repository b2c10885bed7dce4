#!/usr/bin/env bash
# gantry plugin check: passes our plugins, and finds in each broken one the rule that it breaks.   tests/check_plugins.sh [BUILD]
set -u
cd "$(dirname "$0")/.."
build=${1:-build/release} bad=0
all=open,cycles,domain,judge,shapes,operators,programs,faults,session,versions
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$build/pocl-cache}
say() { echo "check_plugins: $*"; bad=1; }

# passes FILE [CONFIG [GROUPS]]
passes() {
    local said
    said=$("$build/gantry" plugin check "$1" --config "${2:-}" --only "${3:-$all}" 2>&1) || say "${1##*/} ${2:-} does not pass: $(grep -v '^pass ' <<<"$said")"
}

# fails RULE WORDS FILE [CONFIG [SECONDS]]: exit status 1, and that rule fails with those words.
fails() {
    local said status
    said=$("$build/gantry" plugin check "$3" --config "${4:-}" --seconds "${5:-60}" 2>/dev/null)
    status=$?
    [ $status = 1 ] || say "${3##*/} ${4:-} ends with $status: $said"
    grep -E "^FAIL +$1 .*$2" >/dev/null <<<"$said" || say "${3##*/} ${4:-}: no failed rule \"$1\" with \"$2\": $(grep -v "^pass\|^skipped" <<<"$said")"
}

fake=$build/tests/libgantry_fake.so refused=$build/tests/refused
# quirk NAME RULE WORDS: the fake device with spoilt tables.
quirk() { fails "$2" "$3" "$fake" '{"devices":[{"name":"fake","ops":{"Add":["float32"]},"quirk":"'"$1"'"}]}'; }

passes "$build/examples/libgantry_example.so"
passes "$fake"
# blobs QUIRK: the fake device with programs as bytes.
blobs() { echo '{"devices":[{"name":"fake","blobs":true,"quirk":"'"$1"'","ops":{"Add":["float32"],"MatMul":["float32"]}}]}'; }
passes "$fake" "$(blobs '')" programs,faults
passes "$fake" '{"devices":[{"name":"a","peers":true},{"name":"b","peers":true}]}' open,domain
passes "$build/tests/libgantry_own_operators.so"
"$build/gantry" plugin check "$build/tests/libgantry_own_operators.so" --only shapes | grep -c '^pass *shapes of .* [1-9][0-9]* calls inferred' | grep -qx 2 || say "the shape rules of libgantry_own_operators.so are not driven"
# About 30 s of the CPU's time where POCL_CACHE_DIR is empty, 3 s after: each kernel takes PoCL's compiler 0.2 s.
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
two() { fails "(a: )?$2" "$3" "$fake" '{"devices":[{"name":"a","peers":true,"quirk":"'"$1"'"},{"name":"b","peers":true}]}'; }
two peer_of_all 'domain: peers' 'domain kit:0'
two peer_copies_less 'domain: peers' 'copy_from_peer: byte'
two probe_nothing 'domain: probe' 'no measured costs'
two probe_too_much 'domain: probe' 'changes what is no cost'
fails 'damaged blobs' 'the end cut off .*gives status 0' "$fake" "$(blobs blob_any)"
fails blobs 'records other kernels' "$fake" "$(blobs blob_silent)"
fails blobs 'to the last bit' "$fake" "$(blobs blob_other)"
fails 'Add f\[n,3,4\] f\[n,3,4\]' 'element 0 of 36 is' "$fake" '{"devices":[{"name":"fake","ops":{"Add":["float32"]},"faults":[{"op":"Add","kind":"offset"}]}]}'

# The example, broken in one way each.
broken() { fails "$2" "$3" "$refused/libgantry_broken.so" "$1" "${4:-60}"; }
passes "$refused/libgantry_broken.so" none
broken describe_changes describe 'not the same'
broken named_cpu describe built-in
broken judge_hangs 'judge is pure' 'did not come back' 2
broken judge_impure 'judge is pure' 'the second time'
broken judge_takes_all 'judge of strange nodes' 'judge takes'
broken judge_no_code 'Relu f\[n,5\]' 'without a code'
broken judge_no_words 'Relu f\[n,5\]' 'no words'
broken compile_fails 'LeakyRelu f\[n,5\]' 'after judge said yes.*not today'
broken record_stranger 'LeakyRelu f\[n,5\]' 'names node 4711'
broken compile_ignores_memory 'out of memory: compile' 'crashed.*allocation 1'
broken compile_leaks 'out of memory: compile' '1 blocks .*stay behind when allocation 2'
broken block_overrun 'LeakyRelu f\[n,5\]' 'past the end of a block of 100'
broken reshape_refuses 'LeakyRelu f\[n,5\]' 'refused_count 0'
broken run_crashes 'LeakyRelu f\[n,5\]' 'crashed .*a run of LeakyRelu'
broken run_exits 'LeakyRelu f\[n,5\]' 'ended the process with status 3'
broken run_wrong 'LeakyRelu f\[n,5\]' 'element 3 of 15'
broken run_overruns 'LeakyRelu f\[n,5\]' 'wrote outside of output 0'
broken run_writes_input 'LeakyRelu f\[n,5\]' 'changed input 0'
broken run_times_too_much timing 'sum up to'
broken run_shares_scratch threads 'LeakyRelu'
broken close_leaks closes '2 blocks'
broken open_crashes opens 'crashed'
broken open_keeps_file 'loaded and closed x100' '100 file descriptors'
broken open_leaks 'loaded and closed x100' 'bytes more'
broken open_asks_nobody 'older host' 'crashed'
broken takes_abi_0 'ABI 0' 'is accepted'
broken failed_open_leaks 'out of memory: open' '1 blocks'
broken open_no_words 'ABI 0' 'without words'
broken shapes_impure 'shapes of Twice' 'the second time'
broken shapes_refuse_unknown 'shapes of Twice' 'ranks that are not known: infer refuses what it takes'
broken shapes_take_one 'shapes of Twice' 'sizes that come with the run: extent 0 of output 0 will be 1'
broken shapes_strange_extent 'shapes of Twice' 'none that the table of extents made'
broken shapes_no_words 'shapes of Twice' 'without words'
broken shapes_status 'shapes of Twice' 'infer gives internal'
broken shapes_overrun 'shapes of Twice' 'behind the 1 outputs'
broken shapes_need_words 'shapes of Twice' 'crashed.*infer of Twice'
broken shapes_step 'shapes of Twice' 'crashed.*step by their struct_bytes'
broken shapes_elements 'shapes of Twice' 'shape_inputs does not name'
lie() { fails "$2" "$3" "$refused/libgantry_hostile.so" "$1"; }
lie domains_many opens 'counts 4294967295 domains'
lie provider_null tables 'the table is NULL'
lie 'device cost_nan' describe 'no number'
lie 'device queue_null' 'domain: copies' 'queue_open returned OK'
lie 'device event_null' 'domain: events' 'event_create returned OK'
lie refuses_stranger 'Neg f\[n,4\]' 'reshape refused node 4711'
lie records_late 'Neg f\[n,4\]' 'record_kernel was called when the call'
lie compile_null 'Neg f\[n,4\]' 'crashed'
lie workspace_all sessions 'reshape asks for a workspace'
fails exports '1 more symbols.*gantry_talkative_count' "$refused/libgantry_talkative.so"
fails constructors '1 constructors and 1 destructors' "$refused/libgantry_talkative.so"

said=$("$build/gantry" plugin show "$fake" --config '{"devices":[{"name":"a","unavailable":"not there"}]}') || say "show ends with $?"
grep -q '^a .*not available: not there' <<<"$said" || say "show says: $said"
"$build/gantry" plugin show "$refused/libgantry_needs_missing.so" >/dev/null && say "show of a library that can't be loaded ends well"

"$build/gantry" plugin check "$build/examples/libgantry_example.so" --json | python3 -c 'import json, sys; r = json.load(sys.stdin); assert r["failed"] == 0 and r["passed"] == sum(x["state"] == "pass" for x in r["rules"]) > 20' ||
    say "--json is not what it should be"
exit $bad
