// Perception of one camera on a CUDA device: counterparts of the CPU stages, bit for bit where arithmetic allows.
//
// Every kernel but `takt_copy` has the same two arguments: the parameter blocks of the cameras of a launch (one each row of the
// grid, so that five cameras are one launch) and a number whose meaning is the kernel's. Whatever changes from
// frame to frame is read from memory, so a captured CUDA graph never needs an update.
//
// Threads share no memory but global memory, and only the lanes of a warp wait for each other; order does not change
// a result: sums are of integers, floats meet in minima alone, and ties are broken by position as on the CPU. Compile
// with --fmad=false, so that roundings are those of the CPU.
//
// What many threads would add to one address is added up in a warp first (`lanes_...`). Where the text is compiled
// for a CPU, as the emulated device does, a warp is one lane.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef __CUDACC__
#include <math.h>
#endif

#define NONE 0xffffffffu
#define INFINITE_BITS 0x7f800000u
#define NO_KEY 0xffffffffffffffffull
// Mirrored in `layout.rs`; the kernel `takt_layout` tells whether the two agree.
#define MAX_PEOPLE 32
#define MAX_ITEMS 255
#define STRIPES 64
#define DENSE_CELLS 1500
#define STRIP 8
#define CHUNKS 4

// Where camera and tool are in this frame; its capsules follow, seven floats each: ends, radius.
struct Pose {
    float axes[9];
    float origin[3];
    float tcp[3];
    // What holds all capsules; inside out without any.
    float robot[6];
    u32 active;
    u32 capsules;
    u32 padding;
};

// A window of the image as a network's input.
struct Window {
    float *out;
    u32 width, height;
    float origin[2], scale[2];
    u32 order[3];
    float mean[3], factor[3];
    float padding;
};

struct Mask {
    const float *values;
    u32 width, height;
    // Mask pixels for each frame pixel, mask coordinate of the frame's corner.
    float scale[2], offset[2];
    // Columns and rows of the lattice that its box covers: first, end, first, end.
    u32 rect[4];
};

struct Masks {
    u32 count;
    // Of a segmenting detector: column of each kept candidate.
    u32 kept_count;
    u32 kept[MAX_PEOPLE];
    float kept_box[MAX_PEOPLE][4];
    Mask mask[MAX_PEOPLE];
};

struct Person {
    float reach[4], wide[4], box[4];
    // Columns and rows of cells that may belong: first, end, first, end.
    u32 range[4];
    // The first cell of a blob that is this person's alone.
    u32 root;
    u32 mask;
};

struct People {
    u32 count;
    // The first so many have masks.
    u32 masked;
    Person person[MAX_PEOPLE];
};

struct Queries {
    u32 count, padding;
    float box[MAX_PEOPLE][4];
};

// What is known of connected cells, at their first cell.
struct Gather {
    u64 depth2;
    u32 samples;
    u32 nearest2;
    u32 left, top, right, bottom;
    // Pieces only: whether a cell was left out by no mask, and the first item whose mask left one out.
    u32 open, left_by;
    // Blobs: whether it counts. Pieces: the item that it became or joined, 0 for none.
    u32 verdict;
    u32 padding;
};

// What the first part of a frame gives: counters in stripes, because one address would be a queue.
struct Look {
    u64 grey[STRIPES], grey2[STRIPES];
    u32 valid[STRIPES], impossible[STRIPES];
    u32 blobs, candidates;
    u32 covered[MAX_PEOPLE];
    u32 nearest2[MAX_PEOPLE];
};

struct BlobRecord {
    u32 root, samples;
    float area_m2;
    u32 nearest2;
    u32 left, top, right, bottom;
};

struct Candidate {
    float box[4];
    float score;
    u32 index;
};

struct ItemSum {
    u32 cells, nearest2, points;
    // People: cells in reach, and those that the mask holds; cells in the box, and those with depth.
    u32 all, inside, in_box, valid;
    u32 root;
    // Per axis: the leading bits of the median, and how many cells of these bits come before it.
    u32 prefix[3], rank[3];
};

struct ItemRecord {
    u32 root, cells, points, segmented;
    float box[4];
    float distance2;
    float nearest[3];
    float position[3];
    u32 in_box, valid;
    u32 padding;
};

struct Report {
    // Pieces that became items; more than there is room for is an overflow.
    u32 pieces, padding;
    ItemRecord item[MAX_ITEMS];
};

struct Camera {
    const u8 *rgb;
    const u16 *depth;
    const float *slope_x, *slope_y;
    const float *fixtures;
    const Pose *pose;
    const Window *windows;
    const Masks *masks;
    const People *people;
    const Queries *queries;
    float *points_x, *points_y, *points_z;
    u32 *blob_of, *piece_of;
    Gather *blobs, *pieces;
    u32 *owner, *unmasked, *scan_item, *scan_near;
    u64 *keys;
    u32 *bins;
    ItemSum *items;
    Look *look;
    BlobRecord *blob_records;
    Candidate *candidates;
    Report *report;
    u8 *paint;
    u16 *cell_depth;
    const float *scores[3];
    const float *boxes[3];
    float *planes;
    // Of a table of boxes: its columns, and the first coefficient of a mask. scores[0] is the column of the person's
    // scores, scores[1] that of the objectness and scores[2] that of the class numbers, where it has any.
    const float *sides[4];
    const float *coefficients;
    double area_scale;
    u32 width, height, step, columns, rows, cells;
    u32 fixture_count;
    u32 min_depth_mm, max_depth_mm;
    float volume[6];
    float link2, min_area_m2;
    u32 min_samples, rank;
    float mask_threshold, min_agreement;
    // Detector: classes and class, threshold, cells and columns of each head; of a table its boxes in place of cells[0],
    // and size of the prototypes.
    u32 classes, person_class;
    float threshold;
    u32 head_cells[3], head_columns[3];
    u32 proto_width, proto_height, input_width, input_height;
    u32 blob_room, candidate_room;
    // How far the next box's number is in each column; the next coefficient of a mask, and that of the next box.
    u32 side_step, score_step, objectness_step, label_step, coefficient_step, mask_step;
    // 0: centre and size, 1: corners, 2: YOLOX's cells of `levels` grids, whose strides double.
    u32 box_form, logits, shares, first_stride, levels, reserved;
};

