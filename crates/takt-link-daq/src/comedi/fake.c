/* A board for tests, with comedilib's interface. Three subdevices: digital lines, analog input, analog output; the
 * output's channel 0 is wired to the input's channel 0. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { double min, max; unsigned int unit; } comedi_range;
typedef struct { double wire; int broken; } comedi_t;

static comedi_range ai_ranges[] = {{-10, 10, 0}, {0, 5, 0}};
static comedi_range ao_ranges[] = {{0, 5, 0}, {4, 20, 1}};
static int last_error, oor_is_nan = 1;

comedi_t *comedi_open(const char *name) {
    if (strstr(name, "absent")) last_error = ENOENT;
    else if (strstr(name, "forbidden")) last_error = EACCES;
    else if (strstr(name, "unconfigured")) last_error = ENODEV;
    else {
        comedi_t *device = calloc(1, sizeof *device);
        device->broken = strstr(name, "broken") != NULL;
        return device;
    }
    errno = last_error;
    return NULL;
}
int comedi_close(comedi_t *it) { free(it); return 0; }
int comedi_loglevel(int level) { return level; }
int comedi_errno(void) { return last_error; }
const char *comedi_strerror(int number) { return strerror(number); }
int comedi_set_global_oor_behavior(int behavior) { int old = oor_is_nan; oor_is_nan = behavior; return old; }
const char *comedi_get_driver_name(comedi_t *it) { return "fake"; }
const char *comedi_get_board_name(comedi_t *it) { return "fake-1716"; }
int comedi_get_n_subdevices(comedi_t *it) { return 3; }
int comedi_get_subdevice_type(comedi_t *it, unsigned sub) { return sub == 0 ? 5 : sub == 1 ? 1 : sub == 2 ? 2 : -1; }
int comedi_find_subdevice_by_type(comedi_t *it, int type, unsigned from) {
    for (unsigned sub = from; sub < 3; sub++)
        if (comedi_get_subdevice_type(it, sub) == type) return (int)sub;
    return -1;
}
int comedi_get_n_channels(comedi_t *it, unsigned sub) { return sub == 1 ? 2 : sub == 2 ? 1 : 8; }
int comedi_get_n_ranges(comedi_t *it, unsigned sub, unsigned chan) { return 2; }
comedi_range *comedi_get_range(comedi_t *it, unsigned sub, unsigned chan, unsigned range) {
    if (range > 1) return NULL;
    return sub == 1 ? &ai_ranges[range] : &ao_ranges[range];
}
unsigned comedi_get_maxdata(comedi_t *it, unsigned sub, unsigned chan) { return sub == 1 ? 65535 : 4095; }
double comedi_to_phys(unsigned data, comedi_range *range, unsigned maxdata) {
    if (oor_is_nan && (data == 0 || data == maxdata)) return NAN;
    return range->min + (double)data / maxdata * (range->max - range->min);
}
unsigned comedi_from_phys(double value, comedi_range *range, unsigned maxdata) {
    double code = (value - range->min) / (range->max - range->min) * maxdata;
    return code < 0 ? 0 : code > maxdata ? maxdata : (unsigned)(code + 0.5);
}
int comedi_data_read_delayed(comedi_t *it, unsigned sub, unsigned chan, unsigned range, unsigned aref, unsigned *data,
                             unsigned nanoseconds) {
    if (it->broken) { last_error = EIO; return -1; }
    if (chan == 1) *data = range * 1000 + aref * 100 + nanoseconds / 1000;
    else *data = comedi_from_phys(it->wire, &ai_ranges[range], 65535);
    return 1;
}
int comedi_data_read(comedi_t *it, unsigned sub, unsigned chan, unsigned range, unsigned aref, unsigned *data) {
    return comedi_data_read_delayed(it, sub, chan, range, aref, data, 0);
}
int comedi_data_write(comedi_t *it, unsigned sub, unsigned chan, unsigned range, unsigned aref, unsigned data) {
    if (it->broken) { last_error = EIO; return -1; }
    it->wire = comedi_to_phys(data, &ao_ranges[range], 4095);
    return 1;
}
