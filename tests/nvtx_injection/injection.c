/* An NVTX tool for tests: it notes all that it is told, in order, for the process to read back.
 *
 * NVTX loads it as NVTX_INJECTION64_PATH names it. INJECTION_PUSH_RESULT is what a push answers
 * (else the depth, as some tools count it); INJECTION_QUIET=1 notes nothing, for measuring.
 *
 * Built with -DREFUSES it declines, with -DNO_ENTRY it has no entry point, with -DWITH_EXTENSION it
 * answers whether a domain is enabled: all but the one that INJECTION_DISABLED_DOMAIN names; and it
 * registers schemas of payloads, and copies the payloads that have one.
 */
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum kind {
  DOMAIN_CREATE,
  REGISTER,
  NAME_CATEGORY,
  PUSH,
  POP,
  MARK,
  START,
  END,
  SCHEMA,      /* id: the schema; category: its kind; color: its entries; payload: the last type */
  NAME_THREAD, /* id: the thread */
  NAME_STREAM  /* id: the stream */
};

struct event {
  int32_t kind;
  uint32_t tid;
  const char* domain; /* null: a call without one */
  const char* text;
  int32_t message_type;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  uint32_t unused;
  uint64_t payload; /* of an array: its schema */
  uint64_t id;
  uint64_t size; /* of an array, in bytes */
  const uint8_t* bytes;
};

struct text {
  const char* domain;
  char* text;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* In blocks that never move: a process may read while it is told more. */
enum { BLOCK = 1024, BLOCKS = 65536 };
static struct event* blocks[BLOCKS];
static size_t count;
static int quiet, push_result, has_push_result;
static uint64_t last_range;
static __thread int depth;

static struct event* add(enum kind kind, nvtxDomainHandle_t domain) {
  struct event** block = &blocks[count / BLOCK];
  if (count / BLOCK == BLOCKS) abort();
  if (!*block) *block = calloc(BLOCK, sizeof **block);
  if (!*block) abort();
  struct event* event = &(*block)[count++ % BLOCK];
  event->kind = kind;
  event->tid = (uint32_t)syscall(SYS_gettid);
  event->domain = (const char*)domain; /* a domain's handle is its name */
  return event;
}

static void note(enum kind kind, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a,
                 uint64_t id) {
  if (quiet) return;
  pthread_mutex_lock(&mutex);
  struct event* event = add(kind, domain);
  event->id = id;
  if (a) {
    event->category = a->category;
    event->color_type = a->colorType;
    event->color = a->color;
    event->payload_type = a->payloadType;
    event->payload = a->payload.ullValue;
    if (a->payloadType == NVTX_PAYLOAD_TYPE_EXT && a->reserved0 == 1) {
      const nvtxPayloadData_t* data = (const nvtxPayloadData_t*)(uintptr_t)a->payload.ullValue;
      uint8_t* copy = malloc(data->size ? data->size : 1);
      memcpy(copy, data->payload, data->size);
      event->payload = data->schemaId;
      event->size = data->size;
      event->bytes = copy;
    }
    event->message_type = a->messageType;
    if (a->messageType == NVTX_MESSAGE_TYPE_ASCII) {
      event->text = strdup(a->message.ascii);
    } else if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
      const struct text* text = (const struct text*)a->message.registered;
      /* A text belongs to the domain in which it was registered. */
      event->text = text->domain == (const char*)domain ? text->text : "(of another domain)";
    }
  }
  pthread_mutex_unlock(&mutex);
}

static nvtxDomainHandle_t domain_create(const char* name) {
  char* handle = strdup(name);
  pthread_mutex_lock(&mutex);
  add(DOMAIN_CREATE, (nvtxDomainHandle_t)handle)->text = handle;
  pthread_mutex_unlock(&mutex);
  return (nvtxDomainHandle_t)handle;
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char* name) {
  struct text* text = malloc(sizeof *text);
  text->domain = (const char*)domain;
  text->text = strdup(name);
  pthread_mutex_lock(&mutex);
  add(REGISTER, domain)->text = text->text;
  pthread_mutex_unlock(&mutex);
  return (nvtxStringHandle_t)text;
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char* name) {
  pthread_mutex_lock(&mutex);
  struct event* event = add(NAME_CATEGORY, domain);
  event->category = category;
  event->text = strdup(name);
  pthread_mutex_unlock(&mutex);
}

