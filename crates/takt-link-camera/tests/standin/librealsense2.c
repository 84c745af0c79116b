/* A stand-in for librealsense2 that plays a script of frame sets: what the tests of the RealSense backend are held
   against. The functions have the signatures of librealsense2's public C headers; objects are counted, so that a
   test sees what was not released. Not thread-safe: one camera at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 1, COLOUR = 2 };
enum { FRAMES, TIME_OUT, FAILURE, NOTHING };

/* One image of a set. Mirrored in mod.rs. */
struct part {
    int stream, format, width, height, stride, size, domain, null_data;
    unsigned long long number, seed;
    double stamp_ms;
    float unit_m;
    int arrived_ms_ago; /* by the library's metadata; 0: it has none */
};

/* What one call of rs2_pipeline_wait_for_frames gives. Mirrored in mod.rs. */
struct set {
    int kind, count;
    struct part parts[4];
};

struct object {
    struct set set;       /* of a set of frames */
    struct part part;     /* of an image */
    unsigned char *data;  /* of an image */
    struct object *inner; /* of a queue: the set in it */
    char text[128];       /* of an error */
};

struct intrinsics {
    int width, height;
    float ppx, ppy, fx, fy;
    int model;
    float coeffs[5];
};

static struct set script[4096];
static int script_next, script_count, started;
static long live;

void standin_clear(void) { script_next = script_count = 0; }
void standin_push(const struct set *set) {
    if (script_count < 4096) script[script_count++] = *set;
}
int standin_left(void) { return script_count - script_next; }
long standin_live(void) { return live; }

static struct object *new_object(void) {
    live++;
    return calloc(1, sizeof(struct object));
}

static void delete_object(struct object *o) {
    if (!o) return;
    live--;
    if (o->inner) delete_object(o->inner);
    free(o->data);
    free(o);
}

static void fail(struct object **error, const char *text) {
    *error = new_object();
    snprintf((*error)->text, sizeof (*error)->text, "%s", text);
}

int rs2_get_api_version(struct object **e) { (void)e; return 25500; }
const char *rs2_get_error_message(const struct object *e) { return e->text; }
void rs2_free_error(struct object *e) { delete_object(e); }

struct object *rs2_create_context(int version, struct object **e) {
    if (version != 25500) { fail(e, "another version"); return NULL; }
    return new_object();
}
void rs2_delete_context(struct object *o) { delete_object(o); }
struct object *rs2_create_pipeline(struct object *context, struct object **e) {
    if (!context) { fail(e, "no context"); return NULL; }
    return new_object();
}
void rs2_delete_pipeline(struct object *o) { delete_object(o); }
struct object *rs2_create_config(struct object **e) { (void)e; return new_object(); }
void rs2_delete_config(struct object *o) { delete_object(o); }
void rs2_config_enable_device(struct object *o, const char *serial, struct object **e) {
    (void)o;
    if (strcmp(serial, "stand-in") != 0) fail(e, "No device connected");
}
void rs2_config_enable_stream(struct object *o, int stream, int index, int width, int height, int format, int rate,
                              struct object **e) {
    (void)o; (void)stream; (void)index; (void)width; (void)height; (void)format; (void)rate; (void)e;
}
struct object *rs2_pipeline_start_with_config(struct object *o, struct object *config, struct object **e) {
    (void)o;
    if (!config) { fail(e, "no config"); return NULL; }
    started++;
    return new_object();
}
void rs2_pipeline_stop(struct object *o, struct object **e) {
    (void)o;
    if (started-- <= 0) { started = 0; fail(e, "stop() cannot be called before start()"); }
}
void rs2_delete_pipeline_profile(struct object *o) { delete_object(o); }

struct object *rs2_pipeline_wait_for_frames(struct object *o, unsigned timeout_ms, struct object **e) {
    (void)o;
    char text[64];
    snprintf(text, sizeof text, "Frame didn't arrive within %u", timeout_ms);
    if (!started) { fail(e, "wait_for_frames cannot be called before start()"); return NULL; }
    if (script_next >= script_count) { fail(e, text); return NULL; }
    const struct set *set = &script[script_next++];
    switch (set->kind) {
    case TIME_OUT: fail(e, text); return NULL;
    case FAILURE: fail(e, "Device disconnected. Failed to reconnect"); return NULL;
    case NOTHING: return NULL;
    }
    struct object *frames = new_object();
    frames->set = *set;
    return frames;
}