// ---- small helpers ---------------------------------------------------------------------------------------

struct Vec3 {
    float x, y, z;
};

__device__ u32 bits(float value) {
    union {
        float f;
        u32 u;
    } pun;
    pun.f = value;
    return pun.u;
}

__device__ float from_bits(u32 value) {
    union {
        float f;
        u32 u;
    } pun;
    pun.u = value;
    return pun.f;
}

__device__ bool is_finite(float value) { return (bits(value) & INFINITE_BITS) != INFINITE_BITS; }

// Floats in an order of integers, negative ones too.
__device__ u32 ordered(float value) {
    u32 b = bits(value);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

__device__ float from_ordered(u32 value) {
    return from_bits(value & 0x80000000u ? value & 0x7fffffffu : ~value);
}

__device__ float square_distance(Vec3 a, Vec3 b) {
    float x = a.x - b.x, y = a.y - b.y, z = a.z - b.z;
    return x * x + y * y + z * z;
}

__device__ u32 first_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ u32 all_threads() { return gridDim.x * blockDim.x; }

#ifdef __CUDACC__
// Mirrored in `rig.rs`.
#define LANES 32
#define ALL_LANES 0xffffffffu
__device__ u32 lane() { return threadIdx.x % LANES; }
__device__ void lanes_meet() { __syncwarp(); }
__device__ u32 lanes_where(bool yes) { return __ballot_sync(ALL_LANES, yes); }
__device__ u32 from_lane(u32 value, u32 source) { return __shfl_sync(ALL_LANES, value, source); }
__device__ u32 count_of(u32 lanes) { return __popc(lanes); }
__device__ u32 first_of(u32 lanes) { return __ffs(lanes) - 1; }
__device__ u32 last_of(u32 lanes) { return 31 - __clz(lanes); }
template <typename T> __device__ T lanes_sum(T value) {
    for (u32 by = LANES / 2; by; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, by);
    return value;
}
__device__ u32 lanes_min(u32 value) {
    for (u32 by = LANES / 2; by; by /= 2) {
        u32 other = __shfl_xor_sync(ALL_LANES, value, by);
        if (other < value) value = other;
    }
    return value;
}
__device__ u32 lanes_max(u32 value) { return ~lanes_min(~value); }
// Of the lanes before this one.
__device__ u32 sum_before(u32 value) {
    u32 sum = value;
    for (u32 by = 1; by < LANES; by *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, sum, by);
        if (lane() >= by) sum += other;
    }
    return sum - value;
}
#else
#define LANES 1
__device__ u32 lane() { return 0; }
__device__ void lanes_meet() {}
__device__ u32 lanes_where(bool yes) { return yes; }
__device__ u32 from_lane(u32 value, u32) { return value; }
__device__ u32 count_of(u32 lanes) { return lanes; }
__device__ u32 first_of(u32) { return 0; }
__device__ u32 last_of(u32) { return 0; }
template <typename T> __device__ T lanes_sum(T value) { return value; }
__device__ u32 lanes_min(u32 value) { return value; }
__device__ u32 lanes_max(u32 value) { return value; }
__device__ u32 sum_before(u32) { return 0; }
#endif

// Of a batch only the cameras that have a frame take part.
#define CAMERA \
    const Camera &c = cameras[blockIdx.y]; \
    if (!c.pose->active) return
#define EACH(i, n) for (u32 i = first_thread(), end_ = (n), by_ = all_threads(); i < end_; i += by_)
// The same with all lanes of a warp for each number.
#define EACH_WARP(i, n) \
    for (u32 i = first_thread() / LANES, end_ = (n), by_ = all_threads() / LANES; i < end_; i += by_)

// ---- geometry --------------------------------------------------------------------------------------------

__device__ bool is_valid(const Camera &c, u32 depth) {
    return depth >= c.min_depth_mm && depth <= c.max_depth_mm;
}

__device__ Vec3 point_of(const Camera &c, u32 u, u32 v, u32 depth) {
    const float *a = c.pose->axes;
    const float *o = c.pose->origin;
    float sx = c.slope_x[u], sy = c.slope_y[v], d = (float)depth;
    Vec3 p;
    p.x = o[0] + (a[6] + a[0] * sx + a[3] * sy) * d;
    p.y = o[1] + (a[7] + a[1] * sx + a[4] * sy) * d;
    p.z = o[2] + (a[8] + a[2] * sx + a[5] * sy) * d;
    return p;
}

__device__ bool in_box(const float *box, Vec3 p) {
    return box[0] <= p.x && p.x <= box[3] && box[1] <= p.y && p.y <= box[4] && box[2] <= p.z && p.z <= box[5];
}

__device__ bool in_capsule(const float *capsule, Vec3 p) {
    float ax = capsule[3] - capsule[0], ay = capsule[4] - capsule[1], az = capsule[5] - capsule[2];
    float x = p.x - capsule[0], y = p.y - capsule[1], z = p.z - capsule[2];
    float length2 = ax * ax + ay * ay + az * az;
    float along = 0.0f;
    if (length2 > 0.0f) {
        along = (x * ax + y * ay + z * az) / length2;
        along = along < 0.0f ? 0.0f : along > 1.0f ? 1.0f : along;
    }
    float dx = x - ax * along, dy = y - ay * along, dz = z - az * along;
    return dx * dx + dy * dy + dz * dz <= capsule[6] * capsule[6];
}

__device__ bool is_foreground(const Camera &c, Vec3 p) {
    if (!in_box(c.volume, p)) return false;
    for (u32 i = 0; i < c.fixture_count; i++)
        if (in_box(c.fixtures + 6 * i, p)) return false;
    if (!in_box(c.pose->robot, p)) return true;
    const float *capsules = (const float *)(c.pose + 1);
    for (u32 i = 0; i < c.pose->capsules; i++)
        if (in_capsule(capsules + 7 * i, p)) return false;
    return true;
}

