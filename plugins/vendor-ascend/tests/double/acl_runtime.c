/* A double of the CL runtime under torch_npu: devices, contexts, memory, streams, events.
 *
 * Device memory is memory of the host, and whatever is launched is done when the call returns.
 * Declared from the names and arguments with which torch_npu calls it, without the vendor's
 * headers. It is a test double: nothing that it shows says anything of a real device.
 *
 * ASCEND_DOUBLE_DEVICES (1), ASCEND_DOUBLE_MEMORY_BYTES (4 GiB), ASCEND_DOUBLE_SOC ("Ascend910B2") describe
 * the machine; ASCEND_RT_VISIBLE_DEVICES leaves some of its devices, as on a real one.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 16, ALIGNMENT = 512, POISONED = 1 << 20 };
enum { OK = 0, BAD_ARGUMENT = 100000, BAD_DEVICE = 107001, NO_CONTEXT = 107002, NO_MEMORY = 207001 };
enum { NOT_IN_CAPTURE = 107030 };

int ascend_double_capturing(void);

typedef struct {
  size_t bytes;
  int device;
  char padding[ALIGNMENT - sizeof(size_t) - sizeof(int)];
} Block;

typedef struct {
  double milliseconds;
} Event;

static __thread int current = -1;
static _Atomic size_t used[MOST_DEVICES];
static _Atomic int last_stream;

static size_t number(const char *variable, size_t otherwise) {
  const char *text = getenv(variable);
  return text && *text ? strtoull(text, 0, 10) : otherwise;
}

static size_t memory_bytes(void) { return number("ASCEND_DOUBLE_MEMORY_BYTES", (size_t)4 << 30); }

/* Devices in the mask up to the first that does not exist, as the vendor's runtime counts. */
static int visible(void) {
  int all = (int)number("ASCEND_DOUBLE_DEVICES", 1), count = 0;
  const char *mask = getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!mask) return all;
  for (const char *at = mask; *at;) {
    char *end;
    long device = strtol(at, &end, 10);
    if (end == at || device < 0 || device >= all) break;
    count++;
    at = *end == ',' ? end + 1 : end + strlen(end);
  }
  return count;
}

static int here(void) { return current < 0 ? 0 : current; }

int aclInit(const char *config) { return OK; }
int aclFinalize(void) { return OK; }
const char *aclGetRecentErrMsg(void) { return ""; }
const char *aclrtGetSocName(void) {
  const char *name = getenv("ASCEND_DOUBLE_SOC");
  return name ? name : "Ascend910B2";
}

/* Devices and contexts: a context is its device's number plus one. */
int aclrtGetDeviceCount(uint32_t *count) {
  *count = (uint32_t)visible();
  return OK;
}
int aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= visible()) return BAD_DEVICE;
  current = device;
  return OK;
}
int aclrtGetDevice(int32_t *device) {
  if (current < 0) return NO_CONTEXT;
  *device = current;
  return OK;
}
int aclrtResetDevice(int32_t device) { return OK; }
int aclrtGetCurrentContext(void **context) {
  *context = (void *)(intptr_t)(here() + 1);
  return OK;
}
int aclrtSetCurrentContext(void *context) {
  current = (int)(intptr_t)context - 1;
  return OK;
}
int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  *active = 1;
  return OK;
}
int aclGetDeviceCapability(uint32_t device, int what, int64_t *value) {
  *value = 24;
  return OK;
}
int aclrtGetDeviceInfo(uint32_t device, int what, int64_t *value) {
  *value = 24;
  return OK;
}
int aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  *can = 1;
  return OK;
}
int aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) { return OK; }

/* Memory. What is fresh is full of ones: NaN in every float. */
int aclrtMalloc(void **pointer, size_t bytes, int policy) {
  int device = here();
  *pointer = 0;
  if (used[device] + bytes > memory_bytes()) return NO_MEMORY;
  size_t whole = (sizeof(Block) + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  Block *block = aligned_alloc(ALIGNMENT, whole);
  if (!block) return NO_MEMORY;
  block->bytes = bytes;
  block->device = device;
  used[device] += bytes;
  memset(block + 1, 0xFF, bytes < POISONED ? bytes : POISONED);
  *pointer = block + 1;
  return OK;
}
int aclrtMallocAlign32(void **pointer, size_t bytes, int policy) {
  return aclrtMalloc(pointer, bytes, policy);
}
int aclrtFree(void *pointer) {
  if (!pointer) return OK;
  Block *block = (Block *)pointer - 1;
  used[block->device] -= block->bytes;
  memset(pointer, 0xFF, block->bytes < POISONED ? block->bytes : POISONED);
  free(block);
  return OK;
}
int aclrtMallocHost(void **pointer, size_t bytes) {
  *pointer = aligned_alloc(64, (bytes + 127) / 64 * 64);
  return *pointer ? OK : NO_MEMORY;
}
int aclrtFreeHost(void *pointer) {
  free(pointer);
  return OK;
}
int aclrtGetMemInfo(int kind, size_t *free_bytes, size_t *total_bytes) {
  *total_bytes = memory_bytes();
  *free_bytes = *total_bytes - used[here()];
  return OK;
}
int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind) {
  if (bytes > room) return BAD_ARGUMENT;
  if (ascend_double_capturing()) return NOT_IN_CAPTURE;
  memmove(to, from, bytes);
  return OK;
}
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream) {
  return aclrtMemcpy(to, room, from, bytes, kind);
}
int aclrtMemset(void *to, size_t room, int32_t value, size_t bytes) {
  if (bytes > room) return BAD_ARGUMENT;
  memset(to, value, bytes);
  return OK;
}
int aclrtMemsetAsync(void *to, size_t room, int32_t value, size_t bytes, void *stream) {
  return aclrtMemset(to, room, value, bytes);
}

