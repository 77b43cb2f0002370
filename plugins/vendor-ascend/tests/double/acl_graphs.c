/* Graphs of the double: which one is being captured, and who replays it.
 *
 * What is enqueued during a capture is recorded above the dispatcher (tests/double/recording.py),
 * which asks here whether there is one, and is called here when a graph is executed. As on the
 * device, nothing may wait and nothing may come from the host while a capture goes on.
 */
#include <stdint.h>
#include <stdlib.h>

enum { OK = 0, NOT_CAPTURING = 107027, NO_HOOK = 207000 };

typedef struct {
  int id;
} Graph;

static Graph *active;
static int last_id;
static void (*replay)(int);
static void (*forget)(int);

/* For Python: the graph that is being captured, 0 without one; and what replays and drops one. */
int ascend_double_capturing(void) { return active ? active->id : 0; }
void ascend_double_hooks(void (*on_replay)(int), void (*on_forget)(int)) {
  replay = on_replay;
  forget = on_forget;
}

int aclmdlRICaptureBegin(void *stream, int mode) {
  active = malloc(sizeof(Graph));
  active->id = ++last_id;
  return OK;
}
int aclmdlRICaptureGetInfo(void *stream, int *status, void **graph) {
  *status = active ? 1 : 0;
  if (graph) *graph = active;
  return OK;
}
int aclmdlRICaptureEnd(void *stream, void **graph) {
  if (!active) return NOT_CAPTURING;
  *graph = active;
  active = 0;
  return OK;
}
int aclmdlRICaptureThreadExchangeMode(int *mode) { return OK; }
int aclmdlRIExecuteAsync(void *graph, void *stream) {
  if (!replay) return NO_HOOK;
  replay(((Graph *)graph)->id);
  return OK;
}
int aclmdlRIDestroy(void *graph) {
  if (forget) forget(((Graph *)graph)->id);
  free(graph);
  return OK;
}
int aclmdlRIGetId(void *graph, uint32_t *id) {
  *id = (uint32_t)((Graph *)graph)->id;
  return OK;
}
