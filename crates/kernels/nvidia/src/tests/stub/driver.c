/* A driver without a GPU, for tests of errors: memory of the host, streams that do their work at once, and failures where the
   names of kernels, texts of code and sizes ask for them. Compiled by the tests with VERSION, and with WITHOUT_LOOKUP,
   WITHOUT_COPY, WITHOUT_GRAPHS, WITHOUT_OPTIONAL, CAPABILITY, VIRTUAL_MEMORY or INIT for a driver that is old or cannot be used. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CAPABILITY
#define CAPABILITY 90
#endif
#ifndef VIRTUAL_MEMORY
#define VIRTUAL_MEMORY 1
#endif
#ifndef INIT
#define INIT 0
#endif

typedef unsigned status;
typedef struct { int sticky; int captured; unsigned count; struct { float *x; unsigned n; } work[64]; } stream;
typedef struct { int recorded; } event;
typedef struct { int kind; char name[64]; } function;

static __thread void *current;
static _Atomic int live; /* things that were made and not destroyed */

int stub_live(void) { return live; }

status cuInit(unsigned flags) { return flags ? 1 : INIT; }
status cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
status cuGetErrorName(status code, const char **text) {
    switch (code) {
    case 1: *text = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case 2: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 700: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    default: *text = NULL; return 1;
    }
}
status cuGetErrorString(status code, const char **text) {
    *text = code == 700 ? "an illegal memory access was encountered" : "a text";
    return 0;
}

status cuDeviceGetCount(int *count) { *count = 2; return 0; }
status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
status cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "Stub %d", device); return 0; }
status cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 1 << 30; return 0; }
status cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7 + device, 16); return 0; }
/* Two instances of one GPU. */
status cuDeviceGetPCIBusId(char *id, int len, int device) { (void)device; snprintf(id, len, "0000:1B:00.0"); return 0; }
status cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *value = 132; return 0;
    case 75: *value = CAPABILITY / 10; return 0;
    case 76: *value = CAPABILITY % 10; return 0;
    case 97: *value = 232448; return 0;
    case 102: *value = VIRTUAL_MEMORY; return 0;
    default: return 1;
    }
}
static int contexts[2];
status cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts[device]; live++; return 0; }
status cuDevicePrimaryCtxRelease_v2(int device) { (void)device; live--; return 0; }
status cuCtxSetCurrent(void *context) { current = context; return 0; }

/* Every call below needs the context on its thread. */
#define ENTER if (!current) return 201

status cuMemGetInfo_v2(size_t *free, size_t *total) { ENTER; *free = 1 << 29; *total = 1 << 30; return 0; }
status cuMemGetAllocationGranularity(size_t *bytes, const void *properties, unsigned flag) {
    const unsigned *words = properties;
    ENTER;
    if (words[0] != 1 || words[2] != 1 || flag != 0) return 1;
    *bytes = 2 << 20;
    return 0;
}
status cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) {
    ENTER;
    if (wanted || flags) return 1;
    *address = (uint64_t)aligned_alloc(alignment, bytes);
    if (!*address) return 2;
    memset((void *)*address, 0xcd, bytes);
    live++;
    return 0;
}
status cuMemAddressFree(uint64_t address, size_t bytes) { (void)bytes; ENTER; free((void *)address); live--; return 0; }
status cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags) {
    (void)properties; (void)flags;
    ENTER;
    if (bytes > 1 << 28) return 2;
    *handle = 77; live++;
    return 0;
}
status cuMemRelease(uint64_t handle) { ENTER; live--; return handle == 77 ? 0 : 400; }
status cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    (void)bytes;
    ENTER;
    return address && !offset && handle == 77 && !flags ? 0 : 1;
}
status cuMemUnmap(uint64_t address, size_t bytes) { (void)address; (void)bytes; ENTER; return 0; }
status cuMemSetAccess(uint64_t address, size_t bytes, const unsigned *access, size_t count) {
    (void)bytes;
    ENTER;
    if (((uint8_t *)address)[0] != 0xcd) return 1;
    /* 32 MiB cannot be made accessible. */
    if (bytes == 32 << 20) return 801;
    return access[0] == 1 && access[2] == 3 && count == 1 ? 0 : 1;
}
status cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER;
    if (bytes > 1 << 28) return 2;
    *address = malloc(bytes); memset(*address, 0xee, bytes); live++;
    return 0;
}
status cuMemFreeHost(void *address) { ENTER; free(address); live--; return 0; }