static int waited(void) { return ascend_double_capturing() ? NOT_IN_CAPTURE : OK; }

/* Streams: a stream is its number, and always empty. */
int aclrtCreateStream(void **stream) {
  int *made = malloc(sizeof(int));
  *made = ++last_stream;
  *stream = made;
  return OK;
}
int aclrtCreateStreamWithConfig(void **stream, uint32_t priority, uint32_t flags) {
  return aclrtCreateStream(stream);
}
int aclrtDestroyStream(void *stream) {
  free(stream);
  return OK;
}
int aclrtDestroyStreamForce(void *stream) { return aclrtDestroyStream(stream); }
int aclrtStreamGetId(void *stream, int32_t *id) {
  *id = stream ? *(int *)stream : 0;
  return OK;
}
int aclrtStreamQuery(void *stream, int *status) {
  *status = 0;
  return OK;
}
int aclrtSynchronizeStream(void *stream) { return waited(); }
int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t milliseconds) { return waited(); }
int aclrtSynchronizeDevice(void) { return waited(); }
int aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) { return waited(); }
int aclrtSetStreamFailureMode(void *stream, uint64_t mode) { return OK; }
int aclrtSetStreamOverflowSwitch(void *stream, uint32_t flag) { return OK; }
int aclrtGetStreamOverflowSwitch(void *stream, uint32_t *flag) {
  *flag = 0;
  return OK;
}

/* Events: what an event waits for has happened. */
int aclrtCreateEventExWithFlag(void **event, uint32_t flags) {
  *event = calloc(1, sizeof(Event));
  return *event ? OK : NO_MEMORY;
}
int aclrtCreateEventWithFlag(void **event, uint32_t flags) {
  return aclrtCreateEventExWithFlag(event, flags);
}
int aclrtDestroyEvent(void *event) {
  free(event);
  return OK;
}
int aclrtRecordEvent(void *event, void *stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  ((Event *)event)->milliseconds = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return OK;
}
int aclrtResetEvent(void *event, void *stream) { return OK; }
int aclrtSynchronizeEvent(void *event) { return waited(); }
int aclrtStreamWaitEvent(void *stream, void *event) { return OK; }
int aclrtQueryEventStatus(void *event, int *status) {
  *status = 1;
  return OK;
}
int aclrtQueryEventWaitStatus(void *event, int *status) {
  *status = 0;
  return OK;
}
int aclrtEventElapsedTime(float *milliseconds, void *start, void *end) {
  *milliseconds = (float)(((Event *)end)->milliseconds - ((Event *)start)->milliseconds);
  return OK;
}

/* Callbacks run at once. */
int aclrtSubscribeReport(uint64_t thread, void *stream) { return OK; }
int aclrtUnSubscribeReport(uint64_t thread, void *stream) { return OK; }
int aclrtLaunchCallback(void (*call)(void *), void *argument, int blocks, void *stream) {
  call(argument);
  return OK;
}
int aclrtLaunchHostFunc(void *stream, void (*call)(void *), void *argument) {
  call(argument);
  return OK;
}

/* Settings without an effect here. */
int aclrtSetDeviceSatMode(int mode) { return OK; }
int aclrtSetOpWaitTimeout(uint32_t seconds) { return OK; }
int aclrtSetOpExecuteTimeOut(uint32_t seconds) { return OK; }
int aclrtPeekAtLastError(int level) { return OK; }
int aclrtGetLastError(int level) { return OK; }
int aclrtSetSysParamOpt(int option, int64_t value) { return OK; }
int aclrtCtxSetSysParamOpt(int option, int64_t value) { return OK; }
int aclrtGetSysParamOpt(int option, int64_t *value) {
  *value = 0;
  return OK;
}
int aclrtCtxGetSysParamOpt(int option, int64_t *value) {
  *value = 0;
  return OK;
}
int aclSetCompileopt(int option, const char *value) { return OK; }
size_t aclGetCompileoptSize(int option) { return 16; }
int aclGetCompileopt(int option, char *value, size_t room) {
  if (room) value[0] = 0;
  return OK;
}
int aclopSetCompileFlag(int flag) { return OK; }
int aclGenGraphAndDumpForOp(void) { return OK; }