__device__ void pixel_of(const Camera &c, u32 cell, u32 &u, u32 &v) {
    u = cell % c.columns * c.step + c.step / 2;
    v = cell / c.columns * c.step + c.step / 2;
    if (u > c.width - 1) u = c.width - 1;
    if (v > c.height - 1) v = c.height - 1;
}

__device__ Vec3 cell_point(const Camera &c, u32 cell) {
    Vec3 p = {c.points_x[cell], c.points_y[cell], c.points_z[cell]};
    return p;
}

__device__ Vec3 tool(const Camera &c) {
    Vec3 p = {c.pose->tcp[0], c.pose->tcp[1], c.pose->tcp[2]};
    return p;
}

// ---- start of a frame ------------------------------------------------------------------------------------

extern "C" __global__ void takt_layout(const Camera *cameras, u32 index) {
    (void)index;
    if (first_thread() != 0 || blockIdx.y != 0) return;
    // The first camera's report has room for this before any frame.
    u32 *out = (u32 *)cameras[0].report;
    u32 sizes[] = {sizeof(Camera), sizeof(Pose),    sizeof(Window),     sizeof(Masks),     sizeof(People),
                   sizeof(Queries), sizeof(Gather), sizeof(Look),       sizeof(BlobRecord), sizeof(Candidate),
                   sizeof(ItemSum), sizeof(ItemRecord), sizeof(Report), sizeof(Mask),      sizeof(Person)};
    for (u32 i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) out[i] = sizes[i];
}

__device__ void clear(Gather &g) {
    g.depth2 = 0;
    g.samples = 0;
    g.nearest2 = INFINITE_BITS;
    g.left = g.top = NONE;
    g.right = g.bottom = 0;
    g.open = 0;
    g.left_by = NONE;
    g.verdict = 0;
}

extern "C" __global__ void takt_begin(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    Look &look = *c.look;
    EACH(i, STRIPES) {
        look.grey[i] = look.grey2[i] = 0;
        look.valid[i] = look.impossible[i] = 0;
        if (i < MAX_PEOPLE) {
            look.covered[i] = 0;
            look.nearest2[i] = INFINITE_BITS;
        }
        if (i == 0) {
            look.blobs = look.candidates = 0;
            c.report->pieces = 0;
        }
    }
    EACH(i, c.cells) {
        clear(c.blobs[i]);
        clear(c.pieces[i]);
        c.owner[i] = c.unmasked[i] = 0;
    }
    EACH(i, MAX_ITEMS) {
        ItemSum &item = c.items[i];
        item.cells = item.points = item.all = item.inside = item.in_box = item.valid = 0;
        item.nearest2 = INFINITE_BITS;
        item.root = NONE;
        for (u32 axis = 0; axis < 3; axis++) item.prefix[axis] = item.rank[axis] = 0;
    }
    EACH(i, MAX_ITEMS * c.rank) c.keys[i] = NO_KEY;
    EACH(i, MAX_ITEMS * 3 * 256) c.bins[i] = 0;
}

// Samples one pixel of each cell: depth, foreground, grey.
extern "C" __global__ void takt_sample(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH_WARP(chunk, (c.cells + LANES - 1) / LANES) {
        u32 cell = chunk * LANES + lane(), stripe = chunk % STRIPES;
        u64 grey = 0;
        bool valid = false, impossible = false;
        if (cell < c.cells) {
            u32 u, v;
            pixel_of(c, cell, u, v);
            u64 at = (u64)v * c.width + u;
            u32 depth = c.depth[at];
            grey = (u64)c.rgb[3 * at] + c.rgb[3 * at + 1] + c.rgb[3 * at + 2];
            c.cell_depth[cell] = 0;
            c.blob_of[cell] = NONE;
            valid = depth != 0 && is_valid(c, depth);
            impossible = depth != 0 && !valid;
            if (valid) {
                Vec3 p = point_of(c, u, v, depth);
                if (is_foreground(c, p)) {
                    c.cell_depth[cell] = (u16)depth;
                    c.points_x[cell] = p.x;
                    c.points_y[cell] = p.y;
                    c.points_z[cell] = p.z;
                    c.blob_of[cell] = cell;
                }
            }
        }
        u64 sum = lanes_sum(grey), squares = lanes_sum(grey * grey);
        u32 all_valid = count_of(lanes_where(valid)), all_impossible = count_of(lanes_where(impossible));
        if (lane() != 0) continue;
        atomicAdd(&c.look->grey[stripe], sum);
        atomicAdd(&c.look->grey2[stripe], squares);
        if (all_valid) atomicAdd(&c.look->valid[stripe], all_valid);
        if (all_impossible) atomicAdd(&c.look->impossible[stripe], all_impossible);
    }
}

// ---- connected cells -------------------------------------------------------------------------------------

// Union-find in place: a cell points to an earlier one of its component, the first one to itself. Which thread
// comes first does not matter: in the end every component hangs from its first cell.
__device__ u32 root_of(const u32 *parent, u32 cell) {
    for (;;) {
        u32 up = *(const volatile u32 *)&parent[cell];
        if (up == cell) return cell;
        cell = up;
    }
}

__device__ void unite(u32 *parent, u32 a, u32 b) {
    for (;;) {
        a = root_of(parent, a);
        b = root_of(parent, b);
        if (a == b) return;
        u32 low = a < b ? a : b, high = a < b ? b : a;
        u32 before = atomicMin(&parent[high], low);
        if (before == high) return;
        // Another thread was faster; what it hung this cell from must be joined as well.
        a = before;
        b = low;
    }
}

__device__ bool linked(const Camera &c, const u32 *parent, u32 a, u32 b) {
    bool both = *(const volatile u32 *)&parent[a] != NONE && *(const volatile u32 *)&parent[b] != NONE;
    return both && square_distance(cell_point(c, a), cell_point(c, b)) <= c.link2;
}