status cuCtxGetStreamPriorityRange(int *least, int *greatest) { ENTER; *least = 0; *greatest = -5; return 0; }
status cuStreamCreateWithPriority(stream **made, unsigned flags, int priority) {
    ENTER;
    if (flags != 1 || (priority && priority != -5)) return 1;
    *made = calloc(1, sizeof(stream)); live++;
    return 0;
}
status cuStreamDestroy_v2(stream *s) { ENTER; free(s); live--; return 0; }
status cuStreamSynchronize(stream *s) { ENTER; return s->sticky; }
status cuStreamQuery(stream *s) { ENTER; return s->sticky; }
status cuStreamWaitEvent(stream *s, event *e, unsigned flags) { (void)e; ENTER; return flags ? 1 : s->sticky; }
status cuEventCreate(event **made, unsigned flags) { ENTER; if (flags) return 1; *made = calloc(1, sizeof(event)); live++; return 0; }
status cuEventDestroy_v2(event *e) { ENTER; free(e); live--; return 0; }
status cuEventRecord(event *e, stream *s) { ENTER; e->recorded = 1; return s->sticky; }
status cuEventQuery(event *e) { ENTER; return e->recorded ? 0 : 600; }
#ifndef WITHOUT_OPTIONAL
status cuEventElapsedTime_v2(float *ms, event *from, event *to) {
    ENTER;
    if (!from->recorded || !to->recorded) return 600;
    *ms = 1.5f;
    return 0;
}
#endif
/* The form before 12.8. */
status cuEventElapsedTime(float *ms, event *from, event *to) { (void)from; (void)to; *ms = 2.5f; return 0; }
status cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s) { ENTER; memcpy((void *)to, from, bytes); return s->sticky; }
status cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s) { ENTER; memcpy(to, (void *)from, bytes); return s->sticky; }
#ifndef WITHOUT_COPY
status cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, stream *s) { ENTER; memcpy((void *)to, (void *)from, bytes); return s->sticky; }
#endif
status cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, stream *s) { ENTER; memset((void *)to, value, bytes); return s->sticky; }

/* Code is the text "ok", or "fail N LOG" for result N with a log. */
status cuModuleLoadDataEx(void **module, const char *image, unsigned count, unsigned *options, void **values) {
    int code, read = 0;
    ENTER;
    if (count != 2 || options[0] != 5 || options[1] != 6) return 1;
    if (sscanf(image, "fail %d %n", &code, &read) == 1) {
        snprintf(values[0], (size_t)values[1], "%s", image + read);
        return code;
    }
    *module = calloc(1, 8); live++;
    return 0;
}
status cuModuleUnload(void *module) { ENTER; free(module); live--; return 0; }
/* Kernels: add_one(float *x, unsigned n), and status_N, after which its stream fails with N. */
status cuModuleGetFunction(function **made, void *module, const char *name) {
    static function kernels[3];
    function *f;
    (void)module;
    ENTER;
    if (!strcmp(name, "add_one")) f = &kernels[0];
    else if (!strcmp(name, "status_700")) f = &kernels[1];
    else if (!strcmp(name, "status_702")) f = &kernels[2];
    else return 500;
    snprintf(f->name, sizeof f->name, "%s", name);
    sscanf(name, "status_%d", &f->kind);
    *made = f;
    return 0;
}
status cuFuncGetAttribute(int *value, unsigned attribute, function *f) { (void)f; ENTER; *value = 100 + attribute; return 0; }
status cuFuncSetAttribute(function *f, unsigned attribute, int value) { (void)f; ENTER; return attribute == 8 && value <= 232448 ? 0 : 1; }
#ifndef WITHOUT_OPTIONAL
status cuFuncGetParamInfo(function *f, size_t index, size_t *offset, size_t *size) {
    ENTER;
    if (f->kind || index > 1) return 1;
    *offset = index * 8; *size = index ? 4 : 8;
    return 0;
}
#endif
static void add_one(float *x, unsigned n) { for (unsigned i = 0; i < n; i++) x[i] += 1.0f; }
status cuLaunchKernel(function *f, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, unsigned block_z,
                      unsigned shared, stream *s, void **arguments, void **extra) {
    (void)shared;
    ENTER;
    if (extra || !x || !y || !z || !block_x || !block_y || !block_z) return 1;
    if (f->kind) { s->sticky = f->kind; return 0; }
    float *place = *(float **)arguments[0];
    unsigned n = *(unsigned *)arguments[1];
    if (s->captured) { s->work[s->count].x = place; s->work[s->count++].n = n; } else add_one(place, n);
    return s->sticky;
}
/* The rank, the address and the first box dim, so that a caller sees what came through. */
status cuTensorMapEncodeTiled(uint64_t *map, unsigned type, unsigned rank, void *address, const uint64_t *dims,
                              const uint64_t *strides, const unsigned *box, const unsigned *steps, unsigned interleave,
                              unsigned swizzle, unsigned promotion, unsigned fill) {
  ENTER;
  if ((uintptr_t)map % 64 || steps[rank - 1] != 1 || interleave || fill) return 1;
  map[0] = rank;
  map[1] = (uint64_t)address;
  map[2] = dims[rank - 1];
  map[3] = rank > 1 ? strides[rank - 2] : 0;
  map[4] = box[rank - 1];
  map[5] = (uint64_t)type << 32 | swizzle << 8 | promotion;
  return 0;
}

