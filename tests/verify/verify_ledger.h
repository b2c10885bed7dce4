/* Checks the ledger of the last run: its sums are what the devices counted in it. */
#ifndef GT_TESTS_VERIFY_VERIFY_LEDGER_H
#define GT_TESTS_VERIFY_VERIFY_LEDGER_H

#include "stub.h"

#include "core/run.h"

/* devices: by session domain, with counts of this run only. False: out_text (400 bytes) says what differs. */
bool verify_ledger(const gantry_run *run, const stub_domain *devices, char *out_text);

#endif