// Hangs the cells of a run in a row from its first one, a warp for each row: ways to a first cell are short before
// rows are joined. Number 0: blobs of all foreground; 1: pieces of what no person owns.
extern "C" __global__ void takt_rows(const Camera *cameras, u32 index) {
    CAMERA;
    u32 *parent = index == 0 ? c.blob_of : c.piece_of;
    EACH_WARP(row, c.rows) {
        // The first cell of the run that the lanes before have ended with.
        u32 run = NONE;
        for (u32 begin = 0; begin < c.columns; begin += LANES) {
            u32 column = begin + lane(), cell = row * c.columns + column;
            bool inside = column < c.columns && parent[cell] != NONE;
            bool goes_on = inside && column > 0 && linked(c, parent, cell - 1, cell);
            u32 starts = lanes_where(inside && !goes_on) & ((2u << lane()) - 1);
            u32 first = starts ? row * c.columns + begin + last_of(starts) : run;
            if (inside) parent[cell] = first;
            run = from_lane(first, LANES - 1);
        }
    }
}

// Joins the runs of neighbouring rows. Of the pairs of cells that are linked only those are joined that no other pairs
// imply: the left neighbour is joined already, and what it is linked with above.
extern "C" __global__ void takt_link(const Camera *cameras, u32 index) {
    CAMERA;
    u32 *parent = index == 0 ? c.blob_of : c.piece_of;
    EACH(cell, c.cells) {
        if (cell < c.columns || parent[cell] == NONE) continue;
        u32 column = cell % c.columns, up = cell - c.columns;
        bool has_left = column > 0, has_right = column + 1 < c.columns;
        bool to_up = linked(c, parent, up, cell);
        bool to_left_up = has_left && linked(c, parent, up - 1, cell);
        bool to_right_up = has_right && linked(c, parent, up + 1, cell);
        // By way of the left neighbour: it, and it with what is above it.
        bool by_left = has_left && linked(c, parent, cell - 1, cell) && linked(c, parent, up - 1, cell - 1);
        bool above_left = has_left && linked(c, parent, up - 1, up);
        if (to_up && !(by_left && above_left)) unite(parent, cell, up);
        if (to_left_up && !by_left && !(to_up && above_left)) unite(parent, cell, up - 1);
        if (to_right_up && !(to_up && linked(c, parent, up, up + 1))) unite(parent, cell, up + 1);
    }
}

__device__ void merge(Gather &into, const Gather &part, bool piece) {
    atomicAdd(&into.samples, part.samples);
    atomicAdd(&into.depth2, part.depth2);
    atomicMin(&into.nearest2, part.nearest2);
    atomicMin(&into.left, part.left);
    atomicMin(&into.top, part.top);
    atomicMax(&into.right, part.right);
    atomicMax(&into.bottom, part.bottom);
    if (piece) {
        if (part.open) atomicMax(&into.open, 1u);
        atomicMin(&into.left_by, part.left_by);
    }
}

// Adds up what the lanes hold that are `mine`.
__device__ Gather together(const Gather &part, bool mine) {
    Gather sum;
    clear(sum);
    sum.samples = count_of(lanes_where(mine));
    sum.depth2 = lanes_sum(mine ? part.depth2 : 0ull);
    sum.nearest2 = lanes_min(mine ? part.nearest2 : INFINITE_BITS);
    sum.left = lanes_min(mine ? part.left : NONE);
    sum.top = lanes_min(mine ? part.top : NONE);
    sum.right = lanes_max(mine ? part.right : 0);
    sum.bottom = lanes_max(mine ? part.bottom : 0);
    sum.open = lanes_where(mine && part.open) != 0;
    sum.left_by = lanes_min(mine ? part.left_by : NONE);
    return sum;
}

__device__ void add(Gather &to, const Gather &from) {
    to.samples += from.samples;
    to.depth2 += from.depth2;
    if (from.nearest2 < to.nearest2) to.nearest2 = from.nearest2;
    if (from.left < to.left) to.left = from.left;
    if (from.top < to.top) to.top = from.top;
    if (from.right > to.right) to.right = from.right;
    if (from.bottom > to.bottom) to.bottom = from.bottom;
    if (from.open) to.open = 1;
    if (from.left_by < to.left_by) to.left_by = from.left_by;
}

// Sums up each component at its first cell. A warp adds up `CHUNKS` times as many cells as it has lanes before it goes
// to memory.
extern "C" __global__ void takt_gather(const Camera *cameras, u32 index) {
    CAMERA;
    u32 *parent = index == 0 ? c.blob_of : c.piece_of;
    Gather *sums = index == 0 ? c.blobs : c.pieces;
    Vec3 tcp = tool(c);
    EACH_WARP(strip, (c.cells + CHUNKS * LANES - 1) / (CHUNKS * LANES)) {
        // The same in all lanes.
        Gather whole;
        clear(whole);
        u32 of = NONE;
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            u32 cell = (strip * CHUNKS + chunk) * LANES + lane(), root = NONE;
            Gather part;
            clear(part);
            if (cell < c.cells && parent[cell] != NONE) {
                root = root_of(parent, cell);
                // Shortens the way for others; never moves a first cell.
                if (root != cell) parent[cell] = root;
                u32 depth = c.cell_depth[cell];
                part.depth2 = (u64)depth * depth;
                part.nearest2 = bits(square_distance(cell_point(c, cell), tcp));
                part.left = part.right = cell % c.columns;
                part.top = part.bottom = cell / c.columns;
                if (index != 0) {
                    u32 by = c.unmasked[cell];
                    if (by == 0) part.open = 1;
                    else part.left_by = by;
                }
            }
            for (u32 rest = lanes_where(root != NONE); rest != 0;) {
                u32 next = from_lane(root, first_of(rest));
                bool mine = root == next;
                if (next != of) {
                    if (of != NONE && lane() == 0) merge(sums[of], whole, index != 0);
                    clear(whole);
                    of = next;
                }
                add(whole, together(part, mine));
                rest &= ~lanes_where(mine);
            }
        }
        if (of != NONE && lane() == 0) merge(sums[of], whole, index != 0);
    }
}

__device__ float area_of(const Camera &c, const Gather &g) { return (float)((double)g.depth2 * c.area_scale); }

__device__ bool is_big(const Camera &c, const Gather &g) {
    return g.samples >= c.min_samples && area_of(c, g) >= c.min_area_m2;
}

