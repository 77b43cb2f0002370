/* The symbols that the libraries of vllm-xpu-kernels ask of PyTorch's XPU build, for a PyTorch without it.
 *
 * With them the libraries load beside a CPU build and register their schemas. Nothing can be computed: there
 * is no device, and every function but the count of devices says so and ends the process. Built twice: as
 * libc10_xpu.so, and with -DOF_TORCH as libtorch_xpu.so.
 */
#include <stdio.h>
#include <stdlib.h>

static void refuse(const char *name) {
  fprintf(stderr, "%s was called: there is no XPU here, only a library that lets the vendor's load\n", name);
  abort();
}

#define REFUSED(symbol, name) \
  void *symbol(void) { \
    refuse(name); \
    return NULL; \
  }

#ifdef OF_TORCH
REFUSED(_ZN2at3xpu19getDevicePropertiesEa, "at::xpu::getDeviceProperties")
#else
/* std::atomic<XPUAllocator *>: no allocator. */
void *_ZN3c103xpu19XPUCachingAllocator9allocatorE = NULL;

/* c10::xpu::device_count(): none. */
signed char _ZN3c103xpu12device_countEv(void) { return 0; }

REFUSED(_ZN3c103xpu10set_deviceEa, "c10::xpu::set_device")
REFUSED(_ZN3c103xpu14current_deviceEv, "c10::xpu::current_device")
REFUSED(_ZN3c103xpu14get_raw_deviceEa, "c10::xpu::get_raw_device")
REFUSED(_ZN3c103xpu18get_device_contextEv, "c10::xpu::get_device_context")
REFUSED(_ZN3c103xpu19getCurrentXPUStreamEa, "c10::xpu::getCurrentXPUStream")
REFUSED(_ZN3c103xpu19syncStreamsOnDeviceEa, "c10::xpu::syncStreamsOnDevice")
REFUSED(_ZN3c103xpu28device_count_ensure_non_zeroEv, "c10::xpu::device_count_ensure_non_zero")
REFUSED(_ZNK3c103xpu9XPUStream5queueEv, "c10::xpu::XPUStream::queue")
REFUSED(_ZNK3c103xpu9XPUStream8priorityEv, "c10::xpu::XPUStream::priority")
#endif
