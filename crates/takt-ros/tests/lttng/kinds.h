/*
 * A tracepoint for the tests of the CTF reader with one field of every kind that LTTng-UST can record.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER takt_test

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "kinds.h"

#if !defined(KINDS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define KINDS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_ENUM(takt_test, mode,
    LTTNG_UST_TP_ENUM_VALUES(
        lttng_ust_field_enum_value("idle", 0)
        lttng_ust_field_enum_range("busy", 1, 9)
        lttng_ust_field_enum_value("odd mode", -5)))
/* Every kind of field, in an order that leaves them unaligned. */
LTTNG_UST_TRACEPOINT_EVENT(takt_test, kinds,
    LTTNG_UST_TP_ARGS(int, number, const char *, text, const uint16_t *, values, size_t, length, double, real),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint8_t, small, (uint8_t) number)
        lttng_ust_field_integer(int64_t, negative, -(int64_t) number)
        lttng_ust_field_integer_network(uint32_t, network, (uint32_t) number)
        lttng_ust_field_integer_network_hex(uint16_t, network_hex, (uint16_t) number)
        lttng_ust_field_string(text, text)
        lttng_ust_field_sequence(uint16_t, values, values, size_t, length)
        lttng_ust_field_float(float, single, (float) real)
        lttng_ust_field_float(double, twice, real)
        lttng_ust_field_array_text(char, letters, "eight ch", 8)
        lttng_ust_field_sequence_text(char, tail, text, size_t, length + 1)
        lttng_ust_field_enum(takt_test, mode, int, mode, number % 12 - 5)
        lttng_ust_field_array_hex(int32_t, corners, ((int32_t[]) {-1, 0, number}), 3)))

#endif

#include <lttng/tracepoint-event.h>