// Lists the blobs that count, in any order: the host sorts them by their first cell.
extern "C" __global__ void takt_blobs(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(cell, c.cells) {
        if (c.blob_of[cell] != cell) continue;
        Gather &g = c.blobs[cell];
        if (!is_big(c, g)) continue;
        g.verdict = 1;
        u32 place = atomicAdd(&c.look->blobs, 1u);
        if (place >= c.blob_room) continue;
        BlobRecord &out = c.blob_records[place];
        out.root = cell;
        out.samples = g.samples;
        out.area_m2 = area_of(c, g);
        out.nearest2 = g.nearest2;
        out.left = g.left;
        out.top = g.top;
        out.right = g.right;
        out.bottom = g.bottom;
    }
}

// ---- networks --------------------------------------------------------------------------------------------

struct Tap {
    u32 first, second;
    float weight;
    bool inside;
};

__device__ Tap tap_of(u32 i, float origin, float scale, u32 source) {
    float at = origin + ((float)i + 0.5f) * scale;
    float centre = at - 0.5f, low = floorf(centre), last = (float)(source - 1), high = low + 1.0f;
    Tap tap;
    tap.first = (u32)(low < 0.0f ? 0.0f : low > last ? last : low);
    tap.second = (u32)(high < 0.0f ? 0.0f : high > last ? last : high);
    tap.weight = centre - low;
    tap.inside = at >= 0.0f && at < (float)source;
    return tap;
}

// Fills a network's input from window `index` of the image, bilinearly.
extern "C" __global__ void takt_resample(const Camera *cameras, u32 index) {
    CAMERA;
    const Window w = c.windows[index];
    u32 plane = w.width * w.height;
    EACH(i, plane) {
        Tap column = tap_of(i % w.width, w.origin[0], w.scale[0], c.width);
        Tap row = tap_of(i / w.width, w.origin[1], w.scale[1], c.height);
        u64 stride = (u64)c.width * 3;
        const u8 *top = c.rgb + row.first * stride, *bottom = c.rgb + row.second * stride;
        for (u32 channel = 0; channel < 3; channel++) {
            float value;
            if (column.inside && row.inside) {
                u32 left = column.first * 3 + w.order[channel], right = column.second * 3 + w.order[channel];
                float tl = top[left], tr = top[right], bl = bottom[left], br = bottom[right];
                float upper = tl + (tr - tl) * column.weight;
                float lower = bl + (br - bl) * column.weight;
                value = (upper + (lower - upper) * row.weight) * w.factor[channel] +
                        -w.mean[channel] * w.factor[channel];
            } else {
                value = (w.padding - w.mean[channel]) * w.factor[channel];
            }
            w.out[channel * plane + i] = value;
        }
    }
}

// Mean of the distribution softmax(bins) over 0, 1, ... 10.
__device__ float expectation(const float *bins) {
    float most = -from_bits(INFINITE_BITS);
    for (u32 i = 0; i < 11; i++) most = fmaxf(most, bins[i]);
    float sum = 0.0f, weighted = 0.0f;
    for (u32 i = 0; i < 11; i++) {
        float e = expf(bins[i] - most);
        sum += e;
        weighted += e * (float)i;
    }
    return weighted / sum;
}

__device__ void propose(const Camera &c, const float *box, float score, u32 index) {
    u32 place = atomicAdd(&c.look->candidates, 1u);
    if (place >= c.candidate_room) return;
    Candidate &out = c.candidates[place];
    for (u32 i = 0; i < 4; i++) out.box[i] = box[i];
    out.score = score;
    out.index = index;
}

// Farthest that a score may lie outside of 0 to 1, as SCORE_TOLERANCE in table.rs.
#define SCORE_TOLERANCE 2e-3f

// Boxes of NanoDet above the threshold, in any order: the host sorts them by score and index.
extern "C" __global__ void takt_nanodet(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(i, c.head_cells[0] + c.head_cells[1] + c.head_cells[2]) {
        u32 head = 0, cell = i;
        while (cell >= c.head_cells[head]) cell -= c.head_cells[head++];
        float score = c.scores[head][(u64)cell * c.classes + c.person_class];
        // Written so that a score that is none becomes a candidate, which the host refuses.
        if (score >= -SCORE_TOLERANCE && score < c.threshold) continue;
        float stride = (float)(8u << head);
        const float *sides = c.boxes[head] + (u64)cell * 44;
        float x = ((float)(cell % c.head_columns[head]) + 0.5f) * stride;
        float y = ((float)(cell / c.head_columns[head]) + 0.5f) * stride;
        float box[4] = {x - expectation(sides) * stride, y - expectation(sides + 11) * stride,
                        x + expectation(sides + 22) * stride, y + expectation(sides + 33) * stride};
        propose(c, box, score, i);
    }
}

__device__ float sigmoid(float value) { return 1.0f / (1.0f + expf(-value)); }

// The same for a table of boxes.
extern "C" __global__ void takt_table(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(i, c.head_cells[0]) {
        float score = c.scores[0][(u64)i * c.score_step];
        if (c.logits) score = sigmoid(score);
        if (c.scores[1]) score *= c.scores[1][(u64)i * c.objectness_step];
        // Written so that a score that is none becomes a candidate, which the host refuses.
        if (score >= -SCORE_TOLERANCE && score < c.threshold) continue;
        if (c.scores[2] && floorf(c.scores[2][(u64)i * c.label_step] + 0.5f) != (float)c.person_class) continue;
        float side[4];
        for (u32 k = 0; k < 4; k++) side[k] = c.sides[k][(u64)i * c.side_step];
        if (c.box_form == 2) {
            u32 row = i, stride = c.first_stride;
            for (u32 level = 1; level < c.levels; level++, stride *= 2) {
                u32 cells = (c.input_height + stride - 1) / stride * ((c.input_width + stride - 1) / stride);
                if (row < cells) break;
                row -= cells;
            }
            u32 columns = (c.input_width + stride - 1) / stride;
            side[0] = (side[0] + (float)(row % columns)) * (float)stride;
            side[1] = (side[1] + (float)(row / columns)) * (float)stride;
            side[2] = expf(side[2]) * (float)stride;
            side[3] = expf(side[3]) * (float)stride;
        }
        float box[4] = {side[0], side[1], side[2], side[3]};
        if (c.box_form != 1) {
            float half_width = side[2] / 2.0f, half_height = side[3] / 2.0f;
            box[0] = side[0] - half_width, box[1] = side[1] - half_height;
            box[2] = side[0] + half_width, box[3] = side[1] + half_height;
        }
        if (c.shares)
            for (u32 k = 0; k < 4; k++) box[k] *= (float)(k % 2 ? c.input_height : c.input_width);
        propose(c, box, score, i);
    }
}

