// The kernels that join and sum up cells, run by many threads at once on real atomics: whatever order they come in, labels
// and sums are those of one thread. Included: `kernels.cu`, whose path is KERNELS.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#define __device__ static inline
#define __global__

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
static thread_local Index blockIdx, threadIdx;
static Index blockDim, gridDim;

template <class T, class U> static T atomicAdd(T *at, U by) {
    return __atomic_fetch_add(at, (T)by, __ATOMIC_RELAXED);
}
template <class T, class U> static T atomicMin(T *at, U by) {
    // Between looking and writing, now and then another thread: that is where a wrong order would show.
    static thread_local unsigned calls = 0;
    if (++calls % 7 == 0) std::this_thread::yield();
    T now = __atomic_load_n(at, __ATOMIC_RELAXED);
    while ((T)by < now && !__atomic_compare_exchange_n(at, &now, (T)by, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return now;
}
template <class T, class U> static T atomicMax(T *at, U by) {
    T now = __atomic_load_n(at, __ATOMIC_RELAXED);
    while ((T)by > now && !__atomic_compare_exchange_n(at, &now, (T)by, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return now;
}

#include KERNELS

static void run(void (*kernel)(const Camera *, u32), const Camera *camera, unsigned count) {
    blockDim.x = count;
    gridDim.x = 1;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; t++)
        threads.emplace_back([=] {
            threadIdx.x = t;
            kernel(camera, 0);
        });
    for (auto &thread : threads) thread.join();
}

// The first cell of each component, by walking through all pairs that are linked: no part of it is the kernels'.
static std::vector<u32> walked(const std::vector<u16> &depth, const std::vector<float> *at, u32 columns, u32 rows, float link2) {
    std::vector<u32> first(columns * rows, NONE), open;
    for (u32 begin = 0; begin < columns * rows; begin++) {
        if (depth[begin] == 0 || first[begin] != NONE) continue;
        first[begin] = begin;
        open.push_back(begin);
        while (!open.empty()) {
            u32 cell = open.back();
            open.pop_back();
            for (int down = -1; down <= 1; down++)
                for (int right = -1; right <= 1; right++) {
                    int column = (int)(cell % columns) + right, row = (int)(cell / columns) + down;
                    if (column < 0 || row < 0 || column >= (int)columns || row >= (int)rows) continue;
                    u32 next = (u32)row * columns + (u32)column;
                    if (depth[next] == 0 || first[next] != NONE) continue;
                    float far2 = 0.0f;
                    for (int axis = 0; axis < 3; axis++)
                        far2 += (at[axis][cell] - at[axis][next]) * (at[axis][cell] - at[axis][next]);
                    if (far2 > link2) continue;
                    first[next] = begin;
                    open.push_back(next);
                }
        }
    }
    return first;
}

int main() {
    std::mt19937 random(1);
    const int rounds = 100;
    int differ = 0;
    for (int round = 0; round < rounds; round++) {
        u32 columns = 60 + random() % 60, rows = 40 + random() % 60, cells = columns * rows;
        u32 share = 500 + random() % 500;
        std::vector<float> at[3] = {std::vector<float>(cells), std::vector<float>(cells), std::vector<float>(cells)};
        std::vector<float> &x = at[0], &y = at[1], &z = at[2];
        std::vector<u16> depth(cells);
        for (u32 i = 0; i < cells; i++) {
            depth[i] = random() % 1000 < share ? 1000 + random() % 500 : 0;
            x[i] = (float)(i % columns) * 0.03f;
            y[i] = (float)(i / columns) * 0.03f;
            z[i] = (float)depth[i] * 1e-3f;
        }
        Pose pose;
        memset(&pose, 0, sizeof pose);
        pose.active = 1;
        Look look;
        std::vector<u32> parent(cells), unmasked(cells);
        std::vector<Gather> sums(cells);
        std::vector<BlobRecord> records(cells);
        Camera camera;
        memset(&camera, 0, sizeof camera);
        camera.pose = &pose;
        camera.points_x = x.data();
        camera.points_y = y.data();
        camera.points_z = z.data();
        camera.cell_depth = depth.data();
        camera.blob_of = parent.data();
        camera.unmasked = unmasked.data();
        camera.blobs = sums.data();
        camera.look = &look;
        camera.blob_records = records.data();
        camera.blob_room = cells;
        camera.columns = columns;
        camera.rows = rows;
        camera.cells = cells;
        camera.link2 = random() % 2 ? 0.09f : 0.03f;
        camera.min_samples = 4;
        camera.area_scale = 1e-9;

        std::vector<u32> labels = walked(depth, at, columns, rows, camera.link2);
        std::vector<Gather> expected;
        u32 blobs = 0;
        for (unsigned count : {1, 8, 24}) {
            for (u32 i = 0; i < cells; i++) {
                parent[i] = depth[i] ? i : NONE;
                clear(sums[i]);
                sums[i].padding = 0;
            }
            memset(&look, 0, sizeof look);
            run(takt_rows, &camera, count);
            run(takt_link, &camera, count);
            run(takt_gather, &camera, count);
            run(takt_blobs, &camera, count);
            std::vector<u32> now(cells);
            for (u32 i = 0; i < cells; i++) now[i] = parent[i] == NONE ? NONE : root_of(parent.data(), i);
            if (count == 1) {
                expected = sums;
                blobs = look.blobs;
            }
            if (now != labels || look.blobs != blobs || memcmp(sums.data(), expected.data(), cells * sizeof(Gather)) != 0) {
                differ++;
            }
        }
        if (blobs == 0) differ++;
    }
    printf("%d rounds, %d differ\n", rounds, differ);
    return differ != 0;
}