static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a) {
  note(PUSH, domain, a, 0);
  return has_push_result ? push_result : depth++;
}

static int range_pop(nvtxDomainHandle_t domain) {
  note(POP, domain, NULL, 0);
  return has_push_result ? push_result : --depth;
}

static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a) {
  note(MARK, domain, a, 0);
}

static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a) {
  const uint64_t id = __atomic_add_fetch(&last_range, 1, __ATOMIC_RELAXED);
  note(START, domain, a, id);
  return id;
}

static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) { note(END, domain, NULL, id); }

static void name_thread(uint32_t thread, const char* name) {
  pthread_mutex_lock(&mutex);
  struct event* event = add(NAME_THREAD, NULL);
  event->id = thread;
  event->text = strdup(name);
  pthread_mutex_unlock(&mutex);
}

static void name_stream(void* stream, const char* name) {
  pthread_mutex_lock(&mutex);
  struct event* event = add(NAME_STREAM, NULL);
  event->id = (uint64_t)(uintptr_t)stream;
  event->text = strdup(name);
  pthread_mutex_unlock(&mutex);
}

#ifndef NO_ENTRY
static void put(NvtxFunctionTable table, unsigned size, unsigned id, void (*function)(void)) {
  if (id < size && table[id]) *table[id] = (NvtxFunctionPointer)function;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
#ifdef REFUSES
  (void)get;
  (void)put;
  return 0;
#else
  const NvtxExportTableCallbacks* callbacks = get(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  put(table, size, NVTX_CBID_CORE2_DomainCreateA, (void (*)(void))domain_create);
  put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, (void (*)(void))register_string);
  put(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, (void (*)(void))name_category);
  put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, (void (*)(void))range_push);
  put(table, size, NVTX_CBID_CORE2_DomainRangePop, (void (*)(void))range_pop);
  put(table, size, NVTX_CBID_CORE2_DomainMarkEx, (void (*)(void))mark);
  put(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, (void (*)(void))range_start);
  put(table, size, NVTX_CBID_CORE2_DomainRangeEnd, (void (*)(void))range_end);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
    put(table, size, NVTX_CBID_CORE_NameOsThreadA, (void (*)(void))name_thread);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDA, &table, &size))
    put(table, size, NVTX_CBID_CUDA_NameCuStreamA, (void (*)(void))name_stream);
  const char* result = getenv("INJECTION_PUSH_RESULT");
  has_push_result = result != NULL;
  push_result = result ? atoi(result) : 0;
  quiet = getenv("INJECTION_QUIET") != NULL;
  return 1;
#endif
}
#endif

#ifdef WITH_EXTENSION
static uint8_t domain_is_enabled(nvtxDomainHandle_t domain) {
  const char* disabled = getenv("INJECTION_DISABLED_DOMAIN");
  return !disabled || !domain || strcmp((const char*)domain, disabled) != 0;
}

static uint64_t register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  static uint64_t last = NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START;
  pthread_mutex_lock(&mutex);
  struct event* event = add(SCHEMA, domain);
  const uint64_t id = event->id = ++last;
  event->category = (uint32_t)schema->type;
  event->color = (uint32_t)schema->numEntries;
  event->payload = schema->entries[schema->numEntries - 1].type;
  pthread_mutex_unlock(&mutex);
  return id;
}

EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount == 0) return 0;
  nvtxExtModuleSegment_t* segment = &module->segments[0];
  if (NVTX3EXT_CBID_nvtxDomainIsEnabled < segment->slotCount) {
    segment->functionSlots[NVTX3EXT_CBID_nvtxDomainIsEnabled] = (intptr_t)domain_is_enabled;
  }
  segment->functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)register_schema;
  return 1;
}
#endif

EXPORT size_t injection_count(void) { return count; }

EXPORT const struct event* injection_event(size_t index) {
  return &blocks[index / BLOCK][index % BLOCK];
}