// Masks of the kept candidates of a segmenting table, zero outside of their boxes.
extern "C" __global__ void takt_table_masks(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    const Masks &m = *c.masks;
    u32 plane = c.proto_width * c.proto_height;
    float to_x = (float)c.proto_width / (float)c.input_width, to_y = (float)c.proto_height / (float)c.input_height;
    EACH(i, plane * m.kept_count) {
        u32 which = i / plane, x = i % plane % c.proto_width, y = i % plane / c.proto_width;
        const float *box = m.kept_box[which];
        float value = 0.0f;
        if ((float)x >= floorf(box[0] * to_x) && (float)x < ceilf(box[2] * to_x) &&
            (float)y >= floorf(box[1] * to_y) && (float)y < ceilf(box[3] * to_y)) {
            for (u32 k = 0; k < 32; k++)
                value += c.coefficients[(u64)k * c.coefficient_step + (u64)m.kept[which] * c.mask_step] *
                         c.boxes[1][(u64)k * plane + i % plane];
            value = sigmoid(value);
        }
        c.planes[i] = value;
    }
}

// How much of its box a mask covers.
extern "C" __global__ void takt_coverage(const Camera *cameras, u32 index) {
    CAMERA;
    if (index >= c.masks->count) return;
    const Mask &m = c.masks->mask[index];
    u32 width = m.rect[1] - m.rect[0], strips = (width + STRIP - 1) / STRIP;
    if (width == 0) return;
    EACH(i, strips * (m.rect[3] - m.rect[2])) {
        u32 y = m.rect[2] + i / strips, x = m.rect[0] + i % strips * STRIP, covered = 0;
        for (u32 end = x + STRIP; x < end && x < m.rect[1]; x++)
            covered += m.values[(u64)y * m.width + x] >= c.mask_threshold;
        if (covered) atomicAdd(&c.look->covered[index], covered);
    }
}

__device__ float mask_at(const Mask &m, u32 u, u32 v) {
    float x = ((float)u + 0.5f) * m.scale[0] + m.offset[0];
    float y = ((float)v + 0.5f) * m.scale[1] + m.offset[1];
    if (x < 0.0f || y < 0.0f || x >= (float)m.width || y >= (float)m.height) return 0.0f;
    return m.values[(u64)(u32)y * m.width + (u32)x];
}

// Least squared distance of foreground in each of some boxes.
extern "C" __global__ void takt_nearest(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    Vec3 tcp = tool(c);
    EACH(cell, c.cells) {
        if (c.cell_depth[cell] == 0) continue;
        u32 u, v;
        pixel_of(c, cell, u, v);
        float x = (float)u, y = (float)v;
        u32 near = bits(square_distance(cell_point(c, cell), tcp));
        for (u32 i = 0; i < c.queries->count; i++) {
            const float *box = c.queries->box[i];
            if (x >= box[0] && x < box[2] && y >= box[1] && y < box[3] && near < c.look->nearest2[i])
                atomicMin(&c.look->nearest2[i], near);
        }
    }
}

// ---- whose depth is what ---------------------------------------------------------------------------------

__device__ bool reaches(const Camera &c, const Person &person, u32 cell) {
    u32 column = cell % c.columns, row = cell / c.columns;
    if (column < person.range[0] || column >= person.range[1]) return false;
    if (row < person.range[2] || row >= person.range[3]) return false;
    u32 u, v;
    pixel_of(c, cell, u, v);
    float x = (float)u, y = (float)v;
    bool inside = person.reach[0] <= x && x <= person.reach[2] && person.reach[1] <= y && y <= person.reach[3];
    return inside || (person.root != NONE && c.blob_of[cell] == person.root);
}

// One person with a mask claims their cells. Those with masks go first, one after the other.
extern "C" __global__ void takt_claim(const Camera *cameras, u32 index) {
    CAMERA;
    if (index >= c.people->masked) return;
    const Person &person = c.people->person[index];
    const Mask &mask = c.masks->mask[person.mask];
    ItemSum &sum = c.items[index];
    EACH(strip, (c.cells + STRIP - 1) / STRIP) {
        u32 all = 0, inside = 0;
        for (u32 cell = strip * STRIP; cell < strip * STRIP + STRIP && cell < c.cells; cell++) {
            if (c.cell_depth[cell] == 0 || c.owner[cell] != 0 || !reaches(c, person, cell)) continue;
            u32 u, v;
            pixel_of(c, cell, u, v);
            all++;
            if (mask_at(mask, u, v) >= c.mask_threshold) {
                inside++;
                c.owner[cell] = index + 1;
            } else if (c.unmasked[cell] == 0) {
                c.unmasked[cell] = index + 1;
            }
        }
        if (all) atomicAdd(&sum.all, all);
        if (inside) atomicAdd(&sum.inside, inside);
    }
}

__device__ bool is_usable(const Camera &c, const ItemSum &sum) {
    return sum.inside > 0 && (float)sum.inside >= c.min_agreement * (float)sum.all;
}

// A mask that misses most of what stands there is not used: depth decides.
extern "C" __global__ void takt_settle(const Camera *cameras, u32 index) {
    CAMERA;
    if (index >= c.people->masked || is_usable(c, c.items[index])) return;
    EACH(cell, c.cells) {
        if (c.unmasked[cell] == index + 1 && c.owner[cell] == 0) {
            c.unmasked[cell] = 0;
            c.owner[cell] = index + 1;
        }
    }
}

__device__ void count_box(const Camera &c, u32 person, u32 in_box, u32 valid) {
    if (in_box) atomicAdd(&c.items[person].in_box, in_box);
    if (valid) atomicAdd(&c.items[person].valid, valid);
}