struct object *rs2_create_align(int stream, struct object **e) {
    if (stream != COLOUR) { fail(e, "align to colour"); return NULL; }
    return new_object();
}
void rs2_delete_processing_block(struct object *o) { delete_object(o); }
struct object *rs2_create_frame_queue(int capacity, struct object **e) {
    if (capacity < 1) { fail(e, "no capacity"); return NULL; }
    return new_object();
}
void rs2_delete_frame_queue(struct object *o) { delete_object(o); }

static struct object *block_queue;
void rs2_start_processing_queue(struct object *block, struct object *queue, struct object **e) {
    (void)block; (void)e;
    block_queue = queue;
}
void rs2_process_frame(struct object *block, struct object *frames, struct object **e) {
    (void)block; (void)e;
    if (block_queue->inner) delete_object(block_queue->inner);
    block_queue->inner = frames;
}
struct object *rs2_wait_for_frame(struct object *queue, unsigned timeout_ms, struct object **e) {
    (void)timeout_ms;
    struct object *frames = queue->inner;
    if (!frames) fail(e, "Frame did not arrive in time!");
    queue->inner = NULL;
    return frames;
}
void rs2_release_frame(struct object *o) { delete_object(o); }

int rs2_embedded_frames_count(struct object *o, struct object **e) { (void)e; return o->set.count; }

static unsigned long long mix(unsigned long long z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

struct object *rs2_extract_frame(struct object *o, int index, struct object **e) {
    if (index < 0 || index >= o->set.count || index >= 4) { fail(e, "index out of range"); return NULL; }
    struct object *frame = new_object();
    struct part *part = &frame->part;
    *part = o->set.parts[index];
    if (part->null_data || part->size <= 0) return frame;
    frame->data = malloc(part->size);
    /* The same seed is the same picture: 2 m with some millimetres of noise, and a grey wall with some levels. */
    for (int i = 0; i + 1 < part->size; i += 2) {
        unsigned noise = mix(part->seed + i) % 9;
        if (part->stream == DEPTH) {
            unsigned depth = 2000 + noise;
            frame->data[i] = depth & 255, frame->data[i + 1] = depth >> 8;
        } else {
            frame->data[i] = 90 + noise * 9, frame->data[i + 1] = 90 + noise;
        }
    }
    return frame;
}

/* A profile is its frame. */
const struct object *rs2_get_frame_stream_profile(const struct object *o, struct object **e) { (void)e; return o; }
void rs2_get_stream_profile_data(const struct object *o, int *stream, int *format, int *index, int *id, int *rate,
                                 struct object **e) {
    (void)e;
    *stream = o->part.stream, *format = o->part.format, *index = 0, *id = o->part.stream, *rate = 30;
}
void rs2_get_video_stream_intrinsics(const struct object *o, struct intrinsics *to, struct object **e) {
    (void)e;
    memset(to, 0, sizeof *to);
    to->width = o->part.width, to->height = o->part.height;
    to->ppx = o->part.width / 2.0f, to->ppy = o->part.height / 2.0f;
    to->fx = to->fy = o->part.width * 0.8f;
}
const void *rs2_get_frame_data(const struct object *o, struct object **e) { (void)e; return o->data; }
int rs2_get_frame_data_size(const struct object *o, struct object **e) { (void)e; return o->part.size; }
int rs2_get_frame_width(const struct object *o, struct object **e) { (void)e; return o->part.width; }
int rs2_get_frame_height(const struct object *o, struct object **e) { (void)e; return o->part.height; }
int rs2_get_frame_stride_in_bytes(const struct object *o, struct object **e) { (void)e; return o->part.stride; }
unsigned long long rs2_get_frame_number(const struct object *o, struct object **e) { (void)e; return o->part.number; }
double rs2_get_frame_timestamp(const struct object *o, struct object **e) { (void)e; return o->part.stamp_ms; }
int rs2_get_frame_timestamp_domain(const struct object *o, struct object **e) { (void)e; return o->part.domain; }
int rs2_supports_frame_metadata(const struct object *o, int key, struct object **e) {
    (void)e;
    return key == 7 && o->part.arrived_ms_ago != 0;
}
long long rs2_get_frame_metadata(const struct object *o, int key, struct object **e) {
    if (!rs2_supports_frame_metadata(o, key, e)) { fail(e, "metadata not available"); return 0; }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000 - o->part.arrived_ms_ago;
}
float rs2_depth_frame_get_units(const struct object *o, struct object **e) {
    if (o->part.stream != DEPTH) fail(e, "not a depth frame");
    return o->part.unit_m;
}
