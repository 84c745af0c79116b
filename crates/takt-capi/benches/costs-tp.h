/* The tracepoint of costs.c. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER takt_costs

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "costs-tp.h"

#if !defined(COSTS_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define COSTS_TP_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(takt_costs, job,
    LTTNG_UST_TP_ARGS(uint64_t, number, uint64_t, release_ns, uint64_t, begin_ns, uint64_t, end_ns, uint64_t, input, double, value),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint64_t, number, number)
        lttng_ust_field_integer(uint64_t, release_ns, release_ns)
        lttng_ust_field_integer(uint64_t, begin_ns, begin_ns)
        lttng_ust_field_integer(uint64_t, end_ns, end_ns)
        lttng_ust_field_integer(uint64_t, input, input)
        lttng_ust_field_float(double, value, value)))

#endif

#include <lttng/tracepoint-event.h>
