/* Inside the counting plugin: instances of another plugin (libgantry_opencl.so), each shown as one device
 * with the name, the operators and the limits that the fake device's JSON text asks for, and with its
 * counters. A test of the contract between host and device then runs on both. What only the fake device can
 * do (faults, peers, late work) is not asked for here. */
#ifndef COUNTED_H
#define COUNTED_H

#include "../fake/fake.h"

typedef struct counted_device {
    const fake_config *config;
    gantry_host host; /* with the inner plugin's config */
    gantry_plugin plugin;
    const gantry_domain *inner_domain;
    const gantry_provider *inner;
    gantry_domain domain;
    gantry_provider provider;
    fake_counters *counters;
    fake_counters own_counters; /* when no file was asked for */
    pthread_mutex_t lock;
    fake_pinned pinned[FAKE_MAX_PINNED]; /* under lock */
    uint32_t pinned_count;
    bool opened;
} counted_device;

/* Fills device->domain and device->provider. */
void counted_domain_table(counted_device *device);
void counted_provider_table(counted_device *device);

#endif