status cuStreamBeginCapture_v2(stream *s, unsigned mode) {
    ENTER;
    if (mode != 2) return 1;
    if (s->captured) return 901;
    s->captured = 1; s->count = 0;
    return 0;
}
status cuStreamEndCapture(stream *s, void **graph) {
    ENTER;
    *graph = NULL;
    if (!s->captured) return 401;
    s->captured = 0;
    *graph = malloc(sizeof(stream)); memcpy(*graph, s, sizeof(stream)); live++;
    return 0;
}
#ifndef WITHOUT_GRAPHS
status cuGraphInstantiateWithFlags(void **executable, void *graph, uint64_t flags) {
    ENTER;
    if (flags) return 1;
    *executable = malloc(sizeof(stream)); memcpy(*executable, graph, sizeof(stream)); live++;
    return 0;
}
#endif
status cuGraphLaunch(stream *executable, stream *s) {
    ENTER;
    for (unsigned i = 0; i < executable->count; i++) add_one(executable->work[i].x, executable->work[i].n);
    return s->sticky;
}
status cuGraphDestroy(void *graph) { ENTER; free(graph); live--; return 0; }
status cuGraphExecDestroy(void *graph) { ENTER; free(graph); live--; return 0; }

/* CUDA_KERNEL_NODE_PARAMS */
typedef struct {
    function *kernel;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
    void *of_library, *context;
} node;
static status describe(stream *graph, size_t place, const node *from) {
    if (from->extra || from->kernel->kind || !from->grid[0] || !from->block[0] || place >= 64) return 1;
    graph->work[place].x = *(float **)from->arguments[0];
    graph->work[place].n = *(unsigned *)from->arguments[1];
    return 0;
}
status cuGraphCreate(stream **graph, unsigned flags) {
    ENTER;
    if (flags) return 1;
    *graph = calloc(1, sizeof(stream)); live++;
    return 0;
}
/* Nodes are numbered from 1, in a chain. */
status cuGraphAddKernelNode_v2(void **added, stream *graph, void *const *after, size_t count, const node *from) {
    ENTER;
    if (count != (graph->count > 0) || (count && (uintptr_t)after[0] != graph->count)) return 1;
    *added = (void *)(uintptr_t)(graph->count + 1);
    return describe(graph, graph->count++, from);
}
status cuGraphExecKernelNodeSetParams_v2(stream *executable, void *changed, const node *to) {
    ENTER;
    return describe(executable, (uintptr_t)changed - 1, to);
}

#ifndef WITHOUT_LOOKUP
/* Knows one function by version, and nothing else: the others come by their symbols. */
status cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, unsigned *result) {
    *address = NULL; *result = 1;
    if (flags || strchr(name, '_')) return 1;
    if (strcmp(name, "cuEventElapsedTime")) return 500;
#ifdef WITHOUT_OPTIONAL
    (void)version;
    *address = (void *)cuEventElapsedTime;
#else
    *address = version >= 12080 ? (void *)cuEventElapsedTime_v2 : (void *)cuEventElapsedTime;
#endif
    *result = 0;
    return 0;
}
#endif