// People without masks claim theirs; what is left is prepared for linking.
extern "C" __global__ void takt_rest(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    const People &people = *c.people;
    EACH(cell, c.cells) {
        u32 piece = NONE;
        if (c.cell_depth[cell] != 0) {
            u32 owner = c.owner[cell];
            for (u32 i = people.masked; i < people.count && owner == 0; i++)
                if (reaches(c, people.person[i], cell)) owner = i + 1;
            c.owner[cell] = owner;
            if (owner == 0 && c.blobs[c.blob_of[cell]].verdict) piece = cell;
        }
        c.piece_of[cell] = piece;
    }
    EACH(strip, (c.cells + STRIP - 1) / STRIP) {
        u32 begin = strip * STRIP, end = begin + STRIP < c.cells ? begin + STRIP : c.cells;
        for (u32 i = 0; i < people.count; i++) {
            const float *box = people.person[i].box;
            u32 in_box = 0, valid = 0;
            for (u32 cell = begin; cell < end; cell++) {
                u32 u, v;
                pixel_of(c, cell, u, v);
                float x = (float)u, y = (float)v;
                if (x >= box[0] && x < box[2] && y >= box[1] && y < box[3]) {
                    in_box++;
                    valid += is_valid(c, c.depth[(u64)v * c.width + u]);
                }
            }
            count_box(c, i, in_box, valid);
        }
    }
}

__device__ void add_item(const Camera &c, u32 item, u32 cells, u32 nearest2) {
    atomicAdd(&c.items[item - 1].cells, cells);
    atomicMin(&c.items[item - 1].nearest2, nearest2);
}

// Sums of the items. Number 0: of what people claimed; 1: of what pieces bring them, or bring themselves.
extern "C" __global__ void takt_own(const Camera *cameras, u32 index) {
    CAMERA;
    Vec3 tcp = tool(c);
    EACH(strip, (c.cells + STRIP - 1) / STRIP) {
        u32 item = 0, cells = 0, nearest2 = NONE;
        for (u32 cell = strip * STRIP; cell < strip * STRIP + STRIP && cell < c.cells; cell++) {
            u32 mine = 0;
            if (index == 0) {
                mine = c.owner[cell];
            } else if (c.piece_of[cell] != NONE) {
                mine = c.pieces[c.piece_of[cell]].verdict;
                c.owner[cell] = mine;
            }
            if (mine == 0) continue;
            if (mine != item) {
                if (item) add_item(c, item, cells, nearest2);
                item = mine;
                cells = 0;
                nearest2 = NONE;
            }
            u32 near = bits(square_distance(cell_point(c, cell), tcp));
            cells++;
            if (near < nearest2) nearest2 = near;
        }
        if (item) add_item(c, item, cells, nearest2);
    }
}

// Sorts out the pieces: those that a mask left out and that are no nearer than the person say nothing new, small
// ones join a person, everything else becomes an item of its own.
extern "C" __global__ void takt_judge(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    const People &people = *c.people;
    EACH(cell, c.cells) {
        if (c.piece_of[cell] != cell) continue;
        Gather &piece = c.pieces[cell];
        bool big = is_big(c, piece);
        if (!piece.open && piece.left_by != NONE) {
            if (piece.nearest2 >= c.items[piece.left_by - 1].nearest2) continue;
            if (!big) {
                piece.verdict = piece.left_by;
                continue;
            }
        }
        if (!big) {
            float step = (float)c.step, left = (float)piece.left * step, top = (float)piece.top * step;
            float right = (float)(piece.right + 1) * step, bottom = (float)(piece.bottom + 1) * step;
            for (u32 i = 0; i < people.count && piece.verdict == 0; i++) {
                const float *wide = people.person[i].wide;
                float width = fminf(wide[2], right) - fmaxf(wide[0], left);
                float height = fminf(wide[3], bottom) - fmaxf(wide[1], top);
                if (fmaxf(width, 0.0f) * fmaxf(height, 0.0f) > 0.0f) piece.verdict = i + 1;
            }
            if (piece.verdict != 0) continue;
        }
        u32 item = people.count + atomicAdd(&c.report->pieces, 1u);
        if (item >= MAX_ITEMS) continue;
        piece.verdict = item + 1;
        c.items[item].root = cell;
    }
}

// ---- distances -------------------------------------------------------------------------------------------

// Which item each cell's pixels are looked at for: its owner, or that of a neighbour whose edge may reach in.
extern "C" __global__ void takt_rim(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(cell, c.cells) {
        u32 item = c.owner[cell], near = NONE;
        if (item == 0 && c.cell_depth[cell] == 0) {
            u32 column = cell % c.columns, row = cell / c.columns;
            for (u32 r = row ? row - 1 : 0; r <= row + 1 && r < c.rows && item == 0; r++)
                for (u32 k = column ? column - 1 : 0; k <= column + 1 && k < c.columns && item == 0; k++)
                    if (c.owner[r * c.columns + k] != 0) {
                        near = r * c.columns + k;
                        item = c.owner[near];
                    }
        }
        c.scan_item[cell] = item;
        c.scan_near[cell] = near;
    }
}

// A pixel that is looked at: whether it belongs to the item, and how near it is.
__device__ bool pixel_counts(const Camera &c, u32 cell, u32 u, u32 v, Vec3 &p) {
    u32 depth = c.depth[(u64)v * c.width + u];
    if (!is_valid(c, depth)) return false;
    p = point_of(c, u, v, depth);
    if (!is_foreground(c, p)) return false;
    u32 near = c.scan_near[cell];
    return near == NONE || square_distance(p, cell_point(c, near)) <= c.link2;
}

__device__ u32 stride_of(const Camera &c, u32 item) { return c.items[item - 1].cells > DENSE_CELLS ? 2 : 1; }

// The `index`-th nearest pixel of every item, from 0; the first pass also counts. A pixel is known by its
// squared distance and by its place in the order in which the CPU looks at pixels, so no two are equal.
extern "C" __global__ void takt_measure(const Camera *cameras, u32 index) {
    CAMERA;
    Vec3 tcp = tool(c);
    EACH(i, c.cells * c.step) {
        u32 cell = i / c.step, line = i % c.step, item = c.scan_item[cell];
        if (item == 0) continue;
        u32 stride = stride_of(c, item), left = cell % c.columns * c.step, v = cell / c.columns * c.step + line;
        if (line % stride != 0 || v >= c.height) continue;
        u64 last = index ? c.keys[(u64)(index - 1) * MAX_ITEMS + item - 1] : 0, best = NO_KEY;
        if (last == NO_KEY) continue;
        u32 points = 0;
        for (u32 k = 0; k < c.step && left + k < c.width; k += stride) {
            Vec3 p;
            if (!pixel_counts(c, cell, left + k, v, p)) continue;
            points++;
            u64 key = (u64)bits(square_distance(p, tcp)) << 32 | (cell * c.step * c.step + line * c.step + k);
            if ((index == 0 || key > last) && key < best) best = key;
        }
        if (index == 0 && points) atomicAdd(&c.items[item - 1].points, points);
        u64 *place = &c.keys[(u64)index * MAX_ITEMS + item - 1];
        if (best < *(volatile u64 *)place) atomicMin(place, best);
    }
}

// Medians of the cells of each item, eight bits of them in each pass: counts first, then the choice.
extern "C" __global__ void takt_median_count(const Camera *cameras, u32 index) {
    CAMERA;
    u32 shift = 24 - 8 * index;
    EACH(cell, c.cells) {
        u32 item = c.owner[cell];
        if (item == 0) continue;
        float point[3] = {c.points_x[cell], c.points_y[cell], c.points_z[cell]};
        for (u32 axis = 0; axis < 3; axis++) {
            u32 key = ordered(point[axis]);
            if (index == 0 || key >> (shift + 8) == c.items[item - 1].prefix[axis])
                atomicAdd(&c.bins[((item - 1) * 3 + axis) * 256 + (key >> shift & 255)], 1u);
        }
    }
}

extern "C" __global__ void takt_median_pick(const Camera *cameras, u32 index) {
    CAMERA;
    EACH_WARP(i, MAX_ITEMS * 3) {
        ItemSum &item = c.items[i / 3];
        if (item.cells == 0) continue;
        u32 axis = i % 3, rank = index == 0 ? item.cells / 2 : item.rank[axis];
        // Neighbouring bins for each lane.
        const u32 each = 256 / LANES;
        u32 *bins = c.bins + (u64)i * 256 + lane() * each, count[each], mine = 0;
        for (u32 k = 0; k < each; k++) {
            count[k] = bins[k];
            mine += count[k];
            bins[k] = 0;
        }
        u32 before = sum_before(mine);
        // All have read the rank before one writes it.
        lanes_meet();
        bool last = lane() == LANES - 1;
        if (rank < before || (rank - before >= mine && !last)) continue;
        rank -= before;
        u32 k = 0;
        while (k < each - 1 && rank >= count[k]) rank -= count[k++];
        item.rank[axis] = rank;
        item.prefix[axis] = item.prefix[axis] << 8 | (lane() * each + k);
    }
}

// What comes back of every item.
extern "C" __global__ void takt_report(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(i, MAX_ITEMS) {
        const ItemSum &item = c.items[i];
        ItemRecord &out = c.report->item[i];
        bool person = i < c.people->count;
        out.root = item.root;
        out.cells = item.cells;
        out.points = item.points;
        out.segmented = person && i < c.people->masked && is_usable(c, item);
        out.in_box = item.in_box;
        out.valid = item.valid;
        out.padding = 0;
        for (u32 k = 0; k < 4; k++) out.box[k] = 0.0f;
        if (item.root != NONE) {
            const Gather &piece = c.pieces[item.root];
            float step = (float)c.step;
            out.box[0] = (float)piece.left * step;
            out.box[1] = (float)piece.top * step;
            out.box[2] = (float)(piece.right + 1) * step;
            out.box[3] = (float)(piece.bottom + 1) * step;
        }
        out.distance2 = from_bits(INFINITE_BITS);
        for (u32 k = 0; k < 3; k++) out.nearest[k] = out.position[k] = 0.0f;
        if (item.points == 0) continue;
        // Of fewer points than the rank the nearest one: too few to tell an outlier.
        u64 key = c.keys[(item.points >= c.rank ? (u64)(c.rank - 1) * MAX_ITEMS : 0) + i];
        u32 place = (u32)key, patch = c.step * c.step, cell = place / patch;
        u32 u = cell % c.columns * c.step + place % patch % c.step;
        u32 v = cell / c.columns * c.step + place % patch / c.step;
        Vec3 p = point_of(c, u, v, c.depth[(u64)v * c.width + u]);
        out.distance2 = from_bits((u32)(key >> 32));
        out.nearest[0] = p.x;
        out.nearest[1] = p.y;
        out.nearest[2] = p.z;
        if (item.cells)
            for (u32 k = 0; k < 3; k++) out.position[k] = from_ordered(item.prefix[k]);
    }
}

// Which item each pixel belongs to, from 1, for the view.
extern "C" __global__ void takt_paint(const Camera *cameras, u32 index) {
    CAMERA;
    (void)index;
    EACH(i, c.width * c.height) {
        u32 u = i % c.width, v = i / c.width, cell = v / c.step * c.columns + u / c.step;
        u32 item = c.scan_item[cell];
        if (item != 0) {
            // The pixel that was looked at for this one.
            u32 stride = stride_of(c, item);
            Vec3 p;
            if (!pixel_counts(c, cell, u - u % c.step % stride, v - v % c.step % stride, p)) item = 0;
        }
        c.paint[i] = (u8)item;
    }
}

// As much as the memory system moves at once.
struct alignas(16) Sixteen {
    u64 half[2];
};

// Copies between memory of the device and of the host, by the multiprocessors: copy engines serve all programs in
// turn, whatever the priority of a stream.
extern "C" __global__ void takt_copy(const u8 *from, u8 *to, u64 bytes) {
    u64 step = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 whole = (((u64)from | (u64)to) & 15) == 0 ? bytes / 16 : 0;
    for (u64 i = first; i < whole; i += step) ((Sixteen *)to)[i] = ((const Sixteen *)from)[i];
    for (u64 i = whole * 16 + first; i < bytes; i += step) to[i] = from[i];
}
